r"""
Look inside a model: what its parts attend to, hold, and are for. The first word says what is looked at.

    hf-gpt analyze attention --model_name_or_path gpt-mini --text "She ran." --output_dir outputs/attention
    hf-gpt analyze attention --help

Most take texts by --text or --file, and without them a dozen bundled sentences; agreement takes pairs of sentences,
and probe texts with labels. The output folder holds figures, each with its numbers as JSON next to it, and pages that
need nothing else.
"""

import sys
from importlib import import_module
from pathlib import Path

from ..files import output_folder
from . import command, nearest, parse_arguments, summaries

ANALYSES = summaries(Path(__file__).parents[1] / "analysis")
del ANALYSES["figures"]


@command()
def main() -> None:
    """Run the analysis that is named first: a module of `hf_gpt.analysis` with `Arguments` and `run(args)`."""
    program, what = Path(sys.argv[0]).name, sys.argv[1] if len(sys.argv) > 1 else "--help"
    if what in ("-h", "--help"):
        print(f"usage: {program} WHAT [--flag value ...]\n{__doc__}\nWHAT is one of\n")
        print("\n".join(f"  {name:12}{summary}" for name, summary in ANALYSES.items()))
        return
    if what not in ANALYSES:
        raise ValueError(f"there is no analysis {what}; {nearest(what, ANALYSES, program)}")
    module = import_module(f"hf_gpt.analysis.{what}")
    (args,) = parse_arguments((module.Arguments,), sys.argv[2:], module.__doc__, f"{program} {what}")
    with output_folder(args.folder):
        module.run(args)
    print(f"The result is in {args.folder}.")
