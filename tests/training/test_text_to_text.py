"""Texts that are written for texts: layout, learning, loss, generation, metrics, what is refused."""

import json
import math
import shutil

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, pipeline

from hf_gpt import GPTConfig, GPTForCausalLM
from hf_gpt.training.text_to_text import TargetTransform

from ..support.runs import answers_of_card, evaluation, finetune, predictions
from ..support.task_files import write_metric, write_rows

WORDS = ["red", "green", "blue", "white", "cat", "dog", "bird"]
PAIRS = {f"{a} {b}": f"{b} {a}" for a in WORDS for b in WORDS if a != b} | {f"the {a}": f"a {a} !" for a in WORDS}
HEADER = ["article", "summary"]
COLUMNS = ["--task", "custom", "--text_column", "article"]
TASK = [*COLUMNS, "--target_column", "summary", "--prompt", "in short:", "--dropout", 0, "--learning_rate", 1e-2]
TASK += ["--per_device_train_batch_size", 16, "--max_new_tokens", 8]
TASK += ["--save_strategy", "steps", "--save_steps", "50", "--eval_strategy", "steps", "--eval_steps", "50"]
SPECIALS = [8000, 8001, 8002]  # _start_, _delimiter_ and _classify_ of gpt-mini's tokenizer


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Rows to train on and rows to write, of which one has no target and one no text."""
    folder, test = tmp_path_factory.mktemp("rows"), [*[*PAIRS.items()][::5], ("cat blue", ""), ("", "")]
    write_rows(folder, HEADER, *PAIRS.items(), name="train.csv")
    write_rows(folder, [*HEADER, "kind"], *((*pair, "toy") for pair in test), name="test.csv")
    return folder


@pytest.fixture(scope="module")
def start(tiny_checkpoint, tmp_path_factory):
    """The tiny model with larger weights, from which it learns quickly, that gives special tokens no probability."""
    folder = shutil.copytree(tiny_checkpoint, tmp_path_factory.mktemp("start") / "model")
    torch.manual_seed(0)
    config = GPTConfig.from_pretrained(folder, initializer_range=0.2, untrained_token_ids=SPECIALS)
    GPTForCausalLM(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def flags(start, files):
    return ["--model_name_or_path", start, *TASK, "--max_steps", 100, "--train_file", files / "train.csv"]


@pytest.fixture(scope="module")
def trained(flags, files, tmp_path_factory):
    """A run's record and folder."""
    output = tmp_path_factory.mktemp("runs") / "trained"
    more = ["--validation_file", files / "train.csv", "--test_file", files / "test.csv", "--keep_columns", "kind"]
    return finetune(*flags, *more, "--output_dir", output), output


def test_a_text_that_is_too_long_loses_its_end_and_every_text_alike():
    transform = TargetTransform(prompt=(7, 8), end=9, max_length=10, max_new_tokens=3)
    tree, lost = transform.fit({"text": [1, 2, 3, 4, 5, 6], "label": [11, 12]})
    assert (tree.input_ids, lost) == ((1, 2, 3, 4, 5, 7, 8, 11, 12, 9), 1)
    assert (tree.lm_weights, tree.path_ends) == ((0.0,) * 7 + (1.0,) * 3, (6,))
    tree, lost = transform.fit({"text": [1, 2, 3, 4, 5, 6], "label": []})
    assert (tree.input_ids, tree.lm_weights, lost) == ((1, 2, 3, 4, 5, 7, 8), (0.0,) * 7, 1)


def test_it_learns_and_the_folder_writes_the_targets(trained, files):
    """transformers' own tools stop by themselves, and write what predictions.tsv holds, though in batches."""
    record, output = trained
    assert record["metrics"]["validation"]["exact_match"] > 0.9
    assert (record["main_metric"], record["rows"]["test"]) == ("exact_match", 12)
    assert record["starts_from"] == "GPTForCausalLM; its head is kept"
    lines = predictions(output)
    assert [*lines[0]] == ["id", "kind", "reference", "prediction"]
    assert [line["reference"] for line in lines] == [*[*PAIRS.values()][::5], "", ""]
    assert sum(line["prediction"] == line["reference"] for line in lines[:-2]) >= 9
    assert (lines[-2]["prediction"], lines[-1]["prediction"]) == ("blue cat", "")
    write = pipeline("text-generation", model=str(output))
    texts = [*[*PAIRS][::5], "cat blue"]
    found = [write(f"{text} in short:", return_full_text=False)[0]["generated_text"].strip() for text in texts]
    assert found == [line["prediction"] for line in lines[:-1]]
    model = AutoModelForCausalLM.from_pretrained(output)
    ends, settings = model.config.classify_token_id, model.generation_config
    assert (settings.eos_token_id, settings.max_new_tokens, settings.do_sample) == (ends, 8, False)
    assert model.config.untrained_token_ids == SPECIALS[:2]
    assert set(settings.suppress_tokens) == {*SPECIALS[:2], model.config.pad_token_id}
    assert answers_of_card(output)


def test_loss_and_perplexity_are_those_of_the_targets_tokens(trained, files, tmp_path):
    """Of all together, however rows are batched: text and prompt count nothing."""
    _, output = trained
    model, tokenizer = AutoModelForCausalLM.from_pretrained(output), AutoTokenizer.from_pretrained(output)
    losses = []
    for text, target in [*PAIRS.items()][::5]:
        source, target = tokenizer(f"{text} in short:")["input_ids"], tokenizer(target)["input_ids"]
        ids = torch.tensor([[*source, *target, model.config.eos_token_id]])
        log_probs = model(ids).logits[0, :-1].log_softmax(-1).gather(1, ids[0, 1:, None])
        losses += (-log_probs[len(source) - 1 :, 0]).tolist()
    run = ["--model_name_or_path", output, *COLUMNS, "--test_file", files / "test.csv"]
    for size in (3, 64):
        folder = tmp_path / str(size)
        given = ["--target_column", "summary", "--per_device_eval_batch_size", size, "--output_dir", folder]
        record = evaluation(*run, *given)
        loss = sum(losses) / len(losses)
        assert record["metrics"]["loss"] == pytest.approx(loss, rel=1e-4)
        assert record["metrics"]["perplexity"] == pytest.approx(math.exp(loss), rel=1e-4)
        assert (record["rows"], record["measured_rows"], record["main_metric"]) == (12, 10, "exact_match")
        ours, theirs = ([line["prediction"] for line in predictions(each)] for each in (folder, output))
        assert ours == theirs


def test_new_rows_and_metrics_of_evaluate(trained, files, tmp_path):
    """Without a target column there are texts alone; all numbers of a metric are recorded, the first as the main."""
    numbers = '"own1": sum(map(str.__ne__, predictions, references)), "longest": max(map(len, references))'
    metric = write_metric(tmp_path / "own.py", "string", f'{{{numbers}, "no number": references}}')
    run = ["--model_name_or_path", trained[1], *COLUMNS, "--test_file", files / "test.csv"]
    record = evaluation(*run, "--output_dir", tmp_path / "new", "--num_beams", 2, "--max_new_tokens", 1)
    assert (record["metrics"], record["measured_rows"]) == ({}, 0)
    assert all(len(line["prediction"].split()) <= 1 for line in predictions(tmp_path / "new"))
    assert [line["reference"] for line in predictions(tmp_path / "new")] == [""] * 12
    given = ["--target_column", "summary", "--metrics", metric, "exact_match"]
    record = evaluation(*run, *given, "--output_dir", tmp_path / "measured")
    lines = [line for line in predictions(tmp_path / "measured") if line["reference"]]
    wrong = sum(line["reference"] != line["prediction"] for line in lines)
    assert [*record["metrics"]] == ["own1", "own_longest", "exact_match", "loss", "perplexity"]
    assert (record["main_metric"], record["metrics"]["own1"]) == ("own1", wrong)
    assert record["metrics"]["own_longest"] == max(len(line["reference"]) for line in lines)


def test_gpt2_ends_with_its_own_end_of_text(stock_gpt2, tmp_path, files):
    given = ["--model_name_or_path", stock_gpt2, *TASK, "--train_file", files / "train.csv", "--max_steps", 1]
    assert finetune(*given, "--output_dir", tmp_path / "out")["rows"] == {"train": 44, "validation": 5}  # held out
    model, tokenizer = (kind.from_pretrained(tmp_path / "out") for kind in (AutoModelForCausalLM, AutoTokenizer))
    assert tokenizer.eos_token == "<|endoftext|>"
    assert model.generation_config.eos_token_id == tokenizer.eos_token_id
    assert tokenizer("red in short: cat")["input_ids"]


# What is refused before training, with nothing written: flags behind those of a run, and the message.
WRONG = [
    ("--target_column nothing", "no column 'nothing'"),
    ("--train_file empty.csv", "line 3: the label in 'summary' is empty"),
    ("--task_family classification", "--prompt, --task_family text-to-text and --target_column"),
    ("--premise_column article", "takes --text_column"),
    ("--max_new_tokens 3", r"has 4 tokens, its end among them, where --max_new_tokens keeps 3 of 64"),
    ("--max_new_tokens 62", "nothing of 64 tokens for a text"),
    ("--metrics accuracy", "accuracy does not measure texts: give exact_match"),
    ("--problem_type regression", "has the problem_type None alone"),
    ("--adaptation lora", "--adaptation: not with --target_column"),
    ("--unfreeze gradual", "--unfreeze: not with --target_column"),
    ("--label_smoothing_factor 0.1", "--label_smoothing_factor: not with"),
    ("--model_name_or_path masked", "is a masked language model; a causal one"),
    ("--model_name_or_path masked --random_weights true", "needs a causal model"),
]


@pytest.mark.parametrize(("wrong", "message"), WRONG)
def test_what_is_wrong_is_refused_before_training(wrong, message, flags, start, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_rows(tmp_path, HEADER, ("red cat", "cat red"), ("red dog", ""), name="empty.csv")
    config = json.loads((shutil.copytree(start, tmp_path / "masked") / "config.json").read_text())
    (tmp_path / "masked" / "config.json").write_text(json.dumps(config | {"is_causal": False}))
    with pytest.raises(ValueError, match=message):
        finetune(*flags, "--output_dir", tmp_path / "out", *wrong.split())
    assert not (tmp_path / "out").exists()


def test_a_prompt_goes_with_a_target(trained, start, files, tmp_path):
    """Which a language model without training answers as well as it can."""
    run = [*COLUMNS, "--output_dir", tmp_path / "out", "--prompt", "so:"]
    with pytest.raises(ValueError, match="and --target_column go together"):
        finetune("--model_name_or_path", start, *run, "--train_file", files / "train.csv")
    run += ["--test_file", files / "test.csv"]
    with pytest.raises(ValueError, match="and --target_column go together"):
        evaluation("--model_name_or_path", trained[1], *run)
    assert not (tmp_path / "out").exists()
    record = evaluation("--model_name_or_path", start, *run, "--target_column", "summary")
    assert record["metrics"]["exact_match"] == 0
    assert record["metrics"]["perplexity"] > 100
