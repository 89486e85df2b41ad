"""
What a user types, one module a command; run by `scripts/`, `hf-gpt` and `python -m hf_gpt`.

Here stands what all share: flags with defaults from YAML, errors in one line, and a word on how to go on.
"""

import ast
import dataclasses
import difflib
import functools
import gc
import json
import os
import re
import signal
import sys
import textwrap
import time
import warnings
from argparse import ArgumentError, ArgumentParser
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from pkgutil import iter_modules
from types import FrameType
from typing import Any, NoReturn, get_origin

import httpx
import transformers
import yaml
from huggingface_hub.errors import EntryNotFoundError, RevisionResolutionError, StrictDataclassError
from transformers import HfArgumentParser, TrainingArguments

from ..files import read_yaml

REPOSITORY = Path(__file__).resolve().parents[2]
# What libraries raise for a user's mistake, besides ValueError and OSError.
_USER_ERRORS = (yaml.YAMLError, httpx.HTTPError, EntryNotFoundError, RevisionResolutionError, StrictDataclassError)
# Settings whose value is a file or folder to read, or several, or NAME=FOLDER.
_PATHS = {"model_name_or_path", "tokenizer_name", "tokenizer", "base_model", "data_dir", "data_dirs", "text_files"}
_PATHS |= {"train_file", "validation_file", "validation_files", "test_file", "input_files", "file", "pairs", "compare"}
_PATHS |= {"other", "mask", "classifier", "multiple_choice", "tagger", "fill_mask", "question_answering"}
# What other programs call our flags.
_SYNONYMS = {
    word: flag
    for flag, words in {
        "per_device_train_batch_size": "batch_size bs train_batch_size",
        "per_device_eval_batch_size": "eval_batch_size",
        "learning_rate": "lr",
        "num_train_epochs": "epochs num_epochs",
        "max_steps": "steps",
        "model_name_or_path": "model model_path model_name",
        "resume_from_checkpoint": "checkpoint resume",
        "output_dir": "output out save_dir",
        "overwrite_output_dir": "overwrite",
        "task": "dataset task_name",
        "max_length": "max_seq_length",
        "class_names": "labels label_names",
        "task_family": "family",
        "warmup": "warmup_ratio",
        "weight_decay": "wd",
    }.items()
    for word in words.split()
}
_NEGATIVE = re.compile(r"-(\d+\.?\d*|\.\d+)[eE][-+]?\d+|-inf|-nan")
_CONFIG_HELP = (
    "YAML file of defaults, `name: value` lines, which flags override. A relative path in it that is not in the "
    "working directory is looked for beside the file, then in the repository."
)
_VALUES = {bool: "true|false", int: "N", float: "X"}
_WIDTH, _COLUMN = 110, 34


def command(resume: str | None = None) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """
    Decorator of a script's `main`: a user's mistake ends with one line and exit status 2, Ctrl-C and SIGTERM with one
    line, which tells how to go on where that is possible (`resume`), and 130 or 143, and bars and warnings that
    concern only developers are not shown. Any other error keeps its traceback.
    """

    def decorate(main: Callable[[], None]) -> Callable[[], None]:
        @functools.wraps(main)
        def run() -> None:
            with _signals() as stopped, warnings.catch_warnings():
                # peft reads it of every model that it wraps.
                warnings.filterwarnings("ignore", "`is_gradient_checkpointing` is deprecated", FutureWarning)
                # The bar of every checkpoint's shards; the Trainer's own stays.
                transformers.utils.logging.disable_progress_bar()
                try:
                    return main()
                except (Exception, KeyboardInterrupt) as error:
                    # After a stop a process may fail because another one is gone already.
                    if stopped or isinstance(error, KeyboardInterrupt):
                        number = stopped[0] if stopped else signal.SIGINT
                        text, status = f"stopped ({signal.Signals(number).name}). {resume or ''}".strip(), 128 + number
                    elif isinstance(error, (ValueError, OSError, *_USER_ERRORS)):
                        text, status = " ".join(str(error).split()) or type(error).__name__, 2
                    else:
                        raise
                # Closes progress bars that only the error's frames held, so that nothing follows the line.
                gc.collect()
                _end(text, status)

        return run

    return decorate


@contextmanager
def _signals() -> Iterator[list[int]]:
    """Ctrl-C and SIGTERM interrupt this process, and not those that it forks; yields the signals that arrived."""
    arrived: list[int] = []
    owner = os.getpid()

    def stop(number: int, frame: FrameType | None) -> None:
        if os.getpid() != owner:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        arrived.append(number)
        raise KeyboardInterrupt

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield arrived
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end(text: str, status: int) -> NoReturn:
    """Print the line, in the first of several processes, and exit; an error is told to a launcher, too."""
    is_error = status == 2
    line = f"{Path(sys.argv[0]).name}: {text}"
    # torchrun's, and so accelerate's: the launcher's report of the failure ends with what stands there.
    report = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if os.environ.get("LOCAL_RANK", "0") == "0" or (is_error and not report):
        # What was stopped may have left a bar, or ^C, in the terminal's line.
        print(line if is_error else f"\n{line}", file=sys.stderr, flush=True)
    if is_error and report:
        Path(report).write_text(json.dumps({"message": line, "timestamp": int(time.time())}), encoding="utf-8")
    sys.exit(status)


def summaries(folder: Path) -> dict[str, str]:
    """The commands, or analyses, of a folder: name and first line of the docstring; nothing is imported."""
    found = {}
    for module in iter_modules([str(folder)]):
        source = folder / module.name / "__init__.py" if module.ispkg else folder / f"{module.name}.py"
        found[module.name] = (ast.get_docstring(ast.parse(source.read_text(encoding="utf-8"))) or "").splitlines()[0]
    return found


def nearest(word: str, names: Iterable[str], program: str) -> str:
    """A guess at what was meant by a name that there is not, in an error of `program`."""
    near = difflib.get_close_matches(word, names, n=1)
    return f"did you mean {near[0]}?" if near else f"{program} --help lists all."


def shown(document: str, program: str) -> str:
    """A command's docstring, which shows the script, as that of the program that runs: `hf-gpt` has the same mains."""
    name = " ".join(program.split()[:2])
    script = name.removeprefix("hf-gpt ").replace("-", "_")
    return document.replace(f"python scripts/{script}.py", name).strip()


def parse_arguments(
    dataclass_types: Sequence[type], argv: Sequence[str] | None = None, **description: Any
) -> tuple[Any, ...]:
    """
    Parse flags (`argv` is without the program's name), with defaults from the YAML file that `--config` names;
    `description` are further arguments of `CommandParser`, for its help text.

    Returns:
        One instance per dataclass, and a namespace if there are positional arguments.

    Raises:
        ValueError: for flags and settings that are unknown or wrong, and for a file that cannot be read.
        SystemExit: after `--help`.
    """
    return CommandParser(dataclass_types, **description).parse(sys.argv[1:] if argv is None else argv)


class CommandParser(HfArgumentParser):
    """
    `HfArgumentParser` with `--config`, guesses at what it does not know, and a help text: `groups` are titles and
    flags of the groups that stand first in it; what is in none stands behind them, by dataclass, and the Trainer's own
    flags last. `positional` are positional arguments with their help.
    """

    def __init__(
        self,
        dataclass_types: Sequence[type],
        description: str | None = None,
        prog: str | None = None,
        groups: dict[str, Sequence[str]] | None = None,
        positional: dict[str, str] | None = None,
    ):
        super().__init__(dataclass_types, description=description, prog=prog, allow_abbrev=False)
        self.groups, self.positional = groups or {}, positional or {}
        for name in self.positional:
            self.add_argument(name)
        self.add_argument("--config")
        self.fields = {item.name: item for kind in dataclass_types for item in dataclasses.fields(kind) if item.init}

    def parse(self, argv: Sequence[str]) -> tuple[Any, ...]:
        """See `parse_arguments`."""
        argv = list(_joined(argv))
        config = ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
        config.add_argument("--config")
        try:
            path = config.parse_known_args(argv)[0].config
        except ArgumentError as error:
            raise ValueError("--config needs the path of a YAML file.") from error
        flags = [*([] if path is None else self._flags_of(Path(path))), *argv]
        namespace, unknown = self.parse_known_args(flags)
        if unknown:
            word = next((word for word in unknown if word.startswith("-")), unknown[0])
            name = word.lstrip("-").partition("=")[0]
            self.error(f"there is no flag {word.partition('=')[0]}.{self._guess(name)}")
        values = vars(namespace)
        del values["config"]
        try:
            parsed = [
                kind(**{item.name: values.pop(item.name) for item in dataclasses.fields(kind) if item.init})
                for kind in self.dataclass_types
            ]
        except (TypeError, OverflowError, ImportError, RuntimeError) as error:
            # Nothing but the values of flags has been looked at so far.
            raise ValueError(str(error)) from error
        return (*parsed, namespace) if values else tuple(parsed)

    def error(self, message: str) -> NoReturn:
        """Not argparse's, which prints the usage of all flags."""
        raise ValueError(message)

    def _guess(self, name: str) -> str:
        name = name.replace("-", "_")
        near = [_SYNONYMS.get(name), *difflib.get_close_matches(name, [*self.fields, "config"], n=1)]
        known = [guess for guess in near if guess in self.fields or guess == "config"]
        return f" Did you mean --{known[0]}?" if known else " --help lists all flags."

    def _flags_of(self, path: Path) -> list[str]:
        """What a YAML file says, as flags; later flags override earlier ones."""
        if not path.is_file():
            raise ValueError(f"--config {path}: there is no such file.")
        try:
            values = read_yaml(path)
        except ValueError as error:
            raise ValueError(f"--config {error}") from error
        flags = []
        for key, value in values.items():
            if key not in self.fields:
                raise ValueError(f"--config {path}: there is no setting {key}.{self._guess(str(key))}")
            if value is None:
                continue
            if isinstance(value, list) and not _is_list(self.fields[key]):
                raise ValueError(f"--config {path}: {key} is one value, not the list {value}.")
            items = value if isinstance(value, list) else [json.dumps(value) if isinstance(value, dict) else value]
            if key in _PATHS:
                items = [_found_from(path, str(item)) for item in items]
            # Joined, so that a value may begin with a hyphen.
            flags += [f"--{key}", *map(str, items)] if isinstance(value, list) else [f"--{key}={items[0]}"]
        return flags

    def format_help(self) -> str:
        """The flags in groups, each with its kind of value, its help and its default."""
        # Of TrainingArguments also what we only have another default for.
        trainers = {item.name for item in dataclasses.fields(TrainingArguments)}
        groups: dict[str, list[str]] = {}
        grouped: set[str] = set()
        for title, names in self.groups.items():
            groups[title] = [name for name in names if name in self.fields.keys() - grouped]
            grouped |= set(names)
        for kind in self.dataclass_types:
            title = (kind.__doc__ or "").strip().splitlines()[0].rstrip(".")
            names = [item.name for item in dataclasses.fields(kind) if item.init and item.name not in grouped]
            if issubclass(kind, TrainingArguments):
                last = f"The Trainer's own (transformers {transformers.__version__})"
                groups |= {"Further": [name for name in names if name not in trainers]}
                groups |= {last: [name for name in names if name in trainers]}
            else:
                groups[title] = names
        lines = [f"usage: {self.prog} {''.join(f'{name} ' for name in self.positional)}[--flag value ...]"]
        lines += ["", shown(self.description or "", self.prog), ""]
        lines += [_entry(name, text) for name, text in self.positional.items()]
        lines.append(_entry("--config FILE", _CONFIG_HELP))
        for title, names in groups.items():
            if names:
                lines += ["", f"{title}:", *(_entry(*_described(self.fields[name])) for name in names)]
        return "\n".join(lines) + "\n"


def _joined(argv: Sequence[str]) -> Iterator[str]:
    """The command line with `--flag -1e-3` as `--flag=-1e-3`: argparse takes such a number for a flag."""
    argv, place = list(argv), 0
    while place < len(argv):
        word, following = argv[place], "".join(argv[place + 1 : place + 2])
        if word.startswith("--") and "=" not in word and _NEGATIVE.fullmatch(following):
            yield f"{word}={following}"
            place += 1
        else:
            yield word
        place += 1


def _found_from(config: Path, value: str) -> str:
    """A path of a configuration: as it is, or beside the configuration, or in the repository, where it is there."""
    name, _, path = value.rpartition("=")  # NAME=FOLDER
    for folder in (Path(), config.parent, REPOSITORY):
        if os.path.exists(folder / path):  # of a text that is too long for a path, too
            return f"{name}={folder / path}" if name else str(folder / path)
    return value


def _is_list(item: dataclasses.Field) -> bool:
    """Whether a setting has several values: by its type, of which the parser has taken None and other choices away."""
    return get_origin(item.type) is list


def _described(item: dataclasses.Field) -> tuple[str, str]:
    """A flag with its kind of value; its help with its default."""
    kinds = [kind for kind in getattr(item.type, "__args__", (item.type,)) if kind is not type(None)]
    choices = item.metadata.get("choices")
    if choices is None and isinstance(kinds[0], type) and issubclass(kinds[0], Enum):
        choices = [kind.value for kind in kinds[0]]
    value = "{" + ",".join(map(str, choices)) + "}" if choices else _VALUES.get(kinds[0], "TEXT")
    if _is_list(item):
        value += " ..."
    text = " ".join(str(item.metadata.get("help", "")).split())
    default = item.default if item.default_factory is dataclasses.MISSING else item.default_factory()
    if default is dataclasses.MISSING:
        text += " (required)"
    elif default is not None:
        default = default.value if isinstance(default, Enum) else default
        text += f" (default: {' '.join(map(str, default)) if isinstance(default, list) else default})"
    return f"--{item.name} {value}", text.strip()


def _entry(left: str, text: str) -> str:
    """A line or more: what to write, and what it does, in two columns."""
    lines = textwrap.wrap(text, _WIDTH - _COLUMN) or [""]
    if len(left) + 4 > _COLUMN:
        lines = ["", *lines]
    first = f"  {left}".ljust(_COLUMN)
    return "\n".join([(first + lines[0]).rstrip(), *(" " * _COLUMN + line for line in lines[1:])])
