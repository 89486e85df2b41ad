"""Every kind of checkpoint as a model of ours, with the numbers that are stored; all is checked, no pickle is run."""

import pickle
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import torch
from joblib.numpy_pickle import NumpyArrayWrapper, NumpyUnpickler

from ..files import flag, listing, read_json, read_tensors, reading
from ..files.weights import BUFFERS, check_tensors, generation_settings, head_parameters, load_weights
from ..hub.repositories import check_config, local_folder, stock_type
from ..model.configuration_gpt import GPTConfig, default_generation_config
from ..model.modeling_gpt import HEADS, GPTForCausalLM, GPTPreTrainedModel
from ..model.tokenization_gpt import GPTTokenizer
from .release import block_names, load_release, release_config, release_parameters
from .stock import STOCK_CONFIGS, initial_special_rows
from .tokenizers import SPECIAL_TOKENS, find_tokenizer, vocabulary_of

KINDS = {
    "tf-release": "the OpenAI TensorFlow release",
    "best-params": "parameters fine-tuned by OpenAI's code (best_params.jl)",
    "adapter": "a peft adapter",
    "hf_gpt": "an hf_gpt model",
    "openai-gpt": "a stock openai-gpt model",
    "gpt2": "a stock gpt2 model",
}
NEW_ROWS = f"rows of {', '.join(SPECIAL_TOKENS)}"
# A head that is none: `causal-lm`, without what fine-tuning has left in the model.
LANGUAGE_MODEL = "language-model"
TASK_HEADS = ("multiple-choice", "sequence-classification", "question-answering", "token-classification")
# The stock multiple-choice head has variants that ours does not have.
_SUMMARY = {"summary_type": "cls_index", "summary_use_proj": True, "summary_activation": None}


@dataclass
class Checkpoint:
    """A model, with the numbers as they were stored, in the form that all formats are converted through."""

    kind: str  # the key of `KINDS` that it was read as
    model: GPTPreTrainedModel
    tokenizer: GPTTokenizer | None = None
    notes: list[str] = field(default_factory=list)  # what the user should know of the conversion

    @property
    def head(self) -> str:
        """`str`: one of `HEADS`."""
        return next(head for head, model_class in HEADS.items() if type(self.model) is model_class)


@dataclass
class SourceOptions:
    """What may be said of a source; flags of `scripts/convert.py`."""

    head: str | None = flag(
        None,
        "Head of the model, by default the source's; another is newly initialized. language-model is causal-lm "
        "without what fine-tuning left: labels, and rows of special tokens.",
        [*HEADS, LANGUAGE_MODEL],
    )
    n_positions: int | None = flag(None, "Context length of OpenAI's files; of best_params.jl exactly.")
    n_head: int | None = flag(None, "Attention heads of OpenAI's files, where not width / 64.")
    tokenizer_source: str | None = flag(None, "Folder of the tokenizer, if another.")
    no_tokenizer: bool = flag(False, "Convert the weights alone.")
    base_model: str | None = flag(None, "Base model of an adapter, if it has moved.")
    seed: int = flag(0, "Of the special tokens' rows and of a new head.")


def recognise(path: Path) -> str:
    """What a file or folder holds: a key of `KINDS`, or a `ValueError` that says what was found."""
    if path.is_file():
        if path.suffix == ".jl":
            return "best-params"
        raise ValueError(f"{path} is a file: name the folder that holds it, or a best_params.jl.")
    if (path / "adapter_config.json").is_file():
        return "adapter"
    if (file := path / "config.json").is_file():
        with reading(file):
            config = read_json(file)
            check_config(config, file)
            kind = stock_type(config) or config.get("model_type")
        if kind not in [*KINDS]:  # where a list would be an error of its own
            raise ValueError(f"{file} is of a model of the type {kind!r}; hf_gpt, openai-gpt and gpt2 are known here.")
        return kind
    if (path / "params_shapes.json").is_file() or any(path.glob("params_[0-9].npy")):
        return "tf-release"
    if (path / "best_params.jl").is_file():
        return "best-params"
    raise ValueError(
        f"{path} holds no checkpoint that is known. Looked for: params_shapes.json (OpenAI's release), best_params.jl "
        "(fine-tuned by OpenAI's code), adapter_config.json (a peft adapter), config.json (hf_gpt, openai-gpt, gpt2). "
        f"Found: {listing(path)}."
    )


def lacks_special_tokens(kind: str, path: Path) -> bool:
    """Whether a model of a kind has no rows for `SPECIAL_TOKENS` in its files: it gets them when it is read."""
    if kind in STOCK_CONFIGS:
        return "start_token_id" not in read_json(path / "config.json")
    return kind == "tf-release"


def read_checkpoint(source: str, options: SourceOptions | None = None) -> Checkpoint:
    """
    Read any checkpoint (file, folder or Hub id); a `ValueError` if it is not recognised, broken, or an option does not
    fit it, a `FileNotFoundError` if a file is missing.
    """
    options = options or SourceOptions()
    path = Path(source) if Path(source).is_file() else local_folder(source)
    kind = recognise(path)
    for name in ("n_head", "n_positions"):
        if getattr(options, name) is not None and kind not in ("tf-release", "best-params"):
            raise ValueError(f"--{name}: {path} is {KINDS[kind]}, whose configuration says it.")
    notes, folder = [], path if path.is_dir() else path.parent  # of the tokenizer
    with reading(path):
        if kind == "tf-release":
            model = load_release(path, seed=options.seed, n_head=options.n_head, n_positions=options.n_positions)
        elif kind == "adapter":
            from ..adapters import base_folder, load_adapter, merge_adapter

            model = merge_adapter(load_adapter(path, base_model=options.base_model, dtype="auto"))
            notes.append(f"The adapter was merged into {model.name_or_path}.")
            if not (path / "tokenizer.json").is_file():
                folder = base_folder(path, options.base_model)[1]
        else:
            model = (_read_best_params if kind == "best-params" else _read_folder)(path, options)
    checkpoint = Checkpoint(kind, model, notes=notes)
    if lacks_special_tokens(kind, path):
        _draw_special_rows(model, options.seed)
        notes.append(f"Newly initialized: {NEW_ROWS}, which its files lack; they get no probability yet.")
    if options.head == LANGUAGE_MODEL:
        _set_head(checkpoint, "causal-lm" if model.config.is_causal else "masked-lm", options.seed)
        forget_task(model.config)
        if drawn := _draw_special_rows(checkpoint.model, options.seed):
            rows = f"what fine-tuning made of the rows of {', '.join(drawn)}"
            notes.append(f"Left out: {rows}, which are newly initialized and have no probability.")
    else:
        _set_head(checkpoint, options.head or checkpoint.head, options.seed)
    if not options.no_tokenizer:
        folder = local_folder(options.tokenizer_source) if options.tokenizer_source else folder
        checkpoint.tokenizer = find_tokenizer(folder, model.config)
        if kind not in ("hf_gpt", "adapter") or options.head is not None:
            checkpoint.tokenizer.task_template = checkpoint.head in TASK_HEADS[:3]
        checkpoint.tokenizer.model_max_length = model.config.n_positions
    return checkpoint


class _Numbers(NumpyArrayWrapper):
    """What joblib says of an array before its bytes; those of objects, which would be unpickled, are refused."""

    def read(self, *args: Any) -> np.ndarray:
        if self.dtype.kind not in "fiu":
            raise ValueError(f"it holds values of the type {self.dtype}, which are no numbers")
        return super().read(*args)


class _ArraysOnly(NumpyUnpickler):
    """joblib's own unpickler, without names that arrays do not need, and bytes, which may promise gigabytes."""

    def find_class(self, module: str, name: str) -> type:
        if name == "NumpyArrayWrapper":
            return _Numbers
        if module != "numpy" or name not in ("ndarray", "dtype"):
            raise ValueError(f"it names {module}.{name}, and only arrays of numbers are read")
        return getattr(np, name)

    dispatch = NumpyUnpickler.dispatch | {pickle.BYTEARRAY8[0]: lambda self: self.find_class("builtins", "bytes")}


def read_arrays(path: Path) -> list[np.ndarray]:
    """
    The arrays in an uncompressed file that `joblib.dump` wrote of a list of arrays of numbers, such as
    `best_params.jl`; a `ValueError` if it holds anything else, is compressed or truncated, of which nothing is run.
    """
    with path.open("rb") as file, reading(path, "read as arrays that joblib wrote without compression"):
        arrays = _ArraysOnly(str(path), file, ensure_native_byte_order=True).load()
        if not isinstance(arrays, (list, tuple)) or not all(isinstance(array, np.ndarray) for array in arrays):
            raise ValueError("it holds something else than a list of arrays")
    return list(arrays)


def _read_best_params(path: Path, options: SourceOptions) -> GPTPreTrainedModel:
    file = path if path.is_file() else path / "best_params.jl"
    arrays = read_arrays(file)
    blocks, rest = divmod(len(arrays) - 1, 12)
    if blocks < 1 or rest not in (0, 2) or arrays[0].ndim != 2:
        raise ValueError(f"{file} holds {len(arrays)} arrays; expected an embedding, 12 per block, 2 of a head.")
    embedding, arrays, head_arrays = arrays[0], arrays[1 : 12 * blocks + 1], arrays[12 * blocks + 1 :]
    if options.n_positions is not None:
        vocabulary = len(embedding) - 3 - options.n_positions
    elif options.no_tokenizer:
        raise ValueError("say how many positions there are (--n_positions), or leave out --no_tokenizer")
    else:
        folder = local_folder(options.tokenizer_source) if options.tokenizer_source else file.parent
        vocabulary = len(vocabulary_of(find_tokenizer(folder))[0])
    if not 1 <= vocabulary < len(embedding) - 3:
        raise ValueError(
            f"{file} has {len(embedding):,} rows of tokens, 3 special tokens and positions, which do not fit to "
            f"{vocabulary:,} tokens: name the right --tokenizer_source or --n_positions."
        )
    names = block_names(file, [array.shape for array in arrays], embedding.shape[1], 1)
    named = dict(zip(names, arrays, strict=True))
    named |= {"tokens": embedding[:vocabulary], "positions": embedding[vocabulary + 3 :]}
    config = release_config(named, n_head=options.n_head, untrained_token_ids=None)
    named["tokens"] = np.concatenate([embedding[: vocabulary + 3], np.zeros_like(embedding[:1])])
    head = "causal-lm"
    if head_arrays:
        weight, bias = map(torch.from_numpy, head_arrays)
        head = "multiple-choice" if len(bias) == 1 else "sequence-classification"
        config.num_labels = max(len(bias), 2)
    parameters = release_parameters(named, config)
    model = HEADS[head](config).to(parameters["embed_tokens.weight"].dtype).eval()
    model.base_model.load_state_dict(parameters)
    if head_arrays:
        model.score.load_state_dict({"weight": weight.T, "bias": bias})
    check_tensors(model.state_dict(), file)
    return model


def _read_folder(path: Path, options: SourceOptions) -> GPTPreTrainedModel:
    """A model of ours or a stock one; without its head if that is none of ours, and another was asked for."""
    settings, config = read_json(path / "config.json"), GPTConfig.from_pretrained(path)
    kind, name = stock_type(settings), (config.architectures or [GPTForCausalLM.__name__])[0]
    head = next((head for head, model_class in HEADS.items() if name == model_class.__name__), None)
    if options.head in (None, head):
        if head is None:
            raise ValueError(f"hf_gpt has no head of the kind {name}: --head causal-lm takes the transformer alone")
        others = {field: settings.get(field, value) for field, value in _SUMMARY.items()}
        if kind and head == "multiple-choice" and others != _SUMMARY:
            raise ValueError(f"its head has {others}, and hf_gpt's {_SUMMARY}: --head causal-lm leaves the head out")
    weights = {name: weight for name, weight in read_tensors(path).items() if not BUFFERS.search(name)}
    types = {name: weight.dtype for name, weight in weights.items() if weight.is_floating_point()}
    widest = reduce(torch.promote_types, types.values())
    model = load_weights(HEADS[head or "none"], path, config, whole=head is not None, dtype=widest)
    for name, parameter in model.named_parameters():
        parameter.data = parameter.to(types.get(name, widest))
    fresh = default_generation_config(config)
    generation = None if kind == "openai-gpt" else generation_settings(path)
    if generation is not None and kind == "gpt2":
        generation.update(suppress_tokens=fresh.suppress_tokens, pad_token_id=fresh.pad_token_id)
    model.generation_config = generation or fresh
    return model


def _set_head(checkpoint: Checkpoint, head: str, seed: int) -> None:
    """Leave out a head that is not the wanted one, and initialize that."""
    if head == checkpoint.head:
        return
    model, config, notes = checkpoint.model, checkpoint.model.config, checkpoint.notes
    left_out = sorted(head_parameters(model))
    if head in ("causal-lm", "masked-lm") and not config.tie_word_embeddings:
        raise ValueError(f"{head}: the source has no such output matrix, though tie_word_embeddings is false.")
    config.head_layers = None
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        new = HEADS[head](config).to(model.dtype).eval()
    new.base_model.load_state_dict(model.base_model.state_dict(), strict=True, assign=True)
    new.tie_weights()
    new.generation_config = getattr(model, "generation_config", None) or default_generation_config(config)
    if left_out:
        notes.append(f"Left out: {', '.join(left_out)} of the head {checkpoint.head}.")
    if head in TASK_HEADS:
        notes.append(f"The head {head} is newly initialized.")
    checkpoint.model = new


def forget_task(config: GPTConfig) -> None:
    """
    Of a fine-tuned model, what is left when it becomes a language model: no labels, no layers of a head, and no
    probability for special tokens, which no text holds.
    """
    config.head_layers = config.problem_type = None
    plain = GPTConfig()
    config.id2label, config.label2id = plain.id2label, plain.label2id
    config.untrained_token_ids = sorted({*config.task_token_ids} - {*config.eos_token_ids}) or None


@torch.no_grad()
def _draw_special_rows(model: GPTPreTrainedModel, seed: int) -> list[str]:
    """Initialize the rows of the special tokens as for the release, in place, and return which tokens there are."""
    config = model.config
    ids = (config.start_token_id, config.delimiter_token_id, config.classify_token_id, config.excluded_token_id)
    known = [place for place, row in enumerate(ids) if row is not None]
    for matrix in {model.get_input_embeddings(), model.get_output_embeddings()} - {None}:
        initial = initial_special_rows(config, seed).to(matrix.weight)
        matrix.weight[[ids[place] for place in known]] = initial[known]
    return [SPECIAL_TOKENS[place] for place in known]
