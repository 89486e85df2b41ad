"""
OpenAI's release, stock `openai-gpt` and `gpt2`, and adapters to hf_gpt, and back.

`sources` reads and checks a checkpoint, `targets` writes one; `release` is OpenAI's own format.
"""
