"""`scripts/convert.py`: both ways between all formats, bit for bit; refusals of what cannot be read or held."""

import json
import shutil
from functools import partial
from itertools import product
from pathlib import Path

import pytest
import torch
import transformers
from peft import get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer

from hf_gpt import GPTForCausalLM, GPTForMultipleChoice, GPTForSequenceClassification, GPTTokenizer, adapter_config
from hf_gpt.conversion.tokenizers import release_tokenizer
from hf_gpt.model.modeling_gpt import HEADS

from ..support.adapters import adapted, save_adapter
from ..support.golden import BUNDLED
from ..support.stock_models import POSITIONS, ROWS, WIDTH, Trap, own_model, stock_model, write_vocabulary

pytestmark = pytest.mark.filterwarnings("ignore:Unsupported layer type:UserWarning")
REPOSITORY = Path(__file__).resolve().parents[2]
MINI = REPOSITORY / "model_cards" / "gpt-mini"
RELEASE = BUNDLED / "tiny_seed0" / "checkpoint"
PLAIN = ("--no_tokenizer",)


def tensors(folder):
    return load_file(folder / "model.safetensors")


def assert_same_model(first, second):
    """Two folders of one format hold the same tensors, bit for bit, and the same configuration."""
    torch.testing.assert_close(tensors(first), tensors(second), rtol=0, atol=0)
    values = [json.loads((folder / "config.json").read_text()) for folder in (first, second)]
    common = values[0].keys() & values[1].keys() - {"transformers_version"}
    assert not {name for name in common if values[0][name] != values[1][name]}


def release_files(folder, pattern="*"):
    return {path.name: path.read_bytes() for path in folder.glob(pattern)}


def classifier(**settings):
    """One that a stock model can hold: without a bias."""
    model = own_model(GPTForSequenceClassification, **settings)
    torch.nn.init.zeros_(model.score.bias)
    return model


def stock(kind="openai-gpt", head="LMHeadModel", **config):
    stem = {"openai-gpt": "OpenAIGPT", "gpt2": "GPT2"}[kind]
    return stock_model(getattr(transformers, stem + head), **config)


STOCK = product(("openai-gpt", "gpt2"), ("LMHeadModel", "Model", "DoubleHeadsModel", "ForSequenceClassification"))
GPT2 = {"norm_first": True, "final_norm": True}
# What builds a model of ours, and the format that it goes through.
OWN = {
    "language model": (lambda: own_model(GPTForCausalLM), "openai-gpt"),
    "untrained special tokens": (lambda: own_model(GPTForCausalLM, untrained=True), "openai-gpt"),
    "bare": (lambda: own_model(HEADS["none"], afn="swish", attn_pdrop=0.3), "openai-gpt"),
    "choices": (lambda: own_model(GPTForMultipleChoice, lm_coef=0.25, clf_pdrop=0.2), "openai-gpt"),
    "classes": (lambda: classifier(num_labels=5), "openai-gpt"),
    "untied": (lambda: own_model(GPTForCausalLM, tie_word_embeddings=False), "openai-gpt"),
    "bfloat16": (lambda: own_model(GPTForMultipleChoice).to(torch.bfloat16), "openai-gpt"),
    "untrained to the release": (lambda: own_model(GPTForCausalLM, untrained=True), "tf-release"),
    "gpt2": (lambda: own_model(GPTForCausalLM, **GPT2, n_inner=48), "gpt2"),
    "gpt2, choices": (lambda: own_model(GPTForMultipleChoice, **GPT2), "gpt2"),
}
# What builds the model, and the formats that it passes through, its own last. The release builds nothing.
ROUND_TRIPS = {
    **{f"{kind}{head}": (partial(stock, kind, head), ("hf_gpt", kind)) for kind, head in STOCK},
    "openai-gpt, float16": (lambda: stock().to(torch.float16), ("hf_gpt", "openai-gpt")),
    "gpt2, bfloat16": (lambda: stock("gpt2").to(torch.bfloat16), ("hf_gpt", "gpt2")),
    **{f"hf_gpt, {name}": (build, (to, "hf_gpt")) for name, (build, to) in OWN.items()},
    "openai-gpt through the release": (stock, ("tf-release", "openai-gpt")),
    "release through hf_gpt": (None, ("hf_gpt", "tf-release")),
    "release through openai-gpt": (None, ("openai-gpt", "tf-release")),
}


@pytest.mark.parametrize("name", ROUND_TRIPS)
def test_there_and_back_is_the_same(name, tmp_path, converted):
    """Every tensor bit for bit, the configuration, and every file of a release byte for byte."""
    build, formats = ROUND_TRIPS[name]
    first, last = RELEASE if build is None else tmp_path / "first", tmp_path / formats[-1]
    if build is not None:
        build().save_pretrained(first)
    source, heads = first, ("--n_head", 4) if build is None else ()
    for to in formats:
        converted(source, tmp_path / to, "--to", to, *heads, *PLAIN)
        if to in ("openai-gpt", "gpt2"):  # transformers finds all that its own class has, and nothing else
            (architecture,) = json.loads((tmp_path / to / "config.json").read_text())["architectures"]
            model_class = getattr(transformers, architecture)
            problems = model_class.from_pretrained(tmp_path / to, output_loading_info=True)[1]
            assert not any(problems.values()), problems
        source, heads = tmp_path / to, ("--n_head", 2) if to == "tf-release" else ()
    if build is None:
        assert release_files(last) == release_files(first, "params*")
    else:
        assert_same_model(first, last)


@pytest.mark.parametrize("build", ["whole", "adapter"])
@torch.no_grad()
def test_language_model_of_a_fine_tuned_model(build, tmp_path, converted):
    """Where nothing but the head and the special tokens' rows was trained, it is exactly the original."""
    converted(RELEASE, tmp_path / "a", "--n_head", 4, *PLAIN)
    model = GPTForSequenceClassification.from_pretrained(tmp_path / "a", num_labels=3, head_layers=1)
    model.config.untrained_token_ids = None
    model.get_input_embeddings().weight[-4:] += build == "whole"
    if build == "adapter":
        save_adapter(get_peft_model(model, adapter_config("lora", model.config)), tmp_path / "b")
    else:
        model.save_pretrained(tmp_path / "b")
    printed = converted(tmp_path / "b", tmp_path / "c", "--head", "language-model", *PLAIN)
    assert "Left out: score.bias, score.weight of the head sequence-classification." in printed
    assert "the rows of _start_, _delimiter_, _classify_, <pad>, which are newly initialized" in printed
    assert_same_model(tmp_path / "a", tmp_path / "c")
    assert GPTForCausalLM.from_pretrained(tmp_path / "c").config.head_layers is None
    converted(tmp_path / "c", tmp_path / "d", "--to", "tf-release", *PLAIN)
    assert release_files(tmp_path / "d") == release_files(RELEASE, "params*")


@pytest.mark.parametrize(("name", "method"), [("hf_gpt, language model", "lora"), ("openai-gptLMHeadModel", "ln")])
@torch.no_grad()
def test_adapter_is_merged(name, method, tmp_path, converted):
    base, folder = tmp_path / "base", tmp_path / "adapter"
    ROUND_TRIPS[name][0]().save_pretrained(base)
    write_vocabulary(base)
    adapter = adapted(method, "multiple-choice", base)
    save_adapter(adapter, folder)
    assert f"merged into {base}" in converted(folder, tmp_path / "merged")
    choices = torch.tensor([[[ROWS, 3, 9, ROWS + 2], [ROWS, 4, 1, ROWS + 2]]])
    merged = GPTForMultipleChoice.from_pretrained(tmp_path / "merged")
    torch.testing.assert_close(merged(choices).logits, adapter(choices).logits, atol=1e-5, rtol=1e-5)
    assert len(AutoTokenizer.from_pretrained(tmp_path / "merged")) == ROWS + 4


def test_vocabulary_goes_along_byte_for_byte(tmp_path, converted):
    own_model(GPTForCausalLM, untrained=True).save_pretrained(tmp_path / "a")
    files, release, stock = (tmp_path / name for name in ("files", "b", "d"))
    files.mkdir()
    write_vocabulary(files, "encoder_bpe_40000.json", "vocab_40000.bpe")
    converted(tmp_path / "a", release, "--to", "tf-release", "--tokenizer_source", files)
    converted(release, tmp_path / "c", "--n_head", 2)
    assert "special tokens, which are untrained" in converted(tmp_path / "c", stock, "--to", "openai-gpt")
    assert tensors(stock)["transformer.tokens_embed.weight"].shape == (ROWS, WIDTH)
    for path, theirs in (("encoder_bpe_40000.json", "vocab.json"), ("vocab_40000.bpe", "merges.txt")):
        assert (files / path).read_bytes() == (release / path).read_bytes() == (stock / theirs).read_bytes()
    assert len(AutoTokenizer.from_pretrained(stock)) == ROWS
    converted(stock, tmp_path / "e")
    ours, again = (AutoTokenizer.from_pretrained(tmp_path / name) for name in "ce")
    assert (type(again), again.model_max_length) == (GPTTokenizer, POSITIONS)
    text = "The path, the other\npath isn't there."
    assert again(text).input_ids == ours(text).input_ids == release_tokenizer(files)(text).input_ids
    converted(tmp_path / "e", tmp_path / "f", "--to", "tf-release")
    assert release_files(tmp_path / "f") == release_files(release)


def test_special_tokens_of_the_stock_tokenizer(tmp_path, converted):
    own_model(GPTForMultipleChoice, problem_type="ordinal").save_pretrained(tmp_path / "a")
    write_vocabulary(tmp_path / "a")
    printed = converted(tmp_path / "a", tmp_path / "b", "--to", "openai-gpt")
    assert ("untrained" in printed, "problem_type ordinal" in printed) == (False, True)
    stock = AutoTokenizer.from_pretrained(tmp_path / "b")
    specials = stock.convert_tokens_to_ids(["_start_", "_delimiter_", "_classify_", "<pad>"])
    assert specials == [ROWS, ROWS + 1, ROWS + 2, ROWS + 3]
    converted(tmp_path / "b", tmp_path / "c")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "c")
    the, path = tokenizer.convert_tokens_to_ids(["the</w>", "path</w>"])
    assert tokenizer("the", "path").input_ids == [ROWS, the, ROWS + 1, path, ROWS + 2]


# Format, part of the message, class and settings of the model.
REFUSED = [
    ("openai-gpt", "it has norm_first=False, and the model norm_first=True", GPTForCausalLM, GPT2),
    ("tf-release", "final_norm=False", GPTForCausalLM, GPT2),
    ("gpt2", "it has norm_first=True, and the model norm_first=False", GPTForCausalLM, {}),
    ("openai-gpt", "n_inner=48", GPTForCausalLM, {"n_inner": 48}),
    ("openai-gpt", "is_causal=False", GPTForCausalLM, {"is_causal": False}),
    ("openai-gpt", "no head token", HEADS["token-classification"], {}),
    ("tf-release", "--head causal-lm", GPTForMultipleChoice, {}),
    ("ctranslate2", "--head causal-lm", GPTForMultipleChoice, {}),
    ("openai-gpt", "no bias", GPTForSequenceClassification, {}),
    ("openai-gpt", "head_layers", GPTForMultipleChoice, {"head_layers": "mix"}),
    ("tf-release", "--head language-model", GPTForCausalLM, {}),
    ("tf-release", "afn=gelu, and the model afn=relu", GPTForCausalLM, {"afn": "relu"}),
    ("tf-release", "output matrix", GPTForCausalLM, {"tie_word_embeddings": False}),
    ("tf-release", "float64", GPTForCausalLM, {"untrained": True}),
    ("hf_gpt --head causal-lm", "no such output matrix", HEADS["none"], {"tie_word_embeddings": False}),
]


@pytest.mark.parametrize(("to", "message", "model_class", "settings"), REFUSED)
def test_formats_say_what_they_cannot_hold(to, message, model_class, settings, tmp_path, converted):
    model = own_model(model_class, **settings)
    (model.double() if message == "float64" else model).save_pretrained(tmp_path / "a")
    assert message in converted(tmp_path / "a", tmp_path / "b", "--to", *to.split(), *PLAIN, status=2)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def with_weights(changes):
    """Other tensors, or none, by name."""

    def change(folder):
        state = load_file(folder / "model.safetensors") | changes
        kept = {name: tensor for name, tensor in state.items() if tensor is not None}
        save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})

    return change


def with_bin(content):
    def change(folder):
        (folder / "model.safetensors").unlink()
        torch.save(content(folder), folder / "pytorch_model.bin")

    return change


def with_config(**values):
    def change(folder):
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | values))

    return change


BLOCK = "transformer.h.0."
DAMAGE = {
    "no weights": (lambda folder: (folder / "model.safetensors").unlink(), "model.safetensors and pytorch_model.bin"),
    "missing tensor": (with_weights({BLOCK + "ln_2.bias": None}), "lacks transformer.h.0.ln_2.bias"),
    "extra tensor": (with_weights({BLOCK + "ln_7.bias": torch.ones(32)}), "not ask for transformer.h.0.ln_7.bias"),
    "wrong shape": (with_weights({BLOCK + "ln_1.bias": torch.ones(3)}), "h.0.ln_1.bias, or has them in other shapes"),
    "another output": (with_weights({"lm_head.weight": torch.ones(ROWS, 32)}), "is not the token embedding"),
    "bin of code": (with_bin(lambda folder: {"a": Trap(folder.parent / "sprung")}), "pytorch_model.bin: "),
    "bin of numbers": (with_bin(lambda folder: [1, 2]), "something else than tensors by name"),
    "another model": (with_config(model_type="bert"), "type 'bert'; hf_gpt, openai-gpt and gpt2"),
    "another summary": (with_config(summary_activation="tanh"), "'summary_activation': 'tanh'"),
    "another head": (with_config(architectures=["OpenAIGPTForTokens"]), "no head of the kind OpenAIGPTForTokens"),
    "nothing at all": (lambda folder: [path.unlink() for path in folder.iterdir()], "Found: nothing"),
    "something else": (lambda folder: (folder / "config.json").rename(folder / "a"), "Looked for: params_shapes.json"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_checkpoints(name, tmp_path, converted):
    damage, message = DAMAGE[name]
    folder, is_head = tmp_path / "a", name in ("another summary", "another head")
    stock(head="DoubleHeadsModel" if is_head else "LMHeadModel").save_pretrained(folder)
    damage(folder)
    printed = converted(folder, tmp_path / "b", *PLAIN, status=2)
    assert (message in printed, str(folder) in printed) == (True, True), printed
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    if is_head:
        converted(folder, tmp_path / "b", "--head", "causal-lm", *PLAIN)


@pytest.mark.parametrize(
    ("source", "flags", "message"),
    [
        ("no such folder", PLAIN, "there is no such folder"),
        ("nobody/nothing", PLAIN, "the Hub does not give it"),
        (RELEASE / "params_0.npy", PLAIN, "name the folder"),
        (RELEASE, ("--n_positions", 41, "--n_head", 4, *PLAIN), "n_positions is 41; the release has 40 positions"),
        (RELEASE, PLAIN, "width 48 is not a multiple of 64"),
        (RELEASE, ("--n_head", 5, *PLAIN), "must be a multiple of n_head"),
        (RELEASE, ("--n_head", 4), "--no_tokenizer does without"),
        (RELEASE, ("--n_head", 4, "--tokenizer_source", MINI), "does not belong to the weights"),
        (MINI, ("--n_head", 4, *PLAIN), "--n_head: "),
        (MINI, ("--n_positions", 4, *PLAIN), "--n_positions: "),
        (MINI, ("--to", "gpt2"), "norm_first=True"),
        (MINI, ("--quantization", "int8"), "--to ctranslate2"),
    ],
)
def test_wrong_arguments(source, flags, message, tmp_path, converted):
    assert message in converted(source, tmp_path / "b", *flags, status=2)
    assert not (tmp_path / "b").exists()


def test_output_is_kept_unless_it_may_be_replaced(tmp_path, converted):
    output = tmp_path / "out"
    output.mkdir()
    converted(RELEASE, output, "--n_head", 4, *PLAIN)
    before = (output / "model.safetensors").read_bytes()
    broken = Path(shutil.copytree(RELEASE, tmp_path / "broken"))
    (broken / "params_3.npy").write_bytes(b"")
    for source, flags, message in (
        (RELEASE, (), "give --overwrite"),
        (broken, ("--overwrite",), "params_3.npy"),
        (output, ("--overwrite",), "holds the source"),
    ):
        assert message in converted(source, output, "--n_head", 4, *PLAIN, *flags, status=2)
        assert (output / "model.safetensors").read_bytes() == before
    (output / "left over").write_text("")
    converted(RELEASE, output, "--n_head", 4, "--seed", 7, "--overwrite", *PLAIN)
    assert (output / "model.safetensors").read_bytes() != before
    assert not (output / "left over").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["broken", "out"]
