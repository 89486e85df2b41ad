"""Fine-tuning from arguments to files: results, refusals, the paper's experiments."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from datasets import Dataset
from huggingface_hub import ModelCard
from safetensors.torch import load_file
from transformers import (
    AutoModelForCausalLM,
    AutoModelForMultipleChoice,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    pipeline,
)

from hf_gpt.commands import parse_arguments
from hf_gpt.evaluation import EvaluationArguments
from hf_gpt.loading import load_tokenizer
from hf_gpt.tasks import get_task
from hf_gpt.tasks.report import chance_level, chance_warning, describe_batches
from hf_gpt.training.arguments import ModelArguments, check_launch
from hf_gpt.training.loading import load_model

from ..support.runs import ARGUMENTS, REPOSITORY, finetune, training_lines


def write_csv(path: Path, rows: int = 24) -> Path:
    lines = [f"question number {index} about rivers,{'LOC' if index % 2 else 'NUM'}" for index in range(rows)]
    path.write_text("\n".join(["text,label", *lines]) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def questions_run(tiny_checkpoint, tmp_path_factory) -> tuple[Path, dict]:
    output = tmp_path_factory.mktemp("questions") / "out"
    record = finetune(
        *("--model_name_or_path", tiny_checkpoint, "--task", "questions", "--output_dir", output),
        *("--max_train_rows", 72, "--max_eval_rows", 40, "--per_device_train_batch_size", 16, "--learning_rate", 1e-3),
        *("--num_train_epochs", 2, "--save_total_limit", 5),
    )
    return output, record


def test_output_of_a_classification_run(questions_run):
    output, record = questions_run
    assert json.loads((output / "metrics.json").read_text()) == record
    assert record["steps"] == 10
    assert record["rows"] == {"train": 72, "validation": 40, "test": 40}
    assert set(record["metrics"]) == {"validation", "test"}
    lines = [line.split("\t") for line in (output / "predictions.tsv").read_text().splitlines()]
    assert lines[0] == ["id", "label", "prediction", *(f"p({name})" for name in get_task("questions").label_names)]
    assert len(lines) == 41
    assert all(sum(map(float, line[3:])) == pytest.approx(1, abs=1e-4) for line in lines[1:])
    right = np.mean([line[1] == line[2] for line in lines[1:]])
    assert right == pytest.approx(record["metrics"]["test"]["accuracy"])
    assert not list(output.glob("*.bin"))


def test_both_loss_terms_are_logged(questions_run):
    output, record = questions_run
    state = json.loads((output / f"checkpoint-{record['steps']}" / "trainer_state.json").read_text())
    lines = [line for line in state["log_history"] if "loss" in line]
    assert len(lines) == record["steps"]
    for line in lines:
        assert line["loss"] == pytest.approx(line["task_loss"] + 0.5 * line["lm_loss"], abs=1e-4)
    # The release's schedule: the first update has the rate 0.
    assert lines[0]["learning_rate"] == 0
    assert lines[1]["learning_rate"] == pytest.approx(1e-3 * 0.9)


def test_fine_tuned_model_predicts_through_a_pipeline(questions_run):
    output, _ = questions_run
    rows = [json.loads(line) for line in (REPOSITORY / "hf_gpt/tasks/data/questions.jsonl").read_text().splitlines()]
    texts = {row["id"]: row["text"] for row in rows}
    written = [line.split("\t") for line in (output / "predictions.tsv").read_text().splitlines()[1:]]
    classify = pipeline("text-classification", model=str(output), device="cpu")
    answers = [answer["label"] for answer in classify([texts[line[0]] for line in written])]
    assert answers == [line[2] for line in written]
    model = AutoModelForSequenceClassification.from_pretrained(output)
    assert model.config.problem_type == "single_label_classification"


def test_card_of_a_run(questions_run):
    output, record = questions_run
    card = ModelCard.load(output / "README.md")
    results = {(r.dataset_split, r.metric_type): r.metric_value for r in card.data.eval_results}
    assert results["test", "accuracy"] == pytest.approx(record["metrics"]["test"]["accuracy"], abs=1e-4)
    assert "random weights" not in card.text
    assert card.text.count("\n- ") >= 3


def test_multiple_choice_run_without_language_model(tiny_checkpoint, tmp_path):
    record = finetune(
        *("--model_name_or_path", tiny_checkpoint, "--task", "stories", "--output_dir", tmp_path / "out"),
        *("--max_train_rows", 24, "--max_eval_rows", 20, "--per_device_train_batch_size", 8, "--lm_coef", 0),
    )
    state = json.loads((tmp_path / "out" / f"checkpoint-{record['steps']}" / "trainer_state.json").read_text())
    lines = [line for line in state["log_history"] if "loss" in line]
    assert all("lm_loss" not in line and line["loss"] == pytest.approx(line["task_loss"]) for line in lines)
    model = AutoModelForMultipleChoice.from_pretrained(tmp_path / "out")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    encoded = tokenizer(["It rained."] * 2, ["She was wet.", "She was dry."], padding=True, return_tensors="pt")
    with torch.no_grad():
        logits = model(**{name: value.unsqueeze(0) for name, value in encoded.items()}).logits
    assert logits.shape == (1, 2)


def test_transfer_of_the_lowest_layers(tiny_checkpoint):
    """Embeddings and lowest blocks are the pretrained ones, upper blocks are new, the head does not depend on it."""
    spec, tokenizer = get_task("questions"), load_tokenizer(ModelArguments(str(tiny_checkpoint)))
    whole, one, none = (
        load_model(ModelArguments(str(tiny_checkpoint), transfer_layers=layers), spec, tokenizer, seed=3).state_dict()
        for layers in (None, 1, 0)
    )
    pretrained = load_file(tiny_checkpoint / "model.safetensors")
    for name, value in pretrained.items():
        matrix = value.ndim == 2
        kept = "embed" in name or ".h.0." in name
        assert torch.equal(whole[name], value)
        assert torch.equal(one[name], value) == (kept or not matrix)
        assert torch.equal(none[name], value) == ("embed" in name or not matrix)
    assert one["transformer.h.1.mlp.c_fc.weight"].std() == pytest.approx(0.02, rel=0.1)
    assert torch.equal(one["score.weight"], whole["score.weight"])
    again = load_model(ModelArguments(str(tiny_checkpoint), transfer_layers=1), spec, tokenizer, seed=3).state_dict()
    assert all(torch.equal(one[name], value) for name, value in again.items())


def test_configurations_of_the_experiments():
    """Every file parses, and says what its name says."""
    found = {}
    for path in sorted((REPOSITORY / "scripts/configs/experiments").glob("*.yaml")):
        types = ARGUMENTS if path.stem != "zero_shot" else (*ARGUMENTS[:-1], EvaluationArguments)
        model, data, training = parse_arguments(
            types, ["--config", str(path), "--output_dir", "out", "--use_cpu", "true"]
        )
        assert data.task or data.tasks
        chosen = training.zero_shot if path.stem == "zero_shot" else training.seeds
        found[path.stem] = (model.random_weights, model.lm_coef, model.transfer_layers, chosen)
    assert found["no_pretraining"][0]
    assert found["no_auxiliary_language_model"][1] == 0
    assert found["transfer_layers"][2] is not None
    assert found["five_seeds"][3] == 5
    assert found["zero_shot"][3]


def test_padding_of_the_batches():
    rows = Dataset.from_dict({"length": [2, 9, 2, 9, 2, 9]})
    text = describe_batches(rows, np.array([0, 2, 4, 1, 3, 5, 6]), batch_size=3)
    assert "batches of 3 rows a device are 0.0% padding" in text
    text = describe_batches(rows, np.array([0, 1, 2, 3, 4, 5]), batch_size=4)
    assert f"are {1 - 33 / 54:.1%} padding" in text


def test_tensorboard(tiny_checkpoint, tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    finetune(
        *("--model_name_or_path", tiny_checkpoint, "--task", "questions", "--output_dir", tmp_path / "out"),
        *("--max_train_rows", 16, "--max_eval_rows", 8, "--per_device_train_batch_size", 8),
        *("--report_to", "tensorboard"),
    )
    (folder,) = (tmp_path / "out" / "runs").iterdir()
    events = EventAccumulator(str(folder)).Reload()
    assert {"train/loss", "train/task_loss", "train/lm_loss", "eval/accuracy"} <= set(events.Tags()["scalars"])
    assert len(events.Scalars("train/lm_loss")) == 2


def test_custom_file_truncation_and_random_weights(tiny_checkpoint, tmp_path, capsys):
    file = write_csv(tmp_path / "train.csv")
    with file.open("a", encoding="utf-8") as stream:
        stream.write(f"{'river ' * 200},LOC\n")
    record = finetune(
        *("--model_name_or_path", tiny_checkpoint, "--task", "custom", "--train_file", file, "--text_column", "text"),
        *("--output_dir", tmp_path / "out", "--random_weights", "true", "--max_length", 16),
    )
    printed = capsys.readouterr().out
    assert "1 rows were truncated by 186 tokens in all" in printed
    assert re.search(r"First training example \(\d+\), label (LOC|NUM):", printed)
    assert printed.splitlines()[-1].startswith("model, card (README.md) and metrics.json are in")
    assert not (tmp_path / "out" / "predictions.tsv").exists()
    assert "_start_" in printed
    assert "_classify_" in printed
    assert "0 LOC (" in printed
    assert "rows a device are" in printed
    assert record["random_weights"]
    assert "random weights" in (tmp_path / "out" / "README.md").read_text()


def test_what_is_wrong_with_the_data_is_said_and_recorded(tiny_checkpoint, tmp_path, capsys):
    file = write_csv(tmp_path / "train.csv")
    record = finetune(
        *("--model_name_or_path", tiny_checkpoint, "--task", "custom", "--train_file", file, "--text_column", "text"),
        *("--output_dir", tmp_path / "out", "--max_steps", 1, "--test_file", file, "--validation_size", 4),
    )
    warning = "20 of the 24 test rows have texts that training rows have too"
    printed = capsys.readouterr().out
    assert f"WARNING: {warning}" in printed
    assert printed.index(warning) < printed.index("First training example")
    assert "metrics.json and predictions.tsv are in" in printed
    assert any(found.startswith(warning) for found in record["warnings"])
    assert warning in (tmp_path / "out" / "README.md").read_text()


REFUSALS = {
    "unknown task": (["--task", "trek"], "trec"),
    "no task": ([], "--list_tasks"),
    "unknown model": (["--task", "questions", "--model_name_or_path", "no/such"], "no/such"),
    "context": (["--task", "questions", "--max_length", "65"], "context of 64"),
    "missing folder": (["--task", "trec", "--data_dir", "nowhere"], "nowhere"),
    "checkpoint": (["--task", "questions", "--resume_from_checkpoint", "no/such"], "not a whole checkpoint"),
    "layers": (["--task", "questions", "--transfer_layers", "3"], "has 2 layers"),
    "no layers": (["--task", "questions", "--transfer_layers", "1", "--random_weights", "true"], "leave one out"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals_before_training(name, tiny_checkpoint, tmp_path):
    flags, message = REFUSALS[name]
    with pytest.raises((ValueError, FileNotFoundError, OSError), match=message):
        finetune("--output_dir", tmp_path / "out", "--model_name_or_path", tiny_checkpoint, *flags)
    assert not (tmp_path / "out").exists()


def test_output_folder_is_not_overwritten_unasked(tiny_checkpoint, tmp_path):
    output = tmp_path / "out"
    output.mkdir()
    (output / "notes.txt").write_text("mine")
    flags = [
        "--model_name_or_path",
        tiny_checkpoint,
        "--task",
        "questions",
        "--output_dir",
        output,
        "--max_train_rows",
        8,
    ]
    with pytest.raises(ValueError, match="--overwrite_output_dir"):
        finetune(*flags)
    (output / "checkpoint-999").mkdir()
    finetune(*flags, "--max_eval_rows", 8, "--overwrite_output_dir", "true")
    assert (output / "notes.txt").read_text() == "mine"
    assert not (output / "checkpoint-999").exists()
    assert (output / "model.safetensors").is_file()


def test_launches_that_would_do_something_else_are_refused(monkeypatch):
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    check_launch()
    with monkeypatch.context() as patch:
        patch.setattr(torch.cuda, "device_count", lambda: 2)
        with pytest.raises(ValueError, match="2 GPUs are visible"):
            check_launch()
        patch.setenv("LOCAL_RANK", "0")
        check_launch()
    with monkeypatch.context() as patch:
        patch.setenv("ACCELERATE_USE_FSDP", "true")
        patch.setattr(torch.accelerator, "is_available", lambda: False)
        with pytest.raises(ValueError, match="FSDP was asked for"):
            check_launch()
        patch.delenv("ACCELERATE_USE_FSDP")
        patch.setenv("ACCELERATE_MIXED_PRECISION", "bf16")
        with pytest.raises(ValueError, match="configured for GPUs"):
            check_launch()
    # What accelerate leaves in the environment after --cpu --num_processes 2.
    monkeypatch.setenv("ACCELERATE_USE_CPU", "True")
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    with pytest.raises(ValueError, match=r"two_cpu_processes\.yaml"):
        check_launch()


def test_tokenizer_of_another_model_is_refused(tiny_checkpoint, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(tiny_checkpoint, other)
    config = json.loads((other / "config.json").read_text())
    config["classify_token_id"] = 5
    (other / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="_classify_ is 5 in the model"):
        finetune("--model_name_or_path", other, "--task", "questions", "--output_dir", tmp_path / "out")


def test_chance_is_called_out():

    labels = Dataset.from_dict({"label": [0, 1] * 100})
    spec = get_task("questions")
    assert "cannot be told from chance (0.500" in chance_warning(spec, labels, labels, 0.56)
    assert chance_warning(spec, labels, labels, 0.6) is None
    assert "rows) after 3 updates: train on more rows, or for longer" in chance_warning(spec, labels, labels, 0.5, 3)
    # The most frequent training class is not among these few rows; any other answer would be right now and then.
    others = Dataset.from_dict({"label": [1, 2, 3]})
    assert chance_level(spec, labels, others) == pytest.approx(1 / 6)
    choices = Dataset.from_dict({"label": [0] * 200, "path_ends": [[3, 5]] * 200})
    assert chance_warning(get_task("stories"), choices, choices, 0.53)


def smoothed_run(tiny_model: Path, output: Path, *flags) -> list[dict[str, float]]:
    finetune(
        *("--model_name_or_path", tiny_model, "--task", "stories", "--output_dir", output, "--dropout", 0),
        *("--max_train_rows", 16, "--max_eval_rows", 8, "--learning_rate", 1e-2, "--num_train_epochs", 3),
        *("--schedule", "warmup_constant", "--max_grad_norm", 0, *flags),
    )
    state = json.loads((output / "checkpoint-3" / "trainer_state.json").read_text())
    return [line for line in state["log_history"] if "loss" in line]


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")  # of peft
@pytest.mark.parametrize("adaptation", ["full", "lora", "frozen"])
def test_smoothed_labels(tiny_checkpoint, tmp_path, adaptation):
    """The language-model term stays, and parts of a batch add up to the whole."""
    flags = ("--adaptation", adaptation, "--save_total_limit", 1, "--load_best_model_at_end", "false")
    smoothing = (*flags, "--label_smoothing_factor", 0.4, "--seed", 1)
    whole = smoothed_run(tiny_checkpoint, tmp_path / "whole", *smoothing, "--per_device_train_batch_size", 16)
    accumulated = ("--per_device_train_batch_size", 4, "--gradient_accumulation_steps", 4)
    parts = smoothed_run(tiny_checkpoint, tmp_path / "parts", *smoothing, *accumulated)
    plain = smoothed_run(tiny_checkpoint, tmp_path / "plain", *flags, "--seed", 1, "--per_device_train_batch_size", 16)
    assert len(whole) == len(parts) == 3
    for line, part in zip(whole, parts, strict=True):
        assert line["loss"] == pytest.approx(line["task_loss"] + 0.5 * line.get("lm_loss", 0), abs=1e-4)
        assert ("lm_loss" in line) == (adaptation != "frozen")
        assert part["loss"] == pytest.approx(line["loss"], abs=1e-3)
    assert whole[-1]["task_loss"] > plain[-1]["task_loss"] + 1e-3
    assert "label smoothing" in (tmp_path / "whole" / "README.md").read_text()


def test_rows_of_special_tokens_are_trained(questions_run, tiny_checkpoint, tmp_path):
    """
    A run with the language-model loss empties the list, also one that is resumed with no step left; and text of its
    language model holds no special token.
    """
    model = AutoModelForCausalLM.from_pretrained(tiny_checkpoint)
    specials = [model.config.start_token_id, model.config.delimiter_token_id, model.config.classify_token_id]
    model.config.untrained_token_ids = specials
    model.save_pretrained(tmp_path / "model")
    AutoTokenizer.from_pretrained(tiny_checkpoint).save_pretrained(tmp_path / "model")
    for coefficient, listed in ((0.5, None), (0, specials)):
        output = tmp_path / f"out-{coefficient}"
        flags = ["--model_name_or_path", tmp_path / "model", "--task", "questions", "--output_dir", output]
        flags += ["--max_train_rows", 16, "--max_eval_rows", 8, "--lm_coef", coefficient]
        finetune(*flags)
        config = (output / "config.json").read_bytes()
        (output / "metrics.json").unlink()
        finetune(*flags, "--resume_from_checkpoint", "last")
        assert (output / "config.json").read_bytes() == config
        loaded = AutoModelForCausalLM.from_pretrained(output)
        assert loaded.config.untrained_token_ids == listed
        assert set(specials) < set(loaded.generation_config.suppress_tokens)


def test_bfloat16_on_a_cpu_keeps_float32_weights_and_resumes(tiny_checkpoint, tmp_path):
    """Its losses are those of float32 to a hundredth, and a resumed run is the whole one, bit for bit."""
    flags = ["--task", "questions", "--max_train_rows", 64, "--max_eval_rows", 12, "--save_total_limit", 3]
    flags += ["--per_device_train_batch_size", 16, "--num_train_epochs", 3, "--model_name_or_path", tiny_checkpoint]
    lines = {}
    for name, more in {"float32": [], "bfloat16": ["--bf16", "true"]}.items():
        finetune(*flags, *more, "--output_dir", tmp_path / name)
        lines[name] = np.array(training_lines(tmp_path / name / "checkpoint-12"))
    np.testing.assert_allclose(lines["bfloat16"], lines["float32"], rtol=0.02)
    assert not np.array_equal(lines["bfloat16"], lines["float32"])
    weights = load_file(tmp_path / "bfloat16" / "checkpoint-12" / "model.safetensors")
    assert {weight.dtype for weight in weights.values()} == {torch.float32}
    resumed = tmp_path / "resumed"
    shutil.copytree(tmp_path / "bfloat16" / "checkpoint-4", resumed / "checkpoint-4")
    finetune(*flags, "--bf16", "true", "--output_dir", resumed, "--resume_from_checkpoint", "last")
    for name, weight in load_file(resumed / "checkpoint-12" / "model.safetensors").items():
        assert torch.equal(weight, weights[name]), name
