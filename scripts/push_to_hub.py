"""`python scripts/push_to_hub.py --help`; the command itself is hf_gpt/commands/push_to_hub.py."""

from quick_start import quick_start

quick_start(__name__)

from hf_gpt.commands.push_to_hub import main

if __name__ == "__main__":
    main()
