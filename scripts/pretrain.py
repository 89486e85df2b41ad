"""`python scripts/pretrain.py --help`; the command itself is hf_gpt/commands/pretrain.py."""

from quick_start import quick_start

quick_start(__name__)

from hf_gpt.commands.pretrain import main

if __name__ == "__main__":
    main()
