"""`python scripts/surprisal.py --help`; the command itself is hf_gpt/commands/surprisal.py."""

from hf_gpt.__main__ import run

if __name__ == "__main__":
    run("surprisal")
