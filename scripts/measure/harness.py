"""What the measurements share: tables, time and memory of a turn, and folders that resume."""

import ctypes
import gc
import statistics
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from hf_gpt.files import check_settings, read_json, write_json


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    return "\n".join(
        f"| {' | '.join(cells)} |" if cells else "|---" * len(header) + "|" for cells in (header, (), *rows)
    )


def spread(values: Collection[float], digits: int = 3) -> str:
    """The median and, of several, in brackets the lowest and the highest."""
    brackets = f" ({min(values):.{digits}f} to {max(values):.{digits}f})" if len(values) > 1 else ""
    return f"{statistics.median(values):.{digits}f}{brackets}"


def seconds(turn: Callable[[], object], device: str = "cpu") -> float:
    """Seconds of a turn: on a GPU as they pass, on a CPU those of this process's threads, whatever else runs there."""
    if device == "cpu":
        start = time.process_time()
        turn()
        return time.process_time() - start
    torch.cuda.synchronize()
    start = time.perf_counter()
    turn()
    torch.cuda.synchronize()
    return time.perf_counter() - start


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


def keep_settings(folder: Path, settings: Mapping[str, Any]) -> None:
    """Make a study's folder and write its settings there; a `ValueError` where it holds one of other settings."""
    file = folder / "settings.json"
    if file.is_file():
        check_settings(folder, read_json(file), settings)
    folder.mkdir(parents=True, exist_ok=True)
    write_json(file, settings)
