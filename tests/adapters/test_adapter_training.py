"""`--adaptation`: what a run leaves behind, how it is loaded, refusals."""

import json
import re
import shutil
from pathlib import Path

import pytest
import torch
from huggingface_hub import ModelCard

from hf_gpt import GPTTokenizer, load_adapter
from hf_gpt.adapters import HEAD_CONFIG, METHODS, merge_adapter, virtual_tokens
from hf_gpt.evaluation import EvaluationArguments, evaluate
from hf_gpt.tasks import get_task
from hf_gpt.training.arguments import DataArguments, ModelArguments
from hf_gpt.training.finetune import remove_earlier_results

from ..support.runs import REPOSITORY, finetune, predictions, training_lines

# peft 0.21 asks transformers 5.23 under an old name.
pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")

FLAGS = ["--task", "questions", "--max_train_rows", "52", "--max_eval_rows", "12", "--learning_rate", "1e-2"]
FLAGS += ["--per_device_train_batch_size", "8"]


@pytest.fixture(scope="module")
def train(tiny_checkpoint):
    """`train(output, *flags)`: a run on questions from the tiny model."""
    return lambda output, *flags: finetune(
        "--model_name_or_path", tiny_checkpoint, "--output_dir", output, *FLAGS, *flags
    )


@pytest.fixture(scope="module")
def lora_run(train, tmp_path_factory) -> tuple[Path, dict]:
    output = tmp_path_factory.mktemp("lora") / "out"
    return output, train(output, "--adaptation", "lora")


def assert_predicts_what_was_written(model, output: Path) -> None:
    lines = (REPOSITORY / "hf_gpt/tasks/data/questions.jsonl").read_text(encoding="utf-8").splitlines()
    texts = {row["id"]: row["text"] for row in map(json.loads, lines)}
    written = predictions(output)
    tokenizer = GPTTokenizer.from_pretrained(output)
    inputs = tokenizer([texts[row["id"]] for row in written], padding=True, return_tensors="pt")
    with torch.no_grad():
        probabilities = model(**inputs).logits.softmax(-1)
    names = [name for name in written[0] if name.startswith("p(")]
    expected = torch.tensor([[float(row[name]) for name in names] for row in written])
    torch.testing.assert_close(probabilities, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("method", [*sorted(set(METHODS) - {"lora"}), "lora --use_dora true"])
def test_a_run_with_each_method(method, train, tmp_path):
    record = train(tmp_path / "out", "--adaptation", *method.split())
    assert record["adaptation"] == method.split()[0]
    assert 0 < record["trained_parameters"] < 30_000
    assert_predicts_what_was_written(load_adapter(tmp_path / "out"), tmp_path / "out")


def test_a_run_with_lora_and_its_card(lora_run, tiny_checkpoint, monkeypatch, capsys):
    output, record = lora_run
    names = {path.name for path in output.iterdir() if path.is_file()}
    assert {"adapter_config.json", "adapter_model.safetensors", HEAD_CONFIG, "README.md", "metrics.json"} <= names
    assert not names & {"config.json", "model.safetensors", "training_args.bin"}
    model = load_adapter(output)
    assert model.active_peft_config.base_model_name_or_path == str(tiny_checkpoint)
    assert list(model.config.id2label.values()) == list(get_task("questions").label_names)
    assert_predicts_what_was_written(model, output)
    assert len(training_lines(output / f"checkpoint-{record['steps']}")) == 7
    card = ModelCard.load(output / "README.md")
    assert (card.data.library_name, "lora" in card.data.tags) == ("peft", True)
    assert "An adapter (`lora`, with the head of the task) for the original GPT `model`" in card.text
    assert "| trained parameters |" in card.text
    monkeypatch.chdir(output)
    exec(re.search(r"```python\n(.*?)```", card.text, re.DOTALL)[1], {})
    assert "tensor([[" in capsys.readouterr().out


def measure(model: Path, output: Path, task: str = "questions", rows: int = 12, **options) -> dict:
    """`scripts/evaluate_task.py` in this process; options go to `EvaluationArguments`."""
    return evaluate(
        ModelArguments(str(model)),
        DataArguments(task=task, max_eval_rows=rows),
        EvaluationArguments(output_dir=str(output), use_cpu=True, disable_tqdm=True, **options),
    )


def test_an_adapter_is_measured_as_after_training(lora_run, tiny_checkpoint, tmp_path):
    """By itself, merged, or with its base model somewhere else; the numbers are those of the run."""
    output, record = lora_run
    assert measure(output, tmp_path / "a")["metrics"] == record["metrics"]["test"]
    assert predictions(tmp_path / "a") == predictions(output)
    assert measure(output, tmp_path / "b", split="validation")["metrics"] == record["metrics"]["validation"]
    merge_adapter(load_adapter(output)).save_pretrained(tmp_path / "merged")
    GPTTokenizer.from_pretrained(output).save_pretrained(tmp_path / "merged")
    assert measure(tmp_path / "merged", tmp_path / "c")["metrics"] == record["metrics"]["test"]
    moved = Path(shutil.copytree(output, tmp_path / "moved"))
    settings = json.loads((moved / "adapter_config.json").read_text())
    (moved / "adapter_config.json").write_text(json.dumps(settings | {"base_model_name_or_path": "elsewhere"}))
    with pytest.raises(ValueError, match=r"no base model elsewhere.*base_model="):
        measure(moved, tmp_path / "d")
    assert measure(moved, tmp_path / "d", base_model=str(tiny_checkpoint))["metrics"] == record["metrics"]["test"]


def test_a_prefix_is_measured_as_after_training(train, tmp_path):
    """The stories are longer than the context that the virtual tokens leave: they are truncated as in training."""
    output, flags = tmp_path / "out", ("--task", "stories", "--max_train_rows", 16, "--max_eval_rows", 24)
    flags += ("--adaptation", "prefix", "--adapter_size", 30)
    with pytest.raises(ValueError, match="context of 34"):
        train(output, *flags, "--max_length", 35)
    record = train(output, *flags)
    assert record["trained_parameters"] == 30 * 2 * 2 * 32 + 33
    assert virtual_tokens(load_adapter(output)) == 30
    assert measure(output, tmp_path / "measured", "stories", 24)["metrics"] == record["metrics"]["test"]
    assert predictions(tmp_path / "measured") == predictions(output)


@pytest.mark.parametrize(
    ("is_adapter", "task", "settings", "message"),
    [
        (True, "stories", {}, "needs a GPTForMultipleChoice"),
        (True, "stories", {"zero_shot": True}, "adapter of a task head"),
        (False, "questions", {"base_model": "anything"}, "belongs to an adapter"),
    ],
)
def test_adapters_that_are_not_measured(is_adapter, task, settings, message, lora_run, tiny_checkpoint, tmp_path):
    with pytest.raises(ValueError, match=message):
        measure(lora_run[0] if is_adapter else tiny_checkpoint, tmp_path / "measured", task, **settings)
    assert not (tmp_path / "measured").exists()


@pytest.mark.parametrize(
    ("is_resumed", "flags", "message"),
    [
        (True, ["full"], "name its --adaptation"),
        (True, ["ia3"], "another .*peft_type"),
        (True, ["lora", "--adapter_size", "4"], "another .*r"),
        (False, ["prompt", "--adapter_size", "64"], "context of 64"),
    ],
)
def test_refusals_before_training(is_resumed, flags, message, lora_run, train, tmp_path):
    if is_resumed:
        flags = [*flags, "--resume_from_checkpoint", lora_run[0] / f"checkpoint-{lora_run[1]['steps']}"]
    with pytest.raises(ValueError, match=message):
        train(tmp_path / "out", "--adaptation", *flags)
    assert not (tmp_path / "out").exists()


def test_an_adapter_replaces_a_model(tmp_path):
    """Next to each other, one would be taken for the other."""
    left = ("config.json", "model.safetensors", "adapter_config.json", "adapter_model.safetensors", HEAD_CONFIG)
    for name in (*left, "notes.txt"):
        (tmp_path / name).write_text("{}")
    remove_earlier_results(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
