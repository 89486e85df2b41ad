"""Pretraining: what it starts from, what is measured, that it resumes to the same bits, what is refused."""

import json
import math

import pytest
import torch
import yaml
from peft import get_peft_model
from transformers import AutoTokenizer, GPT2Config, GPT2LMHeadModel

from hf_gpt import GPTForCausalLM, GPTForMultipleChoice, adapter_config
from hf_gpt.cards import FineTunedCard
from hf_gpt.commands import parse_arguments
from hf_gpt.training.optimization import warmup_linear
from hf_gpt.training.packing import TextArguments, encode_document
from hf_gpt.training.pretraining import PretrainingArguments, ShapeArguments, new_config

from ..support.adapters import save_adapter
from ..support.runs import REPOSITORY, assert_same, training_log
from ..support.runs import pretraining as run

pytestmark = pytest.mark.whole
MINI = REPOSITORY / "model_cards" / "gpt-mini"
# Of gpt-mini's tokenizer.
SPECIALS = [8000, 8001, 8002]
NEW = ["--n_layer", 1, "--n_embd", 32, "--n_head", 2, "--n_positions", 32, "--tokenizer", MINI]


@pytest.fixture(scope="module")
def stories():
    rows = (REPOSITORY / "hf_gpt/tasks/data/stories.jsonl").read_text().splitlines()
    return [json.loads(row)["story"] for row in rows[:60]]


@pytest.fixture(scope="module")
def files(tmp_path_factory, stories):
    """Flags of texts to train on, and of one document to evaluate."""
    folder = tmp_path_factory.mktemp("texts")
    (folder / "train.jsonl").write_text("".join(json.dumps({"body": text}) + "\n" for text in stories[:40]))
    (folder / "valid.jsonl").write_text(json.dumps({"body": "\n\n".join(stories[40:])}) + "\n")
    flags = ["--text_files", folder / "train.jsonl", "--validation_files", folder / "valid.jsonl"]
    return [*flags, "--text_column", "body", "--unwrap", "false"]


@pytest.fixture(scope="module")
def data_set(tmp_path_factory, stories):
    """A folder that `datasets` reads as it would a data set on the Hub."""
    folder = tmp_path_factory.mktemp("data_set")
    rows = (json.dumps({"body": f"{number}. {text}"}) + "\n" for number, text in enumerate(stories * 3))
    (folder / "train.jsonl").write_text("".join(rows))
    return folder


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
    save_adapter(get_peft_model(model, adapter_config("lora", model.config)), folder)
    return "a peft adapter"


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")  # of peft
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


def test_perplexities_are_those_of_the_rows(tiny_checkpoint, files, stories, tmp_path):
    """Each row is one piece here; words count as far as their document's tokens do."""
    flags = ["--model_name_or_path", tiny_checkpoint, "--row_length", 32, "--validation_rows", 999]
    record = run(*files, *flags, "--learning_rate", 0, "--output_dir", tmp_path / "o")
    text = "\n\n".join(stories[40:])
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
    assert record["held_out"].endswith("valid.jsonl")


def test_rates(tiny_checkpoint, files, tmp_path):
    """The defaults of a new and of a pretrained model, and a schedule of the release."""
    flags = [*files, "--output_dir", tmp_path / "o", "--row_length", 32]
    assert run(*flags, "--model_name_or_path", tiny_checkpoint)["learning_rate"] == 6.25e-5
    flags += [*NEW, "--overwrite_output_dir", "--schedule", "warmup_linear", "--warmup_steps", 2, "--max_steps", 4]
    assert run(*flags, "--logging_steps", 1, "--save_strategy", "steps", "--save_steps", 4)["learning_rate"] == 1e-3
    rates = [line["learning_rate"] for line in training_log(tmp_path / "o/checkpoint-4")]
    # The line of a step has the rate of the next one.
    assert rates == pytest.approx([1e-3 * warmup_linear(step / 4, 0.5) for step in (0, 1, 2, 3)])


def test_a_data_set_is_read_as_its_file_is(data_set, tmp_path):
    sources = {"hub": ["--dataset_name", data_set], "file": ["--text_files", data_set / "train.jsonl"]}
    flags = [*NEW, "--text_column", "body", "--output_dir"]
    records = [run(*source, *flags, tmp_path / name) for name, source in sources.items()]
    assert records[0] | {"train_runtime_s": 0} == records[1] | {"train_runtime_s": 0}
    assert "from the data set " in (tmp_path / "hub/README.md").read_text()


# Runs of which the last steps are made again.
RESUMED = {
    "full": "--dropout 0.1 --max_steps 8 --save_steps 4",
    "masked": "--masked --row_length 16 --dropout 0.1 --max_steps 14 --save_steps 7 --per_device_train_batch_size 64",
    "muon": "--optimizer muon --max_steps 4 --save_steps 2",
}


@pytest.mark.parametrize("kind", RESUMED)
def test_a_resumed_run_has_the_bits_of_a_straight_one(kind, files, tmp_path):
    flags = [*files, *NEW, "--learning_rate", 1e-3, "--warmup_steps", 0, "--save_strategy", "steps"]
    flags += RESUMED[kind].split()
    run(*flags, "--output_dir", tmp_path / "straight")
    checkpoint = min((tmp_path / "straight").glob("checkpoint-*"), key=lambda path: int(path.name[11:]))
    if kind == "masked":  # inside a later epoch: its masks are others
        epoch = json.loads((checkpoint / "trainer_state.json").read_text())["epoch"]
        assert epoch > 1
        assert epoch % 1
    if kind == "muon":
        state = torch.load(checkpoint / "optimizer.pt", weights_only=True)
        buffers = [{*state["state"][number]} for group in state["param_groups"] for number in group["params"]]
        assert sum("momentum_buffer" in found for found in buffers) == 4
        assert [(len(group["params"]), group["weight_decay"]) for group in state["param_groups"]][2] == (4, 0.0)
    (tmp_path / "resumed").mkdir()
    checkpoint.rename(tmp_path / "resumed" / checkpoint.name)
    run(*flags, "--output_dir", tmp_path / "resumed", "--resume_from_checkpoint", "last")
    assert_same(*(tmp_path / name / "model.safetensors" for name in ("straight", "resumed")), torch.equal)


def test_muon_lowers_the_perplexity(tiny_checkpoint, files, tmp_path):
    flags = ["--model_name_or_path", tiny_checkpoint, "--max_steps", 8, "--warmup_steps", 0, "--optimizer", "muon"]
    record = run(*files, *flags, "--learning_rate", 1e-2, "--output_dir", tmp_path / "o")
    for name in ("perplexity", "word_perplexity"):
        assert record[f"validation_{name}"] < record[f"validation_{name}_before"]


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
def test_refused(flags, message, files, data_set, tiny_checkpoint, tmp_path, monkeypatch):
    config = GPT2Config(vocab_size=50, n_positions=32, n_embd=32, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0)
    GPT2LMHeadModel(config).save_pretrained(tmp_path / "start")
    (tmp_path / "data").symlink_to(data_set)
    (tmp_path / "tiny").symlink_to(tiny_checkpoint)
    monkeypatch.chdir(tmp_path)
    flags = [*files, *flags[1:]] if flags[0] == "FILES" else flags
    with pytest.raises(ValueError, match=message):
        run(*flags, "--output_dir", tmp_path / "o")
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize("name", ["pretrain_paper", "pretrain_gpt_mini", "pretrain_wikitext103"])
def test_configurations(name, tmp_path):
    """Every value is that of its argument; so much of them the paper and the tutorial say."""
    path = REPOSITORY / f"scripts/configs/{name}.yaml"
    flags = ["--config", str(path), "--text_files", "a.txt", "--output_dir", str(tmp_path)]
    parsed = parse_arguments((TextArguments, ShapeArguments, PretrainingArguments), flags)
    found = {key: value for each in parsed for key, value in vars(each).items()}
    wanted = yaml.safe_load(path.read_text())
    assert {key: found[key] for key in wanted} == wanted
    shape = {"pretrain_paper": (12, 768, 512), "pretrain_wikitext103": (16, 410, 256)}.get(name, (4, 256, 512))
    assert (found["n_layer"], found["n_embd"], found["n_positions"]) == shape


def test_shape_of_a_new_model():
    tokenizer = AutoTokenizer.from_pretrained(MINI)
    shape = ShapeArguments(n_layer=1, n_embd=32, n_head=2, n_inner=40, afn="relu", norm_first=True, dropout=0.2)
    config = new_config(shape, tokenizer)
    assert (config.n_inner, config.afn, config.norm_first, config.final_norm) == (40, "relu", True, True)
    assert (config.embd_pdrop, config.n_positions) == (0.2, 512)
    plain = new_config(ShapeArguments(), tokenizer)
    assert (plain.n_layer, plain.n_embd, plain.n_head, plain.n_positions, plain.embd_pdrop) == (5, 192, 3, 512, 0)
    assert (plain.n_inner, plain.afn, plain.norm_first, plain.final_norm) == (None, "gelu", False, False)
    assert plain.untrained_token_ids == SPECIALS
