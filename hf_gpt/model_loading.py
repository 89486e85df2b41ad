"""The model and tokenizer that a run starts from."""

from pathlib import Path
from typing import Any

import torch
from peft import PeftModel, get_peft_model
from transformers import AutoConfig, AutoTokenizer, set_seed

from .adapters import adapter_config
from .configuration_gpt import GPTConfig
from .conversion import default_generation_config, is_release, load_release, read_release, release_config
from .hub_download import checked_revision
from .modeling_gpt import GPTForMultipleChoice, GPTForSequenceClassification, GPTPreTrainedModel
from .stock_checkpoints import stock_type_at
from .tasks import TaskSpec
from .tokenization_gpt import GPTTokenizer
from .training_args import ModelArguments


def load_tokenizer(args: ModelArguments) -> GPTTokenizer:
    """
    The tokenizer of a model, with the task template switched on.

    Raises:
        ValueError: if there is none, or it is not a `GPTTokenizer`.
    """
    name = args.tokenizer_name or args.model_name_or_path
    if is_release(name) and not (Path(name) / "tokenizer_config.json").is_file():
        return GPTTokenizer.from_release(name, task_template=True)
    # The class that transformers has for a stock openai-gpt splits words in another way.
    stock = stock_type_at(name, args.revision)
    tokenizer_class = GPTTokenizer if stock == "openai-gpt" else AutoTokenizer
    try:
        revision = checked_revision(name, args.revision) if stock is None else args.revision
        tokenizer = tokenizer_class.from_pretrained(name, revision=revision, task_template=True)
    except (OSError, ValueError) as error:
        raise ValueError(
            f"No tokenizer could be loaded from {name} ({error}). Name one with --tokenizer_name: a folder with "
            "tokenizer.json, or the release's folder with encoder_bpe_40000.json and vocab_40000.bpe."
        ) from error
    if not isinstance(tokenizer, GPTTokenizer):
        raise ValueError(f"{name} has a {type(tokenizer).__name__}; a GPTTokenizer is needed (see --tokenizer_name).")
    return tokenizer


def head_class(spec: TaskSpec) -> type[GPTPreTrainedModel]:
    """The model class with the head of a task's family."""
    return GPTForMultipleChoice if spec.family == "multiple-choice" else GPTForSequenceClassification


def load_model(
    args: ModelArguments, spec: TaskSpec, tokenizer: GPTTokenizer, seed: int
) -> GPTPreTrainedModel | PeftModel:
    """
    The model with the head of a task, in float32; with `args.adaptation`, with a new adapter, or with only its head
    to be trained.

    Args:
        args (`ModelArguments`): what to start from.
        spec (`TaskSpec`): the task.
        tokenizer (`GPTTokenizer`): its ids must be those of the model.
        seed (`int`): of newly drawn weights.

    Raises:
        ValueError: if model and tokenizer do not belong together, the model is none of ours, or `transfer_layers`,
            `layers` or the adapter does not fit it.
        FileNotFoundError: if a file of the release is missing.
    """
    _check_adaptation(args)
    model_class = head_class(spec)
    settings: dict[str, Any] = {"lm_coef": args.lm_coef, "release_quirks": args.release_quirks}
    if args.dropout is not None:
        settings |= dict.fromkeys(("embd_pdrop", "attn_pdrop", "resid_pdrop", "clf_pdrop"), args.dropout)
    if spec.family != "multiple-choice":
        settings["problem_type"] = spec.problem_type
        if spec.label_names:
            settings["id2label"] = dict(enumerate(spec.label_names))
            settings["label2id"] = {name: index for index, name in enumerate(spec.label_names)}
        else:
            settings["num_labels"] = spec.num_labels
    if args.adaptation == "frozen":
        # The language model's loss would change nothing that is trained.
        settings |= {"lm_coef": 0.0, "head_layers": _head_layers(args)}
    set_seed(seed)
    name = args.model_name_or_path
    if is_release(name):
        if args.random_weights:
            config = release_config(read_release(name), n_head=args.n_head, **settings)
            model = model_class(config)
        else:
            model = load_release(name, model_class, n_head=args.n_head, seed=seed, **settings)
        if args.attn_implementation is not None:
            model.set_attn_implementation(args.attn_implementation)
    else:
        is_stock = stock_type_at(name, args.revision) is not None
        revision = args.revision if is_stock else checked_revision(name, args.revision)
        config = (GPTConfig if is_stock else AutoConfig).from_pretrained(name, revision=revision, **settings)
        if not isinstance(config, GPTConfig):
            raise ValueError(
                f"{name} is a {config.model_type} model; hf_gpt fine-tunes its own, OpenAI's release and the stock "
                "openai-gpt."
            )
        if args.random_weights:
            config._attn_implementation = args.attn_implementation
            model = model_class(config)
        else:
            model = model_class.from_pretrained(
                name,
                config=config,
                revision=revision,
                dtype=torch.float32,
                attn_implementation=args.attn_implementation,
            )
    check_ids(model.config, tokenizer, name)
    if args.transfer_layers is not None:
        _draw_upper_layers(model, args, seed)
    model.generation_config = default_generation_config(model.config)
    if args.adaptation != "frozen" and args.lm_coef == 0 and isinstance(model.config.head_layers, int):
        raise ValueError(
            f"The head of {name} reads layer {model.config.head_layers}, so without the language-model loss nothing "
            "would train the layers above: keep --lm_coef above 0, or add --adaptation frozen."
        )
    if args.adaptation == "frozen":
        for parameter in model.base_model.parameters():
            parameter.requires_grad_(False)
        return model
    return model if args.adaptation == "full" else _with_adapter(model, args)


def _check_adaptation(args: ModelArguments) -> None:
    if args.adaptation not in ("full", "frozen"):
        _check_base_of_adapter(args)
    if args.adaptation != "frozen" and (args.layers is not None or not args.cache_features):
        name = "--layers" if args.layers is not None else "--cache_features"
        raise ValueError(f"{name} belongs to --adaptation frozen, not {args.adaptation}: change one of them.")


def _head_layers(args: ModelArguments) -> int | str | None:
    """`GPTConfig.head_layers` of what `--layers` says."""
    layers, name = args.layers or "last", args.model_name_or_path
    if layers in ("last", "mix"):
        return None if layers == "last" else layers
    if is_release(name):
        top = release_config(read_release(name), n_head=args.n_head).n_layer
    else:
        top = AutoConfig.from_pretrained(name, revision=args.revision).num_hidden_layers
    if not layers.removeprefix("-").isdecimal() or not -top - 1 <= int(layers) <= top:
        raise ValueError(
            f"--layers {layers}: give last, mix, or a number from 0 (output of the embedding) to {top}; negative ones "
            "count from the end."
        )
    index = int(layers) % (top + 1)
    return None if index == top else index


def _check_base_of_adapter(args: ModelArguments) -> None:
    """An adapter is saved without its base model, which must be there as it was whenever the adapter is loaded."""
    if is_release(args.model_name_or_path):
        raise ValueError(
            f"--adaptation {args.adaptation}: an adapter needs a base model that loads by itself. Convert the release "
            "with scripts/convert.py and name the result."
        )
    if args.random_weights or args.transfer_layers is not None:
        raise ValueError(
            f"--adaptation {args.adaptation}: an adapter is saved without its base model, and the weights that "
            "--random_weights and --transfer_layers draw would be lost: leave these out."
        )


def _with_adapter(model: GPTPreTrainedModel, args: ModelArguments) -> PeftModel:
    flags = {"use_dora": args.use_dora, "use_rslora": args.use_rslora}
    chosen = {name: True for name, value in flags.items() if value}
    if chosen and args.adaptation != "lora":
        raise ValueError(f"--{' and --'.join(chosen)} belong to --adaptation lora, not {args.adaptation}.")
    config = adapter_config(args.adaptation, model.config, args.adapter_size, **chosen)
    return get_peft_model(model, config, revision=None if args.revision == "main" else args.revision)


def _draw_upper_layers(model: GPTPreTrainedModel, args: ModelArguments, seed: int) -> None:
    """Keep the embeddings and the lowest `args.transfer_layers` blocks; draw what is above them anew."""
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


def check_ids(config: GPTConfig, tokenizer: GPTTokenizer, name: str) -> None:
    """Raise a `ValueError` unless the model `name` and the tokenizer number their tokens alike."""
    pairs = {
        "_start_": (config.start_token_id, tokenizer.bos_token_id),
        "_delimiter_": (config.delimiter_token_id, tokenizer.sep_token_id),
        "_classify_": (config.classify_token_id, tokenizer.cls_token_id),
        "<pad>": (config.pad_token_id, tokenizer.pad_token_id),
    }
    wrong = [
        f"{token} is {ours} in the model and {theirs} in the tokenizer"
        for token, (ours, theirs) in pairs.items()
        if ours != theirs
    ]
    if len(tokenizer) > config.vocab_size:
        wrong.append(f"the model has {config.vocab_size} rows and the tokenizer {len(tokenizer)} tokens")
    if wrong:
        raise ValueError(f"The tokenizer does not belong to {name}: {'; '.join(wrong)}.")
