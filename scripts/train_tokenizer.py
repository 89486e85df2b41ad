"""`python scripts/train_tokenizer.py --help`; the command itself is hf_gpt/commands/train_tokenizer.py."""

from hf_gpt.__main__ import run

if __name__ == "__main__":
    run("train_tokenizer")
