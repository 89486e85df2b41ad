"""Pretraining a language model: packed rows of token ids (see `packing`) -> a model."""

import math
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from datasets import Dataset, IterableDataset
from transformers import set_seed
from transformers.trainer_utils import IntervalStrategy

from ..cards.callback import ModelCardCallback
from ..cards.fine_tuned import FineTunedCard
from ..cards.pretrained import learning_rate_advice
from ..conversion.sources import KINDS, forget_task
from ..conversion.tokenizers import check_ids
from ..files import PRETRAINING, flag, in_output_folder, write_json
from ..loading import Source, open_source
from ..model.configuration_gpt import DROPOUTS, GPTConfig, default_generation_config
from ..model.modeling_gpt import GPTForCausalLM, GPTForMaskedLM, GPTLanguageModel, GPTModel
from ..model.tokenization_gpt import GPTTokenizer
from ..trees.collators import MaskedRows, PackedRowCollator
from .arguments import LauncherArguments, check_ranges, on_precision
from .finetune import check_output_dir, remove_earlier_results
from .language_model import LanguageModelTrainer, MaskedLanguageModelTrainer, fillings, samples
from .loading import described_head
from .optimization import SCHEDULES
from .packing import TextArguments, packed_parts

NEW_MODEL = {"learning_rate": 1e-3, "warmup_steps": 200.0}
# The paper's rate for fine-tuning, section 4.1, which its auxiliary language model has, too.
GIVEN_MODEL = {"learning_rate": 6.25e-5, "warmup_steps": 0.1}
# Of a masked language model whose tokenizer has none.
MASK = "<mask>"
# What the columns of samples are, of a causal and of a masked model.
_SHOWN = ("how the model continues", "what the model fills in | what stood there")


@dataclass
class ShapeArguments:
    """What to start from: a model that is given, or the shape of a new one."""

    model_name_or_path: str | None = flag(
        None,
        "Pretrained checkpoint to start from: an hf_gpt folder or Hub id (of a fine-tuned one the head is left out, "
        "an adapter is merged), the folder of the OpenAI release, or a stock openai-gpt. If none, a new one.",
    )
    revision: str = flag("main", "Branch, tag or commit of a model on the Hub.")
    masked: bool = flag(
        False,
        "Train a masked language model, which reads from both sides and guesses hidden words, 15 percent of the "
        "tokens. A pretrained checkpoint may be a causal one.",
    )
    n_layer: int | None = flag(None, "Blocks of a new model (default: 5).")
    n_embd: int | None = flag(None, "Width of a new model (default: 192).")
    n_head: int | None = flag(
        None,
        "Attention heads of a new model, which divide the width (default: 3), or of a release whose width is not 64 "
        "times their number.",
    )
    n_positions: int | None = flag(None, "Context of a new model (default: 512).")
    n_inner: int | None = flag(None, "Width of a new model's feed-forward layers (default: 4 times the width).")
    afn: str | None = flag(None, "Activation of a new model (default: gelu).", ["gelu", "relu", "swish"])
    norm_first: bool = flag(
        False, "Give a new model GPT-2's blocks, with the norms before each layer and one at the end."
    )
    dropout: float | None = flag(
        None, "All dropout rates; by default a new model's are 0 and a pretrained one's its own."
    )
    attn_implementation: str | None = flag(None, "sdpa, eager or flex_attention.")

    def __post_init__(self) -> None:
        check_ranges(self)
        names = ("n_layer", "n_embd", "n_positions", "n_inner", "afn")
        given = [name for name in names if getattr(self, name) is not None] + ["norm_first"] * self.norm_first
        if self.model_name_or_path is not None and given:
            raise ValueError(
                f"--{given[0]} is of a new model, and --model_name_or_path {self.model_name_or_path} has its shape: "
                "leave one of them out (rows shorter than the context are --row_length)."
            )

    @cached_property
    def source(self) -> Source | None:
        """`Source` or `None`: of the model that is given."""
        return None if self.model_name_or_path is None else open_source(self.model_name_or_path, self.revision)

    @property
    def model_class(self) -> type[GPTLanguageModel]:
        """`type`: of the model that is trained."""
        return GPTForMaskedLM if self.masked else GPTForCausalLM

    def dropouts(self) -> dict[str, float]:
        """The rates of a configuration that `--dropout` changes."""
        return {} if self.dropout is None else dict.fromkeys(DROPOUTS, self.dropout)


@dataclass
class PretrainingArguments(LauncherArguments):
    """The Trainer's own arguments with defaults for a small GPT."""

    learning_rate: float | None = flag(
        None,
        f"Highest learning rate (default: {NEW_MODEL['learning_rate']:g}, for a pretrained one "
        f"{GIVEN_MODEL['learning_rate']:g}).",
    )
    lr_scheduler_type: str = flag("cosine", "Shape of the schedule.")
    schedule: str = flag(
        "trainer", "The Trainer's schedule (--lr_scheduler_type), or one of the release.", ["trainer", *SCHEDULES]
    )
    warmup_steps: float | None = flag(
        None,
        f"Steps of warm-up, or a share below 1 (default: {NEW_MODEL['warmup_steps']:g}, for a pretrained one "
        f"{GIVEN_MODEL['warmup_steps']:g}).",
    )
    weight_decay: float = flag(0.01, "Decay of matrices; with Muon of all but norms.")
    optimizer: str = flag(
        "trainer",
        "The Trainer's (--optim), or torch's Muon for the matrices of the blocks and AdamW for the rest.",
        ["trainer", "muon"],
    )
    per_device_train_batch_size: int = flag(16, "Rows of a step and device.")
    save_strategy: str = flag("steps", "When to save.")
    save_steps: float = flag(200, "Steps between checkpoints.")
    save_total_limit: int | None = flag(2, "Checkpoints that are kept.")
    eval_strategy: str = flag("steps", "When to measure the held-out rows.")
    eval_steps: float | None = flag(500, "Steps between measurements.")
    logging_steps: float = flag(50, "Steps between log lines.")
    prediction_loss_only: bool = flag(True, "Evaluation keeps the loss alone.")

    def __post_init__(self) -> None:
        # Which of the two sets of defaults holds is known where the model is.
        self.left_open = [name for name in NEW_MODEL if getattr(self, name) is None]
        self.settle(NEW_MODEL)
        super().__post_init__()

    def warmup_share(self, updates: int) -> float:
        """The share of all updates that warm up, for the release's schedules."""
        return self.get_warmup_steps(updates) / updates

    def settle(self, defaults: dict[str, float]) -> None:
        """Take these values for what no flag has said."""
        for name in self.left_open:
            setattr(self, name, defaults[name])


@in_output_folder
def pretrain(texts: TextArguments, shape: ShapeArguments, args: PretrainingArguments) -> dict[str, Any]:
    """
    Pack the texts, train a new model or a pretrained one, measure, and write model, tokenizer, card, and, last,
    `pretraining.json` into `args.output_dir`; return what that holds. Input that is wrong is a `ValueError` or
    `FileNotFoundError` before training starts or a file is overwritten, training that diverges a `ValueError`.
    """
    checkpoint = check_output_dir(args)
    is_main, output = args.process_index == 0, Path(args.output_dir)
    if texts.streaming and (args.max_steps <= 0 or shape.masked):
        raise ValueError("--streaming ends with --max_steps, which it needs, and knows no --masked.")
    if not (texts.hold_out_every or texts.validation_files):
        args.eval_strategy = IntervalStrategy.NO
    set_seed(args.seed)
    config, tokenizer = _config_and_tokenizer(texts, shape)
    row_length = texts.row_length or config.n_positions
    if row_length > config.n_positions:
        raise ValueError(f"--row_length {row_length} is longer than the model's context of {config.n_positions}.")
    start = "random weights"
    if shape.source is not None:
        args.settle(GIVEN_MODEL)
        start = describe_source(shape.source, config, shape.masked)
    with args.main_process_first(desc="packing"):
        train, validation, held_out = packed_parts(texts, tokenizer, row_length, args.seed)
    if shape.masked:
        train = MaskedRows.of(train, tokenizer, seed=args.seed)
        validation = validation and MaskedRows.of(validation, tokenizer)
    model = shape.model_class(config) if shape.source is None else _given_model(shape, tokenizer)
    if is_main:
        rows = "Streamed" if texts.streaming else f"{len(train):,}"
        lines = [f"{rows} training rows of {row_length} tokens, {model.num_parameters():,} parameters"]
        lines += [f"Start: {start}", f"Held out: {held_out or 'nothing'}", on_precision(args)]
        if shape.source is not None and "learning_rate" in args.left_open:
            advice = learning_rate_advice(shape.model_name_or_path, args.learning_rate)
            rate = f"Learning rate {args.learning_rate:g}, with which the paper fine-tunes a model of GPT-1's size"
            lines.append(advice or f"{rate}; smaller ones want more (--learning_rate).")
        print(*filter(None, lines), sep="\n", flush=True)
        if args.overwrite_output_dir and checkpoint is None:
            remove_earlier_results(output)
    trainer = (MaskedLanguageModelTrainer if shape.masked else LanguageModelTrainer)(
        model=model,
        args=args,
        train_dataset=train,
        eval_dataset=validation,
        data_collator=PackedRowCollator(),
        processing_class=tokenizer,
        callbacks=[ModelCardCallback(_card(texts, shape, start, output))],
    )
    record = trainer.finished_record(checkpoint, PRETRAINING)
    if record is None:
        record = {"start": start, "held_out": held_out}
        record |= _train_and_measure(trainer, checkpoint, shape.source is not None, row_length)
        _settle_dropouts(model.config, shape)
        model.generation_config = default_generation_config(model.config)
        trainer.save_whole_model()
        if is_main:
            write_json(output / PRETRAINING, record)
            _show(trainer, model, record)
    if args.push_to_hub:
        trainer.push_to_hub()
    return record


def _show(trainer: LanguageModelTrainer, model: GPTLanguageModel, record: dict[str, Any]) -> None:
    """Print what was measured, and what the model writes."""
    print((Path(trainer.args.output_dir) / PRETRAINING).read_text(encoding="utf-8"), end="")
    if record.get("validation_loss", 0) > 1 + math.log(model.config.vocab_size):
        print("The held-out loss is far above that of guessing: lower --learning_rate.", file=sys.stderr)
    if trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled:
        return
    train, validation, masked = trainer.train_dataset, trainer.eval_dataset, not model.config.is_causal
    print(f"Samples: {'held-out text' if validation else 'text'} | {_SHOWN[masked]}")
    some = Dataset.from_list([*train.take(3)]) if isinstance(train, IterableDataset) else train
    shown = (model, trainer.processing_class, validation or some)
    lines = fillings(*shown) if masked else samples(*shown, seed=trainer.args.seed)
    print("\n".join(lines), flush=True)


def _train_and_measure(
    trainer: LanguageModelTrainer, checkpoint: str | None, is_given: bool, row_length: int
) -> dict[str, Any]:
    """Train and measure, a pretrained model before as well; what `pretraining.json` says of that."""
    args, train, validation = trainer.args, trainer.train_dataset, trainer.eval_dataset
    record: dict[str, Any] = {}
    # Shards are made where training begins.
    if is_given and validation is not None and not (trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled):
        before = trainer.evaluate()
        record |= {f"validation_{name}_before": before[f"eval_{name}"] for name in trainer.measures}
    result = trainer.train(resume_from_checkpoint=checkpoint)
    rows = trainer.state.global_step * args.train_batch_size * args.world_size * args.gradient_accumulation_steps
    record |= {
        "steps": trainer.state.global_step,
        "learning_rate": args.learning_rate,
        "tokens_seen": rows * row_length,
        "validation_tokens": 0 if validation is None else len(validation) * row_length,
        "training_tokens": None if isinstance(train, IterableDataset) else len(train) * row_length,
        "train_runtime_s": result.metrics["train_runtime"],
    }
    if validation is not None:
        measured = trainer.evaluate()
        record |= {f"validation_{name}": measured[f"eval_{name}"] for name in ("loss", *trainer.measures)}
        if isinstance(validation, Dataset):
            record["validation_words"] = round(sum(validation["words"]))
        if not math.isfinite(record["validation_loss"]):
            raise trainer.divergence(f"the held-out loss is {record['validation_loss']}")
    return record


def new_config(shape: ShapeArguments, tokenizer: GPTTokenizer) -> GPTConfig:
    """The configuration of a new model for a tokenizer."""
    specials = (tokenizer.bos_token_id, tokenizer.sep_token_id, tokenizer.cls_token_id, tokenizer.eos_token_id)
    config = GPTConfig(
        vocab_size=len(tokenizer),
        n_positions=shape.n_positions or 512,
        n_embd=shape.n_embd or 192,
        n_layer=shape.n_layer or 5,
        n_head=shape.n_head or 3,
        n_inner=shape.n_inner,
        afn=shape.afn or "gelu",
        norm_first=shape.norm_first,
        final_norm=shape.norm_first,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        start_token_id=tokenizer.bos_token_id,
        delimiter_token_id=tokenizer.sep_token_id,
        classify_token_id=tokenizer.cls_token_id,
        mask_token_id=tokenizer.mask_token_id,
        is_causal=not shape.masked,
        # No text holds them.
        untrained_token_ids=[token_id for token_id in specials if token_id is not None],
        **(dict.fromkeys(DROPOUTS, 0.0) | shape.dropouts()),
    )
    config._attn_implementation = shape.attn_implementation
    return config


def _config_and_tokenizer(texts: TextArguments, shape: ShapeArguments) -> tuple[GPTConfig, GPTTokenizer]:
    """The configuration of the model that is trained, and a tokenizer that fits it."""
    source = shape.source
    if texts.tokenizer is None and source is None:
        raise ValueError("A new model needs --tokenizer; or name a pretrained one with --model_name_or_path.")
    if source is not None and shape.n_head is not None and source.kind != "tf-release":
        raise ValueError(f"--n_head {shape.n_head}: {source.name} says itself how many heads it has. Leave it out.")
    config = None if source is None else source.config(n_head=shape.n_head, **shape.dropouts())
    if config is not None and not (config.is_causal or shape.masked):
        raise ValueError(f"{source.name} is a masked language model: add --masked, or name a causal one.")
    try:
        named = source if texts.tokenizer is None else open_source(texts.tokenizer, weights=False)
        tokenizer = named.tokenizer(task_template=False)
    except ValueError as error:
        if texts.tokenizer is not None:
            raise
        raise ValueError(f"{error} Name a tokenizer that fits the model with --tokenizer.") from error
    if config is not None:
        check_ids(config, tokenizer, source.name)
    if shape.masked and tokenizer.mask_token is None:
        tokenizer = named.tokenizer(task_template=False, mask_token=MASK)
    return config or new_config(shape, tokenizer), tokenizer


def _given_model(shape: ShapeArguments, tokenizer: GPTTokenizer) -> GPTLanguageModel:
    """The pretrained model, as a language model alone."""
    settings = {"n_head": shape.n_head, "attn_implementation": shape.attn_implementation} | shape.dropouts()
    if shape.masked:
        settings["is_causal"] = False
    model = shape.source.model(shape.model_class, **settings)
    if shape.masked and model.config.mask_token_id is None:
        model.resize_token_embeddings(max(len(tokenizer), model.config.vocab_size), mean_resizing=False)
        model.config.mask_token_id = tokenizer.mask_token_id
    forget_task(model.config)
    return model


def describe_source(source: Source, config: GPTConfig, masked: bool = False) -> str:
    """What a language model starts from, and what of it is left out, for people."""
    found = f"{source.name}, {KINDS[source.kind]}" + (f", commit {source.commit}" if source.commit else "")
    if source.kind == "adapter":
        found += ", merged into its base model"
    found += source.new_rows
    head = (config.architectures or [GPTForCausalLM.__name__])[0]
    if head not in (GPTForCausalLM.__name__, GPTForMaskedLM.__name__, GPTModel.__name__):
        found += f"; the head of {described_head(config)} is left out"
    if masked and config.is_causal:
        found += "; it was causal: every token sees those behind it from now on, and the mask's row is new"
    return found


def _card(texts: TextArguments, shape: ShapeArguments, start: str, output: Path) -> FineTunedCard:
    is_new = shape.source is None
    what = "It fills in hidden tokens" if shape.masked else "It predicts the next token"
    if not is_new:
        what += f". Training started from {start.replace(shape.source.name + ', ', '')}"
    return FineTunedCard(
        task="masked-language-modelling" if shape.masked else "language-modelling",
        family="masked-language-model" if shape.masked else "language-model",
        base_model="" if is_new else shape.source.name,
        base_on_hub=False if is_new else None,
        random_weights=is_new,
        name=output.resolve().name if is_new else "",
        description=what,
        data_source=texts.describe(),
        main_metric="masked_perplexity" if shape.masked else "perplexity",
    )


def _settle_dropouts(config: GPTConfig, shape: ShapeArguments) -> None:
    """Task heads that start from a new model train with the paper's dropout, from a pretrained one with its own."""
    own = GPTConfig() if shape.source is None else shape.source.config(n_head=shape.n_head)
    for name in DROPOUTS:
        setattr(config, name, getattr(own, name))
