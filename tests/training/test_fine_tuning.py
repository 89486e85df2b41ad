"""Fine-tuning from arguments to files, or in Python on rows of one's own: what is written, said and refused."""

import json
import re

import numpy as np
import pytest
import torch
import yaml
from datasets import Dataset
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from hf_gpt import FineTuningArguments, GPTForSequenceClassification, GPTTrainer, TokenTreeCollator, token_trees
from hf_gpt.cards import FineTunedCard
from hf_gpt.commands import parse_arguments
from hf_gpt.tasks import TASKS, get_task
from hf_gpt.tasks.report import chance_level, chance_warning
from hf_gpt.training.arguments import ModelArguments
from hf_gpt.training.loading import load_model

from ..support import runs
from ..support.runs import ARGUMENTS, EVALUATION, PRETRAINING, REPOSITORY, finetune, predictions

FOLDERS = ("scripts/configs", "scripts/configs/experiments")  # accelerate's own are tested in `test_launching.py`
CONFIGURATIONS = {path.stem: path for folder in FOLDERS for path in (REPOSITORY / folder).glob("*.yaml")}
PROMISED = {
    "pretrain_paper": {"n_layer": 12, "n_embd": 768, "n_positions": 512},
    "pretrain_wikitext103": {"n_layer": 16, "n_embd": 410, "n_positions": 256},
    "pretrain_gpt_mini": {"n_layer": 4, "n_embd": 256, "n_positions": 512},
    "no_pretraining": {"random_weights": True},
    "no_auxiliary_language_model": {"lm_coef": 0},
    "five_seeds": {"seeds": 5},
}
SMALL = ["--task", "questions", "--max_train_rows", 16, "--max_eval_rows", 8, "--per_device_train_batch_size", 8]


def test_output_of_a_run(train, tmp_path):
    """It overwrites nothing unasked."""
    output = tmp_path / "out"
    (output / "checkpoint-999").mkdir(parents=True)
    (output / "notes.txt").write_text("mine")
    flags = [*SMALL, "--learning_rate", 1e-3, "--num_train_epochs", 5]
    with pytest.raises(ValueError, match="--overwrite_output_dir"):
        train(output, *flags)
    record = train(output, *flags, "--overwrite_output_dir")
    assert (output / "notes.txt").read_text() == "mine"
    assert not (output / "checkpoint-999").exists()
    assert (record["steps"], record["rows"]) == (10, {"train": 16, "validation": 8, "test": 8})
    assert record["starts_from"] == "GPTForCausalLM; the head is newly initialized"
    lines = predictions(output)
    probabilities = [f"p({name})" for name in get_task("questions").label_names]
    assert [list(line) for line in lines] == [["id", "label", "prediction", *probabilities]] * 8
    assert all(sum(map(float, list(line.values())[3:])) == pytest.approx(1, abs=1e-4) for line in lines)
    rates = [line["learning_rate"] for line in runs.training_log(output / "checkpoint-10")]
    # The release's schedule: the first update has the rate 0.
    assert rates == [0, *(pytest.approx(1e-3 * (1 - step / 10)) for step in range(1, 10))]
    assert runs.answers_of_card(output)
    assert "random weights" not in (output / "README.md").read_text()
    card, state = FineTunedCard.load(output), json.loads((output / "checkpoint-10/trainer_state.json").read_text())
    assert (card.kept_step, card.chosen_by, card.resumed) == (state["best_global_step"], "accuracy", False)
    assert (card.hardware, card.seed, card.seconds) == ("cpu", 42, record["train_seconds"])
    settings = {"global batch size": 8, "optimizer": "the release's Adam", "steps": 10}
    assert card.hyperparameters.items() >= settings.items()


def test_transfer_of_the_lowest_layers(tiny_checkpoint):
    """Embeddings and lowest blocks are the pretrained ones, upper blocks are new, the head does not depend on it."""
    tokenizer = ModelArguments(str(tiny_checkpoint)).tokenizer_source.tokenizer(task_template=True)
    spec = get_task("questions")
    whole, one, none, again = (
        load_model(ModelArguments(str(tiny_checkpoint), transfer_layers=layers), spec, tokenizer, seed=3).state_dict()
        for layers in (None, 1, 0, 1)
    )
    for name, value in load_file(tiny_checkpoint / "model.safetensors").items():
        is_matrix = value.ndim == 2
        assert torch.equal(whole[name], value)
        assert torch.equal(one[name], value) == ("embed" in name or ".h.0." in name or not is_matrix)
        assert torch.equal(none[name], value) == ("embed" in name or not is_matrix)
    assert one["transformer.h.1.mlp.c_fc.weight"].std() == pytest.approx(0.02, rel=0.1)
    assert torch.equal(one["score.weight"], whole["score.weight"])
    assert all(torch.equal(one[name], value) for name, value in again.items())


@pytest.mark.parametrize("name", sorted(CONFIGURATIONS.keys() | TASKS))
def test_configurations(name):
    """Every value is that of its argument, and what the file's name promises; every task has one."""
    path, types = CONFIGURATIONS[name], EVALUATION if name == "zero_shot" else ARGUMENTS
    needed = ["--config", str(path), "--output_dir", "out", "--use_cpu", "true"]
    if name.startswith("pretrain_") or name == "finetune_language_model":
        types, needed = PRETRAINING, [*needed, "--text_files", "a.txt"]
    found = {name: value for each in parse_arguments(types, needed) for name, value in vars(each).items()}
    settings = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert all(found[name] == type(found[name])(value) for name, value in settings.items())
    assert found.items() >= PROMISED.get(name, {}).items()
    if name in TASKS:
        assert found["task"] == name
        if "model_name_or_path" not in settings:  # no demonstration with gpt-mini: the paper's settings
            batch = found["per_device_train_batch_size"] * found["gradient_accumulation_steps"]
            assert (found["learning_rate"], found["num_train_epochs"], batch) == (6.25e-5, 3, 32)


def test_what_is_said_of_own_files(train, tmp_path, capsys):
    """Statistics, truncation, labels, the first example, and what is wrong with the rows, before training."""
    rows = [f"question {index} about rivers,{('NUM', 'LOC')[index % 2]}" for index in range(24)]
    file = tmp_path / "rows.csv"
    file.write_text("\n".join(["text,label", *rows, f"{'river ' * 200},LOC\n"]))
    flags = ["--task", "custom", "--train_file", file, "--text_column", "text"]
    flags += ["--max_length", 16, "--validation_size", 4, "--max_steps", 1]
    record = train(tmp_path / "out", *flags, "--random_weights")
    printed = capsys.readouterr().out
    assert "1 rows were truncated by 186 tokens in all" in printed
    assert re.search(r"First training example \(\d+\), label (LOC|NUM):\n  _start_.* _classify_", printed)
    assert "0 LOC (" in printed
    assert not (tmp_path / "out" / "predictions.tsv").exists()
    assert record["random_weights"]
    assert "random weights" in (tmp_path / "out" / "README.md").read_text()
    record = train(tmp_path / "again", *flags, "--test_file", file)
    (warning,) = [found for found in record["warnings"] if "texts that training rows have too" in found]
    assert f"WARNING: {warning}" in capsys.readouterr().out
    assert warning in (tmp_path / "again" / "README.md").read_text()


# What is refused before training, with nothing written: flags behind those of a run on questions, and the message.
WRONG = [
    ("--task trek", "trec"),
    ("--task=", "--list_tasks"),
    ("--model_name_or_path=", "--model_name_or_path"),
    ("--max_length 65", "context of 64"),
    ("--task trec --data_dir nowhere", "nowhere"),
    ("--resume_from_checkpoint no/such", "not a whole checkpoint"),
    ("--transfer_layers 3", "has 2 layers"),
    ("--transfer_layers 1 --random_weights true", "leave one out"),
    ("--keep_head true", "--keep_head: .* holds GPTForCausalLM; questions needs a GPTForSeq"),
    ("--adaptation lora --random_weights true", "would be lost"),
    ("--adaptation ia3 --use_dora true", "--use_dora .* belong to --adaptation lora, not ia3"),
    ("--adaptation prompt --adapter_size 64", "context of 64"),
    ("--adaptation prefix --adapter_size 30 --max_length 35", "context of 34"),
    ("--adaptation frozen --layers 3", "--layers 3: give last, mix, or a number .* to 2"),
    ("--adaptation frozen --layers all", "--layers all: give last, mix"),
    ("--layers mix", "--layers belongs to --adaptation frozen, not full"),
    ("--adaptation frozen --activation_checkpointing true", "--activation_checkpointing"),
    ("--unfreeze gradual --adaptation lora", "--unfreeze is for training the whole"),
    ("--layer_decay 0.9 --adaptation frozen", "--layer_decay is for training the whole"),
    ("--unfreeze_every 3", "say which with --unfreeze"),
    ("--unfreeze gradual --unfreeze_every often", "give epoch"),
    ("--unfreeze gradual --unfreeze_every 0.5", "give epoch"),
    ("--unfreeze gradual --unfreeze_every epoch", "nothing but the head"),
    ("--data_dirs trec=a", "several tasks together"),
    ("--task= --tasks questions", "--tasks: name several tasks"),
    ("--tasks questions stories questions", "each once"),
    ("--tasks questions trek", "no task 'trek'.*trec"),
    ("--task questions --tasks questions stories", "a single one, and its folder, is --task"),
    ("--tasks questions trec --data_dirs trec=nowhere", "nowhere"),
    ("--tasks questions stories --data_dirs nowhere", "--data_dirs nowhere: give each of --tasks one folder"),
    ("--tasks questions stories --data_dirs trec=a", "give each of --tasks one folder"),
    ("--tasks questions stories --adaptation lora", "with --adaptation full"),
    ("--tasks questions stories --seeds 2", "without --seeds"),
]


@pytest.mark.parametrize(("flags", "message"), WRONG)
def test_what_is_wrong_is_refused_before_training(flags, message, train, tmp_path):
    task = ["--task", "questions"] if "--task" not in flags else []
    with pytest.raises((ValueError, OSError), match=message):
        train(tmp_path / "out", *task, "--max_train_rows", 16, *flags.split())
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("flags", [["--unfreeze", "gradual"], ["--adaptation", "frozen"]], ids=" ".join)
def test_sharded_models_are_not_frozen(flags, train, tmp_path, monkeypatch):
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    monkeypatch.setenv("FSDP_VERSION", "2")
    with pytest.raises(ValueError, match="not with sharded ones"):
        train(tmp_path / "out", *SMALL, *flags)


def test_chance_is_called_out():
    labels, spec = Dataset.from_dict({"label": [0, 1] * 100}), get_task("questions")
    assert "cannot be distinguished from chance (0.500" in chance_warning(spec, labels, labels, 0.56)
    assert chance_warning(spec, labels, labels, 0.6) is None
    # The most frequent training class is not among these few rows; any other answer would be right now and then.
    assert chance_level(spec, labels, Dataset.from_dict({"label": [1, 2, 3]})) == pytest.approx(1 / 6)
    choices = Dataset.from_dict({"label": [0] * 200, "path_ends": [[3, 5]] * 200})
    assert chance_warning(get_task("stories"), choices, choices, 0.53)


@pytest.mark.parametrize("coefficient", [0.5, 0])
def test_rows_of_special_tokens_are_trained(coefficient, tiny_checkpoint, tmp_path):
    """A run with the language-model loss empties the list, also one that is resumed with no step left."""
    model = AutoModelForCausalLM.from_pretrained(tiny_checkpoint)
    model.config.untrained_token_ids = specials = [8000, 8001, 8002]
    model.save_pretrained(tmp_path / "model")
    AutoTokenizer.from_pretrained(tiny_checkpoint).save_pretrained(tmp_path / "model")
    output = tmp_path / "out"
    flags = ["--model_name_or_path", tmp_path / "model", "--output_dir", output, *SMALL, "--lm_coef", coefficient]
    flags += ["--max_steps", 1]
    finetune(*flags)
    config = (output / "config.json").read_bytes()
    (output / "metrics.json").unlink()
    finetune(*flags, "--resume_from_checkpoint", "last")
    assert (output / "config.json").read_bytes() == config
    assert json.loads(config).get("untrained_token_ids") == (None if coefficient else specials)


@pytest.fixture(scope="module")
def tokenizer(tiny_checkpoint):
    return AutoTokenizer.from_pretrained(tiny_checkpoint)


def test_rows_of_ones_own(tokenizer):
    """Both orders of two texts, a shorter length, and columns of no family."""
    rows = Dataset.from_dict({"premise": ["it rained", "no"], "hypothesis": ["it was wet", "yes"]})
    trees = token_trees(rows, tokenizer, family="similarity", max_length=8)
    assert "label" not in trees.column_names
    assert trees["id"][:] == ["0", "1"]
    assert tokenizer.decode(trees["input_ids"][1]).count("yes _delimiter_ no") == 1
    assert [len(ends) for ends in trees["path_ends"]] == [2, 2]
    assert max(max(row["position_ids"]) for row in trees) < 8
    for columns, family in (({"sentence": ["a"]}, None), ({"text": ["a"]}, "similarity")):
        with pytest.raises(ValueError, match="give them text, premise and hypothesis, words, choices"):
            token_trees(Dataset.from_dict(columns), tokenizer, family=family)


def test_predictions_are_in_the_order_of_the_rows(tiny_checkpoint, tokenizer, tmp_path):
    """The arguments evaluate every epoch by default: without rows to evaluate nothing is evaluated."""
    texts = ["it rained and it was wet and cold", "no", "it was", "it rained all day and all the night", "wet", "a b"]
    trees = token_trees(Dataset.from_dict({"text": texts, "label": [0, 1, 1, 0, 1, 0]}), tokenizer)
    model = GPTForSequenceClassification.from_pretrained(tiny_checkpoint, num_labels=2)
    collator = TokenTreeCollator(tokenizer.pad_token_id)
    args = FineTuningArguments(str(tmp_path), max_steps=1, per_device_eval_batch_size=2, use_cpu=True)
    trainer = GPTTrainer(model=model, args=args, train_dataset=trees, data_collator=collator)
    trainer.train()
    assert not [line for line in trainer.state.log_history if any(name.startswith("eval_") for name in line)]
    predicted = trainer.predict(trees)
    with torch.no_grad():
        alone = [model.eval()(**collator([row])).logits[0].numpy() for row in trees]
    np.testing.assert_allclose(predicted.predictions, alone, atol=1e-6)
    assert predicted.label_ids.tolist() == trees["label"][:]
    assert trainer.predict(trees.remove_columns("label")).predictions.shape == (6, 2)
