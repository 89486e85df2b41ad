"""
What every command does before it imports the training stack, which takes seconds.

    python scripts/quick_start.py

writes the texts of `--help` and `--list_tasks`, scripts/help/*.txt, anew.
"""

import importlib
import io
import os
import signal
import sys
from contextlib import redirect_stdout, suppress
from importlib.metadata import version
from pathlib import Path
from types import FrameType

SCRIPTS = Path(__file__).resolve().parent
TEXTS = SCRIPTS / "help"
# Where what a flag prints is written: a function of the script's name.
FLAGS = {"--help": "{}.txt", "-h": "{}.txt", "--list_tasks": "{}_tasks.txt"}


def quick_start(module: str) -> None:
    """
    Answer `--help` and `--list_tasks` at once, have progress bars shown where work takes long only, and end with one
    line if the command is stopped while it imports.

    Args:
        module (`str`): the caller's `__name__`; nothing happens where it is not run but imported.
    """
    if module != "__main__":
        return
    words = [Path(sys.argv[0]).stem, *sys.argv[1:2]]
    script = " ".join(words) if (TEXTS / f"{'_'.join(words)}.txt").is_file() else words[0]
    for flag in sys.argv[1:]:
        text = saved_text(script, flag)
        if text is not None:
            print(text, end="")
            sys.exit(0)
    # tqdm reads it when it is imported.
    os.environ.setdefault("TQDM_DELAY", "3")
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stop)


def _stop(number: int, frame: FrameType | None) -> None:
    print(f"{Path(sys.argv[0]).name}: stopped before it began.", file=sys.stderr, flush=True)
    os._exit(128 + number)  # what is imported might catch an exception, and nothing has begun that wants an end


def saved_text(script: str, flag: str) -> str | None:
    """What a flag prints; nothing if it is another flag, or the text is of another version of transformers."""
    path = TEXTS / FLAGS.get(flag, "").format(script.replace(" ", "_"))
    if not path.is_file():
        return None
    text = path.read_text(encoding="utf-8")
    return text if "transformers " not in text or f"(transformers {version('transformers')})" in text else None


def live_text(script: str, flag: str) -> str:
    """
    What a flag of a script, or of its part (`analyze attention`), prints when everything is imported; what is saved
    must be equal.
    """
    printed, argv = io.StringIO(), sys.argv
    name, *words = script.split()
    sys.argv = [f"{name}.py", *words, flag]
    try:
        with redirect_stdout(printed), suppress(SystemExit):
            importlib.import_module(name).main()
    finally:
        sys.argv = argv
    return printed.getvalue()


def commands() -> list[str]:
    """The names of all scripts that are commands."""
    return sorted(path.stem for path in SCRIPTS.glob("*.py") if path != Path(__file__).resolve())


def helped() -> list[str]:
    """What has a help text: every command, and every analysis (`analyze attention`)."""
    analyses = (SCRIPTS.parent / "hf_gpt" / "commands" / "analyze").glob("[!_]*.py")
    return [*commands(), *sorted(f"analyze {path.stem}" for path in analyses)]


if __name__ == "__main__":
    TEXTS.mkdir(exist_ok=True)
    for script, flag in [*((script, "--help") for script in helped()), ("finetune", "--list_tasks")]:
        name = FLAGS[flag].format(script.replace(" ", "_"))
        (TEXTS / name).write_text(live_text(script, flag), encoding="utf-8")
