"""
What a user types, one module a command; run by `scripts/`, `hf-gpt` and `python -m hf_gpt`.

Here stands what all share: flags with defaults from YAML, and errors and interruptions that end with one line.
transformers is imported inside functions, so that the list of commands and a mistyped one are answered at once.
"""

import ast
import dataclasses
import difflib
import functools
import gc
import json
import os
import signal
import sys
import time
import warnings
from argparse import ArgumentDefaultsHelpFormatter, ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from pkgutil import iter_modules
from typing import Any, NoReturn

REPOSITORY = Path(__file__).resolve().parents[2]
# Settings whose value is a file or folder to read, or several, or NAME=FOLDER.
_PATHS = {"model_name_or_path", "tokenizer_name", "tokenizer", "base_model", "data_dir", "data_dirs", "text_files"}
_PATHS |= {"train_file", "validation_file", "validation_files", "test_file", "input_files", "file", "pairs", "compare"}
_PATHS |= {"other", "mask", "classifier", "multiple_choice", "tagger", "fill_mask", "question_answering"}
_CONFIG_HELP = (
    "YAML file of defaults, `name: value` lines, which flags override. A relative path in it that is not in the "
    "working directory is looked for next to the file, then in the repository."
)
# Bars are shown where work takes long only; tqdm reads it when it is imported.
os.environ.setdefault("TQDM_DELAY", "3")


def command(resume: str = "") -> Callable[[Callable[[], None]], Callable[[], None]]:
    """
    Decorator of a command's `main`: a user's mistake ends with one line and exit status 2; Ctrl-C and SIGTERM, however
    often they come, with one line, which says how to resume where that is possible (`resume`), and 130 or 143; any
    other error keeps its traceback. Bars and warnings that concern only developers are not shown.
    """

    def decorate(main: Callable[[], None]) -> Callable[[], None]:
        @functools.wraps(main)
        def run() -> None:
            from transformers.utils import logging

            # The bar of every checkpoint's shards; the Trainer's own stays.
            logging.disable_progress_bar()
            arrived: list[int] = []
            before = _interrupt_by_signals(arrived, resume)
            try:
                with warnings.catch_warnings():
                    # peft reads it of every model that it wraps.
                    warnings.filterwarnings("ignore", "`is_gradient_checkpointing` is deprecated", FutureWarning)
                    return main()
            except (Exception, KeyboardInterrupt) as error:
                # After a stop a process may fail because another one is gone already.
                stop = arrived[0] if arrived else signal.SIGINT if isinstance(error, KeyboardInterrupt) else None
                if stop is None and not _is_for_the_user(error):
                    raise
                text = " ".join(str(error).split()) or type(error).__name__
            finally:
                for number, handler in before.items() if not arrived else ():
                    signal.signal(number, handler)
            # Closes progress bars that only the error's frames held, so that nothing follows the line.
            gc.collect()
            if stop is not None:
                _end_stopped(stop, resume)
            _print_line(text, is_error=True)
            sys.exit(2)

        return run

    return decorate


def _on_stop(action: Callable[[int], Any]) -> dict[int, Any]:
    """Have SIGINT and SIGTERM call an action with their number; returns the handlers of before."""
    return {
        number: signal.signal(number, lambda arrived, frame: action(arrived))
        for number in (signal.SIGINT, signal.SIGTERM)
    }


def _interrupt_by_signals(arrived: list[int], resume: str) -> dict[int, Any]:
    """
    The first SIGINT or SIGTERM, noted in `arrived`, raises `KeyboardInterrupt` in this process, not in those that it
    forks; a second one ends it at once.
    """
    owner = os.getpid()

    def stop(number: int) -> None:
        if os.getpid() != owner:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        arrived.append(number)
        if len(arrived) > 1:
            _end_stopped(arrived[0], resume, at_once=True)
        raise KeyboardInterrupt

    return _on_stop(stop)


def exit_when_stopped() -> None:
    """Until a command has been imported, SIGINT and SIGTERM end the process at once: there is nothing to finish."""
    _on_stop(lambda number: _end_stopped(number, at_once=True))  # what is imported might catch an exception


def _end_stopped(number: int, resume: str = "", at_once: bool = False) -> NoReturn:
    """Print the one line of a stopped process and end; signals that follow print nothing further."""
    _on_stop(lambda later: None)
    _print_line(f"stopped ({signal.Signals(number).name}). {resume}".strip())
    if at_once:
        os._exit(128 + number)
    _on_stop(lambda later: os._exit(128 + number))
    sys.exit(128 + number)


def _is_for_the_user(error: BaseException) -> bool:
    """Whether an error is a user's mistake, or the network's: what libraries raise for these, besides OSError."""
    from httpx import HTTPError
    from huggingface_hub.errors import EntryNotFoundError, RevisionResolutionError, StrictDataclassError
    from yaml import YAMLError

    errors = (ValueError, OSError, YAMLError, HTTPError, EntryNotFoundError, RevisionResolutionError)
    return isinstance(error, (*errors, StrictDataclassError))


def _print_line(text: str, is_error: bool = False) -> None:
    """Print a line with the program's name in the first of several processes; an error is reported to a launcher."""
    line = f"{Path(sys.argv[0]).name}: {text}"
    # torchrun's, and so accelerate's: the launcher's report of the failure ends with what stands there.
    report = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if os.environ.get("LOCAL_RANK", "0") == "0" or (is_error and not report):
        # What was stopped may have left a bar, or ^C, in the terminal's line.
        print(line if is_error else f"\n{line}", file=sys.stderr, flush=True)
    if is_error and report:
        Path(report).write_text(json.dumps({"message": line, "timestamp": int(time.time())}), encoding="utf-8")


def summaries(folder: Path) -> dict[str, str]:
    """The commands, or analyses, of a folder: name and first line of the docstring; nothing is imported."""
    found = {}
    for module in iter_modules([str(folder)]):
        source = folder / module.name / "__init__.py" if module.ispkg else folder / f"{module.name}.py"
        found[module.name] = (ast.get_docstring(ast.parse(source.read_text(encoding="utf-8"))) or "").splitlines()[0]
    return found


def nearest(word: str, names: Iterable[str], program: str) -> str:
    """A guess at what was meant by an unknown name, in an error of `program`."""
    near = difflib.get_close_matches(word, names, n=1)
    return f"did you mean {near[0]}?" if near else f"{program} --help lists all."


def shown(document: str, program: str) -> str:
    """A command's docstring, which shows the script, as that of the program that runs: `hf-gpt` has the same mains."""
    name = " ".join(program.split()[:2])
    script = name.removeprefix("hf-gpt ").replace("-", "_")
    return document.replace(f"python scripts/{script}.py", name).strip()


def parse_arguments(
    dataclass_types: Sequence[type],
    argv: Sequence[str] | None = None,
    description: str = "",
    prog: str | None = None,
    groups: dict[str, Sequence[str]] | None = None,
    positional: dict[str, str] | None = None,
) -> tuple[Any, ...]:
    """
    Parse flags, with defaults from the YAML file that `--config` names.

    Args:
        dataclass_types (sequence of `type`): their fields are the flags.
        argv (sequence of `str`, *optional*): what to parse, without the program's name; by default the command line.
        description, prog (`str`, *optional*): the command's docstring and name.
        groups (`dict`, *optional*): titles and flags of the groups that stand first in the help text.
        positional (`dict`, *optional*): positional arguments and their help.

    Returns:
        One instance per dataclass, and a namespace if there are positional arguments.

    Raises:
        ValueError: for flags and settings that are unknown or wrong, and for a file that cannot be read.
        SystemExit: after `--help`.
    """
    from transformers import HfArgumentParser

    argv = list(sys.argv[1:] if argv is None else argv)
    prog = prog or Path(sys.argv[0]).name
    usage = " ".join([prog, *(positional or {}), "[--flag value ...]"])
    settings = {"usage": usage, "description": shown(description, prog), "formatter_class": _HelpFormatter}
    parser = HfArgumentParser(dataclass_types, allow_abbrev=False, **settings)
    first = ArgumentParser(add_help=False, allow_abbrev=False)
    for each in (parser, first):
        each.error = _refuse
        each.add_argument("--config", metavar="FILE", help=_CONFIG_HELP)
    for name, text in (positional or {}).items():
        parser.add_argument(name, help=text)
    _set_groups(parser, dataclass_types, groups or {})
    config = first.parse_known_args(argv)[0].config
    flags = [*([] if config is None else _flags_of(Path(config), parser, prog)), *argv]
    if unknown := parser.parse_known_args(flags)[1]:
        word = next((word for word in unknown if word.startswith("-")), unknown[0]).partition("=")[0]
        guess = nearest(word.lstrip("-").replace("-", "_"), [action.dest for action in parser._actions], prog)
        raise ValueError(f"there is no flag {word}; {guess.replace('mean ', 'mean --')}")
    try:
        parsed = parser.parse_args_into_dataclasses(flags)
    except (TypeError, OverflowError, ImportError, RuntimeError) as error:  # only values have been looked at so far
        raise ValueError(str(error)) from error
    return parsed if positional else parsed[: len(dataclass_types)]


class _HelpFormatter(ArgumentDefaultsHelpFormatter, RawDescriptionHelpFormatter):
    """Descriptions as they are written, and each flag under the first of its names."""

    def _format_action_invocation(self, action: Any) -> str:
        return super()._format_action_invocation(action).partition(", --")[0]


def _refuse(message: str) -> NoReturn:
    """Not argparse's, which prints the usage of all flags."""
    raise ValueError(message)


def _set_groups(parser: ArgumentParser, kinds: Sequence[type], first: dict[str, Sequence[str]]) -> None:
    """Group the flags in the help text: those named first, ours by data class, and the Trainer's own last."""
    trainers = {
        item.name
        for kind in kinds
        for base in kind.__mro__
        if base.__name__ == "TrainingArguments"
        for item in dataclasses.fields(base)
    }
    named = {title: set(names) for title, names in first.items()}
    for kind in kinds:
        names = {item.name for item in dataclasses.fields(kind)}
        named[(kind.__doc__ or "").strip().splitlines()[0].rstrip(".")] = names - trainers
    named["The Trainer's own"] = trainers
    groups = {title: parser.add_argument_group(title) for title in named}
    _, options, *_ = parser._action_groups
    for action in list(options._group_actions):
        for title in [title for title, names in named.items() if action.dest in names][:1]:
            options._group_actions.remove(action)
            groups[title]._group_actions.append(action)


def _flags_of(path: Path, parser: ArgumentParser, prog: str) -> list[str]:
    """What a YAML file says, as flags; later flags override earlier ones."""
    from ..files import read_yaml

    actions = {action.dest: action for action in reversed(parser._actions)}
    flags = []
    for name, value in read_yaml(path).items():
        if name not in actions:
            raise ValueError(f"--config {path}: there is no setting {name}; {nearest(name, actions, prog)}")
        if isinstance(value, list) and actions[name].nargs != "+":
            raise ValueError(f"--config {path}: {name} is one value, not the list {value}.")
        items = value if isinstance(value, list) else [json.dumps(value) if isinstance(value, dict) else value]
        items = [_found_from(path, str(item)) if name in _PATHS else str(item) for item in items]
        if value is not None:
            # Joined, so that a value may begin with a hyphen.
            flags += [f"--{name}", *items] if isinstance(value, list) else [f"--{name}={items[0]}"]
    return flags


def _found_from(config: Path, value: str) -> str:
    """A path of a configuration: as it is, or next to the configuration, or in the repository, where it is there."""
    name, _, path = value.rpartition("=")  # NAME=FOLDER
    for folder in (Path(), config.parent, REPOSITORY):
        if os.path.exists(folder / path):  # of a text that is too long for a path, too
            return f"{name}={folder / path}" if name else str(folder / path)
    return value
