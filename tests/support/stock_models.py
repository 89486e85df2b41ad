"""Small models of transformers' own `openai-gpt` and `gpt2`, and a vocabulary for them."""

import json
import string
from collections.abc import Iterable
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import GPT2LMHeadModel, GPT2Tokenizer, OpenAIGPTTokenizer, PreTrainedModel

from hf_gpt import GPTConfig
from hf_gpt.conversion.stock import initial_special_rows
from hf_gpt.tasks.catalogue import BUNDLED_DATA

from .tiny import with_large_weights

WIDTH, POSITIONS = 32, 24
MERGES = [("t", "h"), ("th", "e</w>"), ("p", "a"), ("th", "e"), ("pa", "th</w>"), ("t", "h</w>")]
VOCABULARY = ["<unk>", *string.ascii_lowercase, *(letter + "</w>" for letter in string.ascii_lowercase)]
VOCABULARY += ["th", "the</w>", "pa", "the", "th</w>", "path</w>", ",</w>", ".</w>", "n't</w>", "\n</w>"]
ROWS = len(VOCABULARY)


def stock_model(model_class: type[PreTrainedModel], **config) -> PreTrainedModel:
    """A stock model with large weights and the small vocabulary."""
    values = {"vocab_size": ROWS, "n_positions": POSITIONS, "n_embd": WIDTH, "n_layer": 2, "n_head": 2}
    if "GPT2" in model_class.__name__:
        values |= {"bos_token_id": 1, "eos_token_id": 1}
    return with_large_weights(model_class(model_class.config_class(**values | config)), 0)


@torch.no_grad()
def own_model(model_class: type[PreTrainedModel], untrained: bool = False, **overrides) -> PreTrainedModel:
    """A model of ours with large weights and the small vocabulary; the special tokens may be untrained."""
    config = {"vocab_size": ROWS + 4, "n_positions": POSITIONS, "n_embd": WIDTH, "n_layer": 2, "n_head": 2}
    config |= {"bos_token_id": ROWS, "start_token_id": ROWS, "delimiter_token_id": ROWS + 1}
    config |= {"classify_token_id": ROWS + 2, "pad_token_id": ROWS + 3}
    model = with_large_weights(model_class(GPTConfig(**config | overrides)), 3)
    if untrained:
        model.get_input_embeddings().weight[ROWS:] = initial_special_rows(model.config)
        model.config.untrained_token_ids = [ROWS, ROWS + 1, ROWS + 2]
    return model


def save_old_bin(model: PreTrainedModel, folder) -> None:
    """As versions before safetensors did: the transformer's bare names, masks, the output matrix once more."""
    state = {name.removeprefix("transformer."): tensor for name, tensor in model.state_dict().items()}
    for layer in range(model.config.n_layer):
        state[f"h.{layer}.attn.bias"] = torch.ones(POSITIONS, POSITIONS).tril().view(1, 1, POSITIONS, POSITIONS)
    folder.mkdir(exist_ok=True)
    torch.save(state, folder / "pytorch_model.bin")
    model.config.architectures = [type(model).__name__]
    model.config.save_pretrained(folder)


def write_vocabulary(folder, vocab_file="vocab.json", merges_file="merges.txt", tokenizer: bool = False) -> None:
    """The small vocabulary in the release's format, or as a stock tokenizer saves itself."""
    vocabulary = {piece: index for index, piece in enumerate(VOCABULARY)}
    # In the release's file <unk>, whose id is 0, comes last.
    vocabulary["<unk>"] = vocabulary.pop("<unk>")
    if tokenizer:
        OpenAIGPTTokenizer(vocab=vocabulary, merges=MERGES).save_pretrained(folder)
        return
    (folder / vocab_file).write_text(json.dumps(vocabulary), encoding="utf-8")
    lines = ["#version: 0.2", *(" ".join(pair) for pair in MERGES), ""]
    (folder / merges_file).write_text("\n".join(lines), encoding="utf-8")


def gpt2_tokenizer(texts: Iterable[str] = (), size: int = 400, **settings) -> GPT2Tokenizer:
    """A tokenizer of GPT-2's kind with a vocabulary learnt from some texts, by default the bundled questions."""
    learner = Tokenizer(models.BPE())
    learner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=size - 1, initial_alphabet=alphabet, show_progress=False)
    questions = (json.loads(line)["text"] for line in (BUNDLED_DATA / "questions.jsonl").open(encoding="utf-8"))
    learner.train_from_iterator(texts or questions, trainer)
    model = json.loads(learner.to_str())["model"]
    vocabulary = model["vocab"] | {"<|endoftext|>": len(model["vocab"])}
    return GPT2Tokenizer(vocab=vocabulary, merges=[tuple(pair) for pair in model["merges"]], **settings)


def save_gpt2(folder: Path) -> None:
    """A small stock `gpt2` with its tokenizer, as transformers saves it."""
    tokenizer = gpt2_tokenizer(model_max_length=64)
    tokenizer.save_pretrained(folder)
    config = dict.fromkeys(("bos_token_id", "eos_token_id"), tokenizer.eos_token_id)
    stock_model(GPT2LMHeadModel, vocab_size=len(tokenizer), n_positions=64, **config).save_pretrained(folder)


class Trap:
    """Creates a file when it is unpickled."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return (open, (self.path, "w"))
