"""`python scripts/train_tokenizer.py --help`; the command itself is hf_gpt/commands/train_tokenizer.py."""

from quick_start import quick_start

quick_start(__name__)

from hf_gpt.commands.train_tokenizer import main

if __name__ == "__main__":
    main()
