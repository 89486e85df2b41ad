"""`python scripts/inspect_text.py --help`; the command itself is hf_gpt/commands/inspect_text.py."""

from hf_gpt.__main__ import run

if __name__ == "__main__":
    run("inspect_text")
