"""Several tasks on one transformer: which rows meet in a step, what the heads do, and what a run leaves behind."""

import copy
import json
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from datasets import Dataset
from safetensors.torch import load_file
from transformers import AutoModelForMultipleChoice, AutoModelForSequenceClassification, AutoTokenizer, pipeline

from hf_gpt.commands import parse_arguments
from hf_gpt.evaluation import EvaluationArguments, evaluate
from hf_gpt.model.modeling_gpt import GPTForMultipleChoice, GPTForSequenceClassification
from hf_gpt.training import finetune as fine_tuning
from hf_gpt.training.finetune import run
from hf_gpt.training.multi_task import MultiTaskModel
from hf_gpt.trees.collators import IGNORED_LABEL, LengthGroupedSampler, TokenTreeCollator, collate_trees
from hf_gpt.trees.mixture import MultiTaskRows, MultiTaskSampler
from hf_gpt.trees.token_tree import TokenTree

from ..support.runs import ARGUMENTS, assert_same, finetune, finish, launch_command, start_launch, training_lines
from ..support.tiny import CLASSIFY, DELIMITER, PAD, START, build_model

# Lengths of the rows of two tasks: 13 and 6 rows make 4 and 2 global batches of 4.
LENGTHS = [np.array([3, 9, 4, 8, 5, 7, 6, 3, 9, 4, 8, 5, 7]), np.array([2, 2, 9, 9, 2, 9])]
FLAGS = ["--use_cpu", "true", "--disable_tqdm", "true", "--logging_steps", "1", "--learning_rate", "1e-3"]
# 52 rows of each in global batches of 16: 4 steps of each an epoch, the last of each with 4 rows.
TASKS = ["--tasks", "stories", "questions", "--max_train_rows", "52", "--max_eval_rows", "20", *FLAGS]
TASKS += ["--num_train_epochs", "2", "--save_total_limit", "9"]
TASKS += ["--save_strategy", "steps", "--save_steps", "4", "--eval_strategy", "steps", "--eval_steps", "4"]
STEPS = 16


def finetune_tasks(*flags) -> dict:
    return run(*parse_arguments(ARGUMENTS, [*map(str, flags)]))


@pytest.fixture(scope="module")
def tasks_run(tiny_checkpoint, tmp_path_factory) -> tuple[Path, dict]:
    """Two tasks trained with dropout, one process that sees each global batch at once."""
    output = tmp_path_factory.mktemp("tasks") / "out"
    flags = ["--model_name_or_path", tiny_checkpoint, *TASKS, "--per_device_train_batch_size", 16]
    return output, finetune_tasks(*flags, "--output_dir", output)


# --- which rows meet in a step ---


def batches(sampler: MultiTaskSampler) -> np.ndarray:
    order = list(sampler)
    assert len(order) == len(sampler)
    return np.array(order).reshape(-1, sampler.batch_size)


def test_every_row_comes_once_an_epoch_in_batches_of_one_task():
    sampler = MultiTaskSampler(LENGTHS, batch_size=4, seed=1)
    orders = []
    for epoch in (0, 1, 1):
        sampler.set_epoch(epoch)
        orders.append(batches(sampler))
        # Rows of the first task, its filler, rows of the second, its filler.
        assert Counter(orders[-1].flatten().tolist()) == {
            **dict.fromkeys([*range(13), *range(14, 20)], 1),
            13: 3,
            20: 2,
        }
        is_second = orders[-1] >= 14
        assert (is_second.all(axis=1) == is_second.any(axis=1)).all()
        assert is_second.all(axis=1).sum() == sampler.batch_counts()[1] == 2
        assert sampler.batch_counts()[0] == 4
    assert (orders[1] == orders[2]).all()
    assert (orders[0] != orders[1]).any()


def test_batches_of_a_task_are_those_of_training_it_alone():
    alone = LengthGroupedSampler(LENGTHS[0], batch_size=4, seed=3, fillers=3)
    mixed = MultiTaskSampler(LENGTHS, batch_size=4, seed=3)
    for epoch in (0, 5):
        alone.set_epoch(epoch)
        mixed.set_epoch(epoch)
        ours = [np.minimum(batch, 13) for batch in batches(mixed) if batch[0] < 14]
        assert np.concatenate(ours).tolist() == np.minimum(list(alone), 13).tolist()


def test_cap_of_rows_goes_through_all_rows_in_later_epochs():
    sampler = MultiTaskSampler(LENGTHS, batch_size=4, seed=0, rows_cap=6)
    seen = []
    for epoch in range(3):
        sampler.set_epoch(epoch)
        order = batches(sampler).flatten()
        assert len(order) == len(sampler) == 16
        seen.append(set(order[order < 13].tolist()))
        assert len(seen[-1]) == 6
        assert set(order[(order >= 14) & (order < 20)].tolist()) == set(range(14, 20))
    # Two parts of six rows to a pass over the 13; then the next pass begins.
    assert not seen[0] & seen[1]
    assert seen[2] not in (seen[0], seen[1])
    with pytest.raises(ValueError, match="at least 1"):
        MultiTaskSampler(LENGTHS, batch_size=4, rows_cap=0)


def encoded_rows(label: int | float, count: int) -> Dataset:
    fields = {"position_ids": [0, 1], "subtree_end": [2, 2], "parent_index": [0, 0], "lm_weights": [0.0, 1.0]}
    rows = [{"input_ids": [START, index], "path_ends": [1], "label": label, **fields} for index in range(count)]
    return Dataset.from_list(rows)


def test_rows_of_several_tasks_and_their_fillers():
    rows = MultiTaskRows({"first": encoded_rows(1, 3), "second": encoded_rows(2.5, 2)})
    assert len(rows) == 7
    assert rows[0]["task"] == "first"
    batch = TokenTreeCollator(PAD)(rows.__getitems__([5, 4, 6, 6]))
    assert batch["task"] == "second"
    assert batch["input_ids"].tolist() == [[START, 1], [START, 0], [0, PAD], [0, PAD]]
    assert batch["labels"].tolist() == [2.5, 2.5, IGNORED_LABEL, IGNORED_LABEL]
    assert batch["lm_weights"].sum() == 2
    assert rows[3]["label"] == IGNORED_LABEL
    with pytest.raises(ValueError, match="one task, not of first, second"):
        rows.__getitems__([2, 4])


# --- what the heads do ---


def task_models(**overrides) -> dict:
    return {
        "choice": build_model(GPTForMultipleChoice, seed=1, **overrides),
        "class": build_model(GPTForSequenceClassification, seed=2, num_labels=3, **overrides),
    }


def task_batches() -> dict:
    trees = []
    for row in range(4):
        context = [START, row + 1, row + 2, DELIMITER]
        trees.append(TokenTree.from_paths([[*context, 3, CLASSIFY], [*context, 5, row + 4, CLASSIFY]]))
    texts = [TokenTree.from_paths([[START, *range(row + 2), CLASSIFY]]) for row in range(4)]
    return {
        "choice": {**collate_trees(trees, PAD), "labels": torch.tensor([0, 1, 1, 0])},
        "class": {**collate_trees(texts, PAD), "labels": torch.tensor([2, 0, 1, 1])},
    }


def test_a_step_is_that_of_the_single_task_model():
    """Loss, its terms and the gradients of a batch; the other head's gradients are there and zero."""
    alone = task_models()
    alone["class"].transformer.load_state_dict(alone["choice"].transformer.state_dict())
    shared = MultiTaskModel(copy.deepcopy(alone))
    for task, batch in task_batches().items():
        single = alone[task].train()
        expected = single(**batch)
        expected.loss.backward()
        outputs = shared.train()(task=task, **batch)
        outputs.loss.backward()
        for term in ("loss", "task_loss", "lm_loss", "logits"):
            assert torch.equal(outputs[term], expected[term]), term
        own = shared.task_models[task]
        for name, parameter in single.named_parameters():
            assert torch.equal(own.get_parameter(name).grad, parameter.grad), name
        unused = shared.unused_parameters(task)
        assert len(unused) == 2
        assert all(torch.equal(parameter.grad, torch.zeros_like(parameter)) for parameter in unused)
        shared.zero_grad()


def test_state_dict_holds_the_transformer_once():
    models = task_models()
    shared = MultiTaskModel(models)
    assert models["class"].transformer is models["choice"].transformer
    state = shared.state_dict()
    heads = {f"heads.{task}.score.{name}" for task in models for name in ("weight", "bias")}
    assert set(state) == heads | {f"transformer.{name}" for name in shared.transformer.state_dict()}
    assert len({value.data_ptr() for value in state.values()}) == len(state)
    for task, own in models.items():
        part = shared.state_of(task, state)
        assert part.keys() == own.state_dict().keys()
        assert all(torch.equal(value, own.state_dict()[name]) for name, value in part.items())


def test_models_of_the_tasks_follow_the_mode():
    shared = MultiTaskModel(task_models(clf_pdrop=0.5))
    batch = task_batches()["class"]
    shared.eval()
    assert shared(task="class", **batch).lm_loss is None
    assert torch.equal(shared(task="class", **batch).logits, shared(task="class", **batch).logits)
    shared.train()
    assert shared(task="class", **batch).lm_loss is not None
    assert not torch.equal(shared(task="class", **batch).logits, shared(task="class", **batch).logits)


def test_one_task_gives_the_bits_of_training_it_alone(tiny_checkpoint, tmp_path, monkeypatch):
    """With dropout, smoothed labels and an incomplete last batch: the same losses, parameters and predictions."""
    flags = ["--model_name_or_path", tiny_checkpoint, "--max_train_rows", 40, "--max_eval_rows", 20, *FLAGS]
    flags += ["--per_device_train_batch_size", 16, "--num_train_epochs", 2, "--label_smoothing_factor", 0.2]
    alone = finetune(*flags, "--task", "questions", "--output_dir", tmp_path / "alone")
    monkeypatch.setattr(
        fine_tuning, "tasks_of", lambda _, data, args: {"questions": replace(data, tasks=None, task="questions")}
    )
    record = finetune_tasks(*flags, "--tasks", "questions", "--output_dir", tmp_path / "tasks")["tasks"]["questions"]
    own = tmp_path / "tasks" / "questions"
    assert_same(own / "model.safetensors", tmp_path / "alone" / "model.safetensors", torch.equal)
    last = f"checkpoint-{alone['steps']}"
    assert training_lines(tmp_path / "tasks" / last) == training_lines(tmp_path / "alone" / last)
    assert (own / "predictions.tsv").read_text() == (tmp_path / "alone" / "predictions.tsv").read_text()
    assert {name: record[name] for name in ("metrics", "chance", "rows", "trained_parameters", "steps")} == {
        name: alone[name] for name in ("metrics", "chance", "rows", "trained_parameters", "steps")
    }


def test_a_head_moves_in_steps_of_its_own_task_only(tasks_run):
    output, _ = tasks_run
    state = torch.load(output / f"checkpoint-{STEPS}" / "optimizer.pt", weights_only=True)["state"]
    # Parameters are numbered in their order: the transformer's, then two for each head.
    steps = [state[number]["step"] for number in sorted(state)]
    assert steps == [STEPS] * (len(steps) - 4) + [STEPS // 2] * 4


# --- what a run leaves behind ---


def log_of(output: Path) -> list[dict]:
    return json.loads((output / f"checkpoint-{STEPS}" / "trainer_state.json").read_text())["log_history"]


def test_output_of_a_run(tasks_run):
    output, record = tasks_run
    assert json.loads((output / "metrics.json").read_text()) == record
    assert record["steps"] == STEPS
    assert not (output / "model.safetensors").exists()
    assert not (output / "unfinished").exists()
    for split in ("validation", "test"):
        main = [own["metrics"][split][own["main_metric"]] for own in record["tasks"].values()]
        assert record["metrics"][split]["task_mean"] == pytest.approx(np.mean(main))
    for task, other in (("questions", "stories"), ("stories", "questions")):
        own = json.loads((output / task / "metrics.json").read_text())
        assert own == record["tasks"][task]
        assert own["trained_with"] == [other]
        assert own["rows"] == {"train": 52, "validation": 20, "test": 20}
        assert len((output / task / "predictions.tsv").read_text().splitlines()) == 21
        card = (output / task / "README.md").read_text()
        assert f"| trained together with | {other} |" in card
        assert not list((output / task).glob("*.bin"))


def test_folders_of_the_tasks_are_ordinary_models(tasks_run, tmp_path):
    output, record = tasks_run
    first = AutoModelForSequenceClassification.from_pretrained(output / "questions")
    second = AutoModelForMultipleChoice.from_pretrained(output / "stories")
    for name, value in first.transformer.state_dict().items():
        assert torch.equal(value, second.transformer.state_dict()[name]), name
    assert first.config.id2label[0] == "ABBR"
    assert second.config.problem_type is None
    assert AutoTokenizer.from_pretrained(output / "stories").cls_token_id == second.config.classify_token_id
    assert pipeline("text-classification", model=str(output / "questions"), device="cpu")("who was he ?")
    for task in ("questions", "stories"):
        flags = ["--model_name_or_path", output / task, "--task", task, "--split", "validation", "--use_cpu", "true"]
        flags += ["--max_eval_rows", 20, "--disable_tqdm", "true", "--output_dir", tmp_path / task]
        types = (*ARGUMENTS[:-1], EvaluationArguments)
        measured = evaluate(*parse_arguments(types, [*map(str, flags)]))
        assert measured["metrics"] == record["tasks"][task]["metrics"]["validation"]


def test_log_of_a_run(tasks_run):
    """Both terms, the loss of the step's task, every task's metrics and their mean, which chooses the best."""
    output, record = tasks_run
    lines = [line for line in log_of(output) if "loss" in line]
    assert len(lines) == STEPS
    for line in lines:
        (name,) = [name for name in line if name.startswith("task_loss_")]
        assert line[name] == pytest.approx(line["task_loss"])
        assert line["loss"] == pytest.approx(line["task_loss"] + 0.5 * line["lm_loss"], abs=1e-4)
    assert sum("task_loss_stories" in line for line in lines) == STEPS // 2
    assert 1 < sum("task_loss_stories" in line for line in lines[:8]) < 7
    metrics = [line for line in log_of(output) if "eval_questions_accuracy" in line]
    others = [line for line in log_of(output) if "eval_stories_accuracy" in line]
    means = [line["eval_task_mean"] for line in log_of(output) if "eval_task_mean" in line]
    assert len(means) == STEPS // 4
    for first, second, mean in zip(metrics, others, means, strict=True):
        assert mean == pytest.approx((first["eval_questions_accuracy"] + second["eval_stories_accuracy"]) / 2)
    assert record["metrics"]["validation"]["task_mean"] == pytest.approx(max(means))


def test_loss_of_a_task_is_the_mean_over_its_own_steps(tasks_run, tiny_checkpoint, tmp_path):
    """With a line every 8 steps, that is once an epoch, of what the other run logs step by step."""
    flags = [
        "--model_name_or_path",
        tiny_checkpoint,
        *TASKS,
        "--per_device_train_batch_size",
        16,
        "--logging_steps",
        8,
    ]
    finetune_tasks(*flags, "--output_dir", tmp_path / "out")
    lines = [line for line in log_of(tasks_run[0]) if "loss" in line]
    epochs = [line for line in log_of(tmp_path / "out") if "loss" in line]
    assert len(epochs) == 2
    for task in ("questions", "stories"):
        steps = [line[f"task_loss_{task}"] for line in lines[:8] if f"task_loss_{task}" in line]
        assert len(steps) == 4
        assert epochs[0][f"task_loss_{task}"] == pytest.approx(np.mean(steps), abs=1e-5)


def assert_same_result(ours: Path, theirs: Path) -> None:
    """Two runs on the tasks ended with the same bits."""
    last = f"checkpoint-{STEPS}"
    assert_same(ours / last / "model.safetensors", theirs / last / "model.safetensors", torch.equal)
    assert training_lines(ours / last) == training_lines(theirs / last)
    for name in ("optimizer.pt", "scheduler.pt"):
        first, second = (torch.load(folder / last / name, weights_only=True) for folder in (ours, theirs))
        torch.testing.assert_close(first, second, rtol=0, atol=0)
    for task in ("questions", "stories"):
        assert_same(ours / task / "model.safetensors", theirs / task / "model.safetensors", torch.equal)
        assert (ours / task / "predictions.tsv").read_text() == (theirs / task / "predictions.tsv").read_text()
    first, second = (json.loads((folder / "metrics.json").read_text()) for folder in (ours, theirs))
    assert first["metrics"] == second["metrics"]


def test_a_resumption_and_the_order_of_the_flag_change_no_bit(tasks_run, tiny_checkpoint, tmp_path):
    """From a checkpoint inside the second epoch."""
    whole, _ = tasks_run
    output = tmp_path / "out"
    for checkpoint in whole.glob("checkpoint-*"):
        if int(checkpoint.name.split("-")[1]) <= 12:
            shutil.copytree(checkpoint, output / checkpoint.name)
    flags = [
        "--model_name_or_path",
        tiny_checkpoint,
        *TASKS,
        "--per_device_train_batch_size",
        16,
        "--output_dir",
        output,
    ]
    flags += ["--resume_from_checkpoint", "last"]
    with pytest.raises(ValueError, match="of the tasks questions, stories, not of questions, sst2"):
        finetune_tasks(*flags, "--tasks", "questions", "sst2")
    assert finetune_tasks(*flags, "--tasks", "questions", "stories")["resumed"]
    assert_same_result(output, whole)


def assert_same_training(ours: Path, theirs: Path) -> None:
    """Losses, gradient norms and parameters agree to 1e-5."""
    ours, theirs = (output / f"checkpoint-{STEPS}" for output in (ours, theirs))
    lines = training_lines(ours)
    assert len(lines) == STEPS
    np.testing.assert_allclose(lines, training_lines(theirs), rtol=0, atol=1e-5)
    parameters = load_file(theirs / "model.safetensors")
    for name, value in load_file(ours / "model.safetensors").items():
        # A bias of all choices changes no softmax: its gradient is rounding error, which Adam blows up.
        if name != "heads.stories.score.bias":
            torch.testing.assert_close(value, parameters[name], rtol=0, atol=1e-5, msg=name)


@pytest.fixture(scope="module")
def without_dropout(tiny_checkpoint, tmp_path_factory) -> tuple[Path, list]:
    """The same run without dropout, and its flags."""
    output = tmp_path_factory.mktemp("without") / "out"
    flags = ["--model_name_or_path", tiny_checkpoint, *TASKS, "--dropout", 0]
    finetune_tasks(*flags, "--output_dir", output, "--per_device_train_batch_size", 16)
    return output, flags


def test_gradient_accumulation_gives_the_numbers_of_the_whole_batch(without_dropout, tmp_path):
    output, flags = without_dropout
    small = ("--per_device_train_batch_size", 4, "--gradient_accumulation_steps", 4)
    finetune_tasks(*flags, *small, "--output_dir", tmp_path / "parts")
    assert_same_training(tmp_path / "parts", output)


@pytest.mark.slow
def test_two_processes_give_the_numbers_of_one(without_dropout, tmp_path):
    """No process waits for the gradient of a head that the step did not use."""
    output, flags = without_dropout
    small = ("--per_device_train_batch_size", 4, "--gradient_accumulation_steps", 2)
    command = launch_command("two_cpu_processes", *flags, *small, "--output_dir", tmp_path / "out")
    finish(start_launch(tmp_path / "log", command), tmp_path / "log")
    assert (tmp_path / "out" / "metrics.json").is_file()
    assert_same_training(tmp_path / "out", output)
    for name in ("questions", "stories"):
        assert (tmp_path / "out" / name / "model.safetensors").is_file()


# --- what is refused ---

REFUSALS = {
    "one task": (["--tasks", "questions"], "at least two, or use --task questions"),
    "twice": (["--tasks", "questions", "stories", "questions"], "questions more than once"),
    "unknown": (["--tasks", "questions", "trek"], "no task 'trek'.*'trec'"),
    "a single task too": (["--task", "trec"], "--task and --data_dir are of a single task"),
    "a single folder": (["--data_dir", "trec"], "--data_dirs trec=FOLDER"),
    "no file": (["--tasks", "questions", "trec", "--data_dirs", "trec=nowhere"], "nowhere.*--data_dirs trec=FOLDER"),
    "no folder": (["--tasks", "questions", "copa"], "copa.*--data_dirs copa=FOLDER"),
    "folder without task": (["--data_dirs", "nowhere"], "write the task, an equals sign"),
    "folder of another task": (["--data_dirs", "trec=nowhere"], "trec is not one of --tasks"),
    "two folders": (["--data_dirs", "stories=a", "stories=b"], "folder of stories twice: a and b"),
    "adapter": (["--adaptation", "lora"], "a transformer that is trained as a whole"),
    "seeds": (["--seeds", "2"], "one run for each --seed"),
    "unfreezing": (["--unfreeze", "gradual"], "is for a single task"),
    "order": (["--train_sampling_strategy", "sequential"], "group_by_length or random"),
    "cap": (["--task_rows_cap", "0"], "at least 1"),
    "model": (["--model_name_or_path", ""], "--model_name_or_path"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals_before_training(name, tiny_checkpoint, tmp_path):
    flags, message = REFUSALS[name]
    with pytest.raises((ValueError, FileNotFoundError, OSError), match=message):
        finetune_tasks(
            *("--output_dir", tmp_path / "out", "--model_name_or_path", tiny_checkpoint, "--use_cpu", "true"),
            *("--tasks", "questions", "stories", *flags),
        )
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "flags", [["--tasks", "stories"], ["--data_dirs", "trec=a"], ["--task_rows_cap", "5"]], ids=lambda flags: flags[0]
)
def test_flags_of_several_tasks_are_refused_for_one(flags, tiny_checkpoint, tmp_path):
    with pytest.raises(ValueError, match="several tasks together"):
        finetune(
            "--output_dir", tmp_path / "out", "--model_name_or_path", tiny_checkpoint, "--task", "questions", *flags
        )
