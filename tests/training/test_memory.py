"""Training on many rows: memory does not grow with them."""

import random
import re
import time
from pathlib import Path

import pytest

from ..support.runs import start_run

# The tokenizer keeps words that it has seen, so a larger set must not have more of them.
WORDS = ("river", "mountain", "question", "which", "king", "number", "city", "long", "year", "small", "war", "water")


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc")
def test_ten_times_the_rows_take_no_more_memory(tiny_checkpoint, tmp_path):
    """
    10,000 rows against 100,000: reading, tokenizing, statistics, sampling, training and evaluation (of the tenth that
    is held out). The token trees of the larger set fill about 40 MB, which lie in the cache of `datasets`; what grows
    is a few numbers a row.
    """
    peaks, chance = [], random.Random(0)
    for rows in (10_000, 100_000):
        file, log = tmp_path / f"{rows}.csv", tmp_path / f"{rows}.log"
        texts = (" ".join(chance.choices(WORDS, k=chance.randint(6, 20))) for _ in range(rows))
        file.write_text("text,label\n" + "".join(f"{text},{chance.choice('AB')}\n" for text in texts))
        flags = ["--task", "custom", "--train_file", file, "--text_column", "text", "--max_steps", 60]
        flags += ["--output_dir", tmp_path / str(rows), "--per_device_train_batch_size", 32]
        flags += ["--eval_strategy", "steps", "--eval_steps", 60, "--save_strategy", "steps", "--save_steps", 60]
        process, peak = start_run(log, "--model_name_or_path", tiny_checkpoint, *flags), 0
        while process.is_alive():
            # What the process holds for itself; pages of mapped files are not counted.
            held = re.search(r"RssAnon:\s+(\d+) kB", Path(f"/proc/{process.pid}/status").read_text())
            peak = max(peak, int(held[1]) if held else 0)
            time.sleep(0.02)
        assert process.exitcode == 0, log.read_text()[-3000:]
        peaks.append(peak / 1024)
    print("MiB:", *map(round, peaks))
    assert peaks[1] - peaks[0] < 32
