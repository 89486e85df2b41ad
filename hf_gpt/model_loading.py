"""The model and tokenizer that a run starts from."""

from pathlib import Path
from typing import Any

import torch
from peft import PeftModel, get_peft_model
from transformers import AutoConfig, AutoTokenizer, set_seed

from .adapters import adapter_config
from .configuration_gpt import GPTConfig
from .conversion import default_generation_config, is_release, load_release, read_release, release_config
from .modeling_gpt import GPTForMultipleChoice, GPTForSequenceClassification, GPTPreTrainedModel
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
    try:
        tokenizer = AutoTokenizer.from_pretrained(name, revision=args.revision, task_template=True)
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
    The model with the head of a task, in float32; with `args.adaptation`, with a new adapter.

    Args:
        args (`ModelArguments`): what to start from.
        spec (`TaskSpec`): the task.
        tokenizer (`GPTTokenizer`): its ids must be those of the model.
        seed (`int`): of newly drawn weights.

    Raises:
        ValueError: if model and tokenizer do not belong together, the model is none of ours, or `transfer_layers` or
            the adapter does not fit it.
        FileNotFoundError: if a file of the release is missing.
    """
    if args.adaptation != "full":
        _check_base_of_adapter(args)
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
        config = AutoConfig.from_pretrained(name, revision=args.revision, **settings)
        if not isinstance(config, GPTConfig):
            raise ValueError(
                f"{name} is a {config.model_type} model; hf_gpt fine-tunes its own. Convert the OpenAI release with "
                "scripts/convert_openai_checkpoint.py."
            )
        if args.random_weights:
            config._attn_implementation = args.attn_implementation
            model = model_class(config)
        else:
            model = model_class.from_pretrained(
                name,
                config=config,
                revision=args.revision,
                dtype=torch.float32,
                attn_implementation=args.attn_implementation,
            )
    check_ids(model.config, tokenizer, name)
    if args.transfer_layers is not None:
        _draw_upper_layers(model, args, seed)
    model.generation_config = default_generation_config(model.config)
    return model if args.adaptation == "full" else _with_adapter(model, args)


def _check_base_of_adapter(args: ModelArguments) -> None:
    """An adapter is saved without its base model, which must be there as it was whenever the adapter is loaded."""
    if is_release(args.model_name_or_path):
        raise ValueError(
            f"--adaptation {args.adaptation}: an adapter needs a base model that loads by itself. Convert the release "
            "with scripts/convert_openai_checkpoint.py and name the result."
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
