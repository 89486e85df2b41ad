"""A fine-tuned model, or an adapter, as the start for the next task: the transformer stays, the head is new."""

import json
from pathlib import Path

import pytest
import torch
import yaml
from peft import get_peft_model
from transformers import AutoTokenizer

from hf_gpt import GPTForCausalLM, GPTForMultipleChoice, GPTForSequenceClassification, adapter_config, load_adapter
from hf_gpt.adapters import HEAD_CONFIG, head_config, merge_adapter
from hf_gpt.commands import parse_arguments
from hf_gpt.loading import load_tokenizer
from hf_gpt.tasks import custom_task, get_task
from hf_gpt.training.arguments import ModelArguments
from hf_gpt.training.finetune import run
from hf_gpt.training.loading import describe_start, load_model

from ..support.runs import ARGUMENTS, finetune, save_tiny_model

# Of peft.
pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")


def task_of(*names: str):
    return custom_task("classification", "rows.csv", text_column="text", class_names=list(names))


RTE, MNLI = task_of("entailment", "not_entailment"), task_of("contradiction", "entailment", "neutral")
QNLI, STORIES = task_of("answered", "not_answered"), get_task("stories")


@pytest.fixture(scope="module")
def starts(tmp_path_factory) -> dict[str, Path]:
    """Models that were fine-tuned on a task, and adapters of a language model."""
    root = tmp_path_factory.mktemp("starts")
    base = save_tiny_model(root / "language model")
    tokenizer = AutoTokenizer.from_pretrained(base)
    folders = {"language model": base}

    def save(name: str, model) -> None:
        folders[name] = root / name
        model.save_pretrained(folders[name])
        tokenizer.save_pretrained(folders[name])

    for name, spec, extra in (("mnli", MNLI, {}), ("rte", RTE, {}), ("mix", RTE, {"head_layers": "mix"})):
        labels = dict(enumerate(spec.label_names))
        torch.manual_seed(1)
        save(name, GPTForSequenceClassification.from_pretrained(base, id2label=labels, **extra))
    save("stories", GPTForMultipleChoice.from_pretrained(base))
    for method in ("lora", "prompt", "houlsby"):
        model = GPTForSequenceClassification.from_pretrained(base, num_labels=3)
        adapted = get_peft_model(model, adapter_config(method, model.config))
        for name, parameter in adapted.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(parameter)
        save(method, adapted)
        (folders[method] / HEAD_CONFIG).write_text(json.dumps(head_config(adapted)))
    return folders


def start(folder: Path, spec, **options):
    args = ModelArguments(str(folder), **options)
    return load_model(args, spec, load_tokenizer(args), seed=3)


def transformer_of(model) -> dict[str, torch.Tensor]:
    return {name: value for name, value in model.state_dict().items() if name.startswith("transformer.")}


def head_of(model) -> dict[str, torch.Tensor]:
    return {name: value for name, value in model.state_dict().items() if not name.startswith("transformer.")}


def same(ours: dict, theirs: dict) -> bool:
    return ours.keys() == theirs.keys() and all(torch.equal(value, theirs[name]) for name, value in ours.items())


@pytest.mark.parametrize(
    ("name", "spec"),
    [
        ("mnli", RTE),
        ("rte", QNLI),
        ("rte", RTE),
        ("rte", STORIES),
        ("stories", MNLI),
        ("mix", RTE),
        ("stories", STORIES),
        ("lora", RTE),
        ("lora", MNLI),
        ("lora", STORIES),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(value.label_names or [value.name]),
)
def test_the_transformer_stays_and_the_head_is_that_of_a_language_model(starts, name, spec, capfd):
    model = start(starts[name], spec)
    printed = capfd.readouterr()
    assert "REPORT" not in printed.out + printed.err
    new = start(starts["language model"], spec)
    assert same(head_of(model), head_of(new))
    before = merge_adapter(load_adapter(starts[name])) if name == "lora" else None
    if before is None:
        before = (GPTForMultipleChoice if name == "stories" else GPTForSequenceClassification).from_pretrained(
            starts[name]
        )
    else:
        assert not same(transformer_of(model), transformer_of(new))
    assert same(transformer_of(model), transformer_of(before))
    fields = ("id2label", "num_labels", "problem_type", "head_layers")
    assert [getattr(model.config, field) for field in fields] == [getattr(new.config, field) for field in fields]


def test_no_report_for_the_new_head_of_a_language_model(starts, capfd):
    start(starts["language model"], RTE)
    printed = capfd.readouterr()
    assert "REPORT" not in printed.out + printed.err


@pytest.mark.parametrize(("name", "spec"), [("rte", RTE), ("stories", STORIES)], ids=["classes", "choices"])
def test_keep_head(starts, name, spec):
    model = start(starts[name], spec, keep_head=True)
    assert same(model.state_dict(), type(model).from_pretrained(starts[name]).state_dict())


@pytest.mark.parametrize(
    ("name", "spec", "message"),
    [
        ("rte", QNLI, r"knows the labels entailment, not_entailment, custom has answered, not_answered"),
        ("mnli", RTE, r"knows the labels contradiction, .*"),
        ("rte", STORIES, r"holds GPTForSequenceClassification; stories needs a GPTForMultipleChoice"),
        ("language model", RTE, r"holds GPTForCausalLM; custom needs a GPTForSequenceClassification"),
    ],
    ids=["other labels", "other count", "other kind", "no head"],
)
def test_keep_head_demands_the_same_labels(starts, name, spec, message):
    with pytest.raises(
        ValueError, match=rf"--keep_head: .*{message}\. Leave it out, and the head is newly initialized\.$"
    ):
        start(starts[name], spec, keep_head=True)


@pytest.mark.parametrize("method", ["prompt", "houlsby"])
def test_adapters_that_cannot_be_merged_are_refused_with_the_command(starts, method):
    with pytest.raises(ValueError, match=r"cannot be merged.* --model_name_or_path .*language model\.$"):
        start(starts[method], RTE)


def test_an_adapter_is_no_base_of_another(starts):
    with pytest.raises(ValueError, match=r"Merge it first \(scripts/convert\.py .*lora MERGED\)"):
        start(starts["lora"], RTE, adaptation="bitfit")


def test_an_adapter_on_a_fine_tuned_model_comes_back(starts, tmp_path):
    model = start(starts["mnli"], RTE, adaptation="lora").eval()
    model.save_pretrained(tmp_path)
    (tmp_path / HEAD_CONFIG).write_text(json.dumps(head_config(model)))
    ids = torch.tensor([[model.config.start_token_id, 5, model.config.classify_token_id]])
    with torch.no_grad():
        assert torch.equal(load_adapter(tmp_path)(ids).logits, model(ids).logits)


def test_a_checkpoint_that_lacks_weights_is_refused(starts, tmp_path):
    model = GPTForCausalLM.from_pretrained(starts["language model"])
    renamed = {name.replace(".h.1.mlp", ".h.1.other"): value for name, value in model.state_dict().items()}
    model.save_pretrained(tmp_path, state_dict=renamed)
    AutoTokenizer.from_pretrained(starts["language model"]).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"lacks transformer\.h\.1\.mlp\..* and 1 more, or has them in other shapes"):
        start(tmp_path, RTE)


def test_what_a_start_is_called(starts):
    def described(name: str, **options) -> str:
        return describe_start(ModelArguments(str(starts[name]), **options))

    assert described("language model") == "GPTForCausalLM; the head is newly initialized"
    assert described("mnli") == "GPTForSequenceClassification with 3 labels; the head is newly initialized"
    assert described("rte", keep_head=True) == "GPTForSequenceClassification with 2 labels; its head is kept"
    assert described("lora").startswith("GPTForSequenceClassification with 3 labels, an adapter merged into its base")


SHORT = ("--max_train_rows", 16, "--max_eval_rows", 8, "--max_steps", 1)


def test_the_record_and_the_card_say_what_was_drawn(starts, tmp_path, capsys):
    flags = ("--task", "questions", "--output_dir", tmp_path / "out", *SHORT)
    record = finetune("--model_name_or_path", starts["stories"], *flags)
    said = "GPTForMultipleChoice; the head is newly initialized"
    assert record["starts_from"] == said
    assert f"Starts from {said}.\n" in capsys.readouterr().out
    facts = yaml.safe_load((tmp_path / "out" / "card.yaml").read_text())
    assert facts["hyperparameters"]["starts from"] == said
    assert said in (tmp_path / "out" / "README.md").read_text()


def test_several_tasks_start_from_a_fine_tuned_model(starts, tmp_path):
    flags = ("--tasks", "questions", "stories", "--output_dir", tmp_path / "out", *SHORT, "--use_cpu", "true")
    flags = map(str, ("--model_name_or_path", starts["mnli"], "--disable_tqdm", "true", *flags))
    record = run(*parse_arguments(ARGUMENTS, list(flags)))
    assert record["starts_from"] == "GPTForSequenceClassification with 3 labels; the head is newly initialized"
    assert GPTForMultipleChoice.from_pretrained(tmp_path / "out" / "stories").score.out_features == 1
