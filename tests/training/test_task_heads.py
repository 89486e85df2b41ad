"""Several tasks on one transformer, and heads on frozen features: rows of a step, what heads read and do, the log."""

import copy
import json
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from datasets import Dataset

from hf_gpt import FineTuningArguments, GPTForMultipleChoice, GPTForSequenceClassification, TokenTreeCollator
from hf_gpt.tasks.encode import TREE_FEATURES
from hf_gpt.training import finetune as fine_tuning
from hf_gpt.training.frozen import FrozenFeatureHead, cache_features, collate_features
from hf_gpt.training.multi_task import MultiTaskModel
from hf_gpt.trees.collators import IGNORED_LABEL, LengthGroupedSampler, MultiTaskSampler, PaddedDataset, collate_trees
from hf_gpt.trees.token_tree import TokenTree

from ..support.runs import assert_same, training_lines, training_log
from ..support.tiny import CLASSIFY, DELIMITER, PAD, START, build_model

# Lengths of the rows of two tasks: 13 and 6 rows make 4 and 2 global batches of 4.
LENGTHS = [[3, 9, 4, 8, 5, 7, 6, 3, 9, 4, 8, 5, 7], [2, 2, 9, 9, 2, 9]]


def test_every_row_comes_once_an_epoch_in_batches_of_one_task():
    parts = [LengthGroupedSampler(lengths, 4, seed=1, fillers=-len(lengths) % 4) for lengths in LENGTHS]
    sampler, orders = MultiTaskSampler(parts), []
    for epoch in (0, 1, 1):
        sampler.set_epoch(epoch)
        orders.append(np.array([*sampler]).reshape(-1, 4))
        # Rows of the first task and its fillers, those of the second and its.
        assert sorted(orders[-1].flatten()) == [*range(len(sampler))] == [*range(24)]
        is_second = orders[-1] >= 16
        assert (is_second.all(axis=1) == is_second.any(axis=1)).all()
        assert is_second.all(axis=1).sum() == 2
    assert (orders[1] == orders[2]).all()
    assert (orders[0] != orders[1]).any()


def test_a_batch_of_fillers_alone_has_a_task():
    rows = [{**asdict(TokenTree.from_paths([[START, 1]])), "label": 2.5, "task": "second"}]
    filled = PaddedDataset(Dataset.from_list(rows), 3)
    batch = TokenTreeCollator(PAD)([filled[1], filled[2]])
    assert (batch["task"], batch["labels"].tolist()) == ("second", [IGNORED_LABEL] * 2)


def test_a_step_is_that_of_the_single_task_model():
    """Loss, its terms and the gradients of a batch; the other head's gradients are there and zero."""
    alone = {
        "choice": build_model(GPTForMultipleChoice, seed=1, clf_pdrop=0.5),
        "class": build_model(GPTForSequenceClassification, seed=2, num_labels=3, clf_pdrop=0.5),
    }
    paths = [[[START, row, DELIMITER, 3, CLASSIFY], [START, row, DELIMITER, 5, row, CLASSIFY]] for row in range(4)]
    texts = [[[START, *range(row + 2), CLASSIFY]] for row in range(4)]
    inputs = {
        name: {**collate_trees([TokenTree.from_paths(row) for row in rows], PAD), "labels": torch.tensor(labels)}
        for name, rows, labels in (("choice", paths, [0, 1, 1, 0]), ("class", texts, [2, 0, 1, 1]))
    }
    alone["class"].transformer.load_state_dict(alone["choice"].transformer.state_dict())
    shared = MultiTaskModel(copy.deepcopy(alone))
    for task, batch in inputs.items():
        single, own, results = alone[task].train(), shared.train().task_models[task], []
        for model, more in ((single, {}), (shared, {"task": task})):
            torch.manual_seed(0)
            results.append(model(**batch, **more))
            results[-1].loss.backward()
        expected, outputs = results
        assert all(torch.equal(outputs[term], expected[term]) for term in ("loss", "task_loss", "lm_loss", "logits"))
        for name, parameter in single.named_parameters():
            assert torch.equal(own.get_parameter(name).grad, parameter.grad), name
        unused = shared.unused_parameters(task)
        assert len(unused) == 2
        assert all(torch.equal(parameter.grad, torch.zeros_like(parameter)) for parameter in unused)
        shared.zero_grad()
        assert shared.eval()(task=task, **batch).lm_loss is None  # the tasks' models follow the mode
    heads = {f"heads.{task}.score.{name}" for task in alone for name in ("weight", "bias")}
    state = shared.state_dict()  # which holds the transformer once
    assert set(state) == heads | {f"transformer.{name}" for name in shared.transformer.state_dict()}


def test_one_task_gives_the_bits_of_training_it_alone(train, tmp_path, monkeypatch):
    """With dropout, smoothed labels and an incomplete last batch: the same losses, parameters and predictions."""
    flags = ["--max_train_rows", 40, "--max_eval_rows", 20, "--per_device_train_batch_size", 16]
    flags += ["--num_train_epochs", 2, "--label_smoothing_factor", 0.2]
    alone = train(tmp_path / "alone", "--task", "questions", *flags)
    single = {"tasks": None, "task": "questions"}
    monkeypatch.setattr(fine_tuning, "tasks_of", lambda _, data, args: {"questions": replace(data, **single)})
    record = train(tmp_path / "tasks", "--tasks", "questions", *flags)["tasks"]["questions"]
    own, last = tmp_path / "tasks" / "questions", f"checkpoint-{alone['steps']}"
    assert_same(own / "model.safetensors", tmp_path / "alone" / "model.safetensors")
    assert training_lines(tmp_path / "tasks" / last) == training_lines(tmp_path / "alone" / last)
    assert record["metrics"] == alone["metrics"]


def test_log_and_steps_of_a_run(train, tmp_path):
    """
    4 steps of each of two tasks an epoch: each head moves in its own; the loss of every task over its own steps, its
    metrics and their mean, which chooses the best.
    """
    flags = ["--tasks", "stories", "questions", "--max_train_rows", 52, "--max_eval_rows", 20, "--learning_rate", 1e-3]
    flags += ["--num_train_epochs", 2, "--per_device_train_batch_size", 16, "--save_strategy", "steps"]
    flags += ["--save_steps", 4, "--eval_strategy", "steps", "--eval_steps", 4]
    record = train(tmp_path / "each", *flags)
    last = tmp_path / "each" / "checkpoint-16"
    states = torch.load(last / "optimizer.pt", weights_only=True)["state"]
    # Parameters are numbered in their order: the transformer's, then two for each head.
    steps = [states[number]["step"] for number in sorted(states)]
    assert steps == [16] * (len(steps) - 4) + [8] * 4
    lines = training_log(last)
    own = {task: [line[name] for line in lines if (name := f"task_loss_{task}") in line] for task in record["tasks"]}
    assert [len(losses) for losses in own.values()] == [8, 8]
    for line in lines:
        (found,) = [value for name, value in line.items() if name.startswith("task_loss_")]
        assert found == pytest.approx(line["task_loss"], abs=1e-4)
    log = json.loads((last / "trainer_state.json").read_text())["log_history"]
    names = ("eval_questions_accuracy", "eval_stories_accuracy", "eval_task_mean")
    metrics, others, means = ([line[name] for line in log if name in line] for name in names)
    assert means == [pytest.approx(np.mean(pair)) for pair in zip(metrics, others, strict=True)]
    assert len(means) == 4
    assert record["metrics"]["validation"]["task_mean"] == pytest.approx(max(means))
    # Another order of the tasks, and one line for all steps.
    train(tmp_path / "all", *flags, "--tasks", "questions", "stories", "--logging_steps", 16)
    (whole,) = training_log(tmp_path / "all" / "checkpoint-16")
    for task, losses in own.items():
        assert whole[f"task_loss_{task}"] == pytest.approx(np.mean(losses), abs=1e-5)
    files = (tmp_path / name / "stories" / "model.safetensors" for name in ("each", "all"))
    assert_same(*files)


HEADS = {"choices": GPTForMultipleChoice, "classes": GPTForSequenceClassification}
BOTH = pytest.mark.parametrize("head", HEADS)


def encoded_rows(choices: list[int], seed: int = 0) -> Dataset:
    """Rows of token trees with so many choices each."""
    generator, trees = np.random.default_rng(seed), []
    for count in choices:
        context = [START, *generator.integers(20, size=generator.integers(2, 7)), DELIMITER]
        ends = [generator.integers(20, size=generator.integers(1, 5)) for _ in range(count)]
        trees.append(TokenTree.from_paths([[int(token) for token in [*context, *end, CLASSIFY]] for end in ends]))
    columns = {name: [getattr(row, name) for row in trees] for name in TREE_FEATURES}
    columns |= {"length": [len(row) for row in trees], "label": [0] * len(trees)}
    return Dataset.from_dict({"id": [str(row) for row in range(len(trees))], **columns})


@BOTH
@pytest.mark.parametrize("layers", [0, 1, 2, "mix"])
def test_what_a_head_reads(head, layers, tiny_model):
    """`tiny_model` sets the scalars of the mix and its factor at random, too."""
    model = tiny_model(HEADS[head], head_layers=layers, final_norm=True)
    batch = TokenTreeCollator(PAD)(list(encoded_rows([3, 2])))
    with torch.no_grad():
        outputs = model(**batch, output_hidden_states=True)
        states = outputs.hidden_states[layers if layers != "mix" else 0]
        if layers == "mix":
            shares = torch.exp(model.head_mix.scalars) / torch.exp(model.head_mix.scalars).sum()
            states = sum(share * each for share, each in zip(shares, outputs.hidden_states, strict=True))
            states = model.head_mix.gamma * states
        pooled = [row[index[index >= 0]] for row, index in zip(states, batch["classify_index"], strict=True)]
        for row, states in enumerate(pooled):
            expected = model.score(states).squeeze(-1) if head == "choices" else model.score(states.sum(0))
            torch.testing.assert_close(outputs.logits[row, : len(expected)], expected, rtol=0, atol=1e-5)
    assert head == "classes" or outputs.logits[1, 2] == float("-inf")
    assert any("mix" in name for name in model.state_dict()) == (layers == "mix")


@BOTH
def test_training_on_cached_features_is_training_the_head_of_the_whole_model(head, tiny_model, tmp_path):
    """Rows of one, two and three paths, and a filler, in a batch of another order: logits, loss and gradients."""
    model = tiny_model(HEADS[head], head_layers="mix", lm_coef=0.0)
    rows = {"train": encoded_rows([2, 3, 1, 2]), "test": encoded_rows([3, 1], seed=1)}
    args = FineTuningArguments(output_dir=str(tmp_path), use_cpu=True, disable_tqdm=True)
    cached, trained = cache_features(model, rows, TokenTreeCollator(PAD), args), FrozenFeatureHead(model)
    test, train = cached["test"], cached["train"]
    batch = collate_features([test[0], train[2], {"label": -100}, train[1]], model.config)
    assert batch["features"].shape == (4, 3, 3, 32)
    assert batch["present"].tolist() == [[True] * 3, [True, False, False], [True, False, False], [True] * 3]
    assert batch["labels"].tolist() == [0, 0, -100, 0]
    whole = model(**TokenTreeCollator(PAD)([rows["test"][0], rows["train"][2], rows["train"][1]]))
    ours, gradients = trained(**batch), []
    torch.testing.assert_close(ours.logits[[0, 1, 3]], whole.logits, rtol=0, atol=1e-6)
    # The filler has no label, so the mean over labels is that of the others.
    torch.testing.assert_close(ours.loss, whole.task_loss, rtol=0, atol=1e-6)
    for loss in (ours.loss, whole.task_loss):
        model.zero_grad()
        loss.backward()
        gradients.append({name: value.grad.clone() for name, value in trained.named_parameters()})
    torch.testing.assert_close(*gradients, rtol=0, atol=1e-6)
    assert trained.train().clf_dropout.training
    assert not any(module.training for module in model.transformer.modules())
