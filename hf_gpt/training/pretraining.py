"""Pretraining a language model: packed rows of token ids (see `packing`) -> a model."""

import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from transformers import set_seed

from ..cards import FineTunedCard, fill_in
from ..conversion.sources import KINDS, forget_task
from ..conversion.tokenizers import check_ids
from ..files import PRETRAINING, flag, in_output_folder, write_json
from ..files.ranges import check_ranges
from ..loading import Source, open_source
from ..model.configuration_gpt import DROPOUTS, GPTConfig, default_generation_config
from ..model.modeling_gpt import GPTForCausalLM, GPTForMaskedLM, GPTLanguageModel
from ..model.tokenization_gpt import GPTTokenizer
from ..trees.collators import MaskedRows
from .arguments import LauncherArguments
from .finetune import check_output_dir, remove_earlier_results
from .language_model import LanguageModelTrainer
from .optimization import SCHEDULES
from .packing import TextArguments, packed_parts
from .trainer import choose_products

# Defaults of a new model, and of a pretrained one: the paper's rate for fine-tuning (section 4.1).
NEW, PRETRAINED = {"learning_rate": 1e-3, "warmup_steps": 200.0}, {"learning_rate": 6.25e-5, "warmup_steps": 0.1}
NEW_SHAPE = {"n_layer": 5, "n_embd": 192, "n_positions": 512, "n_inner": None, "afn": "gelu", "norm_first": False}


@dataclass
class ShapeArguments:
    """What to start from: a pretrained checkpoint, or the shape of a new model."""

    model_name_or_path: str | None = flag(None, "Folder or Hub id of a pretrained checkpoint; else a new model.")
    revision: str = flag("main", "Branch, tag or commit of a model on the Hub.")
    masked: bool = flag(False, "Train a masked language model, which reads from both sides and guesses hidden words.")
    n_layer: int | None = flag(None, "Blocks of a new model (default: 5).")
    n_embd: int | None = flag(None, "Width of a new model (default: 192).")
    n_head: int | None = flag(None, "Attention heads of a new model (default: 3), or of OpenAI's: not width / 64.")
    n_positions: int | None = flag(None, "Context of a new model (default: 512).")
    n_inner: int | None = flag(None, "Width of a new model's feed-forward layers (default: 4 times the width).")
    afn: str | None = flag(None, "Activation of a new model (default: gelu).", ["gelu", "relu", "swish"])
    norm_first: bool = flag(False, "Give a new model GPT-2's blocks, with norms before each layer and one at the end.")
    dropout: float | None = flag(None, "All dropout rates (default: of a new model 0, of a pretrained one its own).")
    attn_implementation: str | None = flag(None, "sdpa, eager or flex_attention.")

    def __post_init__(self) -> None:
        check_ranges(self)
        if self.model_name_or_path is not None and self.shape():
            name = next(iter(self.shape()))
            raise ValueError(f"--{name} is of a new model: leave out this or --model_name_or_path (see --row_length).")

    def shape(self) -> dict[str, Any]:
        """The fields of a new model's configuration that flags have changed."""
        return {name: getattr(self, name) for name in NEW_SHAPE if getattr(self, name) not in (None, False)}

    @cached_property
    def source(self) -> Source | None:
        """`Source` or `None`: of the pretrained checkpoint."""
        return None if self.model_name_or_path is None else open_source(self.model_name_or_path, self.revision)


@dataclass
class PretrainingArguments(LauncherArguments):
    """The Trainer's own arguments with defaults for a small GPT."""

    learning_rate: float | None = flag(None, "Highest learning rate (default: 1e-3, for a pretrained model 6.25e-5).")
    lr_scheduler_type: str = flag("cosine", "Shape of the schedule.")
    schedule: str = flag("trainer", "That of --lr_scheduler_type, or one of the release.", ["trainer", *SCHEDULES])
    warmup_steps: float | None = flag(None, "Steps of warm-up, or a share below 1 (default: 200, pretrained 0.1).")
    weight_decay: float = flag(0.01, "Decay of matrices; with Muon of all but norms.")
    optimizer: str = flag("trainer", "That of --optim, or torch's Muon for the blocks' matrices.", ["trainer", "muon"])
    per_device_train_batch_size: int = flag(16, "Rows of a step and device.")
    save_steps: float = flag(200, "Steps between checkpoints.")
    save_total_limit: int | None = flag(2, "Checkpoints that are kept.")
    eval_strategy: str = flag("steps", "When to evaluate the held-out rows.")
    eval_steps: float | None = flag(500, "Steps between evaluations.")
    logging_steps: float = flag(50, "Steps between log lines.")
    prediction_loss_only: bool = flag(True, "Evaluation keeps the loss alone.")

    def __post_init__(self) -> None:
        # Which of the two sets of defaults holds is known where the model is.
        self.unset = [name for name in NEW if getattr(self, name) is None]
        vars(self).update({name: NEW[name] for name in self.unset})
        super().__post_init__()


@in_output_folder
def pretrain(texts: TextArguments, shape: ShapeArguments, args: PretrainingArguments) -> dict[str, Any]:
    """
    Pack the texts, train, evaluate, and write model, tokenizer, card, and, last, `pretraining.json` into
    `args.output_dir`; return what that holds. Wrong input is a `ValueError` or `OSError` before anything is written.
    """
    checkpoint, source, start = check_output_dir(args), shape.source, "random weights"
    choose_products(args, checkpoint)
    is_main, output = args.process_index == 0, Path(args.output_dir)
    if not (texts.hold_out_every or texts.validation_files):
        args.eval_strategy = "no"
    set_seed(args.seed)
    model, tokenizer = model_and_tokenizer(texts, shape)
    if source is not None:
        vars(args).update({name: PRETRAINED[name] for name in args.unset})
        commit = f", commit {source.commit}" if source.commit else ""
        start = f"{source.name}, {KINDS[source.kind]}{commit}{source.new_rows}"
    context = model.config.n_positions
    row_length = texts.row_length or context
    if row_length > context:
        raise ValueError(f"--row_length {row_length} is longer than the model's context of {context}.")
    with args.main_process_first(desc="packing"):
        train, validation, held_out = packed_parts(texts, tokenizer, row_length)
    if shape.masked:
        train = MaskedRows.of(train, tokenizer, seed=args.seed)
        validation = validation and MaskedRows.of(validation, tokenizer)
    if is_main:
        print(f"{len(train):,} training rows of {row_length} tokens, {model.num_parameters():,} parameters")
        print(f"Start: {start}\nHeld out: {held_out or 'nothing'}", flush=True)
        if args.overwrite_output_dir and checkpoint is None:
            remove_earlier_results(output)
    rows = {"train_dataset": train, "eval_dataset": validation}
    trainer = LanguageModelTrainer(model, args, processing_class=tokenizer, **rows)
    record = trainer.finished_record(checkpoint, PRETRAINING)
    if record is None:
        record = {"start": start, "held_out": held_out} | _train(trainer, checkpoint, source is not None, row_length)
        if is_main:
            _write_card(texts, shape, trainer, record, resumed=checkpoint is not None)
        # Task heads train with the paper's dropout on a new model, on a pretrained one with its own.
        own = GPTConfig() if source is None else source.config(n_head=shape.n_head)
        model.config.update({name: getattr(own, name) for name in DROPOUTS})
        model.generation_config = default_generation_config(model.config)
        trainer.save_whole_model()
        if is_main:
            write_json(output / PRETRAINING, record)
            print((output / PRETRAINING).read_text(encoding="utf-8"), end="")
    if args.push_to_hub:
        trainer.push_to_hub()
    return record


def model_and_tokenizer(texts: TextArguments, shape: ShapeArguments) -> tuple[GPTLanguageModel, GPTTokenizer]:
    """The model that is trained, of a pretrained checkpoint the language model alone, and a tokenizer that fits it."""
    source, model_class = shape.source, GPTForMaskedLM if shape.masked else GPTForCausalLM
    if texts.tokenizer is None and source is None:
        raise ValueError("A new model needs --tokenizer; or name a pretrained one with --model_name_or_path.")
    named = source if texts.tokenizer is None else open_source(texts.tokenizer, weights=False)
    tokenizer = named.tokenizer(task_template=False)
    if source is not None:
        check_ids(source.config(n_head=shape.n_head), tokenizer, source.name)
    if shape.masked and tokenizer.mask_token is None:
        tokenizer = named.tokenizer(task_template=False, mask_token="<mask>")
    if source is None:
        return model_class(new_config(shape, tokenizer)), tokenizer
    settings = {"n_head": shape.n_head, "attn_implementation": shape.attn_implementation}
    settings |= {} if shape.dropout is None else dict.fromkeys(DROPOUTS, shape.dropout)
    model = source.model(model_class, **settings, **({"is_causal": False} if shape.masked else {}))
    if shape.masked and model.config.mask_token_id is None:
        model.resize_token_embeddings(max(len(tokenizer), model.config.vocab_size), mean_resizing=False)
        model.config.mask_token_id = tokenizer.mask_token_id
    forget_task(model.config)
    return model, tokenizer


def new_config(shape: ShapeArguments, tokenizer: GPTTokenizer) -> GPTConfig:
    """The configuration of a new model for a tokenizer."""
    tokens = {"start": "bos", "delimiter": "sep", "classify": "cls", "pad": "pad", "bos": "bos", "mask": "mask"}
    ids = {f"{name}_token_id": getattr(tokenizer, f"{token}_token_id") for name, token in tokens.items()}
    specials = (tokenizer.bos_token_id, tokenizer.sep_token_id, tokenizer.cls_token_id, tokenizer.eos_token_id)
    return GPTConfig(
        vocab_size=len(tokenizer),
        n_head=shape.n_head or 3,
        final_norm=shape.norm_first,
        is_causal=not shape.masked,
        untrained_token_ids=[token_id for token_id in specials if token_id is not None],
        attn_implementation=shape.attn_implementation,
        **ids | NEW_SHAPE | shape.shape() | dict.fromkeys(DROPOUTS, shape.dropout or 0.0),
    )


def _train(trainer: LanguageModelTrainer, checkpoint: str | None, is_pretrained: bool, row_length: int) -> dict:
    """Train and evaluate, a pretrained model before as well; what `pretraining.json` says of that."""
    args, train, validation, record = trainer.args, trainer.train_dataset, trainer.eval_dataset, {}
    # Shards are made where training begins.
    if is_pretrained and validation is not None and not trainer.is_fsdp_enabled:
        before = trainer.evaluate()
        record |= {f"validation_{name}_before": before[f"eval_{name}"] for name in trainer.measures}
    result = trainer.train(resume_from_checkpoint=checkpoint)
    steps = trainer.state.global_step
    rows = steps * args.train_batch_size * args.world_size * args.gradient_accumulation_steps
    record |= {
        "steps": steps,
        "learning_rate": args.learning_rate,
        "fast_float32": args.fast_float32,
        "tokens_seen": rows * row_length,
        "validation_tokens": 0 if validation is None else len(validation) * row_length,
        "training_tokens": len(train) * row_length,
        "train_runtime_s": result.metrics["train_runtime"],
    }
    if validation is not None:
        found = trainer.evaluate()
        record |= {f"validation_{name}": found[f"eval_{name}"] for name in ("loss", *trainer.measures)}
        if not trainer.is_masked:
            record["validation_words"] = round(sum(validation["words"]))
        if not math.isfinite(record["validation_loss"]):
            raise trainer.divergence(f"the held-out loss is {record['validation_loss']}")
    return record


def _write_card(
    texts: TextArguments, shape: ShapeArguments, trainer: LanguageModelTrainer, record: dict, resumed: bool
) -> None:
    is_new, kind = shape.source is None, "masked-language-model" if shape.masked else "language-model"
    output, measured = Path(trainer.args.output_dir), trainer.measures if trainer.eval_dataset is not None else ()
    what = "It fills in hidden tokens" if shape.masked else "It predicts the next token"
    files = f"files of the user ({', '.join(Path(file).name for file in texts.text_files or ())})"
    what += "" if is_new else f". Training started from {record['start'].removeprefix(shape.source.name + ', ')}"
    rows = {"train": trainer.train_dataset, "validation": trainer.eval_dataset}
    card = FineTunedCard(
        task=f"{kind}ling",
        family=kind,
        base_model="" if is_new else shape.source.name,
        random_weights=is_new,
        name=output.resolve().name if is_new else "",
        description=what,
        data_source=f"the data set {texts.dataset_name} ({texts.dataset_split})" if texts.dataset_name else files,
        metrics={"validation": {name: record[f"validation_{name}"] for name in measured}} if measured else {},
        rows={split: len(each) for split, each in rows.items() if each is not None},
        main_metric=trainer.measures[0],
        resumed=resumed,
    )
    fill_in(card, trainer.args, trainer.state, trainer.model)
    card.save(output)
