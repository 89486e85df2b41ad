"""The model that a run starts from: with the head of its task, and with what is to be trained."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from peft import PeftModel, get_peft_model
from torch import nn
from transformers import set_seed

from ..adapters import adapter_config, resumption_problem
from ..conversion.tokenizers import check_ids
from ..files import read_json
from ..files.weights import draw_head
from ..loading import Source
from ..model import modeling_gpt
from ..model.configuration_gpt import DROPOUTS, GPTConfig, default_generation_config
from ..model.modeling_gpt import GPTForSequenceClassification, GPTForTokenClassification, GPTPreTrainedModel
from ..model.tokenization_gpt import GPTTokenizer
from ..tasks import TaskSpec
from .arguments import ModelArguments
from .trainer import HEAD_LAYERS, saved_shapes


def head_class(spec: TaskSpec) -> type[GPTPreTrainedModel]:
    """The model class with the head of a task's family."""
    heads = {
        "multiple-choice": modeling_gpt.GPTForMultipleChoice,
        "question-answering": modeling_gpt.GPTForQuestionAnswering,
        "tagging": GPTForTokenClassification,
    }
    return heads.get(spec.family, GPTForSequenceClassification)


def load_model(
    args: ModelArguments, spec: TaskSpec, tokenizer: GPTTokenizer, seed: int, keep_head: bool | None = None
) -> GPTPreTrainedModel | PeftModel:
    """
    The model with the head of a task, in float32; with `args.adaptation`, with a new adapter, or with only its head to
    be trained. `seed` is that of new weights; `keep_head` goes before `args.keep_head`. A `ValueError` or
    `FileNotFoundError` for a model that is none of ours, or that tokenizer, head, layers or adapter do not fit.
    """
    _check_adaptation(args)
    source, model_class = args.source, head_class(spec)
    keep_head = args.keep_head if keep_head is None else keep_head
    if args.keep_head:
        _check_kept_head(args, spec)
    settings = _settings(args, spec, keep_head)
    set_seed(seed)
    if args.random_weights:
        config = source.config(n_head=args.n_head, **settings)
        config._attn_implementation = args.attn_implementation
        model = model_class(config)
    else:
        settings |= {"n_head": args.n_head, "attn_implementation": args.attn_implementation}
        model = source.model(model_class, new_head=not keep_head, seed=seed, **settings)
        if not keep_head and source.kind != "tf-release":
            set_seed(seed)
            draw_head(model)
    check_ids(model.config, tokenizer, source.name)
    if not model.config.is_causal:
        # It sees the tokens that it would predict.
        model.config.lm_coef = 0.0
        if args.adaptation in ("prefix", "prompt"):
            problem = f"virtual tokens need a causal model, and {source.name} is a masked one: choose another"
            raise ValueError(f"--adaptation {args.adaptation}: {problem}.")
    if args.transfer_layers is not None:
        _draw_upper_layers(model, args, seed)
    model.generation_config = default_generation_config(model.config)
    if args.adaptation != "frozen" and model.config.lm_coef == 0 and isinstance(model.config.head_layers, int):
        raise ValueError(
            f"The head of {source.name} reads layer {model.config.head_layers}, so without the language-model loss "
            "nothing would train the layers above: keep --lm_coef above 0, or add --adaptation frozen."
        )
    if args.adaptation == "frozen":
        for parameter in model.base_model.parameters():
            parameter.requires_grad_(False)
        return model
    return model if args.adaptation == "full" else _with_adapter(model, args)


def _settings(args: ModelArguments, spec: TaskSpec, keep_head: bool) -> dict[str, Any]:
    """What the task and the arguments change in the configuration."""
    settings: dict[str, Any] = {"lm_coef": args.lm_coef, "release_quirks": args.release_quirks}
    if args.dropout is not None:
        settings |= dict.fromkeys(DROPOUTS, args.dropout)
    if not keep_head:
        # What a head before it may have left.
        settings |= {"head_layers": None, "problem_type": None}
    has_labels = spec.problem_type is not None  # not choices or spans
    if has_labels:
        settings["problem_type"] = spec.problem_type
    if has_labels or not keep_head:
        names = spec.label_names
        plain = GPTConfig(num_labels=spec.num_labels) if has_labels else GPTConfig()
        settings["id2label"] = dict(enumerate(names)) if names else plain.id2label
        settings["label2id"] = {name: index for index, name in settings["id2label"].items()}
    if args.adaptation == "frozen":
        # The language model's loss would change nothing that is trained.
        settings["lm_coef"] = 0.0
        if args.layers is not None or not keep_head:
            settings["head_layers"] = _head_layers(args)
    return settings


def describe_start(args: ModelArguments) -> str:
    """What a run starts from, and what is newly initialized, for people."""
    if args.random_weights:
        return "random weights"
    found = "the release" if args.source.kind == "tf-release" else described_head(args.source.config())
    if args.source.kind == "adapter":
        found += ", an adapter merged into its base model"
    found += args.source.new_rows
    return f"{found}; its head is kept" if args.keep_head else f"{found}; the head is newly initialized"


def described_head(config: GPTConfig) -> str:
    """The class of a model, and how many labels its head knows."""
    name = (config.architectures or ["no architecture"])[0]
    return f"{name} with {config.num_labels} labels" if has_classes(config) else name


def layers_read(config: GPTConfig) -> str:
    """What the head of a model reads, in words."""
    if config.head_layers == "mix":
        return "a learnt mix of all layers"
    return "the last layer" if config.head_layers is None else f"layer {config.head_layers} of {config.n_layer}"


def has_classes(config: GPTConfig) -> bool:
    """Whether the head of a model has labels, of texts or words."""
    named = {GPTForSequenceClassification.__name__, GPTForTokenClassification.__name__}
    return not named.isdisjoint(config.architectures or ())


def other_kind(source: Source, spec: TaskSpec) -> str | None:
    """Why the head of a model is of another kind than that of a task."""
    kinds, wanted = source.config().architectures, head_class(spec).__name__
    if wanted in (kinds or ()):
        return None
    return f"{source.name} holds {', '.join(kinds or ('no architecture',))}; {spec.name} needs a {wanted}"


def other_head(source: Source, spec: TaskSpec) -> str | None:
    """Why the head of a model is not that of a task: it is of another kind, or for other labels."""
    config, other = source.config(), other_kind(source, spec)
    if other is not None:
        return other
    ours = list(spec.label_names or ())
    theirs = [str(name) for name in config.id2label.values()]
    if ours and theirs != ours:
        return f"{source.name} knows the labels {', '.join(theirs)}, {spec.name} has {', '.join(ours)}"
    if spec.problem_type is not None and not ours and config.num_labels != spec.num_labels:
        return f"{source.name} has {config.num_labels} outputs, {spec.name} needs {spec.num_labels}"
    return None


def _check_kept_head(args: ModelArguments, spec: TaskSpec) -> None:
    if args.random_weights or args.source.kind == "tf-release":
        raise ValueError("--keep_head keeps the head of a fine-tuned model: leave it out, or name such a model.")
    problem = other_head(args.source, spec)
    if problem is not None:
        raise ValueError(f"--keep_head: {problem}. Leave it out, and the head is newly initialized.")


def _check_adaptation(args: ModelArguments) -> None:
    if args.adaptation not in ("full", "frozen"):
        _check_base_of_adapter(args)
    if args.adaptation != "frozen" and (args.layers is not None or not args.cache_features):
        name = "--layers" if args.layers is not None else "--cache_features"
        raise ValueError(f"{name} belongs to --adaptation frozen, not {args.adaptation}: change one of them.")


def _head_layers(args: ModelArguments) -> int | str | None:
    """`GPTConfig.head_layers` of what `--layers` says."""
    layers = args.layers or "last"
    if layers in ("last", "mix"):
        return None if layers == "last" else layers
    top = args.source.config(n_head=args.n_head).num_hidden_layers
    if not layers.removeprefix("-").isdecimal() or not -top - 1 <= int(layers) <= top:
        numbers = f"a number from 0 (output of the embedding) to {top}; negative ones count from the end"
        raise ValueError(f"--layers {layers}: give last, mix, or {numbers}.")
    index = int(layers) % (top + 1)
    return None if index == top else index


def _check_base_of_adapter(args: ModelArguments) -> None:
    """An adapter is saved without its base model, which must be there as it was whenever the adapter is loaded."""
    name = args.model_name_or_path
    hints = {
        "tf-release": "Convert the release with scripts/convert.py and name the result.",
        "adapter": f"Merge it first (scripts/convert.py {name} MERGED) and name the result.",
    }
    if args.source.kind in hints:
        problem = f"an adapter needs a base model that loads by itself, which {name} does not"
        raise ValueError(f"--adaptation {args.adaptation}: {problem}. {hints[args.source.kind]}")
    if args.random_weights or args.transfer_layers is not None:
        problem = "an adapter is saved without its base model, and its new weights would be lost"
        hint = "those of --random_weights and --transfer_layers: leave these out"
        raise ValueError(f"--adaptation {args.adaptation}: {problem}, {hint}.")


def _with_adapter(model: GPTPreTrainedModel, args: ModelArguments) -> PeftModel:
    flags = {"use_dora": args.use_dora, "use_rslora": args.use_rslora}
    chosen = {name: True for name, value in flags.items() if value}
    if chosen and args.adaptation != "lora":
        raise ValueError(f"--{' and --'.join(chosen)} belong to --adaptation lora, not {args.adaptation}.")
    config = adapter_config(args.adaptation, model.config, args.adapter_size, **chosen)
    return get_peft_model(model, config, revision=None if args.revision == "main" else args.revision)


def _draw_upper_layers(model: GPTPreTrainedModel, args: ModelArguments, seed: int) -> None:
    """Keep the embeddings and the lowest `args.transfer_layers` blocks; initialize what is above them randomly."""
    count, blocks = args.transfer_layers, model.transformer.h
    if args.random_weights:
        raise ValueError("--transfer_layers says what to keep, --random_weights to keep nothing: leave one out.")
    if not 0 <= count <= len(blocks):
        raise ValueError(f"--transfer_layers {count}: {args.model_name_or_path} has {len(blocks)} layers.")
    if count == len(blocks):
        return
    set_seed(seed)
    drawn = type(model)(model.config).transformer
    for index in range(count, len(blocks)):
        blocks[index].load_state_dict(drawn.h[index].state_dict())
    if model.config.final_norm:
        model.transformer.ln_f.load_state_dict(drawn.ln_f.state_dict())


def check_resumption(checkpoint: str | None, model: nn.Module, task_model: nn.Module, adaptation: str) -> None:
    """
    A `ValueError` unless a checkpoint's parameters, and the layers that its head reads, are those of the model (of
    which the Trainer would leave out what does not fit): a head alone, or a whole model.
    """
    problem, saved = None, saved_shapes(checkpoint)
    if checkpoint is not None:
        problem = resumption_problem(task_model, checkpoint)
    if problem is None and saved and adaptation in ("full", "frozen"):
        ours = {name: tuple(value.shape) for name, value in model.state_dict().items()}
        is_head, was_head = (not any("embed_tokens" in name for name in names) for names in (ours, saved))
        file = Path(checkpoint) / HEAD_LAYERS  # older checkpoints do not have it
        layers = read_json(file)["layers"] if file.is_file() else model.config.layers_of_head
        if is_head != was_head:
            problem = "it holds a head alone: add --adaptation frozen" if was_head else "it holds a whole model"
        elif saved != ours:
            other = sorted(name for name in ours.keys() | saved.keys() if ours.get(name) != saved.get(name))
            problem = f"it differs from this run's model in {', '.join(other[:3])}"
        elif layers != model.config.layers_of_head:
            problem = f"its head reads layer {layers[0]}, this run's reads {layers_read(model.config)}"
    if problem is not None:
        raise ValueError(f"Training cannot resume from {checkpoint}: {problem}.")


def check_tasks(checkpoint: str | None, tasks: Iterable[str]) -> None:
    """A `ValueError` if a checkpoint has heads of other tasks than these (none for a single one)."""
    names, ours = saved_shapes(checkpoint), sorted(filter(None, tasks))
    found = sorted({name.split(".")[1] for name in names if name.startswith("heads.")})
    if names and found != ours:
        problem = f"it is of the tasks {', '.join(found) or '(none)'}, not of {', '.join(ours) or '(none)'}"
        raise ValueError(f"Training cannot resume from {checkpoint}: {problem}.")
