"""The model that a run starts from: with the head of its task, and with what is to be trained."""

from pathlib import Path
from typing import Any

from peft import PeftModel, get_peft_model
from safetensors import safe_open
from torch import nn
from transformers import set_seed
from transformers.utils import SAFE_WEIGHTS_NAME

from ..adapters import adapter_config, resumption_problem
from ..conversion.tokenizers import check_ids
from ..files.weights import draw_head
from ..loading import Source
from ..model.configuration_gpt import DROPOUTS, GPTConfig, default_generation_config
from ..model.modeling_gpt import HEADS, GPTForSequenceClassification, GPTForTokenClassification, GPTPreTrainedModel
from ..model.tokenization_gpt import GPTTokenizer
from ..tasks import TaskSpec
from ..tasks.spec import TEXT_TO_TEXT
from .arguments import ModelArguments


def head_class(spec: TaskSpec) -> type[GPTPreTrainedModel]:
    """The model class with the head of a task's family."""
    own = {"tagging": GPTForTokenClassification, TEXT_TO_TEXT: HEADS["causal-lm"]}
    return (HEADS | own).get(spec.family, GPTForSequenceClassification)


def load_model(
    args: ModelArguments, spec: TaskSpec, tokenizer: GPTTokenizer, seed: int, keep_head: bool | None = None
) -> GPTPreTrainedModel | PeftModel:
    """
    The model with the head of a task, in float32, and as `args.adaptation` says with a new adapter, or a frozen body.
    `seed` is that of new weights; `keep_head` goes before `args.keep_head`. A `ValueError` or `FileNotFoundError` for
    a model that is none of ours, or that tokenizer, head, layers or adapter do not fit.
    """
    _check_arguments(args, spec)
    source, model_class = args.source, head_class(spec)
    keep_head = args.keep_head if keep_head is None else keep_head
    settings = _settings(args, spec, keep_head)
    settings |= {"n_head": args.n_head, "attn_implementation": args.attn_implementation}
    set_seed(seed)
    if args.random_weights:
        model = model_class(source.config(**settings))
    else:
        model = source.model(model_class, new_head=not keep_head, seed=seed, **settings)
        if not keep_head and source.kind != "tf-release":
            set_seed(seed)
            draw_head(model)
    config = model.config
    check_ids(config, tokenizer, source.name)
    if not config.is_causal:
        config.lm_coef = 0.0  # it sees the tokens that it would predict
        if args.adaptation in ("prefix", "prompt"):
            raise ValueError(f"--adaptation {args.adaptation} needs a causal model: {source.name} is a masked one.")
    count, blocks = args.transfer_layers, model.transformer.h
    if count is not None and count > len(blocks):
        raise ValueError(f"--transfer_layers {count}: {source.name} has {len(blocks)} layers.")
    if count is not None and count < len(blocks):
        set_seed(seed)
        new = model_class(config).transformer
        blocks[count:].load_state_dict(new.h[count:].state_dict())
        if config.final_norm:
            model.transformer.ln_f.load_state_dict(new.ln_f.state_dict())
    model.generation_config = default_generation_config(config)
    if args.adaptation == "frozen":
        model.base_model.requires_grad_(False)
    elif config.lm_coef == 0 and isinstance(config.head_layers, int):
        problem = f"The head of {source.name} reads layer {config.head_layers}: nothing would train the layers above"
        raise ValueError(f"{problem}. Keep --lm_coef above 0, or add --adaptation frozen.")
    if args.adaptation in ("full", "frozen"):
        return model
    chosen = {name: True for name in ("use_dora", "use_rslora") if getattr(args, name)}
    adapter = adapter_config(args.adaptation, config, args.adapter_size, **chosen)
    return get_peft_model(model, adapter, revision=None if args.revision == "main" else args.revision)


def _check_arguments(args: ModelArguments, spec: TaskSpec) -> None:
    """A `ValueError` for a head to keep that is another one, and for what does not go with the adaptation."""
    name, kind, is_new = args.model_name_or_path, args.source.kind, args.random_weights
    if args.keep_head:
        has_none = is_new or kind == "tf-release"
        problem = f"{name} has none that is trained" if has_none else other_head(args.source, spec)
        if problem is not None:
            raise ValueError(f"--keep_head: {problem}. Leave it out, and the head is newly initialized.")
    if args.layers is not None and args.adaptation != "frozen":
        raise ValueError(f"--layers belongs to --adaptation frozen, not {args.adaptation}: change one of them.")
    if (args.use_dora or args.use_rslora) and args.adaptation != "lora":
        raise ValueError(f"--use_dora and --use_rslora belong to --adaptation lora, not {args.adaptation}.")
    if is_new and args.transfer_layers is not None:
        raise ValueError("--transfer_layers says what to keep, --random_weights to keep nothing: leave one out.")
    # An adapter is saved without its base model, which must be there as it was whenever the adapter is loaded.
    if args.adaptation not in ("full", "frozen") and kind in ("tf-release", "adapter"):
        problem = f"an adapter needs a base model that loads by itself, which {name} does not"
        raise ValueError(f"--adaptation: {problem}. Convert or merge it first (scripts/convert.py {name} MERGED).")
    if args.adaptation not in ("full", "frozen") and (is_new or args.transfer_layers is not None):
        problem = "the new weights of --random_weights and --transfer_layers would be lost"
        raise ValueError(f"--adaptation {args.adaptation} is saved without its base model: {problem}.")


def _settings(args: ModelArguments, spec: TaskSpec, keep_head: bool) -> dict[str, Any]:
    """What the task and the arguments change in the configuration."""
    settings: dict[str, Any] = {"lm_coef": args.lm_coef, "release_quirks": args.release_quirks}
    if args.dropout is not None:
        settings |= dict.fromkeys(DROPOUTS, args.dropout)
    if not keep_head:  # what a head before it may have left
        settings |= {"head_layers": None, "problem_type": None, "task_specific_params": None}
    has_labels = spec.problem_type is not None  # not choices or spans
    if has_labels:
        settings["problem_type"] = spec.problem_type
    if has_labels or not keep_head:
        plain = GPTConfig(num_labels=spec.num_labels) if has_labels else GPTConfig()
        settings["id2label"] = dict(enumerate(spec.label_names)) if spec.label_names else plain.id2label
        settings["label2id"] = {name: index for index, name in settings["id2label"].items()}
    if args.adaptation == "frozen":
        settings["lm_coef"] = 0.0  # it would change nothing that is trained
    if args.layers is not None:
        top = args.source.config(n_head=args.n_head).num_hidden_layers
        numbers = {str(layer): layer for layer in range(top)}
        choices = {"last": None, "mix": "mix", **numbers, str(top): None}
        if args.layers not in choices:
            raise ValueError(f"--layers {args.layers}: give last, mix, or a number from 0 (the embedding) to {top}.")
        settings["head_layers"] = choices[args.layers]
    return settings


def describe_start(args: ModelArguments, family: str = "") -> str:
    """What a run on a task of a family starts from, and what is newly initialized, for people."""
    if args.random_weights:
        return "random weights"
    is_release = args.source.kind == "tf-release"
    found = "the release" if is_release else (args.source.config().architectures or ["no architecture"])[0]
    merged = ", an adapter merged into its base model" if args.source.kind == "adapter" else ""
    head = "its head is kept" if args.keep_head or family == TEXT_TO_TEXT else "the head is newly initialized"
    return f"{found}{merged}{args.source.new_rows}; {head}"


def other_head(source: Source, spec: TaskSpec) -> str | None:
    """Why the head of a model is not that of a task: it is of another kind, or for other labels."""
    config, wanted, ours = source.config(), head_class(spec).__name__, list(spec.label_names or ())
    kinds, theirs = config.architectures or ["no architecture"], [str(name) for name in config.id2label.values()]
    if wanted not in kinds:
        return f"{source.name} holds {', '.join(kinds)}; {spec.name} needs a {wanted}"
    if ours and theirs != ours:
        return f"{source.name} knows the labels {', '.join(theirs)}, {spec.name} has {', '.join(ours)}"
    if spec.problem_type is not None and not ours and config.num_labels != spec.num_labels:
        return f"{source.name} has {config.num_labels} outputs, {spec.name} needs {spec.num_labels}"
    return None


def check_resumption(checkpoint: str | None, model: nn.Module, task_model: nn.Module) -> None:
    """A `ValueError` unless a checkpoint, which is not sharded, holds just the parameters that the model has."""
    if checkpoint is None:
        return
    problem, file = resumption_problem(task_model, checkpoint), Path(checkpoint) / SAFE_WEIGHTS_NAME
    if problem is None and file.is_file():
        with safe_open(file, framework="pt") as weights:
            saved = {name: tuple(weights.get_slice(name).get_shape()) for name in weights.keys()}  # noqa: SIM118
        tied = getattr(model, "all_tied_weights_keys", ())  # which a checkpoint leaves out
        ours = {name: tuple(value.shape) for name, value in model.state_dict().items() if name not in tied}
        if other := sorted(name for name in ours.keys() | saved.keys() if ours.get(name) != saved.get(name)):
            problem = f"it differs from this run's model in {', '.join(other[:3])}"
    if problem is not None:
        raise ValueError(f"Training cannot resume from {checkpoint}: {problem}.")
