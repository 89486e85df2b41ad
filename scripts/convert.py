"""`python scripts/convert.py --help`; the command itself is hf_gpt/commands/convert.py."""

from hf_gpt.__main__ import run

if __name__ == "__main__":
    run("convert")
