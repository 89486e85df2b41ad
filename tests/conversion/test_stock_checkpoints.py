"""Checkpoints of transformers' own `openai-gpt` and `gpt2`: weights, outputs, configuration, tokenizers."""

import json

import pytest
import torch
import transformers
from transformers import AutoTokenizer, GPT2Config, OpenAIGPTConfig, OpenAIGPTLMHeadModel, PreTrainedModel

from hf_gpt import GPTConfig, GPTTokenizer
from hf_gpt.conversion.tokenizers import release_tokenizer
from hf_gpt.loading import open_source
from hf_gpt.model.modeling_gpt import GPTForCausalLM, GPTForMultipleChoice, GPTForSequenceClassification, GPTModel

from ..support.stock_models import ROWS, save_old_bin, stock_model, write_vocabulary

INPUTS = torch.tensor([[3, 9, 4, 1, 17, 2, 11], [5, 5, 12, 30, 0, 7, 22]])
CHOICES, LAST = torch.stack([INPUTS, INPUTS.flip(0)]), torch.tensor([[6, 4], [3, 6]])
HEADS = {
    "bare": ("Model", GPTModel),
    "language model without its head": ("LMHeadModel", GPTModel),
    "language model": ("LMHeadModel", GPTForCausalLM),
    "choices": ("DoubleHeadsModel", GPTForMultipleChoice),
    "classes": ("ForSequenceClassification", GPTForSequenceClassification),
}


def load(model_class, folder, **kwargs):
    """A model, and what transformers says is missing, unexpected or wrong in the checkpoint."""
    model, info = model_class.from_pretrained(folder, output_loading_info=True, **kwargs)
    return model, {name: keys for name, keys in info.items() if keys}


def outputs(head, theirs, ours):
    """What both models compute of the same inputs."""
    if head == "language model":
        return ours(INPUTS).logits[..., :ROWS], theirs(INPUTS).logits
    if head == "choices":
        states = ours.transformer(CHOICES.flatten(0, 1)).last_hidden_state
        logits = ours.score(states[torch.arange(4), LAST.flatten()]).view(2, 2)
        return logits, theirs(CHOICES, mc_token_ids=LAST).mc_logits
    if head == "classes":
        return ours(INPUTS, classify_index=torch.tensor([[6], [6]])).logits, theirs(INPUTS).logits
    return [torch.stack(each(INPUTS, output_hidden_states=True).hidden_states) for each in (ours, theirs.base_model)]


@pytest.mark.parametrize("kind", ["OpenAIGPT", "GPT2"])
@pytest.mark.parametrize("save", [PreTrainedModel.save_pretrained, save_old_bin], ids=["safetensors", "old bin"])
@pytest.mark.parametrize("head", HEADS)
@torch.no_grad()
def test_same_outputs(head, save, kind, tmp_path):
    name, model_class = HEADS[head]
    settings = {"num_labels": 3, "pad_token_id": 0} if head == "classes" else {}
    theirs = stock_model(getattr(transformers, kind + name), **settings)
    save(theirs, tmp_path)
    ours, problems = load(model_class, tmp_path)
    assert not problems
    assert type(ours.config) is GPTConfig
    torch.testing.assert_close(*outputs(head, theirs, ours), atol=2e-5, rtol=1e-5)
    block = ours.base_model.h[1]
    assert torch.equal(block.attn.c_proj.weight, theirs.base_model.h[1].attn.c_proj.weight.T)
    # Saved under our names, it loads as any model of ours.
    ours.save_pretrained(tmp_path / "ours")
    again, problems = load(model_class, tmp_path / "ours")
    assert not problems
    assert all(torch.equal(again.get_parameter(name), value) for name, value in ours.named_parameters())


@pytest.mark.parametrize("model_class", [GPTForMultipleChoice, GPTForSequenceClassification])
def test_new_heads_are_reported_as_missing(model_class, tmp_path):
    stock_model(OpenAIGPTLMHeadModel).save_pretrained(tmp_path)
    model, problems = load(model_class, tmp_path, **({"num_labels": 6} if "Seq" in model_class.__name__ else {}))
    assert {name: set(keys) for name, keys in problems.items()} == {"missing_keys": {"score.weight", "score.bias"}}
    assert model.score.weight.std().item() == pytest.approx(0.02, rel=0.5)


def test_special_tokens(tmp_path):
    theirs = stock_model(OpenAIGPTLMHeadModel)
    theirs.save_pretrained(tmp_path)
    first, second = (GPTModel.from_pretrained(tmp_path) for _ in range(2))
    config, rows = first.config, first.embed_tokens.weight
    assert [*config.task_token_ids, config.pad_token_id] == [ROWS, ROWS + 1, ROWS + 2, ROWS + 3]
    assert (config.vocab_size, config.bos_token_id) == (ROWS + 4, ROWS)
    assert torch.equal(rows[:ROWS], theirs.transformer.tokens_embed.weight)
    # An adapter is saved without its base model, which must come back with the same rows.
    assert torch.equal(rows, second.embed_tokens.weight)
    assert rows[ROWS : ROWS + 3].std().item() == pytest.approx(0.02, rel=0.3)
    assert not rows[ROWS + 3].any()


def test_configuration(tmp_path, caplog):
    """The publisher's oldest file names no model type; transformers' own Auto class still gives its own."""
    OpenAIGPTConfig(n_layer=3, afn="silu", attn_pdrop=0.3, id2label={0: "no", 1: "yes"}).save_pretrained(tmp_path)
    assert type(transformers.AutoConfig.from_pretrained(tmp_path)) is OpenAIGPTConfig
    values = json.loads((tmp_path / "config.json").read_text()) | {"architectures": ["OpenAIGPTLMHeadModel"]}
    del values["model_type"]
    (tmp_path / "config.json").write_text(json.dumps(values))
    config = GPTConfig.from_pretrained(tmp_path, lm_coef=0.25)
    assert (config.vocab_size, config.n_layer, config.afn, config.attn_pdrop) == (40482, 3, "swish", 0.3)
    assert (config.id2label, config.lm_coef) == ({0: "no", 1: "yes"}, 0.25)
    assert not hasattr(config, "summary_type")
    assert "You are using a model of type" not in caplog.text


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"activation_function": "gelu"}, "activation 'gelu'; hf_gpt has gelu_new"),
        ({"scale_attn_weights": False}, "scale_attn_weights=False"),
        ({"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx=True"),
        ({"add_cross_attention": True}, "add_cross_attention=True"),
    ],
)
def test_what_we_do_not_compute_is_refused(changes, message, tmp_path):
    GPT2Config(**changes).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=message):
        GPTConfig.from_pretrained(tmp_path)


@pytest.mark.parametrize("as_tokenizer", [False, True], ids=["vocab.json", "tokenizer.json"])
def test_tokenizer_of_a_stock_folder(as_tokenizer, tmp_path):
    write_vocabulary(tmp_path, "encoder_bpe_40000.json", "vocab_40000.bpe")
    expected, stock = release_tokenizer(tmp_path, task_template=True), tmp_path / "stock"
    stock.mkdir()
    write_vocabulary(stock, tokenizer=as_tokenizer)
    tokenizer = GPTTokenizer.from_pretrained(stock, task_template=True, mode="fast")  # a setting of hf_gpt 0.1
    text = "The path, the other\n\npath isn't there."
    assert tokenizer(text).input_ids == expected(text).input_ids
    assert tokenizer.get_vocab() == expected.get_vocab()


def test_tokenizer_of_gpt2(stock_gpt2, tmp_path):
    theirs = AutoTokenizer.from_pretrained(stock_gpt2)
    ours = open_source(stock_gpt2).tokenizer()
    assert type(theirs) is transformers.GPT2Tokenizer
    assert type(ours) is GPTTokenizer
    assert ours.byte_level
    texts = ["The cat  didn't sit.\n\n\tHe said: “No” — déjà vu, 日本.", " two", "x <|endoftext|> _start_ y"]
    settings = {"return_offsets_mapping": True, "split_special_tokens": True}
    for text in texts:
        encoded, expected = (tokenizer(text, **settings) for tokenizer in (ours, theirs))
        assert encoded == expected
        assert encoded.word_ids() == expected.word_ids()
        assert ours.decode(encoded["input_ids"]) == text
    first = len(theirs)
    specials = [ours.bos_token_id, ours.sep_token_id, ours.cls_token_id, ours.pad_token_id]
    assert specials == [first, first + 1, first + 2, first + 3]
    assert ours.eos_token_id == first - 1
    ours.task_template = True
    ours.save_pretrained(tmp_path)
    again = AutoTokenizer.from_pretrained(tmp_path)
    assert type(again) is GPTTokenizer
    assert again.get_vocab() == ours.get_vocab()
    pair = [first, *theirs("a cat").input_ids, first + 1, *theirs("a dog").input_ids, first + 2]
    assert again("a cat", "a dog").input_ids == ours("a cat", "a dog").input_ids == pair
    assert again("a", "").input_ids == [first, *theirs("a").input_ids, first + 1, first + 2]


def test_words_given_to_the_tokenizer_of_gpt2(stock_gpt2):
    """All but the first get the space that they have in a text; offsets are those within the words."""
    ours = GPTTokenizer.from_pretrained(stock_gpt2)
    words = ["He", "didn't", "", "go"]
    encoded = ours(words, is_split_into_words=True, return_offsets_mapping=True)
    assert encoded["input_ids"] == ours("He didn't  go").input_ids
    for word, (start, end), token in zip(encoded.word_ids(), encoded["offset_mapping"], encoded.tokens(), strict=True):
        assert words[word][start:end] == token.removeprefix("\u0120")
    batch = ours([words, ["He"]], is_split_into_words=True, padding=True, return_tensors="pt")
    assert batch["input_ids"].shape == (2, len(encoded["input_ids"]))


def test_gpt2_converted_and_back(stock_gpt2, tmp_path, converted):
    printed = converted(stock_gpt2, tmp_path / "ours", "--head", "sequence-classification")
    assert "Newly initialized: rows of _start_, _delimiter_, _classify_, <pad>" in printed
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "ours")
    assert type(tokenizer) is GPTTokenizer
    assert tokenizer.task_template
    assert open_source(stock_gpt2).new_rows == ", with new rows of _start_, _delimiter_, _classify_, <pad>"
    assert open_source(tmp_path / "ours").new_rows == ""
    model = GPTForSequenceClassification.from_pretrained(tmp_path / "ours")
    assert model.config.untrained_token_ids == [tokenizer.bos_token_id, tokenizer.sep_token_id, tokenizer.cls_token_id]
    converted(tmp_path / "ours", tmp_path / "stock", "--head", "causal-lm", "--to", "gpt2")
    for name in ("tokenizer.json", "tokenizer_config.json", "model.safetensors"):
        assert (tmp_path / "stock" / name).read_bytes() == (stock_gpt2 / name).read_bytes(), name
