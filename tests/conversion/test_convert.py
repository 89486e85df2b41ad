"""`scripts/convert.py`: both ways between all formats, bit for bit."""

import json
import pickle
import re
from pathlib import Path

import joblib
import numpy as np
import pytest
import torch
from peft import get_peft_model
from safetensors.torch import load_file
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GPT2DoubleHeadsModel,
    GPT2ForSequenceClassification,
    GPT2LMHeadModel,
    GPT2Model,
    OpenAIGPTDoubleHeadsModel,
    OpenAIGPTForSequenceClassification,
    OpenAIGPTLMHeadModel,
    OpenAIGPTModel,
)

from hf_gpt import (
    GPTForCausalLM,
    GPTForMultipleChoice,
    GPTForSequenceClassification,
    GPTForTokenClassification,
    GPTModel,
    GPTTokenizer,
    adapter_config,
)
from hf_gpt.adapters import HEAD_CONFIG, head_config
from hf_gpt.conversion.joblib_arrays import read_arrays
from hf_gpt.conversion.release import load_release, release_arrays, write_release
from hf_gpt.conversion.stock import drawn_special_tokens
from hf_gpt.conversion.tokenizers import release_tokenizer

from ..support.golden import CARRIED, arrays, golden_config, golden_directory, models, roc_inputs
from ..support.stock_models import POSITIONS, ROWS, WIDTH, Trap, save_old_bin, stock_model, write_vocabulary

REPOSITORY = Path(__file__).resolve().parents[2]
RELEASE = CARRIED / "tiny_seed0" / "checkpoint"
PLAIN = ("--no_tokenizer",)


def own_model(model_class, fresh_special_tokens=False, **overrides):
    """A model of ours with large random weights, biases among them, and the small vocabulary."""
    config = {"vocab_size": ROWS + 4, "n_positions": POSITIONS, "n_embd": WIDTH, "n_layer": 2, "n_head": 2}
    config |= {"bos_token_id": ROWS, "start_token_id": ROWS, "delimiter_token_id": ROWS + 1}
    config |= {"classify_token_id": ROWS + 2, "pad_token_id": ROWS + 3}
    model = model_class(model_class.config_class(**config | overrides))
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            is_gain = ".ln_" in name and name.endswith("weight")
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.2 + (1.0 if is_gain else 0.0))
        if fresh_special_tokens:
            model.get_input_embeddings().weight[ROWS:] = drawn_special_tokens(WIDTH, 0.02)
            model.config.untrained_token_ids = [ROWS, ROWS + 1, ROWS + 2]
    return model.eval()


def without_bias(model):
    """A classifier that a stock model can hold."""
    torch.nn.init.zeros_(model.score.bias)
    return model


def tensors(folder):
    return load_file(folder / "model.safetensors")


def assert_same_model(first, second):
    """Two folders of one format hold the same tensors, bit for bit, and the same configuration."""
    ours, theirs = tensors(first), tensors(second)
    assert set(ours) == set(theirs)
    for name, tensor in ours.items():
        assert tensor.dtype == theirs[name].dtype, name
        assert torch.equal(tensor, theirs[name]), name
    values = [json.loads((folder / "config.json").read_text()) for folder in (first, second)]
    for config in values:
        config.pop("transformers_version", None)
    differing = {name for name in values[0].keys() & values[1].keys() if values[0][name] != values[1][name]}
    assert not differing


STOCK = {
    "openai-gpt": OpenAIGPTLMHeadModel,
    "openai-gpt, bare": OpenAIGPTModel,
    "openai-gpt, choices": OpenAIGPTDoubleHeadsModel,
    "openai-gpt, classes": OpenAIGPTForSequenceClassification,
    "gpt2": GPT2LMHeadModel,
    "gpt2, bare": GPT2Model,
    "gpt2, choices": GPT2DoubleHeadsModel,
    "gpt2, classes": GPT2ForSequenceClassification,
}
GPT2 = {"norm_first": True, "final_norm": True}
OWN = {
    "language model": (lambda: own_model(GPTForCausalLM), "openai-gpt"),
    "fresh special tokens": (lambda: own_model(GPTForCausalLM, fresh_special_tokens=True), "openai-gpt"),
    "bare": (lambda: own_model(GPTModel, afn="swish", attn_pdrop=0.3), "openai-gpt"),
    "choices": (lambda: own_model(GPTForMultipleChoice, lm_coef=0.25, clf_pdrop=0.2), "openai-gpt"),
    "classes": (lambda: without_bias(own_model(GPTForSequenceClassification, num_labels=5)), "openai-gpt"),
    "untied": (lambda: own_model(GPTForCausalLM, tie_word_embeddings=False), "openai-gpt"),
    "bfloat16": (lambda: own_model(GPTForMultipleChoice).to(torch.bfloat16), "openai-gpt"),
    "fresh to the release": (lambda: own_model(GPTForCausalLM, fresh_special_tokens=True), "tf-release"),
    "gpt2": (lambda: own_model(GPTForCausalLM, **GPT2, n_inner=48), "gpt2"),
    "gpt2, choices": (lambda: own_model(GPTForMultipleChoice, **GPT2), "gpt2"),
}
# Source -> what builds the model, and the formats that it passes through, its own last. The release builds nothing.
ROUND_TRIPS = {
    **{
        f"{name}, {dtype}": (lambda name=name, dtype=dtype: stock_model(STOCK[name]).to(dtype), ("hf_gpt", kind))
        for name in STOCK
        for dtype in (torch.float32, torch.bfloat16, torch.float16)
        for kind in (name.split(",")[0],)
    },
    **{f"hf_gpt, {name}": (build, (to, "hf_gpt")) for name, (build, to) in OWN.items()},
    "openai-gpt through the release": (lambda: stock_model(OpenAIGPTLMHeadModel), ("tf-release", "openai-gpt")),
    "release through hf_gpt": (None, ("hf_gpt", "tf-release")),
    "release through openai-gpt": (None, ("openai-gpt", "tf-release")),
}


def release_files(folder, pattern="*"):
    return {path.name: path.read_bytes() for path in folder.glob(pattern)}


@pytest.mark.parametrize("name", ROUND_TRIPS)
def test_there_and_back_is_the_same(name, tmp_path, converted):
    """Every tensor bit for bit, the configuration, and every file of a release byte for byte."""
    build, formats = ROUND_TRIPS[name]
    first, last = tmp_path / "first", tmp_path / formats[-1]
    if build is None:
        first = RELEASE
    else:
        build().save_pretrained(first)
    source, heads = first, ("--n_head", 4) if build is None else ()
    for to in formats:
        converted(source, tmp_path / to, "--to", to, *heads, *PLAIN)
        source, heads = tmp_path / to, ("--n_head", 2) if to == "tf-release" else ()
    if build is None:
        assert release_files(last) == release_files(first, "params*")
        return
    assert_same_model(first, last)
    if formats[0] == "hf_gpt":
        dtypes = [{tensor.dtype for tensor in tensors(folder).values()} for folder in (first, tmp_path / "hf_gpt")]
        assert dtypes[0] == dtypes[1]


def fine_tuned(original, folder, build):
    """What fine-tuning makes of a language model in no step: a head, and special tokens that a loss has trained."""
    model = GPTForSequenceClassification.from_pretrained(original, num_labels=3, head_layers=1)
    model.config.untrained_token_ids = None
    if build == "adapter":
        model = get_peft_model(model, adapter_config("lora", model.config))
        (folder / HEAD_CONFIG).write_text(json.dumps(head_config(model)))
    model.save_pretrained(folder)


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")  # of peft
@pytest.mark.parametrize("build", ["whole", "adapter"])
def test_language_model_of_a_model_fine_tuned_for_no_step(build, tmp_path, converted):
    """It is exactly the original, here the release."""
    converted(RELEASE, tmp_path / "a", "--n_head", 4, *PLAIN)
    (tmp_path / "b").mkdir()
    fine_tuned(tmp_path / "a", tmp_path / "b", build)
    printed = converted(tmp_path / "b", tmp_path / "c", "--head", "language-model", *PLAIN)
    assert "Left out: score.bias, score.weight of the head sequence-classification." in printed
    assert "the rows of _start_, _delimiter_, _classify_, <pad>, which are newly initialized" in printed
    assert_same_model(tmp_path / "a", tmp_path / "c")
    converted(tmp_path / "c", tmp_path / "d", "--to", "tf-release", *PLAIN)
    assert release_files(tmp_path / "d") == release_files(RELEASE, "params*")


def test_language_model_of_a_trained_one(tmp_path, converted):
    """The transformer is kept, rows of special tokens are not; texts have the probability that it gives them."""
    own_model(GPTForMultipleChoice, head_layers=1).save_pretrained(tmp_path / "a")
    converted(tmp_path / "a", tmp_path / "b", "--head", "language-model", *PLAIN)
    before, after = tensors(tmp_path / "a"), tensors(tmp_path / "b")
    assert set(before) - set(after) == {"score.weight", "score.bias"}
    rows = "transformer.embed_tokens.weight"
    assert {name for name in after if not torch.equal(before[name], after[name])} == {rows}
    assert torch.equal(before[rows][:ROWS], after[rows][:ROWS])
    assert torch.equal(after[rows][ROWS:], drawn_special_tokens(WIDTH, 0.02))
    model = GPTForCausalLM.from_pretrained(tmp_path / "b")
    assert model.config.untrained_token_ids == [ROWS, ROWS + 1, ROWS + 2]
    assert model.config.head_layers is None
    given = torch.arange(8)[None]
    states = GPTModel.from_pretrained(tmp_path / "a")(given).last_hidden_state
    expected = (states @ before[rows][:ROWS].T).log_softmax(-1)
    torch.testing.assert_close(model(given).logits.log_softmax(-1)[..., :ROWS], expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", ["openai-gpt", "gpt2"])
def test_old_bin_equals_safetensors(kind, tmp_path, converted):
    theirs = stock_model(STOCK[kind])
    theirs.save_pretrained(tmp_path / "new")
    save_old_bin(theirs, tmp_path / "old")
    for name in ("new", "old"):
        converted(tmp_path / name, tmp_path / f"from {name}", *PLAIN)
    assert_same_model(tmp_path / "from new", tmp_path / "from old")


@pytest.mark.parametrize("kind", ["safetensors", "bin"])
def test_checkpoint_in_several_files(kind, tmp_path, convert, converted):
    theirs = stock_model(OpenAIGPTLMHeadModel)
    whole, sharded = tmp_path / "whole", tmp_path / "sharded"
    theirs.save_pretrained(whole)
    theirs.save_pretrained(sharded, max_shard_size="20KB")
    if kind == "bin":
        files = {}
        for file in sharded.glob("*.safetensors"):
            state = load_file(file)
            torch.save(state, sharded / f"pytorch_{file.stem}.bin")
            files |= dict.fromkeys(state, f"pytorch_{file.stem}.bin")
            file.unlink()
        (sharded / "model.safetensors.index.json").unlink()
        (sharded / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": files}))
    converted(whole, tmp_path / "a", *PLAIN)
    converted(sharded, tmp_path / "b", *PLAIN)
    assert_same_model(tmp_path / "a", tmp_path / "b")
    next(path for path in sharded.glob("*-00002-*")).unlink()
    status, printed = convert(sharded, tmp_path / "c", *PLAIN)
    assert status == 2
    assert "-00002-" in printed
    assert "is missing" in printed


INPUTS = torch.tensor([[ROWS, 3, 9, ROWS + 2, ROWS + 3], [ROWS, 4, 1, 17, ROWS + 2]])
EXPORTED = {
    "language model": (lambda: own_model(GPTForCausalLM), OpenAIGPTLMHeadModel),
    "choices": (lambda: own_model(GPTForMultipleChoice), OpenAIGPTDoubleHeadsModel),
    "classes": (
        lambda: without_bias(own_model(GPTForSequenceClassification, num_labels=3)),
        OpenAIGPTForSequenceClassification,
    ),
    "gpt2": (lambda: own_model(GPTForCausalLM, **GPT2), GPT2LMHeadModel),
}


@pytest.mark.parametrize("name", EXPORTED)
@torch.no_grad()
def test_stock_transformers_loads_our_exports(name, tmp_path, converted):
    build, stock_class = EXPORTED[name]
    ours = build()
    ours.save_pretrained(tmp_path / "ours")
    to = "gpt2" if name == "gpt2" else "openai-gpt"
    converted(tmp_path / "ours", tmp_path / "theirs", "--to", to, *PLAIN)
    theirs, problems = stock_class.from_pretrained(tmp_path / "theirs", output_loading_info=True)
    assert not any(problems.values())
    if name == "choices":
        logits = theirs(INPUTS[None], mc_token_ids=torch.tensor([[3, 4]])).mc_logits
        expected = ours(INPUTS[None], attention_mask=INPUTS[None].ne(ROWS + 3)).logits
    elif name == "classes":
        logits, expected = theirs(INPUTS).logits, ours(INPUTS, attention_mask=INPUTS.ne(ROWS + 3)).logits
    else:
        assert type(AutoModelForCausalLM.from_pretrained(tmp_path / "theirs")) is stock_class
        assert theirs.lm_head.weight is theirs.get_input_embeddings().weight
        # Our padding row takes part in no softmax.
        logits, expected = (model(INPUTS[1:]).logits[..., :-1] for model in (theirs, ours))
    torch.testing.assert_close(logits, expected, atol=2e-5, rtol=1e-5)


# Tokenizers.


def test_vocabulary_goes_along_byte_for_byte(tmp_path, converted):
    model = own_model(GPTForCausalLM, fresh_special_tokens=True)
    first, release = tmp_path / "a", tmp_path / "b"
    model.save_pretrained(first)
    files = tmp_path / "files"
    files.mkdir()
    write_vocabulary(files, "encoder_bpe_40000.json", "vocab_40000.bpe")
    converted(first, release, "--to", "tf-release", "--tokenizer_source", files)
    for name in ("encoder_bpe_40000.json", "vocab_40000.bpe"):
        assert (release / name).read_bytes() == (files / name).read_bytes()
    converted(release, tmp_path / "c", "--n_head", 2)
    stock = tmp_path / "d"
    converted(tmp_path / "c", stock, "--to", "openai-gpt")
    assert (stock / "vocab.json").read_bytes() == (files / "encoder_bpe_40000.json").read_bytes()
    assert (stock / "merges.txt").read_bytes() == (files / "vocab_40000.bpe").read_bytes()
    assert len(AutoTokenizer.from_pretrained(stock)) == ROWS
    converted(stock, tmp_path / "e")
    ours, again = (AutoTokenizer.from_pretrained(tmp_path / name) for name in "ce")
    assert type(again) is GPTTokenizer
    assert again.model_max_length == POSITIONS
    text = "The path, the other\npath isn't there."
    assert again(text).input_ids == ours(text).input_ids == release_tokenizer(files)(text).input_ids
    converted(tmp_path / "e", tmp_path / "f", "--to", "tf-release")
    assert release_files(tmp_path / "f") == release_files(release)


def test_special_tokens_of_the_stock_tokenizer(tmp_path, converted):
    own_model(GPTForMultipleChoice).save_pretrained(tmp_path / "a")
    write_vocabulary(tmp_path / "a")
    converted(tmp_path / "a", tmp_path / "b", "--to", "openai-gpt")
    stock = AutoTokenizer.from_pretrained(tmp_path / "b")
    assert stock.convert_tokens_to_ids(["_start_", "_delimiter_", "_classify_", "<pad>"]) == list(
        range(ROWS, ROWS + 4)
    )
    converted(tmp_path / "b", tmp_path / "c")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "c")
    the, path = tokenizer.convert_tokens_to_ids(["the</w>", "path</w>"])
    assert tokenizer("the", "path").input_ids == [ROWS, the, ROWS + 1, path, ROWS + 2]


def test_the_publishers_vocabulary(tmp_path, converted):
    source = REPOSITORY.parent / "shared" / "data" / "gpt_bpe"
    if not source.is_dir():
        pytest.skip("the release's vocabulary is not at hand")
    tokenizer = release_tokenizer(source)
    config = {"vocab_size": 40482, "n_embd": 8, "n_head": 1, "n_layer": 1, "n_positions": 4}
    GPTForCausalLM(GPTForCausalLM.config_class(**config)).save_pretrained(tmp_path / "a")
    tokenizer.save_pretrained(tmp_path / "a")
    converted(tmp_path / "a", tmp_path / "b", "--to", "tf-release", "--special_tokens", "drop")
    for name in ("encoder_bpe_40000.json", "vocab_40000.bpe"):
        assert (tmp_path / "b" / name).read_bytes() == (source / name).read_bytes()


@pytest.mark.parametrize("flags", [(), ("--tokenizer_source", REPOSITORY / "model_cards" / "gpt-mini")])
def test_missing_and_foreign_tokenizers(flags, tmp_path, convert):
    own_model(GPTForCausalLM).save_pretrained(tmp_path / "a")
    status, printed = convert(tmp_path / "a", tmp_path / "b", *flags)
    assert status == 2
    assert "--no_tokenizer" in printed
    assert ("does not belong to the weights" in printed) == bool(flags)
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize("to", ["hf_gpt", "openai-gpt"])
def test_exported_tokenizer(to, tmp_path, converted, convert):
    own_model(GPTForCausalLM).save_pretrained(tmp_path / "a")
    files = tmp_path / "files"
    files.mkdir()
    write_vocabulary(files, "encoder_bpe_40000.json", "vocab_40000.bpe")
    flags = ("--to", to, "--tokenizer_source", files, "--fast_tokenizer")
    if to == "openai-gpt":
        assert "add --special_tokens keep" in convert(tmp_path / "a", tmp_path / "b", *flags)[1]
    printed = converted(tmp_path / "a", tmp_path / "b", *flags, "--special_tokens", "keep")
    assert re.search(r"of \d,\d{3} texts bundled with hf_gpt, \d+ get other ids", printed)
    exported = AutoTokenizer.from_pretrained(tmp_path / "b")
    assert not isinstance(exported, GPTTokenizer)
    text = "The path isn't the other\n\npath."
    assert exported(text).input_ids == release_tokenizer(files)(text).input_ids
    assert exported.pad_token_id == ROWS + 3
    assert "no tokenizer of hf_gpt" in convert(tmp_path / "a", tmp_path / "c", "--fast_tokenizer", *PLAIN)[1]


# Heads and sizes.


def test_another_head(tmp_path, converted):
    stock_model(OpenAIGPTLMHeadModel).save_pretrained(tmp_path / "a")
    flags = ("--head", "multiple-choice", "--n_positions", 8, *PLAIN)
    printed = converted(tmp_path / "a", tmp_path / "b", *flags)
    assert "newly initialized" in printed
    model = GPTForMultipleChoice.from_pretrained(tmp_path / "b")
    assert model.score.weight.any()
    assert model.transformer.embed_positions.weight.shape == (8, WIDTH)
    printed = converted(tmp_path / "b", tmp_path / "c", "--head", "causal-lm", *PLAIN)
    assert "Left out: score.bias, score.weight" in printed
    assert set(tensors(tmp_path / "c")) == {name for name in tensors(tmp_path / "b") if "score" not in name}


def test_head_that_ours_is_not(tmp_path, convert, converted):
    stock_model(OpenAIGPTDoubleHeadsModel, summary_activation="tanh").save_pretrained(tmp_path / "a")
    status, printed = convert(tmp_path / "a", tmp_path / "b", *PLAIN)
    assert status == 2
    assert "summary_activation is 'tanh'" in printed
    converted(tmp_path / "a", tmp_path / "b", "--head", "causal-lm", *PLAIN)


def test_special_tokens_on_request(tmp_path, converted):
    own_model(GPTForCausalLM).save_pretrained(tmp_path / "a")
    printed = converted(tmp_path / "a", tmp_path / "b", "--to", "openai-gpt", "--special_tokens", "drop", *PLAIN)
    assert "what was in them is lost" in printed
    assert tensors(tmp_path / "b")["transformer.tokens_embed.weight"].shape == (ROWS, WIDTH)
    own_model(GPTForCausalLM, fresh_special_tokens=True).save_pretrained(tmp_path / "c")
    converted(tmp_path / "c", tmp_path / "d", "--to", "openai-gpt", "--special_tokens", "keep", *PLAIN)
    assert tensors(tmp_path / "d")["transformer.tokens_embed.weight"].shape == (ROWS + 4, WIDTH)


# Format, part of the message, class and settings of the model.
REFUSED = [
    ("openai-gpt", "it has norm_first=False, and the model norm_first=True", GPTForCausalLM, GPT2),
    ("tf-release", "final_norm=False", GPTForCausalLM, GPT2),
    ("gpt2", "it has norm_first=True, and the model norm_first=False", GPTForCausalLM, {}),
    ("openai-gpt", "n_inner=48", GPTForCausalLM, {"n_inner": 48}),
    ("openai-gpt", "is_causal=False", GPTForCausalLM, {"is_causal": False}),
    ("openai-gpt", "no head token", GPTForTokenClassification, {}),
    ("tf-release", "--head causal-lm", GPTForMultipleChoice, {}),
    ("openai-gpt", "no bias", GPTForSequenceClassification, {}),
    ("openai-gpt", "head_layers", GPTForMultipleChoice, {"head_layers": "mix"}),
    ("tf-release", "--special_tokens drop", GPTForCausalLM, {}),
    ("tf-release", "afn=gelu, and the model afn=relu", GPTForCausalLM, {"afn": "relu"}),
    ("tf-release", "output matrix", GPTForCausalLM, {"tie_word_embeddings": False}),
    ("tf-release", "float64", GPTForCausalLM, {"fresh_special_tokens": True}),
]


@pytest.mark.parametrize(("to", "message", "model_class", "settings"), REFUSED)
def test_formats_say_what_they_cannot_hold(to, message, model_class, settings, tmp_path, convert):
    model = own_model(model_class, **settings)
    (model.double() if message == "float64" else model).save_pretrained(tmp_path / "a")
    status, printed = convert(tmp_path / "a", tmp_path / "b", "--to", to, *PLAIN)
    assert status == 2
    assert message in printed
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a"]


# Adapters.


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")  # of peft
@pytest.mark.filterwarnings("ignore:Unsupported layer type:UserWarning")
@pytest.mark.parametrize(
    ("build", "method"),
    [(lambda: own_model(GPTForCausalLM), "lora"), (lambda: stock_model(OpenAIGPTLMHeadModel), "ln")],
    ids=["hf_gpt", "stock"],
)
@torch.no_grad()
def test_adapter_is_merged(build, method, tmp_path, converted):
    base, folder = tmp_path / "base", tmp_path / "adapter"
    build().save_pretrained(base)
    write_vocabulary(base)
    model = GPTForMultipleChoice.from_pretrained(base)
    adapted = get_peft_model(model, adapter_config(method, model.config))
    for name, parameter in adapted.named_parameters():
        if "lora_B" in name or "score" in name:
            parameter.normal_(std=0.3)
    adapted.eval().save_pretrained(folder)
    (folder / HEAD_CONFIG).write_text(json.dumps(head_config(adapted)))
    printed = converted(folder, tmp_path / "merged")
    assert "a peft adapter" in printed
    assert f"merged into {base}" in printed
    choices = torch.tensor([[[ROWS, 3, 9, ROWS + 2], [ROWS, 4, 1, ROWS + 2]]])
    merged = GPTForMultipleChoice.from_pretrained(tmp_path / "merged")
    torch.testing.assert_close(merged(choices).logits, adapted(choices).logits, atol=1e-5, rtol=1e-5)
    assert len(AutoTokenizer.from_pretrained(tmp_path / "merged")) == ROWS + 4


# OpenAI's fine-tuned parameters.


@pytest.mark.parametrize("model", models())
@torch.no_grad()
def test_fine_tuned_parameters_give_the_recorded_scores(model, tmp_path, converted):
    recorded, variables = golden_config(model)["config"], arrays(model, "params")
    path = tmp_path / "best_params.jl"
    joblib.dump([variables[name] for name in variables["order"]], path)
    flags = ("--n_positions", recorded["n_ctx"], "--n_head", recorded["n_head"], *PLAIN)
    assert "fine-tuned by OpenAI's code" in converted(path, tmp_path / "ours", *flags)
    ours = GPTForMultipleChoice.from_pretrained(tmp_path / "ours")
    batch = arrays(model, "roc_eval")
    logits = ours(**roc_inputs(batch)).logits
    np.testing.assert_allclose(logits.numpy(), batch["clf_logits"], atol=1e-5)
    # And on to the stock model and back.
    converted(tmp_path / "ours", tmp_path / "theirs", "--to", "openai-gpt", *PLAIN)
    converted(tmp_path / "theirs", tmp_path / "again", *PLAIN)
    assert_same_model(tmp_path / "ours", tmp_path / "again")


def test_six_classes_and_a_vocabulary(tmp_path, converted):
    source = own_model(GPTForSequenceClassification, num_labels=6)
    state = {name.removeprefix("transformer."): value for name, value in source.state_dict().items()}
    blocks = list(release_arrays(state, 2).values())[2:]
    rows = torch.cat([state["embed_tokens.weight"][: ROWS + 3], state["embed_positions.weight"]]).numpy()
    head = [state["score.weight"].numpy().T, state["score.bias"].numpy()]
    write_vocabulary(tmp_path, "encoder_bpe_40000.json", "vocab_40000.bpe")
    joblib.dump([rows, *blocks, *head], tmp_path / "best_params.jl")
    converted(tmp_path, tmp_path / "ours", "--n_head", 2)
    found = GPTForSequenceClassification.from_pretrained(tmp_path / "ours").state_dict()
    for name, value in source.state_dict().items():
        rows = slice(ROWS + 3) if "embed_tokens" in name else slice(None)
        assert torch.equal(found[name][rows], value[rows]), name
    assert len(AutoTokenizer.from_pretrained(tmp_path / "ours")) == ROWS + 4
    # And the language model in it.
    converted(tmp_path, tmp_path / "lm", "--n_head", 2, "--head", "language-model")
    model = GPTForCausalLM.from_pretrained(tmp_path / "lm")
    rows = model.get_input_embeddings().weight
    assert torch.equal(rows[:ROWS], source.get_input_embeddings().weight[:ROWS])
    assert torch.equal(rows[ROWS:], drawn_special_tokens(WIDTH, 0.02))
    assert (model.config.untrained_token_ids, model.config.num_labels) == ([ROWS, ROWS + 1, ROWS + 2], 2)
    assert AutoTokenizer.from_pretrained(tmp_path / "lm").task_template is False


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_arrays_of_joblib(protocol, tmp_path):
    generator = np.random.default_rng(0)
    given = [
        generator.standard_normal((3, 4)).astype(np.float32),
        np.asfortranarray(generator.standard_normal((2, 5))),
        np.arange(7, dtype=np.int16),
        np.arange(3, dtype=">f4"),
        np.array(2, np.float32),
        np.zeros((0, 3), np.float32),
    ]
    given.append(given[0])
    joblib.dump(given, tmp_path / "arrays.jl", protocol=protocol)
    found = read_arrays(tmp_path / "arrays.jl")
    assert len(found) == len(given)
    for ours, theirs in zip(found, given, strict=True):
        assert ours.shape == theirs.shape
        np.testing.assert_array_equal(ours, theirs)


def broken_joblib(folder):
    """Bytes of a file, and part of the message."""
    joblib.dump([np.ones(5, np.float32)], folder / "good")
    joblib.dump([np.array([Trap(folder / "sprung")], dtype=object)], folder / "objects")
    joblib.dump([np.ones(5, np.float32)], folder / "compressed", compress=3)
    whole = (folder / "good").read_bytes()
    return [
        (pickle.dumps([Trap(folder / "sprung")]), r"names .*open, and only arrays of numbers"),
        ((folder / "objects").read_bytes(), "no numbers"),
        (whole[:-8], "ends within an array"),
        (whole[:20], "read as arrays"),
        (b"", "read as arrays"),
        ((folder / "compressed").read_bytes(), "without compression"),
        (b"404: Not Found", "read as arrays"),
        (pickle.dumps({"a": 1}), "something else than a list"),
        (pickle.dumps([1, 2]), "something else than a list"),
        (pickle.dumps([np.float32(1)]), "names numpy"),
    ]


def test_files_that_are_no_arrays_of_joblib(tmp_path):
    path = tmp_path / "broken.jl"
    for content, message in broken_joblib(tmp_path):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=f"{re.escape(str(path))}.*{message}"):
            read_arrays(path)
        assert not (tmp_path / "sprung").exists(), message
    with pytest.raises(FileNotFoundError, match="No such file"):
        read_arrays(tmp_path / "nothing.jl")


def test_fine_tuned_parameters_that_do_not_fit(tmp_path, convert):
    variables = arrays("tiny_seed0", "params")
    given = [variables[name] for name in variables["order"]]
    path = tmp_path / "best_params.jl"
    for content, flags, message in (
        (given, (), "--tokenizer_source"),
        (given, ("--n_positions", 235), "do not fit"),
        (given[:-1], ("--n_positions", 24), "one embedding matrix, 12 per block"),
        ([*given[:2], given[3], given[2], *given[4:]], ("--n_positions", 24), "block 0, attn/c_attn/b"),
    ):
        joblib.dump(content, path)
        status, printed = convert(path, tmp_path / "ours", "--n_head", 4, *flags, *PLAIN)
        assert status == 2
        assert message in printed
    assert not (tmp_path / "ours").exists()


@pytest.mark.parametrize("model", models())
def test_layout_of_the_publishers_files(model, tmp_path):
    checkpoint = golden_directory() / model / "checkpoint"
    source = load_release(checkpoint, GPTModel, n_head=golden_config(model)["config"]["n_head"])
    rows = source.config.vocab_size - 4
    state = source.state_dict() | {"embed_tokens.weight": source.embed_tokens.weight[:rows].detach()}
    write_release(tmp_path, release_arrays(state, source.config.n_layer))
    assert release_files(tmp_path) == release_files(checkpoint)
