"""Pretraining, causal and masked: starts, measures, resumption to the same bits, fine-tuning, what is refused."""

import json
import math

import numpy as np
import pytest
import torch
from peft import get_peft_model
from safetensors.torch import load_file
from transformers import AutoModelForMaskedLM, AutoTokenizer, pipeline

import hf_gpt
from hf_gpt import GPTForCausalLM, GPTForMultipleChoice
from hf_gpt.cards import FineTunedCard
from hf_gpt.training.language_model import masked_word_accuracy
from hf_gpt.training.optimization import warmup_linear
from hf_gpt.training.packing import encode_document, packed_dataset
from hf_gpt.training.pretraining import ShapeArguments, new_config
from hf_gpt.trees.collators import MaskedRows

from ..support.adapters import save_adapter
from ..support.runs import REPOSITORY, assert_same, evaluation, training_log
from ..support.runs import pretraining as run
from ..support.task_files import jsonl, write
from ..support.tiny import build_config

pytestmark = pytest.mark.whole
MINI = REPOSITORY / "model_cards" / "gpt-mini"
# Of gpt-mini's tokenizer.
SPECIALS = [8000, 8001, 8002]
NEW = ["--n_layer", 1, "--n_embd", 32, "--n_head", 2, "--n_positions", 32, "--tokenizer", MINI]
STORIES = [json.loads(row)["story"] for row in (REPOSITORY / "hf_gpt/tasks/data/stories.jsonl").open()][:60]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Texts to train on, one document and several to evaluate, and a folder that `datasets` reads as from the Hub."""
    folder, several = tmp_path_factory.mktemp("texts"), [f"{n}. {text}" for n, text in enumerate(STORIES * 3)]
    files = {"train": STORIES[:40], "one": ["\n\n".join(STORIES[40:])], "several": STORIES[40:]}
    for name, texts in {**files, "data_set/train": several}.items():
        write(folder, {f"{name}.jsonl": jsonl(*({"body": text} for text in texts))})
    return folder


@pytest.fixture(scope="module")
def files(folder):
    """Flags of texts to train on, and of one document to evaluate."""
    flags = ["--text_files", folder / "train.jsonl", "--validation_files", folder / "one.jsonl"]
    return [*flags, "--text_column", "body", "--unwrap", "false"]


@pytest.fixture(scope="module")
def masked(files, folder):
    """Flags of a masked language model, and of several documents to evaluate."""
    return ["--masked", *files, "--validation_files", folder / "several.jsonl", "--row_length", 64]


def fine_tuned(tiny, folder, converted):
    """With a head, and rows of special tokens that have been trained."""
    model = GPTForMultipleChoice.from_pretrained(tiny, problem_type="single_label_classification", head_layers=1)
    model.config.untrained_token_ids = None
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(tiny, task_template=True).save_pretrained(folder)
    return "an hf_gpt model"


def stock(tiny, folder, converted):
    converted(tiny, folder, "--to", "openai-gpt")
    return "a stock openai-gpt model"


def adapter(tiny, folder, converted):
    """Newly initialized, an adapter changes nothing."""
    model = GPTForMultipleChoice.from_pretrained(tiny)
    save_adapter(get_peft_model(model, hf_gpt.adapter_config("lora", model.config)), folder)
    return "a peft adapter"


@pytest.mark.parametrize("build", [fine_tuned, adapter, stock], ids=lambda build: build.__name__)
def test_start_is_the_pretrained_checkpoint(build, tiny_checkpoint, files, tmp_path, converted, capsys):
    """With a rate of 0 nothing changes but what belongs to a task."""
    start = f"{tmp_path / 'start'}, {build(tiny_checkpoint, tmp_path / 'start', converted)}"
    capsys.readouterr()
    flags = ["--model_name_or_path", tmp_path / "start", "--learning_rate", 0, "--output_dir", tmp_path / "o"]
    record = run(*files, *flags)
    assert f"Start: {start}\n" in capsys.readouterr().out
    assert record == json.loads((tmp_path / "o/pretraining.json").read_text())
    assert record["start"] == start
    assert record["validation_perplexity"] == record["validation_perplexity_before"]
    found, wanted = (GPTForCausalLM.from_pretrained(folder) for folder in (tmp_path / "o", tiny_checkpoint))
    theirs = dict(wanted.named_parameters())
    assert {name for name, value in found.named_parameters() if not torch.equal(value, theirs[name])} == set()
    assert found.config.untrained_token_ids == SPECIALS
    assert (found.config.head_layers, found.config.problem_type, found.config.embd_pdrop) == (None, None, 0.1)
    assert AutoTokenizer.from_pretrained(tmp_path / "o").task_template is False
    card = FineTunedCard.load(tmp_path / "o")
    assert (card.base_model, card.family) == (str(tmp_path / "start"), "language-model")
    assert card.metrics["validation"]["perplexity"] == pytest.approx(record["validation_perplexity"])


def test_perplexities_are_those_of_the_rows(tiny_checkpoint, files, tmp_path):
    """Each row is one piece here; words count as far as their document's tokens do."""
    flags = ["--model_name_or_path", tiny_checkpoint, "--row_length", 32, "--validation_rows", 999]
    record = run(*files, *flags, "--learning_rate", 0, "--output_dir", tmp_path / "o")
    text = "\n\n".join(STORIES[40:])
    model, tokenizer = GPTForCausalLM.from_pretrained(tiny_checkpoint), AutoTokenizer.from_pretrained(tiny_checkpoint)
    model.config.untrained_token_ids = SPECIALS
    ids = encode_document(text, tokenizer)
    rows = torch.tensor(ids[: len(ids) // 32 * 32]).view(-1, 32)
    with torch.no_grad():
        total = model(input_ids=rows, labels=rows).loss.item() * rows[:, 1:].numel()
    words = len(text.split()) * rows.numel() / len(ids)
    assert record["validation_perplexity"] == pytest.approx(math.exp(total / rows[:, 1:].numel()), rel=1e-4)
    assert record["validation_word_perplexity"] == pytest.approx(math.exp(total / words), rel=1e-4)
    assert record["validation_words"] == round(words)
    assert record["held_out"].endswith("one.jsonl")


def test_rates(tiny_checkpoint, files, tmp_path):
    """The defaults of a new and of a pretrained model, and a schedule of the release."""
    flags = [*files, "--output_dir", tmp_path / "o", "--row_length", 32]
    assert run(*flags, "--model_name_or_path", tiny_checkpoint)["learning_rate"] == 6.25e-5
    flags += [*NEW, "--overwrite_output_dir", "--schedule", "warmup_linear", "--warmup_steps", 2, "--max_steps", 4]
    assert run(*flags, "--logging_steps", 1, "--save_strategy", "steps", "--save_steps", 4)["learning_rate"] == 1e-3
    rates = [line["learning_rate"] for line in training_log(tmp_path / "o/checkpoint-4")]
    # The line of a step has the rate of the next one.
    assert rates == pytest.approx([1e-3 * warmup_linear(step / 4, 0.5) for step in (0, 1, 2, 3)])


def test_a_data_set_is_read_as_its_file_is(folder, tmp_path):
    data_set = folder / "data_set"
    sources = {"hub": ["--dataset_name", data_set], "file": ["--text_files", data_set / "train.jsonl"]}
    flags = [*NEW, "--text_column", "body", "--output_dir"]
    records = [run(*source, *flags, tmp_path / name) for name, source in sources.items()]
    assert records[0] | {"train_runtime_s": 0} == records[1] | {"train_runtime_s": 0}
    assert "from the data set " in (tmp_path / "hub/README.md").read_text()


# Runs of which the last steps are made again; that with Muon learns from its first step.
RESUMED = {
    "full": "--dropout 0.1 --max_steps 8 --save_steps 4",
    "masked": "--masked --row_length 16 --dropout 0.1 --max_steps 14 --save_steps 7 --per_device_train_batch_size 64",
    "muon": "--optimizer muon --max_steps 8 --save_steps 4",
}


@pytest.mark.parametrize("kind", RESUMED)
def test_a_resumed_run_has_the_bits_of_a_straight_one(kind, files, tmp_path):
    flags = [*files, *NEW, "--learning_rate", 1e-2, "--warmup_steps", 0, "--save_strategy", "steps"]
    flags += [*RESUMED[kind].split(), "--logging_steps", 1]
    run(*flags, "--output_dir", tmp_path / "straight")
    checkpoint = min((tmp_path / "straight").glob("checkpoint-*"), key=lambda path: int(path.name[11:]))
    epoch = json.loads((checkpoint / "trainer_state.json").read_text())["epoch"]
    assert kind != "masked" or (epoch > 1 and epoch % 1)  # inside a later epoch: its masks are others
    if kind == "muon":
        state = torch.load(checkpoint / "optimizer.pt", weights_only=True)
        buffers = [{*state["state"][number]} for group in state["param_groups"] for number in group["params"]]
        assert sum("momentum_buffer" in found for found in buffers) == 4
        losses = [line["loss"] for line in training_log(tmp_path / "straight/checkpoint-8")]
        assert losses[-1] < losses[0] - 0.1
        assert [(len(group["params"]), group["weight_decay"]) for group in state["param_groups"]][2] == (4, 0.0)
    (tmp_path / "resumed").mkdir()
    checkpoint.rename(tmp_path / "resumed" / checkpoint.name)
    run(*flags, "--output_dir", tmp_path / "resumed", "--resume_from_checkpoint", "last")
    assert_same(*(tmp_path / name / "model.safetensors" for name in ("straight", "resumed")))


def test_one_file_is_enough_and_a_finished_run_trains_no_further(folder, tmp_path):
    """Also one that has ended inside an epoch; other flags are other runs, which must overwrite it."""
    flags = [*NEW, "--text_files", folder / "one.jsonl", "--text_column", "body", "--output_dir", tmp_path / "o"]
    flags += ["--hold_out_every", 5, "--save_strategy", "steps", "--max_steps", 3]
    record = run(*flags)
    assert record["steps"] == 3
    assert record["validation_tokens"] > 0
    weights = (tmp_path / "o/model.safetensors").read_bytes()
    again = run(*flags, "--resume_from_checkpoint", "last")
    assert again | {"train_runtime_s": 0} == record | {"train_runtime_s": 0}
    assert (tmp_path / "o/model.safetensors").read_bytes() == weights
    with pytest.raises(ValueError, match="--overwrite_output_dir"):
        run(*flags, "--max_steps", 1)
    run(*flags, "--max_steps", 1, "--overwrite_output_dir")
    assert [path.name for path in (tmp_path / "o").glob("checkpoint-*")] == ["checkpoint-1"]


DIVERGED = ["--max_steps", 12, "--max_grad_norm", 0, "--warmup_steps", 0, "--lr_scheduler_type", "constant"]


@pytest.mark.parametrize("flags", [["--save_strategy", "steps"], ["--hold_out_every", 0]], ids=["saving", "the end"])
def test_what_diverges_saves_nothing_but_a_huge_loss_is_a_number(flags, files, tmp_path):
    flags = [*NEW, *files[:2], *files[4:], *DIVERGED, *flags]
    with pytest.raises(ValueError, match="Training has diverged: "):
        run(*flags, "--learning_rate", 1e30, "--output_dir", tmp_path / "o")
    assert not list((tmp_path / "o").rglob("*.safetensors"))
    record = run(*flags, "--learning_rate", 50, "--output_dir", tmp_path / "huge")
    if "--hold_out_every" not in flags:
        assert record["validation_loss"] > 710
        assert json.loads((tmp_path / "huge/pretraining.json").read_text())["validation_perplexity"] is None


OWN = ["--dataset_name", "data", "--text_column", "body", *NEW]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["FILES", "--model_name_or_path", "tiny", "--norm_first", "true"], "^--norm_first is of a new model"),
        (["FILES", "--model_name_or_path", "tiny", "--row_length", 65], "^--row_length 65 is longer than .* of 64"),
        (["FILES", *NEW, "--text_column", "story"], r"train.jsonl, line 1: there is no column 'story'"),
        (["FILES", "--dataset_name", "data"], "either --text_files or --dataset_name"),
        (["FILES", "--model_name_or_path", "start"], "start has no tokenizer"),
        (["FILES", "--model_name_or_path", "start", "--tokenizer", MINI], "does not belong to start: "),
        (["FILES"], r"^A new model needs --tokenizer"),
        ([*OWN, "--text_column", "text"], r"row 1: there is no column 'text'"),
        ([*OWN, "--dataset_split", "dev"], r"^--dataset_name .*dev"),
        ([*OWN, "--dataset_name", "no/such"], r"^--dataset_name no/such"),
    ],
)
def test_refused(flags, message, files, folder, tiny_checkpoint, tmp_path, monkeypatch):
    GPTForCausalLM(build_config()).save_pretrained(tmp_path / "start")
    (tmp_path / "data").symlink_to(folder / "data_set")
    (tmp_path / "tiny").symlink_to(tiny_checkpoint)
    monkeypatch.chdir(tmp_path)
    flags = [*files, *flags[1:]] if flags[0] == "FILES" else flags
    with pytest.raises(ValueError, match=message):
        run(*flags, "--output_dir", tmp_path / "o")
    assert not (tmp_path / "o").exists()


def test_shape_of_a_new_model():
    plain = {"n_layer": 5, "n_embd": 192, "n_head": 3, "n_positions": 512, "n_inner": None, "afn": "gelu"}
    other = {"n_layer": 1, "n_embd": 32, "n_head": 2, "n_positions": 64, "n_inner": 40, "afn": "relu"}
    for settings, expected in (({}, plain), (other | {"norm_first": True, "dropout": 0.2}, other)):
        config = new_config(ShapeArguments(**settings), AutoTokenizer.from_pretrained(MINI))
        assert {name: getattr(config, name) for name in expected} == expected
        assert config.norm_first == config.final_norm == bool(settings)
        assert (config.embd_pdrop, config.untrained_token_ids) == (0.2 if settings else 0, SPECIALS)


@pytest.fixture(scope="module")
def pretrained(masked, tmp_path_factory):
    output = tmp_path_factory.mktemp("masked") / "out"
    flags = [*NEW, "--n_positions", 128, "--max_steps", 30, "--learning_rate", 1e-2, "--warmup_steps", 0]
    flags += ["--eval_strategy", "steps", "--eval_steps", 1, "--output_dir", output]
    return output, run(*masked, *flags)


def test_words_that_are_guessed_whole():
    rows = MaskedRows([], np.array([False, True, True]), np.zeros(3, bool), np.arange(3), 3)
    labels = np.array([[0, 1, 2, -100, 0], [-100, 0, 1, 1, -100]])
    guesses = np.array([[0, 1, 1, 0, 0], [1, 1, 1, 1, 2]])
    # Words: (0 1), (2), (0) that continues in the next row; (0 1), (1).
    assert masked_word_accuracy(guesses, labels, rows) == 3 / 5
    assert masked_word_accuracy(labels, labels, rows) == 1


def test_from_random_weights(pretrained, folder):
    output, record = pretrained
    assert record == json.loads((output / "pretraining.json").read_text())
    assert record["start"] == "random weights"
    assert record["validation_masked_perplexity"] < 2000
    model, tokenizer = AutoModelForMaskedLM.from_pretrained(output), AutoTokenizer.from_pretrained(output)
    assert (type(model), model.config.is_causal, model.config.mask_token_id) == (hf_gpt.GPTForMaskedLM, False, 8004)
    assert (tokenizer.mask_token, len(tokenizer), model.config.vocab_size) == ("<mask>", 8005, 8005)
    assert (FineTunedCard.load(output).name, FineTunedCard.load(output).base_model) == (output.name, "")
    assert len(pipeline("fill-mask", model=str(output))("She opened the <mask> and ran.")) == 5
    # What was evaluated, by a plain loop over the rows.
    rows = packed_dataset([str(folder / "several.jsonl")], tokenizer, 64, text_column="body", unwrap=False)
    rows = MaskedRows.of(rows.select(np.linspace(0, len(rows), 5, endpoint=False).astype(int)), tokenizer)
    losses, right = [], []
    for row in map(rows.__getitem__, range(5)):
        pieces = torch.tensor(row["input_ids"]).tensor_split(row["starts"][1:])
        with torch.no_grad():
            logits = torch.cat([model(piece[None]).logits[0] for piece in pieces])
        labels = torch.tensor(row["labels"])
        losses.append(torch.nn.functional.cross_entropy(logits, labels).item())
        right.append(masked_word_accuracy(logits.argmax(-1).numpy()[None], labels.numpy()[None], rows))
    assert record["validation_masked_perplexity"] == pytest.approx(math.exp(np.mean(losses)), rel=1e-4)
    assert record["validation_masked_word_accuracy"] == pytest.approx(np.mean(right), abs=0.1)


def test_pretraining_continues(pretrained, masked, tmp_path):
    flags = ["--model_name_or_path", pretrained[0], "--learning_rate", 0, "--output_dir", tmp_path / "o"]
    record = run(*masked, *flags)
    assert record["start"] == f"{pretrained[0]}, an hf_gpt model"
    for name in ("masked_perplexity", "masked_word_accuracy"):
        before = record[f"validation_{name}_before"]
        assert record[f"validation_{name}"] == before == pretrained[1][f"validation_{name}"]
    before, after = (load_file(folder / "model.safetensors") for folder in (pretrained[0], tmp_path / "o"))
    assert all(torch.equal(after[name], value) for name, value in before.items())
    card = FineTunedCard.load(tmp_path / "o")
    assert (card.family, card.auto_class) == ("masked-language-model", "AutoModelForMaskedLM")
    assert card.metrics["validation"].keys() == {"masked_perplexity", "masked_word_accuracy"}
    # It is no causal one.
    with pytest.raises(ValueError, match="is a masked language model"):
        run(*masked[1:], "--model_name_or_path", tmp_path / "o", "--output_dir", tmp_path / "p")
    flags = ["--model_name_or_path", tmp_path / "o", "--task", "stories", "--zero_shot"]
    with pytest.raises(ValueError, match="is a masked language model"):
        evaluation(*flags, "--output_dir", tmp_path / "e")


def test_from_a_causal_model(tiny_checkpoint, masked, tmp_path):
    """Its weights stay; the mask gets a row."""
    flags = ["--model_name_or_path", tiny_checkpoint, "--output_dir", tmp_path / "o"]
    run(*masked, *flags, "--learning_rate", 0)
    found, wanted = (load_file(folder / "model.safetensors") for folder in (tmp_path / "o", tiny_checkpoint))
    rows = "transformer.embed_tokens.weight"
    assert (len(found[rows]), len(wanted[rows])) == (8005, 8004)
    assert torch.equal(found.pop(rows)[:8004], wanted.pop(rows))
    assert all(torch.equal(found[name], value) for name, value in wanted.items())
