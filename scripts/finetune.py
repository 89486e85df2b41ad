"""`python scripts/finetune.py --help`; the command itself is hf_gpt/commands/finetune.py."""

from hf_gpt.__main__ import run

if __name__ == "__main__":
    run("finetune")
