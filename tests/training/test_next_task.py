"""A fine-tuned model, or an adapter, as the start for the next task: the transformer stays, the head is new."""

from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer

from hf_gpt import GPTForCausalLM, GPTForMultipleChoice, GPTForSequenceClassification, load_adapter
from hf_gpt.adapters import merge_adapter
from hf_gpt.tasks import custom_task, get_task
from hf_gpt.training.arguments import ModelArguments
from hf_gpt.training.loading import describe_start, load_model

from ..support.adapters import adapted, save_adapter


def task_of(*names: str):
    return custom_task("classification", "rows.csv", text_column="text", class_names=list(names))


RTE, MNLI = task_of("entailment", "not_entailment"), task_of("contradiction", "entailment", "neutral")
QNLI, STORIES = task_of("answered", "not_answered"), get_task("stories")


@pytest.fixture(scope="module")
def starts(tiny_checkpoint, tmp_path_factory) -> dict[str, Path]:
    """Models that were fine-tuned on a task, and adapters of a language model."""
    root, base = tmp_path_factory.mktemp("starts"), tiny_checkpoint
    folders, tokenizer = {"language model": base}, AutoTokenizer.from_pretrained(base)

    def save(name: str, model, **settings) -> None:
        folders[name] = root / name
        model.save_pretrained(folders[name], **settings)
        tokenizer.save_pretrained(folders[name])

    for name, spec, extra in (("mnli", MNLI, {}), ("rte", RTE, {}), ("mix", RTE, {"head_layers": "mix"})):
        labels = dict(enumerate(spec.label_names))
        torch.manual_seed(1)
        save(name, GPTForSequenceClassification.from_pretrained(base, id2label=labels, **extra))
    save("stories", GPTForMultipleChoice.from_pretrained(base))
    model = adapted("lora", "classification", base)
    save("lora", model)
    save_adapter(model, folders["lora"])
    model = GPTForCausalLM.from_pretrained(base)
    renamed = {name.replace(".h.1.mlp", ".h.1.other"): value for name, value in model.state_dict().items()}
    save("damaged", model, state_dict=renamed)
    model.config.classify_token_id = 5
    save("other tokens", model)
    return folders


def start(folder: Path, spec, **options):
    args = ModelArguments(str(folder), **options)
    return load_model(args, spec, args.tokenizer_source.tokenizer(task_template=True), seed=3)


def part_of(model, is_body: bool) -> dict[str, torch.Tensor]:
    """The parameters of the transformer, or those of the head."""
    return {name: value for name, value in model.state_dict().items() if name.startswith("transformer.") == is_body}


CASES = {"mnli": RTE, "rte": QNLI, "stories": MNLI, "mix": RTE, "lora": STORIES}


@pytest.mark.parametrize("name", CASES)
def test_the_transformer_stays_and_the_head_is_that_of_a_language_model(starts, name, capfd):
    spec = CASES[name]
    model, new = start(starts[name], spec), start(starts["language model"], spec)
    printed = capfd.readouterr()
    assert "REPORT" not in printed.out + printed.err
    if name == "lora":
        before = merge_adapter(load_adapter(starts[name]))
        weight = "transformer.h.0.attn.c_attn.weight"
        assert not torch.equal(model.get_parameter(weight), new.get_parameter(weight))
    else:
        head = GPTForMultipleChoice if name == "stories" else GPTForSequenceClassification
        before = head.from_pretrained(starts[name])
    torch.testing.assert_close(part_of(model, True), part_of(before, True), rtol=0, atol=0)
    torch.testing.assert_close(part_of(model, False), part_of(new, False), rtol=0, atol=0)
    fields = ("id2label", "num_labels", "problem_type", "head_layers")
    assert [getattr(model.config, field) for field in fields] == [getattr(new.config, field) for field in fields]


@pytest.mark.parametrize(("name", "spec"), [("rte", RTE), ("stories", STORIES)], ids=["classes", "choices"])
def test_keep_head(starts, name, spec):
    model = start(starts[name], spec, keep_head=True)
    assert describe_start(ModelArguments(str(starts[name]), keep_head=True)).endswith("; its head is kept")
    kept = type(model).from_pretrained(starts[name])
    torch.testing.assert_close(model.state_dict(), kept.state_dict(), rtol=0, atol=0)


WRONG = [
    ("rte", {"keep_head": True}, r"knows the labels entailment, not_entailment, custom has answered, not_answered"),
    ("stories", {"keep_head": True}, r"holds GPTForMultipleChoice; custom needs a GPTForSequenceClassification"),
    ("lora", {"adaptation": "bitfit"}, r"merge it first \(scripts/convert\.py .*lora MERGED\)"),
    ("other tokens", {}, r"_classify_ is 5 in the model"),
    ("damaged", {}, r"lacks transformer\.h\.1\.mlp\..* and 1 more, or has them in other shapes"),
]


@pytest.mark.parametrize(("name", "options", "message"), WRONG, ids=[f"{name} {more}" for name, more, _ in WRONG])
def test_what_cannot_be_a_start_is_refused(name, options, message, starts):
    with pytest.raises(ValueError, match=message):
        start(starts[name], QNLI, **options)


def test_an_adapter_on_a_fine_tuned_model_comes_back(starts, tmp_path):
    model = start(starts["mnli"], RTE, adaptation="lora").eval()
    save_adapter(model, tmp_path)
    ids = torch.tensor([[model.config.start_token_id, 5, model.config.classify_token_id]])
    with torch.no_grad():
        assert torch.equal(load_adapter(tmp_path)(ids).logits, model(ids).logits)
