"""`python scripts/perplexity.py --help`; the command itself is hf_gpt/commands/perplexity.py."""

from quick_start import quick_start

quick_start(__name__)

from hf_gpt.commands.perplexity import main

if __name__ == "__main__":
    main()
