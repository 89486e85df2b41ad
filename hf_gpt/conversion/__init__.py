"""
OpenAI's release and its GPT-2, stock `openai-gpt` and `gpt2`, joblib arrays and adapters to hf_gpt, and back.

`sources` reads and checks a checkpoint, `targets` writes one; `release` is OpenAI's own format.
"""
