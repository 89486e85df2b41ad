"""`python scripts/push_to_hub.py --help`; the command itself is hf_gpt/commands/push_to_hub.py."""

from hf_gpt.__main__ import run

if __name__ == "__main__":
    run("push_to_hub")
