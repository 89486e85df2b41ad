"""Cards: metadata that the Hub's own library reads back, code that runs, and what a Trainer puts into them."""

import contextlib
import copy
import csv
import io
import json
import math
import re
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from huggingface_hub import DatasetCard, ModelCard
from huggingface_hub.repocard_data import eval_results_to_model_index, model_index_to_eval_results
from peft import get_peft_model
from transformers import (
    AutoModelForCausalLM,
    AutoModelForMultipleChoice,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    Trainer,
    TrainingArguments,
)

from hf_gpt import adapter_config
from hf_gpt.adapters import HEAD_CONFIG, head_config
from hf_gpt.cards import Card, FineTunedCard, PretrainedCard
from hf_gpt.cards.base import FACTS
from hf_gpt.cards.callback import ModelCardCallback, hardware, measured, read_emissions
from hf_gpt.cards.features import card_text
from hf_gpt.cards.fine_tuned import main
from hf_gpt.files import CARD, write_text
from hf_gpt.loading import load_tokenizer
from hf_gpt.tasks import get_task
from hf_gpt.tasks.metrics import compute_metrics_for
from hf_gpt.training.arguments import DataArguments, FineTuningArguments, ModelArguments
from hf_gpt.training.finetune import summarise
from hf_gpt.training.loading import load_model
from hf_gpt.training.rows import encode_task, input_transform, load_task_data
from hf_gpt.training.trainer import GPTTrainer
from hf_gpt.trees.collators import TokenTreeCollator

from ..support.runs import REPOSITORY

# peft 0.21 asks transformers 5.23 under an old name.
pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")

CARRIED = sorted(path for path in (REPOSITORY / "model_cards").iterdir() if path.is_dir())
CLASSES = {
    "classification": AutoModelForSequenceClassification,
    "entailment": AutoModelForSequenceClassification,
    "similarity": AutoModelForSequenceClassification,
    "multiple-choice": AutoModelForMultipleChoice,
    "language-model": AutoModelForCausalLM,
}
METRICS = {"validation": {"accuracy": 0.75, "f1_macro": 0.7312345}, "test": {"accuracy": 0.5, "f1_macro": 0.25}}


def filled_card(**facts) -> FineTunedCard:
    known = {
        "task": "questions",
        "family": "classification",
        "base_model": "someone/gpt",
        "hyperparameters": {"learning rate": 1e-3, "language-model coefficient": 0.5},
        "metrics": copy.deepcopy(METRICS),
        "rows": {"train": 780, "validation": 150, "test": 270},
        "seed": 7,
        "seconds": 29.4,
    }
    return FineTunedCard(**known | facts)


def code_of(text: str) -> str:
    (code,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    return code


def printed_by(code: str) -> str:
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(compile(code, CARD, "exec"), {})
    return output.getvalue()


# Code that runs


@pytest.mark.parametrize("adaptation", ["full", "lora"])
@pytest.mark.parametrize("family", CLASSES)
def test_code_of_a_card_runs(family, adaptation, tiny_checkpoint, tmp_path):
    options = {} if family in ("multiple-choice", "language-model") else {"num_labels": 3}
    model = CLASSES[family].from_pretrained(tiny_checkpoint, **options)
    if adaptation != "full":
        kind = "CAUSAL_LM" if family == "language-model" else None
        model = get_peft_model(model, adapter_config(adaptation, model.config, task_type=kind))
        write_text(tmp_path / HEAD_CONFIG, json.dumps(head_config(model)))
    model.save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(tiny_checkpoint, task_template=family != "language-model").save_pretrained(tmp_path)
    card = filled_card(family=family, adaptation=adaptation, base_model=str(tiny_checkpoint), repo_id="someone/tuned")
    card.save(tmp_path)
    code = code_of((tmp_path / CARD).read_text(encoding="utf-8"))
    assert code.count('folder = "someone/tuned"') == 1
    printed = printed_by(code.replace("someone/tuned", str(tmp_path)))
    if family == "language-model":
        assert printed.startswith("she opened the door and")
    elif adaptation == "lora" or family in ("multiple-choice", "similarity"):
        assert printed.startswith("tensor([[0.")
    else:
        assert printed.startswith(("[{'label': 'LABEL_", "{'label': '"))


@pytest.mark.parametrize("folder", CARRIED, ids=lambda folder: folder.name)
def test_code_of_carried_cards_runs(folder, tiny_checkpoint, monkeypatch):
    monkeypatch.chdir(REPOSITORY)
    code = code_of((folder / CARD).read_text(encoding="utf-8")).replace('"gpt1"', repr(str(tiny_checkpoint)))
    assert printed_by(code).startswith("she opened the door and")


def test_code_of_a_carried_card_that_is_published():
    card = Card.load(REPOSITORY / "model_cards" / "gpt-mini")
    code = code_of(replace(card, repo_id="someone/gpt-mini").render().text)
    assert code.count('from_pretrained("someone/gpt-mini")') == code.count("from_pretrained(") == 2


# Metadata


def test_model_index_is_read_back_as_it_was_written(tmp_path):
    card = FineTunedCard.for_task(get_task("sst2"), "someone/gpt", metrics=METRICS, rows={"test": 270}, seed=7)
    card.save(tmp_path)
    read = ModelCard.load(tmp_path / CARD)
    name, results = model_index_to_eval_results(read.data.to_dict()["model-index"])
    assert (name, results) == ("gpt-sst2", card.eval_results())
    assert eval_results_to_model_index(name, results) == read.data.to_dict()["model-index"]
    assert read.data.eval_results == results
    first, second, _, last = results
    assert (first.task_type, first.dataset_type, first.dataset_split) == (
        "text-classification",
        "stanfordnlp/sst2",
        "validation",
    )
    assert (first.metric_type, first.metric_value, first.metric_args) == ("accuracy", 0.75, {"seed": 7})
    assert (second.metric_type, second.metric_name, second.metric_value) == ("f1", "f1_macro", 0.7312)
    assert second.metric_args == {"average": "macro", "seed": 7}
    assert last.dataset_args == {"task": "sst2", "version": get_task("sst2").version, "rows": 270}
    assert read.data.datasets == ["stanfordnlp/sst2"]


def test_place_on_the_hub():
    (result, *_) = FineTunedCard.for_task(get_task("cola"), "gpt", metrics={"test": {"accuracy": 1.0}}).eval_results()
    assert (result.dataset_type, result.dataset_config) == ("nyu-mll/glue", "cola")
    (result, *_) = FineTunedCard.for_task(get_task("trec"), "gpt", metrics={"test": {"accuracy": 1.0}}).eval_results()
    assert result.dataset_revision == "refs/convert/parquet"
    carried = FineTunedCard.for_task(get_task("questions"), "gpt", metrics={"test": {"accuracy": 1.0}})
    assert carried.eval_results()[0].dataset_type == "questions"
    assert carried.metadata().datasets is None
    assert "licence: Apache-2.0" in carried.render().text


def test_several_seeds():
    scores = {7: 0.5, 8: 0.9, 9: 0.7}
    common = {"task": "t", "main_metric": "accuracy", "chance": 0.5, "rows": {}, "model": "m", "random_weights": False}
    records = {seed: common | {"metrics": {"test": {"accuracy": score}}} for seed, score in scores.items()}
    card = filled_card(metrics={"test": {"accuracy": 0.5}}, seeds=summarise(records)).render()
    (result,) = card.data.eval_results
    assert result.metric_value == 0.5
    assert result.metric_args == {"seed": 7, "seeds": [7, 8, 9], "median": 0.7, "lowest": 0.5, "highest": 0.9}
    assert "| test | accuracy | 0.5000 | 0.7000 | 0.5000 | 0.9000 |" in card.text
    assert "(seed 7), the others are over the seeds 7, 8, 9" in card.text
    assert "one seed" not in card.text


def test_undefined_values_are_no_results():
    card = filled_card(metrics={"test": {"pearsonr": math.nan, "spearmanr": 0.1}}).render()
    assert [result.metric_type for result in card.data.eval_results] == ["spearmanr"]
    assert "nan" not in str(card)
    nothing = filled_card(metrics={}).render()
    assert nothing.data.eval_results is None
    assert "model_name" not in str(nothing)
    assert "Nothing was measured." in nothing.text


@pytest.mark.parametrize(
    ("facts", "base_model", "relation"),
    [
        ({}, "someone/gpt", "finetune"),
        ({"adaptation": "lora"}, "someone/gpt", "adapter"),
        ({"random_weights": True}, None, None),
        ({"base_model": str(REPOSITORY / "model_cards" / "gpt-mini")}, None, None),
    ],
    ids=["model", "adapter", "random weights", "folder"],
)
def test_base_model(facts, base_model, relation, tmp_path):
    filled_card(**facts).save(tmp_path)
    data = ModelCard.load(tmp_path / CARD).data
    assert (data.base_model, data.get("base_model_relation")) == (base_model, relation)
    assert str(REPOSITORY) not in (tmp_path / CARD).read_text(encoding="utf-8")


def test_a_folder_that_is_gone_does_not_become_a_hub_id(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "outputs" / "gpt").mkdir(parents=True)
    filled_card(base_model="outputs/gpt").save(tmp_path)
    (tmp_path / "outputs" / "gpt").rmdir()
    assert Card.load(tmp_path).metadata().base_model is None


# Facts and text


def test_facts_give_the_same_card_again(tmp_path, capsys):
    card = filled_card(
        losses=[{"part": "training, step 5", "loss": 1.5, "task_loss": 0.5, "lm_loss": 2.0}],
        emissions={"grams": 1e-05, "seconds": 3.0},
        description="What a question asks for | in six classes",
        label_names=["a", "b"],
    )
    card.save(tmp_path)
    assert Card.load(tmp_path) == card
    before = (tmp_path / CARD).read_bytes()
    (tmp_path / CARD).unlink()
    main([str(tmp_path)])
    assert (tmp_path / CARD).read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == [CARD, FACTS]


MINIMAL = "kind: fine_tuned\ntask: t\nfamily: f\nbase_model: b\n"
# Nine lists, each of which holds the one before it nine times.
ALIASES = "{" + ", ".join(f"l{i}: &l{i} [{', '.join([f'*l{i - 1}' if i else 'x'] * 9)}]" for i in range(9)) + "}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "has no card.yaml"),
        ("kind: [", "not valid YAML"),
        ("- kind", "must hold"),
        ("kind: other", "kind must be one of fine_tuned, pretrained"),
        (
            "kind: fine_tuned\ntask: t\nfamily: f\nbase_model: b\nlicense: mit",
            "card.yaml: .* unexpected keyword argument 'license'",
        ),
        ("kind: fine_tuned\ntask: t", "card.yaml: .* 'family' and 'base_model'"),
        ("kind: fine_tuned\ntask: t\nfamily: f\nbase_model: b\nlimits: none", "limits must be a list"),
        ("kind: [fine_tuned]", "card.yaml: unhashable"),
        (f"{MINIMAL}metrics: {{test: {{accuracy: high}}}}", "card.yaml: metrics must be"),
        (f"{MINIMAL}losses: [{{loss: 1.0}}]", "card.yaml: .*part"),
        (f"{MINIMAL}emissions: {{grams: few, seconds: 1}}", "card.yaml: "),
        (
            f"{MINIMAL}metrics: {{test: {{f1: 1.0}}}}\nseeds: {{seeds: [1], metrics: {{test: {{f1: {{}}}}}}}}",
            "card.yaml: there is no 'median'",
        ),
        (f"{MINIMAL}tags: {'[' * 20000}", "card.yaml is not valid YAML"),
        (f"{MINIMAL}tags: !!int ''", "card.yaml is not valid YAML"),
        (f"{MINIMAL}hyperparameters: {ALIASES}", "card.yaml is not valid YAML: the alias"),
    ],
    ids=[
        *("no file", "no YAML", "no mapping", "kind", "unknown", "missing", "type", "kind of a wrong type", "metric"),
        *("loss", "emissions", "seeds", "deep", "tag", "aliases of aliases"),
    ],
)
def test_wrong_facts(text, message, tmp_path):
    if text is not None:
        (tmp_path / FACTS).write_text(text)
    with pytest.raises(SystemExit, match=message):
        main([str(tmp_path)])
    assert not (tmp_path / CARD).exists()


def test_text_says_what_the_facts_say():
    card = filled_card(
        chance=0.8,
        main_metric="accuracy",
        kept_step=40,
        chosen_by="accuracy",
        max_length=64,
        limits=["Trained for a test."],
        losses=[
            {"part": "training, step 50", "loss": 1.5, "task_loss": 0.5, "lm_loss": 2.0},
            {"part": "validation", "loss": 0.625, "task_loss": 0.625},
        ],
        hyperparameters={"a|b": "c\nd", "language-model coefficient": 0.5},
        hardware="a machine",
        licence="mit",
    ).render()
    for line in (
        "| training, step 50 | 1.5000 | 0.5000 | 2.0000 |",
        "| validation | 0.6250 | 0.6250 | – |",
        "| a\\|b | c d |",
        "The joint loss is task loss + coefficient (here 0.5) * language-model loss.",
        "Training took 29 s on a machine. The weights are those of step 40, the best on the validation rows by",
        "licence: not stated. Rows: train 780, validation 150, test 270.",
        "| validation | f1_macro | 0.7312 |",
        "Without reading the texts, validation accuracy would be 0.8000.",
        "- Trained for a test.",
        "- Its validation accuracy is no better than without reading the texts.",
        "- The licence of the data was not stated",
        "- Texts are cut to 64 tokens.",
    ):
        assert line in card.text, line
    assert card.data.license == "mit"
    assert "\n\n\n" not in card.text
    assert card.text.endswith("fine-tuned on.\n")
    assert "CO2" not in str(card)


def test_emissions_are_what_codecarbon_recorded(tmp_path):
    assert read_emissions(tmp_path) is None
    with (tmp_path / "emissions.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["run_id", "duration", "emissions", "country_name", "region"])
        file.flush()
        assert read_emissions(tmp_path) is None
        writer.writerows([[1, 9, 9, "Elsewhere", ""], [2, 60.5, 0.000125, "Canada", "quebec"]])
    emissions = read_emissions(tmp_path)
    assert emissions == {"grams": 0.125, "seconds": 60.5, "place": "quebec, Canada"}
    written = (tmp_path / "emissions.csv").stat().st_mtime
    assert read_emissions(tmp_path, since=written + 1) is None
    card = filled_card(emissions=emissions, hardware="2 x something").render()
    assert card.data["co2_eq_emissions"] == {
        "emissions": 0.125,
        "source": "codecarbon",
        "training_type": "fine-tuning",
        "geographical_location": "quebec, Canada",
        "hardware_used": "2 x something",
    }
    assert "0.125 g of CO2 equivalents over 60 seconds, quebec, Canada." in card.text


# What a Trainer knows


def trainer_for(base: Path, output: Path, adaptation: str = "full", **settings) -> tuple[GPTTrainer, dict]:
    data = DataArguments(task="questions", max_train_rows=25, max_eval_rows=12)
    model_args = ModelArguments(str(base), adaptation=adaptation)
    task, tokenizer = load_task_data(data), load_tokenizer(model_args)
    model = load_model(model_args, task.spec, tokenizer, 0)
    encoded = encode_task(task, data, tokenizer, input_transform(data, task.spec, model.config))
    defaults = {"learning_rate": 1e-2, "per_device_train_batch_size": 8, "num_train_epochs": 3, "logging_steps": 1}
    args = FineTuningArguments(output_dir=str(output), use_cpu=True, disable_tqdm=True, **defaults | settings)
    args.metric_for_best_model, args.greater_is_better = "eval_accuracy", True
    card = FineTunedCard.for_task(task.spec, str(base))
    trainer = GPTTrainer(
        model=model,
        args=args,
        train_dataset=encoded["train"],
        eval_dataset=encoded["validation"],
        data_collator=TokenTreeCollator(tokenizer.pad_token_id),
        processing_class=tokenizer,
        compute_metrics=compute_metrics_for(task.spec),
        callbacks=[ModelCardCallback(card)],
    )
    return trainer, encoded


def test_callback_with_our_trainer(tiny_checkpoint, tmp_path):
    trainer, encoded = trainer_for(tiny_checkpoint, tmp_path / "out", save_total_limit=9)
    trainer.train()
    history, best = trainer.state.log_history, trainer.state.best_global_step
    card = Card.load(tmp_path / "out")
    evaluations = {line["step"]: line for line in history if "eval_accuracy" in line}
    assert card.metrics.keys() == {"validation"}
    assert card.metrics["validation"]["accuracy"] == evaluations[best]["eval_accuracy"]
    assert (card.kept_step, card.chosen_by) == (best, "accuracy")
    assert card.rows == {"train": 25, "validation": 12}
    training, validation = card.losses
    last = next(line for line in reversed(history) if "loss" in line)
    assert training == {"part": "training, step 12"} | {key: last[key] for key in ("loss", "task_loss", "lm_loss")}
    loss = evaluations[best]["eval_loss"]
    assert validation == {"part": "validation", "loss": loss, "task_loss": loss}
    assert card.seconds == next(line["train_runtime"] for line in history if "train_runtime" in line)
    assert card.hyperparameters["global batch size"] == 8
    assert card.hyperparameters["optimizer"] == "the release's Adam"
    assert card.hyperparameters["steps"] == 12
    assert card.hardware.startswith("CPU (")
    assert card.seed == trainer.args.seed
    assert not card.resumed
    # Each checkpoint has the card of its own step.
    for step, line in evaluations.items():
        own = Card.load(tmp_path / "out" / f"checkpoint-{step}")
        assert own.metrics == {"validation": {name: line[f"eval_{name}"] for name in ("accuracy", "f1_macro")}}
        assert (own.kept_step, own.chosen_by, own.seconds) == (step, None, None)
        assert own.losses[0]["part"] == f"training, step {step}"

    metrics = trainer.predict(encoded["test"]).metrics
    card = Card.load(tmp_path / "out")
    assert card.metrics["test"] == {name: metrics[f"test_{name}"] for name in ("accuracy", "f1_macro")}
    assert card.metrics["validation"]["accuracy"] == evaluations[best]["eval_accuracy"]
    assert card.rows == {"train": 25, "validation": 12, "test": 12}
    read = ModelCard.load(tmp_path / "out" / CARD)
    assert read.data.eval_results == card.eval_results()
    assert len(read.data.eval_results) == 4


def test_callback_of_a_run_that_goes_on(tiny_checkpoint, tmp_path):
    trainer, _ = trainer_for(tiny_checkpoint, tmp_path / "out", num_train_epochs=1)
    trainer.train()
    again, _ = trainer_for(tiny_checkpoint, tmp_path / "out", num_train_epochs=2)
    again.train(resume_from_checkpoint=str(tmp_path / "out" / "checkpoint-4"))
    card = Card.load(tmp_path / "out")
    assert card.resumed
    assert card.hyperparameters["steps"] == 8
    assert " s since it was last resumed" in (tmp_path / "out" / CARD).read_text(encoding="utf-8")


def test_callback_with_an_adapter(tiny_checkpoint, tmp_path):
    trainer, _ = trainer_for(tiny_checkpoint, tmp_path / "out", adaptation="lora", num_train_epochs=1)
    trainer.train()
    trainer.save_model()
    trainer.evaluate()
    card = Card.load(tmp_path / "out")
    assert card.adaptation == "lora"
    assert card.hyperparameters["adapter size"] == 8
    assert int(card.hyperparameters["trained parameters"].replace(",", "")) < 30_000
    assert "peft" in card.versions
    code = code_of((tmp_path / "out" / CARD).read_text(encoding="utf-8"))
    assert printed_by(code.replace('"."', repr(str(tmp_path / "out")))).startswith("tensor([[")


def test_callback_with_the_stock_trainer(tiny_checkpoint, tmp_path):
    """A language model with transformers' own Trainer, which logs one loss."""
    model, tokenizer = (
        AutoModelForCausalLM.from_pretrained(tiny_checkpoint),
        AutoTokenizer.from_pretrained(tiny_checkpoint),
    )
    ids = torch.randint(0, 8000, (12, 10)).tolist()
    rows = [{"input_ids": row, "labels": row} for row in ids]
    facts = FineTunedCard(
        task="letters",
        family="language-model",
        base_model=str(tiny_checkpoint),
        data_source="my letters",
        data_licence="none",
    )
    args = TrainingArguments(
        output_dir=str(tmp_path / "out"),
        use_cpu=True,
        disable_tqdm=True,
        report_to="none",
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        max_steps=3,
        logging_steps=1,
        save_strategy="no",
        warmup_steps=1,
        seed=11,
    )
    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=rows,
        eval_dataset=rows[:4],
        processing_class=tokenizer,
        callbacks=[ModelCardCallback(facts)],
    )
    trainer.train()
    assert Card.load(tmp_path / "out").metrics == {}
    loss = trainer.evaluate()["eval_loss"]
    trainer.save_model()
    card = Card.load(tmp_path / "out")
    assert card.rows == {"train": 12, "validation": 4}
    assert card.seed == 11
    assert card.losses[1] == {"part": "validation", "loss": loss}
    assert card.hyperparameters["global batch size"] == 8
    assert card.hyperparameters["optimizer"] == "adamw_torch_fused"
    assert card.hyperparameters["schedule"] == "linear, warm-up 1"
    assert (card.kept_step, card.chosen_by) == (3, None)
    text = (tmp_path / "out" / CARD).read_text(encoding="utf-8")
    assert "from my letters; licence: none. Rows: train 12, validation 4." in text
    assert "task loss" not in text
    printed = printed_by(code_of(text).replace('"."', repr(str(tmp_path / "out"))))
    assert printed.startswith("she opened the door and")


def test_metrics_among_what_the_trainer_reports():
    line = {"eval_loss": 1.0, "eval_runtime": 1.0, "eval_steps_per_second": 2.0, "eval_f1": 0.5, "epoch": 1.0}
    assert measured(line | {"eval_a_loss": 1.0, "eval_a_accuracy": 1, "eval_note": "x"}, "eval_") == {
        "f1": 0.5,
        "a_accuracy": 1.0,
    }


def test_hardware_of_several_processes():
    args = TrainingArguments(output_dir="x", use_cpu=True)
    alone = hardware(args)
    assert alone == f"CPU ({torch.backends.cpu.get_cpu_capability()}), threads: {torch.get_num_threads()}"


# Cards that are carried


def test_every_carried_folder_has_facts():
    assert {"gpt-mini", "openai-gpt"} <= {folder.name for folder in CARRIED}


@pytest.mark.parametrize("folder", CARRIED, ids=lambda folder: folder.name)
def test_carried_cards_are_what_their_facts_render_to(folder):
    card = Card.load(folder)
    assert isinstance(card, PretrainedCard)
    assert str(card.render()).encode() == (folder / CARD).read_bytes()
    read = ModelCard.load(folder / CARD)
    assert str(read).encode() == (folder / CARD).read_bytes()
    assert "\n\n\n" not in read.text
    assert read.data.license == card.licence
    if card.evaluation:
        name, results = model_index_to_eval_results(read.data.to_dict()["model-index"])
        assert name == card.name
        assert [result.metric_value for result in results] == [line["metric_value"] for line in card.evaluation]


@pytest.mark.parametrize("folder", CARRIED, ids=lambda folder: folder.name)
def test_commands_in_carried_cards_exist(folder):
    text = (folder / CARD).read_text(encoding="utf-8")
    for script, flags in re.findall(r"(scripts/\w+\.py)([^`\n]*)", text):
        assert (REPOSITORY / script).is_file()
        source = (REPOSITORY / "hf_gpt" / "commands" / Path(script).name).read_text(encoding="utf-8")
        for flag in re.findall(r"--(\w+)", flags):
            own = re.search(rf"\b{flag}:", source)
            known = {*FineTuningArguments.__dataclass_fields__, "model_name_or_path", "config"}
            assert own or flag in known, flag


@pytest.mark.parametrize("room", ["cards", "demo", "hub"])
def test_templates_are_packaged(room):
    settings = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    patterns = settings["tool"]["setuptools"]["package-data"][f"hf_gpt.{room}"]
    package = REPOSITORY / "hf_gpt" / room
    packaged = {path for pattern in patterns for path in package.glob(pattern)}
    templates = set((package / "templates").iterdir())
    assert templates
    assert templates <= packaged


def test_card_of_features(tmp_path):
    record = {
        "format": "parquet",
        "pooling": "mean",
        "unit": "token",
        "word_pooling": "mean",
        "layers": [0, 5],
        "shards": 1,
        "model_name_or_path": "someone/gpt",
        "width": 32,
        "input_files": [["texts|1.txt", 9, 9]],
        "rows": 1200,
        "tokens": 9000,
        "truncated_rows": 2,
        "truncated_tokens": 30,
        "max_length": 64,
        "empty_rows": 0,
        "task_template": False,
        "dtype": "float32",
    }
    (tmp_path / CARD).write_text(card_text(record), encoding="utf-8")
    card = DatasetCard.load(tmp_path / CARD)
    assert card.data["configs"] == [{"config_name": "default", "data_files": "data/*.parquet"}]
    assert "| texts | texts\\|1.txt |" in card.text
    assert "of layer 0, 5 (0 is the output of the embedding" in card.text
    assert "## Limits\n\n- Rows that were truncated" in card.text
    assert "\n\n\n" not in card.text
    assert card_text(record).endswith("trained on.\n")
