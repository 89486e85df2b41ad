"""`python scripts/generate.py --help`; the command itself is hf_gpt/commands/generate.py."""

from quick_start import quick_start

quick_start(__name__)

from hf_gpt.commands.generate import main

if __name__ == "__main__":
    main()
