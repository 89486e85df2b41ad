"""What the measurements share: tables, time and memory of a turn, fine-tuning runs, and folders that resume."""

import ctypes
import gc
import os
import statistics
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import transformers

from hf_gpt.commands import parse_arguments
from hf_gpt.files import check_settings, read_json, write_json, write_text
from hf_gpt.training.arguments import DataArguments, FineTuningArguments, ModelArguments

# Folders of data sets that do not have the name of their task.
FOLDERS = {"trec": "trec6", "ud_pos": "ud_english_ewt", "mnli_mismatched": "mnli"}
FOLDERS |= dict.fromkeys(("race_middle", "race_high"), "race")


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    first, *others = (f"| {' | '.join(cells)} |" for cells in (header, *rows))
    return "\n".join([first, "|---" * len(header) + "|", *others])


def shown(value: float | None, form: str) -> str:
    """A number as `form` formats it, or a dash where there is none."""
    return "-" if value is None else form.format(value)


def spread(values: Collection[float], digits: int = 3) -> str:
    """The median and, of several, in brackets the lowest and the highest."""
    brackets = f" ({min(values):.{digits}f} to {max(values):.{digits}f})" if len(values) > 1 else ""
    return f"{statistics.median(values):.{digits}f}{brackets}"


def machine(device: str = "cpu") -> dict[str, Any]:
    """What times depend on."""
    name = torch.cuda.get_device_name() if device == "cuda" else torch.cpu.get_capabilities()["cpu_name"]
    found = {"device": name, "clock": "wall" if device == "cuda" else "processor", "threads": torch.get_num_threads()}
    return found | {"cpus": os.cpu_count(), "torch": torch.__version__, "transformers": transformers.__version__}


def seconds(turn: Callable[[], object], device: str = "cpu") -> float:
    """Seconds of a turn: on a GPU as they pass, on a CPU those of this process's threads, whatever else runs there."""
    on_gpu = device == "cuda"
    wait, clock = (torch.cuda.synchronize, time.perf_counter) if on_gpu else (lambda: None, time.process_time)
    wait()
    start = clock()
    turn()
    wait()
    return clock() - start


def peak_memory(turn: Callable[[], object], device: str = "cpu") -> int:
    """Bytes by which a turn raises the peak memory of a GPU or of this process; one before it loads the code."""
    gc.collect()
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        turn()
        return torch.cuda.max_memory_allocated() - before
    ctypes.CDLL(None).malloc_trim(0)  # what was freed would be taken again, and not be counted
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins here
    before = _resident("VmRSS")
    turn()
    return _resident("VmHWM") - before


def _resident(entry: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(entry))


def finetune_arguments(settings: Mapping[str, Any]) -> tuple[Any, ...]:
    """Arguments of `hf_gpt.training.finetune.run` from names and values of flags; `None` leaves one out."""
    flags = []
    for name, value in settings.items():
        if value is not None:
            flags += [f"--{name}", *map(str, value if isinstance(value, list) else [value])]
    return parse_arguments((ModelArguments, DataArguments, FineTuningArguments), flags)


def remove_weights(folder: Path) -> None:
    """Delete the models of fine-tuning runs, of which a study keeps the figures."""
    for file in folder.rglob("model.safetensors"):
        file.unlink()


def keep_settings(folder: Path, settings: Mapping[str, Any]) -> None:
    """Make a study's folder and write its settings there; a `ValueError` where it holds one of other settings."""
    file = folder / "settings.json"
    if file.is_file():
        check_settings(folder, read_json(file), settings, "Name another --output_dir.")
    write_json(file, settings)


def write_results(folder: Path, results: Mapping[str, Any], tables: str) -> None:
    """Write what was measured so far, and its tables."""
    write_json(folder / "results.json", results)
    write_text(folder / "results.md", tables + "\n")
