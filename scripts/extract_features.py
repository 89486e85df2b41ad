"""`python scripts/extract_features.py --help`; the command itself is hf_gpt/commands/extract_features.py."""

from hf_gpt.__main__ import run

if __name__ == "__main__":
    run("extract_features")
