"""Cards: metadata that the Hub's own library reads back, code that runs, and what a Trainer puts into them."""

import math
import re
from pathlib import Path

import pytest
import yaml
from huggingface_hub import ModelCard, parse_eval_result_entries
from huggingface_hub.repocard_data import model_index_to_eval_results
from peft import get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments

from hf_gpt import FineTuningArguments
from hf_gpt.adapters import adapter_config
from hf_gpt.cards import FineTunedCard, fill_in, learning_rate_advice
from hf_gpt.files import CARD, FACTS
from hf_gpt.tasks import get_task
from hf_gpt.training.finetune import summarise

from ..support.adapters import save_adapter
from ..support.runs import REPOSITORY, answers_of_card

LICENCES = {"gpt-mini": "apache-2.0", "openai-gpt": "mit"}
METRICS = {"validation": {"accuracy": 0.75, "f1_macro": 0.7312345}, "test": {"accuracy": 0.5, "f1_macro": 0.25}}


def filled_card(**facts) -> FineTunedCard:
    known = {"task": "questions", "family": "classification", "base_model": "someone/gpt", "seed": 7, "seconds": 29.4}
    known |= {"metrics": METRICS, "rows": {"train": 780, "validation": 150, "test": 270}}
    known["hyperparameters"] = {"a|b": "c\nd", "language-model coefficient": 0.5}
    return FineTunedCard(**known | facts)


@pytest.mark.parametrize("adaptation", ["full", "lora"])
def test_code_of_a_language_models_card_runs(adaptation, tiny_checkpoint, tmp_path):
    """That of other cards runs in `training/test_families.py`."""
    model = AutoModelForCausalLM.from_pretrained(tiny_checkpoint)
    model.save_pretrained(tmp_path)
    if adaptation == "lora":
        save_adapter(get_peft_model(model, adapter_config("lora", model.config, task_type="CAUSAL_LM")), tmp_path)
    AutoTokenizer.from_pretrained(tiny_checkpoint).save_pretrained(tmp_path)
    filled_card(family="language-model", adaptation=adaptation, base_model=str(tiny_checkpoint)).save(tmp_path)
    assert answers_of_card(tmp_path).startswith("she opened the door and")


@pytest.mark.parametrize("name", LICENCES)
def test_bundled_cards_are_read_and_their_code_and_commands_run(name, tiny_checkpoint, tmp_path, monkeypatch):
    folder = REPOSITORY / "model_cards" / name
    (tmp_path / "gpt1").symlink_to(tiny_checkpoint)
    (tmp_path / "model_cards").symlink_to(REPOSITORY / "model_cards")
    monkeypatch.chdir(tmp_path)
    assert answers_of_card(folder).startswith("she opened the door and")
    card = ModelCard.load(folder / CARD)
    assert (card.data.license, card.data.pipeline_tag) == (LICENCES[name], "text-generation")
    assert "## Limits\n" in card.text
    for script, flags in re.findall(r"(scripts/\w+\.py)([^`\n]*)", card.text):
        assert (REPOSITORY / script).is_file()
        source = (REPOSITORY / "hf_gpt" / "commands" / Path(script).name).read_text(encoding="utf-8")
        known = {*FineTuningArguments.__dataclass_fields__, "model_name_or_path", "config"}
        for flag in re.findall(r"--(\w+)", flags):
            assert flag in known or re.search(rf"\b{flag}:", source), flag


def test_the_card_of_a_model_proposes_its_learning_rate(hf_gpt, tmp_path):
    """Where no other than the paper's was asked for."""
    mini = str(REPOSITORY / "model_cards" / "gpt-mini")
    flags = ("finetune", "--model_name_or_path", mini, "--task", "none", "--output_dir", tmp_path / "out")
    assert "proposes --learning_rate 0.0005; this run takes the paper's, 6.25e-05" in hf_gpt(*flags)[1]
    for more in (("--learning_rate", "1e-3"), ("--adaptation", "lora")):
        assert "its card" not in hf_gpt(*flags, *more)[1]
    (tmp_path / CARD).write_text("---\n: [\n---\n")
    openai = mini.replace("gpt-mini", "openai-gpt")
    for model, rate in ((mini, 5e-4), (openai, 1.0), ("nowhere", 1.0), (tmp_path, 1.0)):
        assert learning_rate_advice(str(model), rate) is None


def test_model_index_is_read_back_as_it_was_written(tmp_path):
    facts = {"metrics": METRICS, "main_metric": "accuracy", "rows": {"test": 270}, "seed": 7}
    card = FineTunedCard.for_task(get_task("cola"), "someone/gpt", **facts)
    card.save(tmp_path)
    read = ModelCard.load(tmp_path / CARD)
    assert model_index_to_eval_results(read.data.to_dict()["model-index"]) == ("gpt-cola", card.eval_results())
    assert read.data.datasets == ["nyu-mll/glue"]
    (entry,) = parse_eval_result_entries(yaml.safe_load((tmp_path / ".eval_results" / "cola.yaml").read_text()))
    assert (entry.dataset_id, entry.task_id) == ("nyu-mll/glue", "cola")
    assert (entry.value, entry.notes) == (0.5, "accuracy, 270 rows of test")
    _, second, _, last = read.data.eval_results
    described = (second.task_type, second.dataset_type, second.dataset_config)
    assert described == ("text-classification", "nyu-mll/glue", "cola")
    assert (second.metric_type, second.metric_name, second.metric_value) == ("f1", "f1_macro", 0.7312)
    assert second.metric_args == {"average": "macro", "seed": 7}
    assert last.dataset_args == {"task": "cola", "version": get_task("cola").version, "rows": 270}
    bundled = FineTunedCard.for_task(get_task("questions"), "gpt", metrics=METRICS).render()
    assert (bundled.data.datasets, bundled.data.eval_results[0].dataset_type) == (None, "questions")


def test_several_seeds_and_undefined_values():
    common = {"task": "t", "main_metric": "accuracy", "chance": 0.5, "rows": {}, "model": "m", "random_weights": False}
    scores = {7: 0.5, 8: 0.9, 9: 0.7}
    records = {seed: common | {"metrics": {"test": {"accuracy": score}}} for seed, score in scores.items()}
    card = filled_card(metrics={"test": {"accuracy": 0.5, "f1": math.nan}}, seeds=summarise(records)).render()
    (result,) = card.data.eval_results
    assert result.metric_value == 0.5
    assert result.metric_args == {"seed": 7, "seeds": [7, 8, 9], "median": 0.7, "lowest": 0.5, "highest": 0.9}
    assert "| test | accuracy | 0.5000 | 0.7000 | 0.5000 | 0.9000 |" in card.text
    assert "(seed 7), the others are over the seeds 7, 8, 9" in card.text
    assert "one seed" not in card.text
    assert "nan" not in str(card)
    nothing = filled_card(metrics={}).render()
    assert nothing.data.eval_results is None
    assert "Nothing was measured." in nothing.text


BASES = {
    "model": ({}, "someone/gpt", "finetune"),
    "adapter": ({"adaptation": "lora"}, "someone/gpt", "adapter"),
    "random weights": ({"random_weights": True}, None, None),
    "folder": ({"base_model": str(REPOSITORY / "model_cards" / "gpt-mini")}, None, None),
}


@pytest.mark.parametrize("case", BASES)
def test_base_model(case, tmp_path):
    facts, base_model, relation = BASES[case]
    filled_card(**facts).save(tmp_path)
    data = ModelCard.load(tmp_path / CARD).data
    assert (data.base_model, data.get("base_model_relation")) == (base_model, relation)
    assert str(REPOSITORY) not in (tmp_path / CARD).read_text(encoding="utf-8")


def test_facts_give_the_same_card_again_also_where_the_base_model_is_gone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("outputs/gpt").mkdir(parents=True)
    card = filled_card(base_model="outputs/gpt", description="What | is asked", label_names=["a", "b"])
    card.save(tmp_path / "out")
    Path("outputs/gpt").rmdir()
    before = (tmp_path / "out" / CARD).read_bytes()
    again = FineTunedCard.load(tmp_path / "out")
    assert again == card
    again.save(tmp_path / "out")
    assert (tmp_path / "out" / CARD).read_bytes() == before
    assert again.render().data.base_model is None


MINIMAL = "task: t\nfamily: f\nbase_model: b\n"
SCORES = f"{MINIMAL}metrics: {{test: {{f1: 1.0}}}}\n"
WRONG_FACTS = {
    "no file": (None, "No such file"),
    "no YAML": ("task: [", "not valid YAML"),
    "no mapping": ("- task", "must hold"),
    "unknown": (f"{MINIMAL}license: mit", "card.yaml: .* unexpected keyword argument 'license'"),
    "missing": ("task: t", "card.yaml: .* missing .* 'family'"),
    "type": (f"{MINIMAL}limits: none", "limits must be a list"),
    "metric": (SCORES.replace("1.0", "high"), "card.yaml: metrics must be"),
    "seeds": (f"{SCORES}seeds: {{seeds: [1], metrics: {{test: {{f1: {{}}}}}}}}", "card.yaml: there is no 'median'"),
}


@pytest.mark.parametrize("case", WRONG_FACTS)
def test_wrong_facts(case, tmp_path):
    text, message = WRONG_FACTS[case]
    if text is not None:
        (tmp_path / FACTS).write_text(text)
    with pytest.raises((ValueError, OSError), match=message):
        FineTunedCard.load(tmp_path)


def test_text_says_what_the_facts_say():
    facts = {"chance": 0.8, "main_metric": "accuracy", "kept_step": 40, "chosen_by": "accuracy", "max_length": 64}
    card = filled_card(**facts, limits=["Trained for a test."], licence="mit").render()
    said = ["| a\\|b | c d |", "step 40, the best on the validation", "Rows: train 780, validation 150, test 270."]
    said += ["| validation | f1_macro | 0.7312 |", "validation accuracy would be 0.8000", "- Trained for a test."]
    said += ["accuracy is no better than without reading", "data was not stated", "truncated to 64 tokens."]
    assert [line for line in said if line not in card.text] == []
    assert card.data.license == "mit"
    assert "\n\n\n" not in card.text


def test_what_the_stock_trainer_knows(tiny_checkpoint, tmp_path):
    """A language model with transformers' own Trainer; of ours see `training/test_fine_tuning.py`."""
    model = AutoModelForCausalLM.from_pretrained(tiny_checkpoint)
    rows = [{"input_ids": [*range(first, first + 10)], "labels": [*range(10)]} for first in range(12)]
    options = {"use_cpu": True, "disable_tqdm": True, "report_to": "none", "save_strategy": "no", "seed": 11}
    options |= {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "max_steps": 3, "warmup_steps": 1}
    trainer = Trainer(model, TrainingArguments(str(tmp_path), **options), train_dataset=rows)
    trainer.train()
    card = FineTunedCard("letters", "language-model", str(tiny_checkpoint))
    fill_in(card, trainer.args, trainer.state, model)
    assert (card.seed, card.kept_step, card.chosen_by) == (11, 3, None)
    settings = {"global batch size": 8, "optimizer": "adamw_torch_fused", "schedule": "linear, warm-up 1"}
    assert card.hyperparameters.items() >= settings.items()
