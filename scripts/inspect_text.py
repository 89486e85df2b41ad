"""`python scripts/inspect_text.py --help`; the command itself is hf_gpt/commands/inspect_text.py."""

from quick_start import quick_start

quick_start(__name__)

from hf_gpt.commands.inspect_text import main

if __name__ == "__main__":
    main()
