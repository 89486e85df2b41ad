"""
The commands of hf_gpt: `hf-gpt finetune ...`, `python -m hf_gpt finetune ...`, `accelerate launch -m hf_gpt ...`.
They are those of `scripts/`; in a name a hyphen is as good as an underscore, and its beginning will do.
"""

import sys
from importlib import import_module
from pathlib import Path

from . import __version__, commands


def main() -> None:
    """Run the command that is named first."""
    names = commands.summaries(Path(*commands.__path__))
    word = sys.argv[1] if len(sys.argv) > 1 else "--help"
    found = [name for name in names if name.startswith(word.replace("-", "_"))]
    if word in ("-h", "--help"):
        lines = [f"  {name.replace('_', '-'):18}{summary}" for name, summary in names.items()]
        print("usage: hf-gpt COMMAND [--flag value ...]\n", *lines, sep="\n")
        print("\nhf-gpt COMMAND --help lists its flags.")
    elif word == "--version":
        print(__version__)
    elif len(found) == 1:
        # What help texts and errors name.
        sys.argv[:2] = [f"hf-gpt {found[0].replace('_', '-')}"]
        run(found[0])
    else:
        guess = commands.nearest(word.replace("-", "_"), names, "hf-gpt").replace("_", "-")
        print(f"hf-gpt: there is no command {word}; {guess}", file=sys.stderr)
        sys.exit(2)


def run(name: str) -> None:
    """Import a command, a module of `hf_gpt.commands`, and run it."""
    commands.catch_signals()  # what is imported might catch an exception
    import_module(f"{commands.__name__}.{name}").main()


if __name__ == "__main__":
    main()
