"""`python scripts/extract_features.py --help`; the command itself is hf_gpt/commands/extract_features.py."""

from quick_start import quick_start

quick_start(__name__)

from hf_gpt.commands.extract_features import main

if __name__ == "__main__":
    main()
