"""
Zero-shot answers of language models, ours and others: as of candidates alone, and as lm-evaluation-harness gives them;
what is evaluated with and without a head.
"""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from scipy.special import softmax
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast

from hf_gpt.evaluation.zero_shot import RULES, ZeroShotTransform, zero_shot_rule, zero_shot_transform
from hf_gpt.tasks import get_task

from ..support.runs import evaluation, predictions
from ..support.stock_models import save_gpt2
from ..support.task_files import jsonl, write, write_rows

pytestmark = pytest.mark.usefixtures("own_datasets_cache")

CHOICES = ("a", "b", "c")
ITEMS = [
    {"context": "She didn't open the door, but", "a": "the window.", "b": "he did.", "c": "it rained", "label": 1},
    {"context": "The rain fell all night.", "a": "Streets were wet", "b": "It was dry", "c": "he", "label": 0},
    {"context": "Ünder the größte Brücke", "a": "the the", "b": "über", "c": "the door the door", "label": 2},
    {"context": "He opened", "a": "door", "b": "the door", "c": "all the windows", "label": 2},
]
SMALL = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
HARNESS_TASK = """
task: items
dataset_path: json
dataset_kwargs: {data_files: {test: FILE}}
test_split: test
output_type: multiple_choice
doc_to_text: context
doc_to_choice: choices
doc_to_target: label
metric_list: [{metric: acc}]
"""


def save_small(folder, kind="llama", model_class=AutoModelForCausalLM, max_shard_size="5GB", **settings):
    """A model with large weights and a tokenizer as Llama's: a mark of spaces, and a token before every text."""
    backend = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>"))
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    special = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    texts = [str(value) for item in ITEMS for value in item.values()]
    backend.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=340, special_tokens=special))
    backend.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 1)])
    tokens = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    PreTrainedTokenizerFast(tokenizer_object=backend, **tokens).save_pretrained(folder)
    torch.manual_seed(0)
    config = AutoConfig.for_model(kind, **SMALL | {"vocab_size": 340, "max_position_embeddings": 64} | settings)
    model = model_class.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    model.save_pretrained(folder, max_shard_size=max_shard_size)
    return folder


def write_items(folder) -> Path:
    """The items as a file of their own."""
    rows = (item | {"choices": [item[name] for name in CHOICES]} for item in ITEMS)
    return write(folder, {"items.jsonl": jsonl(*rows)}) / "items.jsonl"


def zero_shot(model, output, file, *flags) -> dict:
    columns = ["--task", "custom", "--context_column", "context", "--choice_columns", *CHOICES, "--test_file", file]
    return evaluation("--zero_shot", "--model_name_or_path", model, "--output_dir", output, *columns, *flags)


def scores(model, texts, candidates, reduce):
    """Of candidates after texts, each read alone: reduced log-probabilities of the tokens behind the text's."""
    tokenizer, found = AutoTokenizer.from_pretrained(model), []
    model = AutoModelForCausalLM.from_pretrained(model, dtype="float32").eval()
    for text, each in zip(texts, candidates, strict=True):
        begin, row = len(tokenizer(text)["input_ids"]), []
        for candidate in each:
            ids = torch.tensor([tokenizer(f"{text} {candidate}")["input_ids"]])
            with torch.no_grad():
                log_probs = model(ids).logits[0, begin - 1 : -1].log_softmax(-1)
            row.append(reduce(log_probs.gather(1, ids[0, begin:, None])).item())
        found.append(row)
    return np.array(found)


def probabilities(output):
    return [[float(value) for name, value in row.items() if name[:2] == "p("] for row in predictions(output)]


@pytest.fixture(params=["hf_gpt", "llama", "llama in several files"])
def model(request, tiny_checkpoint, tmp_path):
    if request.param == "hf_gpt":
        return tiny_checkpoint
    return save_small(tmp_path / "model", max_shard_size="5GB" if request.param == "llama" else "30KB")


@pytest.mark.parametrize("score", ["mean", "sum"])
def test_choices_are_scored_as_alone(model, score, tmp_path):
    flags = [] if score == "mean" else ["--zero_shot_score", "sum", "--share_prefix", "false"]
    record = zero_shot(model, tmp_path / "out", write_items(tmp_path), *flags)
    candidates = [[item[name] for name in CHOICES] for item in ITEMS]
    expected = scores(model, [item["context"] for item in ITEMS], candidates, getattr(torch, score))
    np.testing.assert_allclose(probabilities(tmp_path / "out"), softmax(expected, axis=1), rtol=0, atol=1e-5)
    assert record == json.loads((tmp_path / "out" / "metrics.json").read_text())
    assert record["metrics"]["accuracy"] == np.mean(expected.argmax(1) == [item["label"] for item in ITEMS])
    assert (record["zero_shot"], record["score"]) == ("choices", score)


def test_words_behind_a_prompt(model, tmp_path):
    texts = ["the rain fell", "he opened it"]
    file = write_rows(tmp_path, ("text", "label"), *((text, "bad") for text in texts))
    flags = ["--class_names", "bad", "good", "--zero_shot_prompt", "very", "--zero_shot_words", "wet", "dry all"]
    flags += ["--task", "custom", "--text_column", "text", "--test_file", file, "--output_dir", tmp_path / "out"]
    record = evaluation("--zero_shot", "--model_name_or_path", model, *flags)
    expected = scores(model, [f"{text} very" for text in texts], [["wet", "dry all"]] * 2, torch.sum)
    np.testing.assert_allclose(probabilities(tmp_path / "out"), softmax(expected, axis=1), rtol=0, atol=1e-5)
    assert (record["words"], record["prompt"]) == (["wet", "dry all"], "very")
    assert record["metrics"]["accuracy"] == np.mean(expected.argmax(1) == 0)


def without_a_tensor(folder):
    tensors = load_file(folder / "model.safetensors")
    tensors.pop("model.norm.weight")
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def as_a_pickle(folder):
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


def with_a_kernel_of_the_hub(folder):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"_attn_implementation": "user/kernel"}))


@pytest.mark.parametrize(
    ("settings", "change", "reason"),
    [
        ({"kind": "mamba"}, None, "MambaForCausalLM cannot hold token trees: its states are recurrent"),
        ({"kind": "bloom"}, None, "BloomForCausalLM cannot hold token trees: .*position_ids"),
        ({"kind": "t5", "model_class": AutoModel}, None, "Unrecognized configuration class.*T5Config"),
        ({"vocab_size": 300}, None, "The tokenizer has 3.. tokens and .* 300 rows"),
        ({}, without_a_tensor, "model lacks model.norm.weight"),
        ({}, as_a_pickle, "model.safetensors"),
        ({}, with_a_kernel_of_the_hub, "names a kernel of the Hub"),
    ],
    ids=["mamba", "bloom", "t5", "rows", "incomplete", "pickle", "kernel"],
)
def test_what_does_not_answer_says_why(settings, change, reason, tmp_path):
    model = save_small(tmp_path / "model", **settings)
    if change is not None:
        change(model)
    with pytest.raises((ValueError, OSError), match=reason):
        zero_shot(model, tmp_path / "out", write_items(tmp_path))
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
@pytest.mark.whole
@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_accuracy_is_that_of_lm_evaluation_harness(kind, tmp_path):
    lm_eval = pytest.importorskip("lm_eval", reason="needs pip install lm_eval")
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager

    folder, items = tmp_path / "model", write_items(tmp_path)
    (save_small if kind == "llama" else save_gpt2)(folder)
    (tmp_path / "items.yaml").write_text(HARNESS_TASK.replace("FILE", str(items)), encoding="utf-8")
    results = lm_eval.simple_evaluate(
        model=HFLM(pretrained=str(folder), device="cpu", dtype="float32", batch_size=2),
        tasks=["items"],
        task_manager=TaskManager(include_path=str(tmp_path), include_defaults=False),
        bootstrap_iters=0,
    )
    samples = sorted(results["samples"]["items"], key=lambda sample: sample["doc_id"])
    sums = np.array([[score for score, _ in sample["filtered_resps"]] for sample in samples])
    record = zero_shot(folder, tmp_path / "out", items, "--zero_shot_score", "sum")
    np.testing.assert_allclose(probabilities(tmp_path / "out"), softmax(sums, axis=1), rtol=0, atol=1e-4)
    assert record["metrics"]["accuracy"] == results["results"]["items"]["acc,none"]


ROW = {"context": [1, 2, 3], "question": [4], "choices": [[5, 6, 7], [5, 6], [8], [5, 9, 9, 9]]}
PROMPT = {"prompt": (13,), "words": ((9, 10), (9, 11), (12,))}


@pytest.mark.parametrize(
    ("transform", "row", "paths", "lost"),
    [
        (ZeroShotTransform(8), ROW, [[1, 2, 3, 4, 5, 6, 7]], 0),
        (ZeroShotTransform(6), ROW, [[1, 2, 4, 5, 6, 7]], 2),
        (ZeroShotTransform(6, **PROMPT), {"text": [1, 2, 3, 4, 5]}, [[1, 2, 3, 13, 9, 10]], 2),
    ],
    ids=["fits", "choices", "words"],
)
def test_what_is_too_long_is_truncated(transform, row, paths, lost):
    tree, count = transform.fit(row)
    path = [tree.input_ids[index] for index in tree.path(0)]
    assert [path] == paths
    assert max(tree.position_ids) < transform.max_length
    assert count == lost


def test_rules():
    assert zero_shot_rule(get_task("stories")).kind == "choices"
    rule = zero_shot_rule(get_task("sst2"))
    assert (rule.kind, rule.prompt, rule.words) == ("words", "very", ("negative", "positive"))
    assert zero_shot_rule(get_task("sst2"), words=["bad", "good"]).words == ("bad", "good")
    for task, words, message in (
        ("questions", None, "one word for each of its classes, ABBR, DESC"),
        ("sst2", ["good"], "one word for each"),
        ("snli", ["a", "b", "c"], "only texts with one class"),
        ("stories", ["a", "b"], "answered by its choices"),
    ):
        with pytest.raises(ValueError, match=message):
            zero_shot_rule(get_task(task), words=words)


def run_evaluation(model: Path, output: Path, *flags) -> dict:
    return evaluation("--model_name_or_path", model, "--output_dir", output, "--max_eval_rows", 20, *flags)


@pytest.mark.parametrize(("flags", "labels"), [([], "xy"), (["--label_separator", ";"], ["x", "x;y"])], ids=str)
def test_new_rows_without_labels_and_training_file_are_predicted(flags, labels, train, tmp_path):
    rows, model = [(f"text {number}", labels[number % 2]) for number in range(26)], tmp_path / "trained"
    given = write_rows(tmp_path, ("text", "label"), *rows[:20])
    new = write_rows(tmp_path, ("text",), *(row[:1] for row in rows[20:]), name="new.csv")
    task = ["--task", "custom", "--text_column", "text"]
    train(model, *task, *flags, "--train_file", given, "--max_steps", 1)
    record = run_evaluation(model, tmp_path / "out", "--test_file", new, *task)
    assert (record["rows"], record["metrics"]) == (6, {})
    found = predictions(tmp_path / "out")
    assert [(row["id"], row["label"], "p(y)" in row) for row in found] == [(str(row), "", True) for row in range(6)]
    if flags:
        return
    # Of rows of which some have labels, these are evaluated.
    write_rows(tmp_path, ("text", "label"), rows[0], ("text 1", ""), ("", ""), rows[2], name="new.csv")
    record = run_evaluation(model, tmp_path / "some", "--test_file", new, *task)
    assert (record["rows"], record["measured_rows"]) == (4, 2)
    assert [bool(row["prediction"]) for row in predictions(tmp_path / "some")] == [True, True, False, True]
    for wrong, message in (
        (["--task", "stories"], "holds GPTForSequenceClassification; stories needs a GPTForMultipleChoice"),
        (["--task", "questions"], "evaluate it on the task that it was trained on"),
        (["--task", "questions", "--adaptation", "lora"], "leave out --adaptation"),
        (["--task", "questions", "--base_model", "base"], "--base_model belongs to an adapter"),
        (["--task", "questions", "--output_dir", tmp_path / "some"], "not empty"),
    ):
        with pytest.raises(ValueError, match=message):
            run_evaluation(model, tmp_path / "other", *wrong)


def test_a_language_model_has_no_head_to_evaluate(tiny_checkpoint, tmp_path):
    """It is reported before classes are missed, which only such a head would know."""
    (tmp_path / "new.csv").write_text("text\nsome words\n")
    custom = ["--task", "custom", "--text_column", "text", "--test_file", tmp_path / "new.csv"]
    for flags, message in (
        (["--task", "questions"], r"holds GPTForCausalLM.*--zero_shot"),
        (custom, "holds GPTForCausalLM; custom needs a GPTForSequenceClassification"),
    ):
        with pytest.raises(ValueError, match=message):
            run_evaluation(tiny_checkpoint, tmp_path / "out", *flags)
        assert not (tmp_path / "out").exists()
    rule = replace(RULES["sst2"], prompt="very " * 80)
    with pytest.raises(ValueError, match="fills the context"):
        zero_shot_transform(rule, AutoTokenizer.from_pretrained(tiny_checkpoint), 64, "half", True)
