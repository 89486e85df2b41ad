"""Heads on frozen features: what they read, cached and uncached training, whole models, resuming, refusals."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from datasets import Dataset
from huggingface_hub import ModelCard
from safetensors.torch import load_file
from transformers import AutoModelForMultipleChoice, AutoModelForSequenceClassification

from hf_gpt.evaluation import EvaluationArguments, evaluate
from hf_gpt.model.modeling_gpt import GPTForCausalLM, GPTForMultipleChoice, GPTForSequenceClassification
from hf_gpt.tasks.encode import TREE_FEATURES
from hf_gpt.training.arguments import DataArguments, FineTuningArguments, ModelArguments
from hf_gpt.training.finetune import FEATURES
from hf_gpt.training.frozen import FeatureCollator, FrozenFeatureHead, cache_features
from hf_gpt.trees.collators import TokenTreeCollator
from hf_gpt.trees.token_tree import TokenTree

from ..support.runs import finetune
from ..support.tiny import CLASSIFY, DELIMITER, PAD, START

# 7 updates an epoch.
FLAGS = ["--max_train_rows", "52", "--max_eval_rows", "12", "--learning_rate", "1e-2", "--adaptation", "frozen"]
FLAGS += ["--per_device_train_batch_size", "8", "--num_train_epochs", "2"]
RUNS = {
    "questions, last": ("questions", "last"),
    "questions, layer 1": ("questions", "1"),
    "stories, embedding": ("stories", "-3"),
    "stories, mix": ("stories", "mix"),
}
HEADS = {"choices": GPTForMultipleChoice, "classes": GPTForSequenceClassification}


@pytest.fixture(scope="module")
def frozen_run(tiny_checkpoint, tmp_path_factory):
    """`frozen_run(name, cached)`: folder and record of a run of `RUNS`, made once."""
    made = {}

    def run(name: str, cached: bool = True) -> tuple[Path, dict]:
        if (name, cached) not in made:
            task, layers = RUNS[name]
            output = tmp_path_factory.mktemp("frozen") / "out"
            flags = [
                "--model_name_or_path",
                tiny_checkpoint,
                "--task",
                task,
                "--output_dir",
                output,
                *FLAGS,
                "--layers",
                layers,
            ]
            made[name, cached] = output, finetune(*flags, "--cache_features", str(cached).lower())
        return made[name, cached]

    return run


def tree(generator: np.random.Generator, choices: int) -> TokenTree:
    context = [START, *generator.integers(20, size=generator.integers(2, 7)), DELIMITER]
    ends = [generator.integers(20, size=generator.integers(1, 5)) for _ in range(choices)]
    return TokenTree.from_paths([[int(token) for token in [*context, *end, CLASSIFY]] for end in ends])


def encoded_rows(choices: list[int], seed: int = 0) -> Dataset:
    """Rows of token trees with so many choices each."""
    generator = np.random.default_rng(seed)
    trees = [tree(generator, number) for number in choices]
    columns = {name: [getattr(row, name) for row in trees] for name in TREE_FEATURES}
    columns |= {"length": [len(row) for row in trees], "label": [0] * len(trees)}
    return Dataset.from_dict({"id": [str(row) for row in range(len(trees))], **columns})


def arguments(output: Path) -> FineTuningArguments:
    return FineTuningArguments(output_dir=str(output), use_cpu=True, disable_tqdm=True)


def predictions(output: Path) -> torch.Tensor:
    with (output / "predictions.tsv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    return torch.tensor([[float(row[name]) for name in rows[0] if name.startswith("p(")] for row in rows])


def log_lines(output: Path, step: int) -> list[list[float]]:
    history = json.loads((output / f"checkpoint-{step}" / "trainer_state.json").read_text())["log_history"]
    return [[line["loss"], line["task_loss"], line["grad_norm"]] for line in history if "loss" in line]


@pytest.mark.parametrize("layer", [0, 1, 2])
@pytest.mark.parametrize("head", HEADS)
def test_a_head_on_one_layer(head, layer, tiny_model):
    model = tiny_model(HEADS[head], head_layers=layer, final_norm=True)
    batch = TokenTreeCollator(PAD)(list(encoded_rows([2, 2, 2])))
    with torch.no_grad():
        outputs = model(**batch, output_hidden_states=True)
        states = outputs.hidden_states[layer]
        pooled = torch.stack([row[index] for row, index in zip(states, batch["classify_index"], strict=True)])
        expected = model.score(pooled).squeeze(-1) if head == "choices" else model.score(pooled.sum(1))
        quiet = model(**batch)
    torch.testing.assert_close(outputs.logits, expected, rtol=0, atol=1e-6)
    assert torch.equal(quiet.logits, outputs.logits)
    assert quiet.hidden_states is None
    assert not [name for name in model.state_dict() if "mix" in name]


@pytest.mark.parametrize("head", HEADS)
def test_a_head_on_a_mix_of_layers(head, tiny_model):
    """`tiny_model` draws the scalars of the mix and its factor, too."""
    model = tiny_model(HEADS[head], head_layers="mix")
    batch = TokenTreeCollator(PAD)(list(encoded_rows([3, 2])))
    with torch.no_grad():
        outputs = model(**batch, output_hidden_states=True)
        shares = torch.exp(model.head_mix.scalars) / torch.exp(model.head_mix.scalars).sum()
        mixed = sum(share * states for share, states in zip(shares, outputs.hidden_states, strict=True))
        mixed = model.head_mix.gamma * mixed
        pooled = [row[index[index >= 0]] for row, index in zip(mixed, batch["classify_index"], strict=True)]
    for row, states in enumerate(pooled):
        expected = model.score(states).squeeze(-1) if head == "choices" else model.score(states.sum(0))
        torch.testing.assert_close(outputs.logits[row, : len(expected)], expected, rtol=0, atol=1e-5)
    if head == "choices":
        assert outputs.logits[1, 2] == float("-inf")


def test_a_new_mix_is_the_mean_and_a_saved_one_is_kept(tiny_model, tmp_path):
    """Also where the weights that there are come from a language model."""
    tiny_model(GPTForCausalLM).save_pretrained(tmp_path / "base")
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "base", head_layers="mix")
    assert torch.equal(model.head_mix.scalars, torch.zeros(3))
    assert torch.equal(model.head_mix.gamma, torch.ones(1))
    torch.nn.init.normal_(model.head_mix.scalars)
    model.save_pretrained(tmp_path / "mix")
    again = AutoModelForSequenceClassification.from_pretrained(tmp_path / "mix")
    assert again.config.head_layers == "mix"
    assert torch.equal(again.head_mix.scalars, model.head_mix.scalars)


@pytest.mark.parametrize("head", HEADS)
def test_cached_features_are_those_of_the_whole_model(head, tiny_model, tmp_path):
    """Rows of one, two and three paths, and a filler, in a batch of another order."""
    model = tiny_model(HEADS[head], head_layers="mix")
    trained = FrozenFeatureHead(model)
    rows = {"train": encoded_rows([2, 3, 1, 2]), "test": encoded_rows([3, 1], seed=1)}
    cached = cache_features(trained, rows, TokenTreeCollator(PAD), arguments(tmp_path))
    chosen = [cached["test"][0], cached["train"][2], {"label": -100}, cached["train"][1]]
    batch = FeatureCollator(model.config)(chosen)
    assert batch["features"].shape == (4, 3, 3, 32)
    assert batch["present"].tolist() == [[True] * 3, [True, False, False], [True, False, False], [True] * 3]
    assert batch["labels"].tolist() == [0, 0, -100, 0]
    trees = TokenTreeCollator(PAD)([rows["test"][0], rows["train"][2], rows["train"][1]])
    with torch.no_grad():
        ours, whole, uncached = trained(**batch), model(**trees), trained(**trees)
    torch.testing.assert_close(ours.logits[[0, 1, 3]], whole.logits, rtol=0, atol=1e-6)
    torch.testing.assert_close(uncached.logits, whole.logits, rtol=0, atol=1e-6)
    # The filler has no label, so the mean over labels is that of the others.
    torch.testing.assert_close(ours.loss, whole.task_loss, rtol=0, atol=1e-6)


def test_the_body_is_never_trained_nor_saved(tiny_model):
    model = tiny_model(GPTForSequenceClassification, head_layers="mix", clf_pdrop=0.5)
    head = FrozenFeatureHead(model).train()
    assert not any(module.training for module in model.transformer.modules())
    assert head.clf_dropout.training
    assert set(head.state_dict()) == {"score.weight", "score.bias", "head_mix.scalars", "head_mix.gamma"}
    assert head.to("meta").whole_model.transformer.embed_tokens.weight.is_meta


@pytest.mark.parametrize("name", RUNS)
def test_cached_training_equals_running_the_model_each_epoch(name, frozen_run):
    """With dropout on the classify state."""
    (ours, record), (theirs, uncached) = (frozen_run(name, cached) for cached in (True, False))
    assert record["metrics"] == uncached["metrics"]
    np.testing.assert_allclose(log_lines(ours, 14), log_lines(theirs, 14), rtol=0, atol=1e-5)
    torch.testing.assert_close(predictions(ours), predictions(theirs), rtol=0, atol=1e-5)
    first, second = (load_file(folder / "model.safetensors") for folder in (ours, theirs))
    for weight, value in first.items():
        # The gradient of a bias of all choices is rounding error, which Adam blows up.
        if not (weight == "score.bias" and value.numel() == 1):
            torch.testing.assert_close(value, second[weight], rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", RUNS)
def test_the_result_is_a_whole_model(name, frozen_run, tiny_checkpoint):
    output, record = frozen_run(name)
    task, layers = RUNS[name]
    auto = AutoModelForMultipleChoice if task == "stories" else AutoModelForSequenceClassification
    model = auto.from_pretrained(output)
    assert model.config.lm_coef == 0
    assert model.config.head_layers == {"last": None, "1": 1, "-3": 0, "mix": "mix"}[layers]
    saved, before = load_file(output / "model.safetensors"), load_file(tiny_checkpoint / "model.safetensors")
    assert all(torch.equal(saved[weight], value) for weight, value in before.items())
    outputs = 1 if task == "stories" else 6
    assert record["trained_parameters"] == 33 * outputs + (4 if layers == "mix" else 0)
    assert load_file(output / "checkpoint-14" / "model.safetensors").keys() == saved.keys() - before.keys()
    assert not (output / FEATURES).exists()
    measured = evaluate(
        ModelArguments(str(output)),
        DataArguments(task=task, max_eval_rows=12),
        EvaluationArguments(output_dir=str(output / "measured"), use_cpu=True, disable_tqdm=True),
    )
    assert measured["metrics"] == record["metrics"]["test"]
    torch.testing.assert_close(predictions(output / "measured"), predictions(output), rtol=0, atol=1e-6)


def test_card_and_messages(tiny_checkpoint, tmp_path, capsys):
    flags = [
        "--model_name_or_path",
        tiny_checkpoint,
        "--task",
        "questions",
        *FLAGS,
        "--layers",
        "1",
        "--max_steps",
        "2",
    ]
    finetune(*flags, "--output_dir", tmp_path / "out")
    printed = capsys.readouterr().out
    assert "198 parameters of the head are trained, which reads layer 1 of 2." in printed
    assert "The language-model loss is left out (lm_coef 0, not 0.5)" in printed
    card = ModelCard.load(tmp_path / "out" / "README.md")
    assert "with its head alone trained" in card.text
    assert "| head reads | layer 1 of 2 |" in card.text
    assert "| trained parameters | 198 |" in card.text
    assert card.data.library_name == "transformers"


def test_features_are_computed_once_for_a_model_and_its_rows(tiny_model, tmp_path, monkeypatch):
    """A run that was stopped between two splits resumes with the second; other models and rows have their own."""
    calls = []
    original = FrozenFeatureHead.features

    def counted(self, **batch):
        calls.append(len(batch["input_ids"]))
        if len(calls) == stop_at:
            raise KeyboardInterrupt
        return original(self, **batch)

    monkeypatch.setattr(FrozenFeatureHead, "features", counted)

    def computed(seed: int, rows: dict[str, Dataset]) -> list[list[float]]:
        calls.clear()
        head = FrozenFeatureHead(tiny_model(GPTForMultipleChoice, head_layers="mix", seed=seed))
        found = cache_features(head, rows, TokenTreeCollator(PAD), arguments(tmp_path))
        return [row.tolist() for table in found.values() for row in table["features"][:]]

    rows = {"train": encoded_rows([2, 3, 1, 2, 2, 1]), "test": encoded_rows([2, 1], seed=1)}
    stop_at = 2
    with pytest.raises(KeyboardInterrupt):
        computed(0, rows)
    stop_at = None
    expected = computed(0, rows)
    assert len(calls) == 1
    assert computed(0, rows) == expected
    assert not calls
    assert computed(1, rows) != expected
    assert len(calls) == 2
    computed(1, {"train": rows["train"], "test": encoded_rows([2, 1], seed=2)})
    assert len(calls) == 1


REFUSALS = {
    "layer": (["--adaptation", "frozen", "--layers", "3"], r"--layers 3: give last, mix, or a number .* to 2;"),
    "word": (["--adaptation", "frozen", "--layers", "all"], "--layers all: give last, mix"),
    "full": (["--layers", "mix"], "--layers belongs to --adaptation frozen, not full"),
    "no cache": (["--cache_features", "false"], "--cache_features belongs to --adaptation frozen"),
    "checkpointing": (["--adaptation", "frozen", "--activation_checkpointing", "true"], "leave out --activation_ch"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals_before_training(name, tiny_checkpoint, tmp_path):
    flags, message = REFUSALS[name]
    with pytest.raises(ValueError, match=message):
        finetune(
            "--model_name_or_path", tiny_checkpoint, "--output_dir", tmp_path / "out", "--task", "questions", *flags
        )
    assert not (tmp_path / "out").exists()


def test_checkpoints_of_other_heads_are_refused(frozen_run, tiny_checkpoint, tmp_path):
    flags = ["--model_name_or_path", tiny_checkpoint, "--task", "questions", *FLAGS, "--output_dir", tmp_path / "out"]
    last, one = (frozen_run(name)[0] / "checkpoint-14" for name in ("questions, last", "questions, layer 1"))
    with pytest.raises(ValueError, match="it holds a head alone: add --adaptation frozen"):
        finetune(*flags, "--adaptation", "full", "--resume_from_checkpoint", last)
    with pytest.raises(ValueError, match=r"differs from this run's model in head_mix\.gamma"):
        finetune(*flags, "--layers", "mix", "--resume_from_checkpoint", one)
    with pytest.raises(ValueError, match="its head reads layer 1, this run's reads the last layer"):
        finetune(*flags, "--layers", "last", "--resume_from_checkpoint", one)
    small = ["--max_steps", "1", "--adaptation", "full", "--save_strategy", "steps", "--save_steps", "1"]
    finetune(*flags, *small, "--load_best_model_at_end", "false")
    with pytest.raises(ValueError, match="it holds a whole model"):
        finetune(*flags, "--resume_from_checkpoint", "last")


def test_a_head_on_a_lower_layer_is_not_fine_tuned_without_the_language_model(frozen_run, tmp_path):
    output, _ = frozen_run("questions, layer 1")
    with pytest.raises(ValueError, match="nothing would train the layers above"):
        finetune(
            *("--model_name_or_path", output, "--task", "questions", "--output_dir", tmp_path / "out"),
            *("--lm_coef", 0, "--keep_head", "true"),
        )
