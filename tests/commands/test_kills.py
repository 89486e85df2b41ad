"""
Commands that are killed at random moments, and given again until they end, leave what one run leaves.

`HF_GPT_KILL_SEED=7 pytest -m slow tests/commands/test_kills.py` draws other moments.
"""

import multiprocessing
import os
import random
import shutil
import signal
import time
from pathlib import Path

import pytest

from ..support.runs import REPOSITORY, files_of, finish, run_command, start_run

pytestmark = pytest.mark.slow
BUNDLED = REPOSITORY / "hf_gpt" / "tasks" / "data"
SAME = "--output_dir OUT --use_cpu true --fast_float32 false"
RESUMED = f"{SAME} --resume_from_checkpoint last"
SMALL = f"--max_train_rows 60 --max_eval_rows 12 --learning_rate 1e-3 --per_device_train_batch_size 8 {RESUMED}"
MANY = f"--model_name_or_path MODEL --num_train_epochs 3 {SMALL}"
FINETUNE = f"finetune --task questions {MANY}"
COMMANDS = {
    "whole": f"{FINETUNE} --save_strategy steps --eval_strategy steps --save_steps 4 --eval_steps 4",
    "max_steps": f"{FINETUNE} --max_steps 13 --schedule warmup_constant",
    **{method: f"{FINETUNE} --adaptation {method}" for method in ("lora", "houlsby", "prefix", "frozen")},
    "seeds": f"{FINETUNE} --seeds 2",
    "tasks": f"finetune --tasks questions stories {MANY}",
    "pretrain": f"pretrain --text_files {BUNDLED}/questions.jsonl --tokenizer MODEL --n_layer 2 --n_embd 32 "
    "--n_head 2 --n_positions 32 --max_steps 25 --learning_rate 1e-3 --per_device_train_batch_size 2 --save_steps 5 "
    f"--eval_steps 5 --schedule warmup_constant {RESUMED}",
    "features": f"extract_features --model_name_or_path MODEL --input_files {BUNDLED}/questions.jsonl "
    f"--rows_per_shard 20 {SAME}",
    "convert": "convert MODEL OUT --to openai-gpt --overwrite",
}


def contents(folder: Path) -> dict[str, object]:
    """Numbers of every JSON file, and the bytes of every array and prediction; the rest names folders and times."""
    kinds = {".json", ".safetensors", ".parquet", ".tsv"}
    found = {name: content for name, content in files_of(folder).items() if Path(name).suffix in kinds}
    return {name: content for name, content in found.items() if Path(name).name != "trainer_state.json"}


@pytest.mark.parametrize("name", COMMANDS)
def test_killed_runs_end_as_one_that_was_not(name, tiny_checkpoint, tmp_path):
    """A conversion leaves, whenever it is killed, the old folder or the new one, or none between two renames."""
    chance = random.Random(f"{name} {os.environ.get('HF_GPT_KILL_SEED', 0)}")
    log, output, reference = tmp_path / "log", tmp_path / "killed" / "out", tmp_path / "whole" / "out"

    def start(output: Path) -> multiprocessing.Process:
        words = {"MODEL": tiny_checkpoint, "OUT": output}
        return start_run(log, *[words.get(word, word) for word in COMMANDS[name].split()], function=run_command)

    # The process that all are forked from imports everything once, so their times are those of their work.
    finish(start_run(log, "--version", function=run_command), log)
    begin = time.monotonic()
    finish(start(reference), log)
    whole, expected = time.monotonic() - begin, contents(reference)
    if name == "convert":
        shutil.copytree(reference, output)
    kills = 0
    for _ in range(8):
        begin = time.monotonic()
        process = start(output)
        process.join(chance.uniform(0.2, 0.9) * whole)
        process.kill()
        process.join()
        kills += process.exitcode == -signal.SIGKILL
        assert name != "convert" or not output.exists() or contents(output) == expected
        if process.exitcode == 0:  # quicker than the whole run before, as machines are less busy at times
            whole = min(whole, time.monotonic() - begin)
            shutil.rmtree(output)
    finish(start(output), log)
    print(f"{name}: {kills} kills")
    assert kills, "every run ended before its kill"
    assert contents(output) == expected
    assert [path.name for path in output.parent.iterdir()] == ["out"]
