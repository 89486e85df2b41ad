"""Small models of transformers' own `openai-gpt` and `gpt2`, and a vocabulary for them."""

import json
import string

import torch
from transformers import OpenAIGPTTokenizer, PreTrainedModel

WIDTH, POSITIONS = 32, 24
MERGES = [("t", "h"), ("th", "e</w>"), ("p", "a"), ("th", "e"), ("pa", "th</w>"), ("t", "h</w>")]
VOCABULARY = ["<unk>", *string.ascii_lowercase, *(letter + "</w>" for letter in string.ascii_lowercase)]
VOCABULARY += ["th", "the</w>", "pa", "the", "th</w>", "path</w>", ",</w>", ".</w>", "n't</w>", "\n</w>"]
ROWS = len(VOCABULARY)


def stock_model(model_class: type[PreTrainedModel], seed: int = 0, **config) -> PreTrainedModel:
    """A stock model in evaluation mode whose weights are large enough for a wrong place to show."""
    values = {"vocab_size": ROWS, "n_positions": POSITIONS, "n_embd": WIDTH, "n_layer": 2, "n_head": 2}
    if "GPT2" in model_class.__name__:
        values |= {"bos_token_id": 1, "eos_token_id": 1}
    model = model_class(model_class.config_class(**values | config))
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            is_gain = ".ln_" in name and name.endswith("weight")
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.2 + (1.0 if is_gain else 0.0))
    return model.eval()


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


class Trap:
    """Creates a file when it is unpickled."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return (open, (self.path, "w"))
