"""Going on with a given language model: what it starts from, what is measured, what is refused."""

import json
import math
from pathlib import Path

import pytest
import torch
from peft import get_peft_model
from torch.optim import SGD
from transformers import AutoTokenizer, GPT2Config, GPT2LMHeadModel, get_scheduler

from hf_gpt import GPTForCausalLM, GPTForMultipleChoice, adapter_config
from hf_gpt.cards import Card
from hf_gpt.commands import parse_arguments
from hf_gpt.training.language_model import samples
from hf_gpt.training.optimization import warmup_linear
from hf_gpt.training.packing import TextArguments, encode_document, packed_dataset
from hf_gpt.training.pretraining import PretrainingArguments, ShapeArguments, new_config

from ..support.adapters import save_adapter
from ..support.runs import pretraining as run

pytestmark = pytest.mark.whole
REPOSITORY = Path(__file__).resolve().parents[2]
MINI = REPOSITORY / "model_cards" / "gpt-mini"
# Of gpt-mini's tokenizer.
SPECIALS = [8000, 8001, 8002]


@pytest.fixture(scope="module")
def stories():
    rows = (REPOSITORY / "hf_gpt/tasks/data/stories.jsonl").read_text().splitlines()
    return [json.loads(row)["story"] for row in rows[:60]]


@pytest.fixture(scope="module")
def files(tmp_path_factory, stories):
    """Flags of texts to train on, and of one document to measure."""
    folder = tmp_path_factory.mktemp("texts")
    (folder / "train.jsonl").write_text("".join(json.dumps({"body": text}) + "\n" for text in stories[:40]))
    (folder / "valid.jsonl").write_text(json.dumps({"body": "\n\n".join(stories[40:])}) + "\n")
    flags = ["--text_files", folder / "train.jsonl", "--validation_files", folder / "valid.jsonl"]
    return [*flags, "--text_column", "body", "--unwrap", "false"]


def fine_tuned(tiny, folder, converted):
    """With a head, and rows of special tokens that have been trained."""
    model = GPTForMultipleChoice.from_pretrained(tiny, problem_type="single_label_classification", head_layers=1)
    model.config.untrained_token_ids = None
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(tiny, task_template=True).save_pretrained(folder)
    return f"{folder}, an hf_gpt model; the head of GPTForMultipleChoice is left out"


def stock(tiny, folder, converted):
    converted(tiny, folder, "--to", "openai-gpt", "--special_tokens", "keep")
    return f"{folder}, a stock openai-gpt model"


def adapter(tiny, folder, converted):
    """As it is drawn, an adapter changes nothing."""
    model = GPTForMultipleChoice.from_pretrained(tiny)
    save_adapter(get_peft_model(model, adapter_config("lora", model.config)), folder)
    return f"{folder}, a peft adapter, merged into its base model; the head of GPTForMultipleChoice is left out"


def language_model(tiny, folder, converted):
    converted(tiny, folder)
    return f"{folder}, an hf_gpt model"


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")  # of peft
@pytest.mark.parametrize("build", [language_model, fine_tuned, adapter, stock], ids=lambda build: build.__name__)
def test_start_is_the_given_model(build, tiny_checkpoint, files, tmp_path, converted, capsys):
    """With a rate of 0 nothing changes but what belongs to a task."""
    start = build(tiny_checkpoint, tmp_path / "start", converted)
    capsys.readouterr()
    flags = ["--model_name_or_path", tmp_path / "start", "--learning_rate", 0, "--output_dir", tmp_path / "o"]
    record = run(*files, *flags)
    assert f"Start: {start}\n" in capsys.readouterr().out
    assert record["start"] == start
    assert json.loads((tmp_path / "o/pretraining.json").read_text())["start"] == start
    assert record["validation_perplexity"] == record["validation_perplexity_before"]
    found, wanted = (GPTForCausalLM.from_pretrained(folder) for folder in (tmp_path / "o", tiny_checkpoint))
    theirs = dict(wanted.named_parameters())
    assert {name for name, value in found.named_parameters() if not torch.equal(value, theirs[name])} == set()
    assert found.config.untrained_token_ids == SPECIALS
    assert (found.config.head_layers, found.config.problem_type, found.config.embd_pdrop) == (None, None, 0.1)
    assert AutoTokenizer.from_pretrained(tmp_path / "o").task_template is False
    card = Card.load(tmp_path / "o")
    assert (card.base_model, card.family) == (str(tmp_path / "start"), "language-model")
    assert start.replace(f"{tmp_path / 'start'}, ", "") in (tmp_path / "o/README.md").read_text()
    assert card.metrics["validation"]["perplexity"] == pytest.approx(record["validation_perplexity"])


def test_training_lowers_the_perplexity(tiny_checkpoint, files, tmp_path, capsys):
    flags = ["--model_name_or_path", tiny_checkpoint, "--max_steps", 8, "--warmup_steps", 0]
    record = run(*files, *flags, "--learning_rate", 1e-2, "--output_dir", tmp_path / "o")
    for name in ("perplexity", "word_perplexity"):
        assert record[f"validation_{name}"] < record[f"validation_{name}_before"]
    assert "Samples: held-out text | how the model continues\n" in capsys.readouterr().out


def test_perplexities_are_those_of_the_rows(tiny_checkpoint, files, stories, tmp_path):
    """Each row is one piece here; words count as far as their document's tokens do."""
    flags = [
        "--model_name_or_path",
        tiny_checkpoint,
        "--row_length",
        32,
        "--learning_rate",
        0,
        "--validation_rows",
        999,
    ]
    record = run(*files, *flags, "--output_dir", tmp_path / "o")
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


def test_default_rate_is_lower_and_said(tiny_checkpoint, files, tmp_path, capsys):
    flags = [*files, "--output_dir", tmp_path / "o", "--row_length", 32]
    assert run(*flags, "--model_name_or_path", tiny_checkpoint)["learning_rate"] == 6.25e-5
    assert "Learning rate 6.25e-05, with which the paper fine-tunes" in capsys.readouterr().out
    shape = ["--n_layer", 1, "--n_embd", 32, "--n_head", 2, "--n_positions", 32, "--tokenizer", MINI]
    assert run(*flags, *shape, "--overwrite_output_dir")["learning_rate"] == 1e-3
    assert "Learning rate" not in capsys.readouterr().out


def test_schedule_of_the_release(tiny_checkpoint, files, tmp_path):
    flags = ["--model_name_or_path", tiny_checkpoint, "--schedule", "warmup_linear", "--warmup_steps", 2]
    flags += ["--max_steps", 4, "--learning_rate", 1e-3, "--logging_steps", 1, "--save_strategy", "steps"]
    run(*files, *flags, "--save_steps", 4, "--output_dir", tmp_path / "o")
    history = json.loads((tmp_path / "o/checkpoint-4/trainer_state.json").read_text())["log_history"]
    rates = [line["learning_rate"] for line in history if "learning_rate" in line]
    # The line of a step has the rate of the next one.
    assert rates == pytest.approx([1e-3 * warmup_linear(step / 4, 0.5) for step in (0, 1, 2, 3)])


@pytest.fixture(scope="module")
def data_set(tmp_path_factory, stories):
    """Flags of a folder that `datasets` reads as it would a data set on the Hub, and of a new model."""
    folder = tmp_path_factory.mktemp("data_set")
    rows = (json.dumps({"body": f"{number}. {text}"}) + "\n" for number, text in enumerate(stories * 3))
    (folder / "train.jsonl").write_text("".join(rows))
    shape = ["--n_layer", 1, "--n_embd", 32, "--n_head", 2, "--n_positions", 32, "--tokenizer", MINI]
    return ["--dataset_name", folder, "--text_column", "body", *shape, "--dropout", 0.1]


def test_a_data_set_is_read_as_its_file_is(data_set, tmp_path):
    records = [
        run(*source, "--output_dir", tmp_path / name, "--learning_rate", 1e-3)
        for name, source in {"hub": data_set, "file": [*_as_file(data_set)]}.items()
    ]
    assert records[0] | {"train_runtime_s": 0} == records[1] | {"train_runtime_s": 0}
    assert "from the data set " in (tmp_path / "hub/README.md").read_text()
    with pytest.raises(ValueError, match=r"row 1: there is no text in 'text'. .* texts stand in: body"):
        run(*data_set, "--text_column", "text", "--output_dir", tmp_path / "o")
    with pytest.raises(ValueError, match=r"^--dataset_name .*dev"):
        run(*data_set, "--dataset_split", "dev", "--output_dir", tmp_path / "o")
    with pytest.raises(ValueError, match=r"^--dataset_name no/such is no folder, nor on the Hub"):
        run(*data_set, "--dataset_name", "no/such", "--output_dir", tmp_path / "o")
    with pytest.raises(ValueError, match="either --text_files or --dataset_name"):
        run(*data_set, "--text_files", "a.txt", "--output_dir", tmp_path / "o")


def _as_file(flags):
    yield from ("--text_files", flags[1] / "train.jsonl")
    yield from flags[2:]


def test_a_stream_goes_on_where_it_stopped(data_set, tmp_path):
    """Into its second pass; nothing that is held out is trained on."""
    flags = [*data_set, "--streaming", "--hold_out_every", 5, "--per_device_train_batch_size", 64, "--max_steps", 8]
    flags += ["--save_strategy", "steps", "--save_steps", 6, "--output_dir"]
    record = run(*flags, tmp_path / "straight")
    assert record["held_out"] == "about one document in 5, chosen by its text"
    assert (record["training_tokens"], record["validation_tokens"]) == (None, 5 * 32)
    (tmp_path / "resumed").mkdir()
    (tmp_path / "straight/checkpoint-6").rename(tmp_path / "resumed/checkpoint-6")
    run(*flags, tmp_path / "resumed", "--resume_from_checkpoint", "last")
    first, second = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("straight", "resumed"))
    assert first == second
    for wrong in (["--max_steps", -1], ["--masked"]):
        with pytest.raises(ValueError, match=r"^--streaming ends with --max_steps"):
            run(*flags, tmp_path / "o", *wrong)


def test_muon_for_the_matrices_of_the_blocks(tiny_checkpoint, files, tmp_path):
    """All but norms decay; a run that was stopped resumes to the same bits."""
    flags = [*files, "--model_name_or_path", tiny_checkpoint, "--optimizer", "muon", "--learning_rate", 1e-3]
    flags += ["--max_steps", 4, "--save_strategy", "steps", "--save_steps", 2, "--output_dir"]
    record = run(*flags, tmp_path / "straight", "--eval_strategy", "steps")
    assert record["validation_loss"] < math.log(record["validation_perplexity_before"])
    state = torch.load(tmp_path / "straight/checkpoint-2/optimizer.pt", weights_only=True)
    buffers = [{*state["state"][number]} for group in state["param_groups"] for number in group["params"]]
    assert sum("momentum_buffer" in found for found in buffers) == 2 * 4
    assert [group["weight_decay"] for group in state["param_groups"]] == [0.01, 0.01, 0.0]
    assert len(state["param_groups"][2]["params"]) == 2 * 4
    (tmp_path / "resumed").mkdir()
    (tmp_path / "straight/checkpoint-2").rename(tmp_path / "resumed/checkpoint-2")
    run(*flags, tmp_path / "resumed", "--resume_from_checkpoint", "last")
    first, second = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("straight", "resumed"))
    assert first == second


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--n_layer", 3], "^--n_layer is of a new model"),
        (["--norm_first", "true"], "^--norm_first is of a new model"),
        (["--n_positions", 64], "rows shorter than the context are --row_length"),
        (["--n_head", 2], "^--n_head 2: .* says itself how many heads it has"),
        (["--row_length", 65], "^--row_length 65 is longer than the model's context of 64"),
        (["--text_column", "story"], r"train.jsonl, line 1: there is no column 'story' \(there are body\)"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_refused(flags, message, files, tiny_checkpoint, tmp_path):
    with pytest.raises(ValueError, match=message):
        run(*files, "--model_name_or_path", tiny_checkpoint, *flags, "--output_dir", tmp_path / "o")
    assert not (tmp_path / "o").exists()


def test_tokenizer_has_to_fit(files, tiny_checkpoint, tmp_path):
    with pytest.raises(ValueError, match=r"^A new model needs --tokenizer"):
        run(*files, "--output_dir", tmp_path / "o")
    model = GPTForCausalLM.from_pretrained(tiny_checkpoint)
    model.resize_token_embeddings(7000)
    model.save_pretrained(tmp_path / "start")
    flags = [*files, "--model_name_or_path", tmp_path / "start", "--output_dir", tmp_path / "o"]
    with pytest.raises(ValueError, match="Name a tokenizer that fits the model with --tokenizer"):
        run(*flags)
    with pytest.raises(ValueError, match=r"does not belong to .*start: .*7000 rows and the tokenizer 8004"):
        run(*flags, "--tokenizer", tiny_checkpoint)


def test_gpt2_without_a_tokenizer_of_ours(files, tmp_path):
    config = GPT2Config(vocab_size=50, n_positions=32, n_embd=32, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0)
    GPT2LMHeadModel(config).save_pretrained(tmp_path / "start")
    with pytest.raises(ValueError, match="--tokenizer"):
        run(*files, "--model_name_or_path", tmp_path / "start", "--output_dir", tmp_path / "o")


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        (
            "pretrain_paper",
            {"n_layer": 12, "n_embd": 768, "dropout": 0.1, "learning_rate": 2.5e-4, "warmup_steps": 2000},
        ),
        ("pretrain_paper", {"n_positions": 512, "per_device_train_batch_size": 64, "num_train_epochs": 100}),
        (
            "pretrain_gpt_mini",
            {"n_layer": 4, "n_embd": 256, "n_head": 4, "optimizer": "muon", "learning_rate": 3e-3, "warmup_steps": 50},
        ),
        ("pretrain_gpt_mini", {"adam_beta2": 0.975, "per_device_train_batch_size": 4, "weight_decay": 0.1}),
        ("pretrain_wikitext103", {"wikitext": True, "n_layer": 16, "n_embd": 410, "n_inner": 2100, "n_head": 10}),
        ("pretrain_wikitext103", {"n_positions": 256, "afn": "relu", "learning_rate": 2.5e-4, "weight_decay": 0}),
        ("pretrain_wikitext103", {"per_device_train_batch_size": 16, "gradient_accumulation_steps": 4}),
        ("pretrain_wikitext103", {"max_grad_norm": 1.0, "num_train_epochs": 50, "warmup_steps": 1000}),
        ("finetune_language_model", {"learning_rate": 6.25e-5, "warmup_steps": 0.1}),
    ],
)
def test_configurations(name, settings, tmp_path):
    config = REPOSITORY / f"scripts/configs/{name}.yaml"
    flags = ["--config", str(config), "--text_files", "a.txt", "--output_dir", str(tmp_path)]
    parsed = parse_arguments((TextArguments, ShapeArguments, PretrainingArguments), flags)
    found = {key: getattr(arguments, key) for arguments in parsed for key in settings if hasattr(arguments, key)}
    assert found == settings
    args = parsed[2]
    schedule = get_scheduler(
        args.lr_scheduler_type,
        SGD([torch.zeros(1)], 1.0),
        1,
        20_000,
        scheduler_specific_kwargs=args.lr_scheduler_kwargs,
    )
    assert schedule.get_last_lr() == [0]


def test_shape_of_a_new_model():
    tokenizer = AutoTokenizer.from_pretrained(MINI)
    shape = ShapeArguments(n_layer=1, n_embd=32, n_head=2, n_inner=40, afn="relu", norm_first=True, dropout=0.2)
    config = new_config(shape, tokenizer)
    assert (config.n_inner, config.afn, config.norm_first, config.final_norm) == (40, "relu", True, True)
    assert (config.embd_pdrop, config.n_positions) == (0.2, 512)
    plain = new_config(ShapeArguments(), tokenizer)
    assert (plain.n_layer, plain.n_embd, plain.n_head, plain.n_positions, plain.embd_pdrop) == (5, 192, 3, 512, 0)
    assert (plain.n_inner, plain.afn, plain.norm_first, plain.final_norm) == (None, "gelu", False, False)


def test_samples_leave_the_random_state_and_the_mode(tiny_checkpoint, tmp_path, stories):
    tokenizer = AutoTokenizer.from_pretrained(tiny_checkpoint)
    model = GPTForCausalLM.from_pretrained(tiny_checkpoint).train()
    (tmp_path / "text.txt").write_text("\n\n".join(stories))
    rows = packed_dataset([str(tmp_path / "text.txt")], tokenizer, 32)
    before = torch.get_rng_state()
    first = samples(model, tokenizer, rows)
    assert torch.equal(torch.get_rng_state(), before)
    assert model.training
    assert len(first) == 3
    assert samples(model, tokenizer, rows) == first != samples(model, tokenizer, rows, seed=1)
    given = tokenizer.decode(rows[0]["input_ids"][:8])
    assert first[0].split(" | ")[0] == " ".join(given.split())
