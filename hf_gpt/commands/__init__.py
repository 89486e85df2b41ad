"""
What a user types, one module a command; run by `scripts/`, `hf-gpt` and `python -m hf_gpt`.

Here stands what all share: flags with defaults from YAML, and errors and interruptions that end with one line.
transformers is imported inside functions, so that the list of commands and a mistyped one are answered at once.
"""

import ast
import difflib
import functools
import gc
import json
import os
import signal
import sys
import warnings
from argparse import SUPPRESS, ArgumentDefaultsHelpFormatter, ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NoReturn

_CONFIG_HELP = "YAML file of `name: value` lines, which flags override, or the name of a recipe, such as questions."
RESUME = "The same command with --resume_from_checkpoint last resumes from the last checkpoint."
# Bars are shown where work takes long only; tqdm reads it when it is imported.
os.environ.setdefault("TQDM_DELAY", "3")


def command(
    doc: str = "", *kinds: type, resume: str = "", check: Callable[[], None] = lambda: None, **settings: Any
) -> Callable[[Callable[..., Any]], Callable[[], Any]]:
    """
    Decorator of a command's `main`, which after a `check` gets what `parse_arguments` makes of its docstring, data
    classes, if there are some, and `settings`. A user's mistake ends with one line and exit status 2; Ctrl-C and
    SIGTERM, however often they come, with one line, which says how to resume (`resume`), and 130 or 143; any other
    error keeps its traceback.
    """

    def decorate(main: Callable[..., Any]) -> Callable[[], Any]:
        @functools.wraps(main)
        def run() -> Any:
            from transformers.utils import logging

            # The bar of every checkpoint's shards; the Trainer's own stays.
            logging.disable_progress_bar()
            arrived = catch_signals(resume, at_once=False)
            try:
                with warnings.catch_warnings():
                    # peft reads it of every model that it wraps.
                    warnings.filterwarnings("ignore", "`is_gradient_checkpointing` is deprecated", FutureWarning)
                    check()
                    return main(*(parse_arguments(kinds, doc=doc, **settings) if kinds else ()))
            except (Exception, KeyboardInterrupt) as error:
                # After a stop a process may fail because another one is gone already.
                if not arrived and not _is_for_the_user(error):
                    raise
                text = " ".join(str(error).split()) or type(error).__name__
            # Closes progress bars that only the error's frames held, so that nothing follows the line.
            gc.collect()
            if arrived:
                arrived.append(arrived[0])
                _print_stopped(arrived[0], resume)
                sys.exit(128 + arrived[0])
            print(f"{Path(sys.argv[0]).name}: {text}", file=sys.stderr, flush=True)
            sys.exit(2)

        return run

    return decorate


def catch_signals(resume: str = "", at_once: bool = True) -> list[int]:
    """
    Have SIGINT and SIGTERM end this process, not those that it forks, with one line: the first one, or, unless
    `at_once`, the second; the first is then noted in the list that is returned, and raises `KeyboardInterrupt`.
    """
    owner, arrived, last = os.getpid(), [], 1 if at_once else 2

    def stop(number: int, frame: Any) -> None:
        if os.getpid() != owner:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        arrived.append(number)
        if len(arrived) < last:
            raise KeyboardInterrupt
        if len(arrived) == last:
            _print_stopped(arrived[0], resume)
        os._exit(128 + arrived[0])

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    return arrived


def _print_stopped(number: int, resume: str) -> None:
    """The one line of a stopped process, in the first of several."""
    if os.environ.get("LOCAL_RANK", "0") == "0":
        # What was stopped may have left a bar, or ^C, in the terminal's line.
        line = f"\n{Path(sys.argv[0]).name}: stopped ({signal.Signals(number).name}). {resume}"
        print(line.rstrip(), file=sys.stderr, flush=True)


def _is_for_the_user(error: BaseException) -> bool:
    """Whether an error is a user's mistake, or the network's."""
    from httpx import HTTPError
    from huggingface_hub.errors import RevisionResolutionError, StrictDataclassError
    from yaml import YAMLError

    expected = (ValueError, OSError, YAMLError, StrictDataclassError, HTTPError, RevisionResolutionError)
    return isinstance(error, expected)


def summaries(folder: Path) -> dict[str, str]:
    """The commands, or analyses, of a folder: name and first line of the docstring; nothing is imported."""
    modules = {path.stem: ast.parse(path.read_text("utf-8")) for path in sorted(folder.glob("[!_]*.py"))}
    return {name: ast.get_docstring(module).splitlines()[0] for name, module in modules.items()}


def nearest(word: str, names: Iterable[str], program: str) -> str:
    """A guess at what was meant by an unknown name, in an error of `program`."""
    near = difflib.get_close_matches(word, names, n=1)
    return f"did you mean {near[0]}?" if near else f"{program} --help lists all."


def parse_arguments(
    kinds: Sequence[type], argv: list | None = None, doc: str = "", prog: str = "", common: str = "", **operands: str
) -> tuple[Any, ...]:
    """
    Parse flags, the fields of data classes, with defaults from the YAML file that `--config` names.

    `argv` are words, by default the command line, `doc` and `prog` the command's docstring and name, `operands` its
    positional arguments with their help; `common` names the flags of `--help` where `--help_all` shows the rest.
    Returns the positional arguments, then one instance per data class. A `ValueError` for flags and settings that are
    unknown or wrong, and for a file that cannot be read.
    """
    from transformers import HfArgumentParser

    argv = sys.argv[1:] if argv is None else argv
    prog = prog or Path(sys.argv[0]).name
    for kind in kinds:
        kind._argument_group_name = getattr(kind, "heading", kind.__doc__ or "").strip().splitlines()[0].rstrip(".")
    first = ArgumentParser(add_help=False, allow_abbrev=False)
    first.add_argument("--config", metavar="FILE", help=_CONFIG_HELP)
    settings = {"usage": " ".join([prog, *operands, "[--flag value ...]"]), "formatter_class": _HelpFormatter}
    parser = HfArgumentParser(kinds, description=doc.strip(), allow_abbrev=False, parents=[first], **settings)
    parser.error = first.error = _refuse
    if common:
        parser.add_argument("--help_all", action="help", help="Show all flags, the Trainer's own, too.")
        for action in () if "--help_all" in argv else parser._actions:
            action.help = action.help if action.dest in ("help", "help_all", "config", *common.split()) else SUPPRESS
    for name, text in operands.items():
        parser.add_argument(name, help=text)
    config = first.parse_known_args(argv)[0].config
    flags = [*(_flags_of(config, parser, prog) if config else []), *argv]
    if unknown := parser.parse_known_args(flags)[1]:
        word = next((word for word in unknown if word.startswith("-")), unknown[0]).partition("=")[0]
        known = [f"--{action.dest}" for action in parser._actions]
        raise ValueError(f"there is no flag {word}; {nearest(word, known, prog)}")
    try:
        *parsed, others = parser.parse_args_into_dataclasses(flags)
    except (TypeError, OverflowError, ImportError, RuntimeError) as error:  # only values have been looked at so far
        raise ValueError(str(error)) from error
    return (*(getattr(others, name) for name in operands), *parsed)


class _HelpFormatter(ArgumentDefaultsHelpFormatter, RawDescriptionHelpFormatter):
    """Descriptions as they are written; each flag under the first of its names, with its choices and its default."""

    def _format_action_invocation(self, action: Any) -> str:
        shown = super()._format_action_invocation(action).partition(", --")[0]
        return shown if action.choices else shown.split(" ")[0]

    def _get_help_string(self, action: Any) -> str | None:
        has_default = action.default not in (None, False, [])
        return super()._get_help_string(action) if has_default else action.help


def _refuse(message: str) -> NoReturn:
    """As argparse's error, without the usage of all flags."""
    raise ValueError(message)


def _flags_of(config: str, parser: ArgumentParser, prog: str) -> list[str]:
    """What a YAML file, or a recipe, says, as flags; later flags override earlier ones."""
    from ..files import RECIPES, read_yaml

    path, recipe = Path(config), RECIPES / f"{config}.yaml"
    path = recipe if recipe.is_file() and not path.is_file() else path
    names, flags = {action.dest for action in parser._actions}, []
    for name, value in read_yaml(path).items():
        if name not in names:
            raise ValueError(f"--config {path}: there is no setting {name}; {nearest(name, names, prog)}")
        if isinstance(value, list):
            flags += [f"--{name}", *map(str, value)]
        elif value is not None:
            # Joined, so that a value may begin with a hyphen.
            flags.append(f"--{name}={json.dumps(value) if isinstance(value, dict) else value}")
    return flags
