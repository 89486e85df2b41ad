"""OpenAI's release, stock `openai-gpt` and `gpt2`, and adapters to hf_gpt (`sources`), and back (`targets`)."""
