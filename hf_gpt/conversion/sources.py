"""
Reading every kind of checkpoint that `scripts/convert.py` recognises into one form: our names, our orientation, the
numbers as they are stored. No pickle is loaded; every name, shape and number is checked.
"""

from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from transformers import GenerationConfig

from ..files import flag, listing, read_json, read_tensors, reading
from ..files.weights import check_tensors, misfits
from ..hub.checks import check_config, generation_settings, stock_type
from ..hub.downloads import local_folder
from ..model.configuration_gpt import GPTConfig, default_generation_config
from ..model.modeling_gpt import HEADS, GPTForCausalLM
from ..model.tokenization_gpt import GPTTokenizer
from .joblib_arrays import read_arrays
from .release import BLOCK_ARRAYS, check_blocks, read_release, release_config, release_parameters
from .stock import STOCK_CONFIGS, drawn_special_tokens, from_stock, is_base, own_class, own_config, own_parameters
from .tensorflow_bundle import INDEX, SIZES, read_bundle, stock_fields
from .tokenizers import SPECIAL_TOKENS, find_tokenizer, vocabulary_size

KINDS = {
    "tf-release": "the OpenAI TensorFlow release",
    "best-params": "parameters fine-tuned by OpenAI's code (best_params.jl)",
    "adapter": "a peft adapter",
    "hf_gpt": "an hf_gpt model",
    "openai-gpt": "a stock openai-gpt model",
    "gpt2": "a stock gpt2 model",
    "gpt2-bundle": "OpenAI's TensorFlow files of GPT-2",
}
NEW_ROWS = f"rows of {', '.join(SPECIAL_TOKENS)}"
# A head that is none: `causal-lm`, without what fine-tuning has left in the model.
LANGUAGE_MODEL = "language-model"
TASK_HEADS = ("multiple-choice", "sequence-classification", "question-answering")
LANGUAGE_MODELS = ("causal-lm", "masked-lm")
# The stock multiple-choice head has variants that ours does not have.
_SUMMARY = {"summary_type": "cls_index", "summary_use_proj": True, "summary_activation": None}
_LOOKED_FOR = (
    "params_shapes.json (OpenAI's release), model.ckpt.index with hparams.json (OpenAI's GPT-2), best_params.jl "
    "(fine-tuned by OpenAI's code), adapter_config.json (a peft adapter), or config.json with model.safetensors or "
    "pytorch_model.bin (hf_gpt, openai-gpt, gpt2)"
)


@dataclass
class Checkpoint:
    """
    A model in the form that all formats are converted through.

    Args:
        kind (`str`): the key of `KINDS` that it was read as.
        config (`GPTConfig`): of the model.
        head (`str`): one of `HEADS`.
        parameters (`dict[str, torch.Tensor]`): named as in the model, without `transformer.`; a tied output matrix
            is left out.
        generation_config (`GenerationConfig`, *optional*): if the source has one.
        tokenizer (`GPTTokenizer`, *optional*): of the model.
        new_rows (`bool`): whether the rows of special tokens were not in its files.
        notes (`list[str]`): what the user should know of the conversion.
    """

    kind: str
    config: GPTConfig
    head: str
    parameters: dict[str, torch.Tensor]
    generation_config: GenerationConfig | None = None
    tokenizer: GPTTokenizer | None = None
    new_rows: bool = False
    notes: list[str] = field(default_factory=list)


@dataclass
class SourceOptions:
    """What may be said of a source; flags of `scripts/convert.py`."""

    head: str | None = flag(
        None,
        "Head of the model, by default the source's; another is newly initialized. language-model is causal-lm "
        "without what fine-tuning left: labels, and rows of special tokens.",
        [*HEADS, LANGUAGE_MODEL],
    )
    n_positions: int | None = flag(None, "Context length, at most the source's.")
    n_head: int | None = flag(None, "Attention heads of OpenAI's files, where not width / 64.")
    tokenizer_source: str | None = flag(None, "Folder of the tokenizer, if another.")
    no_tokenizer: bool = flag(False, "Convert the weights alone.")
    base_model: str | None = flag(None, "Base model of an adapter, if it has moved.")
    seed: int = flag(0, "Of the special tokens' rows and of a new head.")


def locate(source: str) -> Path:
    """The path of a source; a Hub id that is no path is downloaded and checked. A `ValueError` if it is neither."""
    path = Path(source)
    return path if path.exists() else local_folder(source, stock_pickles=True)


def recognise(path: Path) -> str:
    """
    What a file or folder holds, inferred from its contents: a key of `KINDS`, or a `ValueError` that says what was
    found and what was looked for.
    """
    if path.is_file():
        if path.suffix == ".jl":
            return "best-params"
        raise ValueError(f"{path} is a file: name the folder that holds it, or a best_params.jl.")
    if (path / "adapter_config.json").is_file():
        return "adapter"
    file = path / "config.json"
    if file.is_file():
        with reading(file):
            config = read_json(file)
            check_config(config, file)
            kind = stock_type(config) or config.get("model_type")
        if kind not in KINDS:
            raise ValueError(f"{file} is of a model of the type {kind!r}; hf_gpt, openai-gpt and gpt2 are known here.")
        return kind
    if (path / INDEX).is_file() and (path / SIZES).is_file():
        return "gpt2-bundle"
    if (path / "params_shapes.json").is_file() or any(path.glob("params_[0-9].npy")):
        return "tf-release"
    if (path / "best_params.jl").is_file():
        return "best-params"
    raise ValueError(f"{path} holds no checkpoint that is known. Looked for: {_LOOKED_FOR}. Found: {listing(path)}.")


def lacks_special_tokens(kind: str, path: Path) -> bool:
    """Whether a model of a kind has no rows for `SPECIAL_TOKENS` in its files: it gets them when it is read."""
    if kind in STOCK_CONFIGS:
        return "start_token_id" not in read_json(path / "config.json")
    return kind in ("tf-release", "gpt2-bundle")


def read_checkpoint(source: str, options: SourceOptions | None = None) -> Checkpoint:
    """
    Read any checkpoint (file, folder or Hub id) that is recognised.

    Raises:
        ValueError: if it is not recognised, broken, or an option does not fit it.
        FileNotFoundError: if a file is missing.
    """
    options = options or SourceOptions()
    path = locate(source)
    kind = recognise(path)
    if kind == "adapter":
        from ..adapters import base_folder

        name, base = base_folder(path, options.base_model)
        options = replace(options, base_model=str(base))
    if options.n_head is not None and kind not in ("tf-release", "best-params"):
        raise ValueError(f"--n_head: {path} is {KINDS[kind]}, whose configuration says how many heads it has.")
    with reading(path):
        checkpoint = _READERS[kind](path, options)
    checkpoint.new_rows = lacks_special_tokens(kind, path)
    if kind == "adapter":
        checkpoint.notes.append(f"The adapter was merged into {name}.")
    _with_positions(checkpoint, options.n_positions)
    is_language_model = options.head == LANGUAGE_MODEL
    language_model = LANGUAGE_MODELS[not checkpoint.config.is_causal]
    _with_head(checkpoint, language_model if is_language_model else options.head or checkpoint.head, options.seed)
    if is_language_model:
        _without_task(checkpoint, options.seed)
    _check(checkpoint, path)
    if not options.no_tokenizer:
        checkpoint.tokenizer = find_tokenizer(_tokenizer_folder(checkpoint, path, options), checkpoint.config)
        if kind not in ("hf_gpt", "adapter") or options.head is not None:
            checkpoint.tokenizer.task_template = checkpoint.head in TASK_HEADS
        checkpoint.tokenizer.model_max_length = checkpoint.config.n_positions
    return checkpoint


def _tokenizer_folder(checkpoint: Checkpoint, path: Path, options: SourceOptions) -> Path:
    """The folder that was named; else that of the source, or of the adapter's base model."""
    if options.tokenizer_source is not None:
        return locate(options.tokenizer_source)
    folder = path if path.is_dir() else path.parent
    if checkpoint.kind == "adapter" and not (folder / "tokenizer.json").is_file():
        return Path(options.base_model)
    return folder


def _read_release(path: Path, options: SourceOptions) -> Checkpoint:
    arrays = read_release(path)
    config = release_config(arrays, options.n_positions, options.n_head)
    return Checkpoint("tf-release", config, "causal-lm", release_parameters(arrays, config, options.seed))


def _read_best_params(path: Path, options: SourceOptions) -> Checkpoint:
    file = path if path.is_file() else path / "best_params.jl"
    arrays = read_arrays(file)
    blocks, rest = divmod(len(arrays) - 1, 12)
    if blocks < 1 or rest not in (0, 2) or arrays[0].ndim != 2:
        raise ValueError(
            f"{file} holds {len(arrays)} arrays; expected one embedding matrix, 12 per block and the head's two."
        )
    embedding, of_blocks, head_arrays = arrays[0], arrays[1 : 1 + 12 * blocks], arrays[1 + 12 * blocks :]
    check_blocks(file, [array.shape for array in of_blocks], embedding.shape[1], 1)
    folder = locate(options.tokenizer_source) if options.tokenizer_source else file.parent
    vocabulary, positions = None if options.no_tokenizer else vocabulary_size(folder), options.n_positions
    if vocabulary is not None:
        positions = len(embedding) - 3 - vocabulary
    elif positions is not None:
        vocabulary = len(embedding) - 3 - positions
    if vocabulary is None or min(vocabulary, positions) < 1:
        raise ValueError(
            f"{file} has {len(embedding):,} rows of tokens, 3 special tokens and positions; they do not fit "
            f"a vocabulary of {vocabulary} and {positions} positions: say where the vocabulary is "
            "(--tokenizer_source), or how many positions there are (--n_positions)."
        )
    names = [f"model/h{layer}/{name}" for layer in range(blocks) for name in BLOCK_ARRAYS]
    named = {"positions": embedding[-positions:], "tokens": embedding[:vocabulary]}
    named |= zip(names, of_blocks, strict=True)
    config = release_config(named, n_head=options.n_head, untrained_token_ids=None)
    named["tokens"] = np.concatenate([embedding[: vocabulary + 3], np.zeros_like(embedding[:1])])
    parameters = release_parameters(named, config)
    if not head_arrays:
        return Checkpoint("best-params", config, "causal-lm", parameters)
    weight, bias = head_arrays
    parameters["score.weight"] = torch.from_numpy(np.array(weight.T, order="C"))
    parameters["score.bias"] = torch.from_numpy(bias)
    if bias.size == 1:
        return Checkpoint("best-params", config, "multiple-choice", parameters)
    config.num_labels = bias.size
    return Checkpoint("best-params", config, "sequence-classification", parameters)


def _read_adapter(path: Path, options: SourceOptions) -> Checkpoint:
    from ..adapters import load_adapter, merge_adapter

    model = merge_adapter(load_adapter(path, base_model=options.base_model, dtype="auto"))
    head = next(head for head, model_class in HEADS.items() if type(model) is model_class)
    return Checkpoint("adapter", model.config, head, own_parameters(model.state_dict(), model.config))


def _read_own(path: Path, options: SourceOptions) -> Checkpoint:
    config = GPTConfig.from_pretrained(path)
    parameters = own_parameters(read_tensors(path), config)
    return Checkpoint("hf_gpt", config, _head_of(config, path, options), parameters, generation_settings(path))


def _read_stock(path: Path, options: SourceOptions) -> Checkpoint:
    theirs = read_json(path / "config.json")
    kind = stock_type(theirs)
    config = GPTConfig.from_pretrained(path)
    head = _head_of(config, path, options)
    is_kept = head == "multiple-choice" and options.head in (None, head)
    for name, value in _SUMMARY.items() if is_kept else ():
        if theirs.get(name, value) != value:
            raise ValueError(
                f"{path / 'config.json'}: {name} is {theirs[name]!r}; the multiple-choice head of hf_gpt is the one "
                f"with {value!r}. --head causal-lm leaves the head out."
            )
    parameters = from_stock(read_tensors(path), config, head, options.seed)
    generation = generation_settings(path) if kind == "gpt2" else None
    if generation is not None:
        fresh = default_generation_config(config)
        generation.update(suppress_tokens=fresh.suppress_tokens, pad_token_id=fresh.pad_token_id)
    return Checkpoint(kind, config, head, parameters, generation)


def _read_gpt2_bundle(path: Path, options: SourceOptions) -> Checkpoint:
    fields = stock_fields(path)
    check_config(fields, path / SIZES)
    config = GPTConfig.from_dict(own_config(fields))
    return Checkpoint("gpt2-bundle", config, "causal-lm", from_stock(read_bundle(path), config, "none", options.seed))


_READERS = {
    "gpt2-bundle": _read_gpt2_bundle,
    "tf-release": _read_release,
    "best-params": _read_best_params,
    "adapter": _read_adapter,
    "hf_gpt": _read_own,
    "openai-gpt": _read_stock,
    "gpt2": _read_stock,
}


def _head_of(config: GPTConfig, path: Path, options: SourceOptions) -> str:
    """The head that the configuration names, or, where that is none of ours, the one that was asked for."""
    names = config.architectures or [GPTForCausalLM.__name__]
    for head, model_class in HEADS.items():
        if own_class(names[0]) == model_class.__name__:
            return head
    if options.head is None:
        raise ValueError(
            f"{path} is a {names[0]}, a head that hf_gpt does not have: --head none or --head causal-lm takes the "
            "transformer alone."
        )
    return names[0]


def _with_positions(checkpoint: Checkpoint, n_positions: int | None) -> None:
    """Shorten the context."""
    rows = checkpoint.parameters.get("embed_positions.weight")
    if n_positions is None or rows is None or n_positions == len(rows):
        return
    if not 1 <= n_positions <= len(rows):
        raise ValueError(f"--n_positions {n_positions}: the model has {len(rows)} positions, so give 1 to that.")
    checkpoint.parameters["embed_positions.weight"] = rows[:n_positions].clone()
    checkpoint.config.n_positions = n_positions


def _with_head(checkpoint: Checkpoint, head: str, seed: int) -> None:
    """Leave out the head, or initialize another."""
    if head == checkpoint.head:
        return
    config, parameters = checkpoint.config, checkpoint.parameters
    kept = ("lm_head.weight",) if head in LANGUAGE_MODELS else ()
    left_out = sorted(name for name in parameters if not is_base(name) and name not in kept)
    for name in left_out:
        del parameters[name]
    if left_out:
        checkpoint.notes.append(f"Left out: {', '.join(left_out)} of the head {checkpoint.head}.")
    config.head_layers = None
    if head in LANGUAGE_MODELS and not config.tie_word_embeddings and "lm_head.weight" not in parameters:
        raise ValueError("The source has no output matrix of its own, though tie_word_embeddings is false.")
    if head in (*TASK_HEADS, "token-classification"):
        rows = HEADS[head].score_width or config.num_labels
        dtype = parameters["embed_tokens.weight"].dtype
        weight = torch.randn(rows, config.n_embd, generator=torch.Generator().manual_seed(seed))
        parameters["score.weight"] = (weight * config.initializer_range).to(dtype)
        parameters["score.bias"] = torch.zeros(rows, dtype=dtype)
        checkpoint.notes.append(f"The head {head} is newly initialized.")
    checkpoint.head = head


def forget_task(config: GPTConfig) -> None:
    """
    Of a fine-tuned model, what is left when it becomes a language model: no labels, no layers of a head, and no
    probability for special tokens, which no text holds.
    """
    config.head_layers = config.problem_type = None
    plain = GPTConfig()
    config.id2label, config.label2id = plain.id2label, plain.label2id
    config.untrained_token_ids = sorted({*config.task_token_ids} - {*config.eos_token_ids}) or None


def _without_task(checkpoint: Checkpoint, seed: int) -> None:
    """Initialize the rows of the special tokens as for the release, and leave them out of the softmax."""
    config = checkpoint.config
    forget_task(config)
    ids = (config.start_token_id, config.delimiter_token_id, config.classify_token_id, config.excluded_token_id)
    new = drawn_special_tokens(config.n_embd, config.initializer_range, seed)
    known = {
        name: (row, values) for name, row, values in zip(SPECIAL_TOKENS, ids, new, strict=True) if row is not None
    }
    if not known:
        return
    for matrix in {"embed_tokens.weight", "lm_head.weight"} & checkpoint.parameters.keys():
        rows = checkpoint.parameters[matrix].clone()
        for row, values in known.values():
            rows[row] = values.to(rows)
        checkpoint.parameters[matrix] = rows
    checkpoint.notes.append(
        f"Left out: what fine-tuning made of the rows of {', '.join(known)}, which are newly initialized and have no "
        "probability."
    )


def _check(checkpoint: Checkpoint, path: Path) -> None:
    """Every parameter that the model has is there, with its shape and finite numbers, and no other."""
    try:
        with torch.device("meta"):
            model = HEADS[checkpoint.head](checkpoint.config)
    except Exception as error:  # of transformers and torch, whatever the settings are
        raise ValueError(f"{path / 'config.json'} describes no model that can be built: {error}") from error
    expected = {name.removeprefix("transformer."): parameter for name, parameter in model.named_parameters()}
    if checkpoint.config.tie_word_embeddings:
        expected.pop("lm_head.weight", None)
    shapes = ({name: tensor.shape for name, tensor in side.items()} for side in (expected, checkpoint.parameters))
    if problems := misfits(*shapes):
        raise ValueError(f"{path} {', and '.join(problems)}.")
    check_tensors(checkpoint.parameters, path)
