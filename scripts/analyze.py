"""`python scripts/analyze.py --help`; the command itself is hf_gpt/commands/analyze/."""

from quick_start import quick_start

quick_start(__name__)

from hf_gpt.commands.analyze import main

if __name__ == "__main__":
    main()
