"""
Reading every kind of checkpoint that `scripts/convert.py` recognises into one form: our names, our orientation, the
numbers as they are stored. No pickle is loaded; every name, shape and number is checked.
"""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from ..files import flag, listing, read_json, read_tensors, reading
from ..files.weights import check_tensors, generation_settings, head_parameters, mismatches
from ..hub.repositories import check_config, local_folder, stock_type
from ..model.configuration_gpt import GPTConfig, default_generation_config
from ..model.modeling_gpt import HEADS, GPTForCausalLM, GPTPreTrainedModel
from ..model.tokenization_gpt import GPTTokenizer
from .joblib_arrays import read_arrays
from .release import block_names, load_release, release_config, release_parameters
from .stock import STOCK_CONFIGS, from_stock, initial_special_rows, is_base, own_class, own_parameters
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


def locate(source: str) -> Path:
    """The path of a source; a Hub id that is no path is downloaded and checked. A `ValueError` if it is neither."""
    path = Path(source)
    return path if path.exists() else local_folder(source)


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
        if kind not in KINDS:
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
    path = locate(source)
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
        notes.append(f"Newly initialized: {NEW_ROWS}, which its files lack; they get no probability yet.")
    if options.head == LANGUAGE_MODEL:
        _set_head(checkpoint, "causal-lm" if model.config.is_causal else "masked-lm", options.seed)
        _forget_special_rows(checkpoint, options.seed)
    else:
        _set_head(checkpoint, options.head or checkpoint.head, options.seed)
    if not options.no_tokenizer:
        folder = locate(options.tokenizer_source) if options.tokenizer_source else folder
        checkpoint.tokenizer = find_tokenizer(folder, model.config)
        if kind not in ("hf_gpt", "adapter") or options.head is not None:
            checkpoint.tokenizer.task_template = checkpoint.head in TASK_HEADS[:3]
        checkpoint.tokenizer.model_max_length = model.config.n_positions
    return checkpoint


def _build(path: Path, head: str, config: GPTConfig, parameters: dict[str, torch.Tensor]) -> GPTPreTrainedModel:
    """A model with a head whose parameters, named as in `own_parameters`, are these very tensors, all of them."""
    with reading(path / "config.json"), torch.device("meta"):
        model = HEADS[head](config)
    expected = {name.removeprefix("transformer."): value.shape for name, value in model.named_parameters()}
    if config.tie_word_embeddings:
        expected.pop("lm_head.weight", None)
    if problems := mismatches(expected, {name: tensor.shape for name, tensor in parameters.items()}):
        raise ValueError(f"{path} {', and '.join(problems)}.")
    check_tensors(parameters, path)
    prefix = "" if head == "none" else "transformer."
    state = {(prefix if is_base(name) else "") + name: value for name, value in parameters.items()}
    if "lm_head.weight" in model.state_dict():
        state.setdefault("lm_head.weight", state["transformer.embed_tokens.weight"])
    model.load_state_dict(state, strict=True, assign=True)
    model.tie_weights()
    model.generation_config = default_generation_config(config)
    return model.eval()


def _read_best_params(path: Path, options: SourceOptions) -> GPTPreTrainedModel:
    file = path if path.is_file() else path / "best_params.jl"
    arrays = read_arrays(file)
    blocks, rest = divmod(len(arrays) - 1, 12)
    if blocks < 1 or rest not in (0, 2) or arrays[0].ndim != 2:
        raise ValueError(
            f"{file} holds {len(arrays)} arrays; expected one embedding matrix, 12 per block and the head's two."
        )
    embedding, arrays, head_arrays = arrays[0], arrays[1 : 12 * blocks + 1], arrays[12 * blocks + 1 :]
    if options.n_positions is not None:
        vocabulary = len(embedding) - 3 - options.n_positions
    elif options.no_tokenizer:
        raise ValueError("say how many positions there are (--n_positions), or leave out --no_tokenizer")
    else:
        folder = locate(options.tokenizer_source) if options.tokenizer_source else file.parent
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
    parameters, head = release_parameters(named, config), "causal-lm"
    if head_arrays:
        weight, bias = head_arrays
        parameters["score.weight"] = torch.from_numpy(np.array(weight.T, order="C"))
        parameters["score.bias"] = torch.from_numpy(bias)
        head = "multiple-choice" if bias.size == 1 else "sequence-classification"
        config.num_labels = bias.size if bias.size > 1 else config.num_labels
    return _build(path, head, config, parameters)


def _read_folder(path: Path, options: SourceOptions) -> GPTPreTrainedModel:
    """A model of ours or a stock one; without its head if that is none of ours, and another was asked for."""
    settings, config = read_json(path / "config.json"), GPTConfig.from_pretrained(path)
    name = own_class((config.architectures or [GPTForCausalLM.__name__])[0])
    head = next((head for head, model_class in HEADS.items() if name == model_class.__name__), None)
    kind = stock_type(settings)
    if options.head in (None, head):
        if head is None:
            raise ValueError(f"hf_gpt has no head of the kind {name}: --head causal-lm takes the transformer alone")
        others = {field: settings.get(field, value) for field, value in _SUMMARY.items()}
        if kind and head == "multiple-choice" and others != _SUMMARY:
            raise ValueError(f"its head has {others}, and hf_gpt's {_SUMMARY}: --head causal-lm leaves the head out")
    tensors = read_tensors(path)
    parameters = from_stock(tensors, config, head, options.seed) if kind else own_parameters(tensors, config)
    if head is None:
        head, parameters = "none", {name: value for name, value in parameters.items() if is_base(name)}
    model = _build(path, head, config, parameters)
    if kind != "openai-gpt" and (generation := generation_settings(path)) is not None:
        if kind == "gpt2":
            fresh = model.generation_config
            generation.update(suppress_tokens=fresh.suppress_tokens, pad_token_id=fresh.pad_token_id)
        model.generation_config = generation
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
def _forget_special_rows(checkpoint: Checkpoint, seed: int) -> None:
    """Initialize the rows of the special tokens as for the release, and leave them out of the softmax."""
    model, config = checkpoint.model, checkpoint.model.config
    forget_task(config)
    ids = (config.start_token_id, config.delimiter_token_id, config.classify_token_id, config.excluded_token_id)
    known = [place for place, row in enumerate(ids) if row is not None]
    for matrix in {model.get_input_embeddings(), model.get_output_embeddings()}:
        initial = initial_special_rows(config, seed).to(matrix.weight)
        matrix.weight[[ids[place] for place in known]] = initial[known]
    if known:
        checkpoint.notes.append(
            f"Left out: what fine-tuning made of the rows of {', '.join(SPECIAL_TOKENS[place] for place in known)}, "
            "which are newly initialized and have no probability."
        )
