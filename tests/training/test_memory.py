"""Training on many rows: memory does not grow with them."""

import random
import re
import time
from pathlib import Path

import pytest

from ..support.runs import save_tiny_model, start_run

MEBIBYTE = 2**20


# The tokenizer keeps words that it has seen, so a larger set must not have more of them.
WORDS = ("river", "mountain", "question", "which", "king", "number", "city", "long", "year", "small", "war", "water")


def write_rows(path: Path, rows: int) -> Path:
    chance = random.Random(0)
    with path.open("w", encoding="utf-8") as file:
        file.write("text,label\n")
        for _ in range(rows):
            file.write(f"{' '.join(chance.choices(WORDS, k=chance.randint(6, 20)))},{chance.choice('AB')}\n")
    return path


def peak_own_memory(process) -> int:
    """Highest number of bytes that a process holds for itself; pages of mapped files are not counted."""
    peak = 0
    status = Path(f"/proc/{process.pid}/status")
    while process.is_alive():
        try:
            peak = max(peak, int(re.search(r"RssAnon:\s+(\d+) kB", status.read_text())[1]) * 1024)
        except (OSError, TypeError):
            break
        time.sleep(0.02)
    process.join()
    return peak


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc")
def test_ten_times_the_rows_take_no_more_memory(tmp_path):
    """
    10,000 rows against 100,000: reading, tokenizing, statistics, sampling, training and evaluation (of the tenth that
    is held out). The token trees of the larger set fill about 40 MB, which lie in the cache of `datasets`; what grows
    is a few numbers a row.
    """
    model = save_tiny_model(tmp_path / "model")
    peaks = {}
    for rows in (10_000, 100_000):
        file, log = write_rows(tmp_path / f"{rows}.csv", rows), tmp_path / f"{rows}.log"
        process = start_run(
            *(log, "--model_name_or_path", model, "--task", "custom", "--train_file", file, "--text_column", "text"),
            *("--output_dir", tmp_path / f"out_{rows}", "--max_steps", 60, "--per_device_train_batch_size", 32),
            *("--eval_strategy", "steps", "--eval_steps", 60, "--save_strategy", "steps", "--save_steps", 60),
        )
        peaks[rows] = peak_own_memory(process)
        assert process.exitcode == 0, log.read_text()[-3000:]
        print(f"{rows:,} rows: {peaks[rows] / MEBIBYTE:.0f} MiB")
    assert peaks[100_000] - peaks[10_000] < 32 * MEBIBYTE
