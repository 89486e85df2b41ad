"""`--adaptation`: what a run leaves behind, how it is evaluated, refusals."""

import json
import shutil
from pathlib import Path

import pytest

from hf_gpt.adapters import HEAD_CONFIG, METHODS
from hf_gpt.training.finetune import remove_earlier_results

from ..support.runs import evaluation, predictions

FLAGS = ["--task", "questions", "--max_train_rows", 52, "--max_eval_rows", 12]
FLAGS += ["--learning_rate", 1e-2, "--per_device_train_batch_size", 8]


@pytest.fixture(scope="module")
def lora_run(train, tmp_path_factory) -> tuple[Path, dict]:
    output = tmp_path_factory.mktemp("lora") / "out"
    return output, train(output, *FLAGS, "--adaptation", "lora")


def measure(model: Path, output: Path, *flags) -> dict:
    flags = ["--task", "questions", "--max_eval_rows", 12, *flags]
    return evaluation("--model_name_or_path", model, "--output_dir", output, *flags)["metrics"]


@pytest.mark.parametrize("method", [*sorted(set(METHODS) - {"lora"}), "lora --use_dora true"])
def test_a_run_with_each_method(method, train, tmp_path):
    record = train(tmp_path / "out", *FLAGS, "--adaptation", *method.split())
    assert record["adaptation"] == method.split()[0]
    assert 0 < record["trained_parameters"] < 30_000
    assert measure(tmp_path / "out", tmp_path / "measured") == record["metrics"]["test"]
    assert predictions(tmp_path / "measured") == predictions(tmp_path / "out")


def test_an_adapter_is_measured_with_its_base_model_somewhere_else(lora_run, tiny_checkpoint, tmp_path):
    output, record = lora_run
    moved = Path(shutil.copytree(output, tmp_path / "moved"))
    settings = json.loads((moved / "adapter_config.json").read_text())
    (moved / "adapter_config.json").write_text(json.dumps(settings | {"base_model_name_or_path": "elsewhere"}))
    with pytest.raises(ValueError, match=r"no base model elsewhere.*base_model="):
        measure(moved, tmp_path / "b")
    found = measure(moved, tmp_path / "b", "--base_model", tiny_checkpoint, "--split", "validation")
    assert found == record["metrics"]["validation"]


def test_refusals(lora_run, train, tmp_path):
    """Of other tasks than that of the adapter's head, and of other adaptations from its checkpoint."""
    output, record = lora_run
    for flags, message in (
        (["--task", "stories"], "needs a GPTForMultipleChoice"),
        (["--task", "stories", "--zero_shot"], "adapter of a task head"),
    ):
        with pytest.raises(ValueError, match=message):
            measure(output, tmp_path / "out", *flags)
    resumed = ["--resume_from_checkpoint", output / f"checkpoint-{record['steps']}", "--adaptation"]
    for flags, message in (
        (["full"], "name its --adaptation"),
        (["ia3"], "another .*peft_type"),
        (["lora", "--adapter_size", 4], "another .*r"),
    ):
        with pytest.raises(ValueError, match=message):
            train(tmp_path / "out", *FLAGS, *resumed, *flags)
    assert not (tmp_path / "out").exists()


def test_an_adapter_replaces_a_model(tmp_path):
    """Next to each other, one would be taken for the other."""
    left = ("config.json", "model.safetensors", "adapter_config.json", "adapter_model.safetensors", HEAD_CONFIG)
    for name in (*left, "notes.txt"):
        (tmp_path / name).write_text("{}")
    remove_earlier_results(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
