"""
Commands that are killed at random moments, and given again until they end, leave what one run leaves.

`HF_GPT_KILL_SEED=7 pytest -m slow tests/commands/test_kills.py` draws other moments.
"""

import json
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
SAME = "--use_cpu true --fast_float32 false"
SMALL = f"--max_train_rows 60 --max_eval_rows 12 --learning_rate 1e-3 --per_device_train_batch_size 8 {SAME}"
FINETUNE = f"finetune --task questions --num_train_epochs 3 {SMALL}"
COMMANDS = {
    "whole": f"{FINETUNE} --save_strategy steps --eval_strategy steps --save_steps 4 --eval_steps 4",
    "max_steps": f"{FINETUNE} --max_steps 13 --schedule warmup_constant",
    "lora": f"{FINETUNE} --adaptation lora",
    "houlsby": f"{FINETUNE} --adaptation houlsby",
    "prefix": f"{FINETUNE} --adaptation prefix",
    "frozen": f"{FINETUNE} --adaptation frozen",
    "seeds": f"{FINETUNE} --seeds 2",
    "tasks": f"finetune --tasks questions stories --num_train_epochs 3 {SMALL}",
    "pretrain": "pretrain --n_layer 2 --n_embd 32 --n_head 2 --n_positions 32 --max_steps 25 --learning_rate 1e-3 "
    f"--per_device_train_batch_size 2 --save_steps 5 --eval_steps 5 --schedule warmup_constant {SAME}",
    "features": f"extract_features --input_files {BUNDLED}/questions.jsonl --rows_per_shard 20 {SAME}",
}


def start(log: Path, words: list) -> multiprocessing.Process:
    return start_run(log, *words, function=run_command)


def contents(folder: Path) -> dict[str, object]:
    """Numbers of every JSON file, and the bytes of every array and prediction; the rest names folders and times."""
    kinds = {".json", ".safetensors", ".parquet", ".tsv"}
    found = {name: content for name, content in files_of(folder).items() if Path(name).suffix in kinds}
    return {name: content for name, content in found.items() if Path(name).name != "trainer_state.json"}


@pytest.fixture(scope="module", autouse=True)
def imported(tmp_path_factory):
    """Processes are forked from one that has imported everything, so their times are those of their work."""
    log = tmp_path_factory.mktemp("imported") / "log"
    finish(start(log, ["--version"]), log)


@pytest.fixture
def chance(request) -> random.Random:
    """Other moments in every test, the same in every run of it."""
    return random.Random(f"{request.node.name} {os.environ.get('HF_GPT_KILL_SEED', 0)}")


@pytest.mark.parametrize("name", COMMANDS)
def test_killed_runs_end_as_one_that_was_not(name, tiny_checkpoint, tmp_path, chance):
    model = ["--model_name_or_path", tiny_checkpoint]
    if name == "pretrain":
        book = tmp_path / "book.txt"
        lines = [json.loads(line)["text"] for line in (BUNDLED / "questions.jsonl").open()]
        book.write_text("\n".join(lines), encoding="utf-8")
        model = ["--text_files", book, "--tokenizer", tiny_checkpoint]
    last = [] if name == "features" else ["--resume_from_checkpoint", "last"]
    command = [*COMMANDS[name].split(), *model, *last, "--output_dir"]
    log, output = tmp_path / "log", tmp_path / "killed" / "out"
    begin = time.monotonic()
    finish(start(log, [*command, tmp_path / "whole" / "out"]), log)
    whole = time.monotonic() - begin

    kills = 0
    for _ in range(8):
        begin = time.monotonic()
        process = start(log, [*command, output])
        process.join(chance.uniform(0.2, 0.9) * whole)
        process.kill()
        process.join()
        kills += process.exitcode == -signal.SIGKILL
        if process.exitcode == 0:  # quicker than the whole run before, as machines are less busy at times
            whole = min(whole, time.monotonic() - begin)
            shutil.rmtree(output)
    finish(start(log, [*command, output]), log)
    print(f"{name}: {kills} kills")
    assert kills, "every run ended before its kill"
    assert contents(output) == contents(tmp_path / "whole" / "out")


def test_a_killed_conversion_leaves_the_old_folder_or_the_new(tiny_checkpoint, tmp_path, chance):
    log, output = tmp_path / "log", tmp_path / "into" / "out"
    command = ["convert", tiny_checkpoint, output, "--to", "openai-gpt", "--overwrite"]
    begin = time.monotonic()
    finish(start(log, command), log)
    whole, before = time.monotonic() - begin, contents(output)
    kills = 0
    for _ in range(8):
        process = start(log, command)
        process.join(chance.uniform(0.1, 1) * whole)
        process.kill()
        process.join()
        kills += process.exitcode == -signal.SIGKILL
        # Between two renames there is none, which the next run mends.
        assert not output.exists() or contents(output) == before
    finish(start(log, command), log)
    assert kills
    assert contents(output) == before
    assert [path.name for path in output.parent.iterdir()] == ["out"]
