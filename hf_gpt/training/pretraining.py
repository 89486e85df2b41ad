"""Pretraining a language model on text files: documents -> packed rows of token ids -> a model."""

import math
import sys
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from datasets import Dataset, Features, Value
from datasets import Sequence as SequenceFeature
from datasets.exceptions import DatasetGenerationError
from transformers import set_seed
from transformers.trainer_utils import IntervalStrategy

from ..files import PRETRAINING, in_output_folder, write_json
from ..loading import open_source
from ..model.configuration_gpt import GPTConfig, default_generation_config
from ..model.modeling_gpt import GPTForCausalLM
from ..model.tokenization_gpt import GPTTokenizer
from ..trees.collators import PackedRowCollator
from .arguments import LauncherArguments, check_ranges
from .checkpoints import WholeCheckpointTrainer
from .output import check_output_dir, remove_earlier_results
from .text_files import iter_texts, unwrap_paragraphs

ROW_FEATURES = Features({"input_ids": SequenceFeature(Value("int32")), "starts": SequenceFeature(Value("int32"))})

# Characters that one call of the tokenizer gets: long enough to batch, short enough for progress to show.
_CALL_CHARACTERS = 200_000
# How far behind its place a cut may go, so as to fall between paragraphs, lines or words.
_CUT_CHARACTERS = 2_000
_DROPOUTS = ("embd_pdrop", "attn_pdrop", "resid_pdrop", "clf_pdrop")


@dataclass
class TextArguments:
    """What to read."""

    text_files: list[str] = field(metadata={"help": "Text files, folders, or .zip/.tar.xz archives of .txt files."})
    tokenizer: str = field(metadata={"help": "Folder or Hub id of a GPTTokenizer."})
    unwrap: bool = field(default=True, metadata={"help": "Join the hard-wrapped lines of a paragraph."})
    hold_out_every: int = field(
        default=50,
        metadata={
            "help": "Hold out one document in so many, chosen by its text; of fewer documents than that, the middle "
            "of each, one part in so many. 0: nothing."
        },
    )
    validation_rows: int = field(default=200, metadata={"help": "Held-out rows to measure, spread over them all."})
    num_proc: int | None = field(default=None, metadata={"help": "Processes that tokenize."})

    def __post_init__(self) -> None:
        check_ranges(self)


@dataclass
class ShapeArguments:
    """What to build."""

    n_layer: int = field(default=5, metadata={"help": "Blocks."})
    n_embd: int = field(default=192, metadata={"help": "Width."})
    n_head: int = field(default=3, metadata={"help": "Attention heads; divides the width."})
    n_positions: int = field(default=512, metadata={"help": "Context, and tokens of a row."})
    dropout: float = field(default=0.0, metadata={"help": "All dropout rates; the release's own is 0.1."})
    attn_implementation: str | None = field(default=None, metadata={"help": "sdpa, eager or flex_attention."})

    def __post_init__(self) -> None:
        check_ranges(self)


@dataclass
class PretrainingArguments(LauncherArguments):
    """The Trainer's own arguments with defaults for a small GPT."""

    learning_rate: float = field(default=1e-3, metadata={"help": "Highest learning rate."})
    lr_scheduler_type: str = field(default="cosine", metadata={"help": "Shape of the schedule."})
    warmup_steps: float = field(default=200, metadata={"help": "Steps of warm-up, or a share below 1."})
    weight_decay: float = field(default=0.01, metadata={"help": "Decay of matrices."})
    per_device_train_batch_size: int = field(default=16, metadata={"help": "Rows of a step and device."})
    save_strategy: str = field(default="steps", metadata={"help": "When to save."})
    save_steps: float = field(default=200, metadata={"help": "Steps between checkpoints."})
    save_total_limit: int | None = field(default=2, metadata={"help": "Checkpoints that are kept."})
    eval_strategy: str = field(default="steps", metadata={"help": "When to measure the held-out rows."})
    eval_steps: float | None = field(default=500, metadata={"help": "Steps between measurements."})
    logging_steps: float = field(default=50, metadata={"help": "Steps between log lines."})
    prediction_loss_only: bool = field(default=True, metadata={"help": "Evaluation keeps the loss alone."})
    use_cache: bool = field(
        default=True, metadata={"help": "What the saved configuration says; training has no cache."}
    )


def pack_documents(documents: Iterable[Sequence[int]], row_length: int) -> Iterator[dict[str, list[int]]]:
    """
    Cut a stream of documents into rows of one length without padding.

    A row takes up where the row before stopped. Where a document begins, or goes on in the next row, a new piece
    starts: its tokens see only their own piece. The incomplete last row is left out.

    Args:
        documents (`Iterable[Sequence[int]]`): token ids of each document.
        row_length (`int`): tokens of a row.

    Yields:
        `dict[str, list[int]]`: `input_ids` of `row_length` tokens and `starts`, the indices where pieces begin
        (the first is 0).
    """
    row, starts = [], []
    for document in documents:
        taken = 0
        while taken < len(document):
            starts.append(len(row))
            piece = document[taken : taken + row_length - len(row)]
            row.extend(piece)
            taken += len(piece)
            if len(row) == row_length:
                yield {"input_ids": row, "starts": starts}
                row, starts = [], []


def encode_document(text: str, tokenizer: GPTTokenizer) -> list[int]:
    """Token ids of a long text, in calls of many paragraphs; paragraphs are parted by the newline token."""
    newline = tokenizer.convert_tokens_to_ids("\n</w>")
    ids: list[int] = []
    paragraphs = [paragraph for paragraph in text.split("\n") if paragraph.strip()]
    start = 0
    while start < len(paragraphs):
        stop, size = start, 0
        while stop < len(paragraphs) and size < _CALL_CHARACTERS:
            size += len(paragraphs[stop])
            stop += 1
        rows = tokenizer(paragraphs[start:stop], add_special_tokens=False, return_attention_mask=False, verbose=False)
        for encoded in rows["input_ids"]:
            ids += [newline, *encoded] if ids and encoded else encoded
        start = stop
    return ids


@dataclass(frozen=True)
class HeldOut:
    """
    Which part of the texts is held out. It follows from the texts alone, not from the names or the order of files.

    Args:
        every (`int`): one part in so many is held out.
        documents (`int`): documents there are; equal ones count once.
        chosen (`int`): documents that are held out as a whole. None if there are fewer than `every`: then the middle
            of each is held out.
        highest (`int`): checksum up to which documents are chosen.
    """

    every: int
    documents: int
    chosen: int = 0
    highest: int = -1

    @classmethod
    def of(cls, texts: Iterable[str], every: int) -> "HeldOut":
        """The held-out part of some texts."""
        found = sorted({_checksum(text) for text in texts})
        if len(found) < every:
            return cls(every, len(found))
        chosen = round(len(found) / every)
        return cls(every, len(found), chosen, found[chosen - 1])

    def divide(self, text: str) -> tuple[list[str], list[str]]:
        """A document in pieces: those to train on, and those that are held out."""
        if self.chosen:
            return ([], [text]) if _checksum(text) <= self.highest else ([text], [])
        length = len(text) // self.every
        start = _cut(text, (len(text) - length) // 2, length)
        stop = _cut(text, start + length, length)
        return [text[:start], text[stop:]], [text[start:stop]]

    def __str__(self) -> str:
        if self.chosen:
            return f"{self.chosen:,} of {self.documents:,} documents, chosen by their texts"
        found = f"{self.documents:,} in all, too few to hold out whole ones"
        return f"the middle 1/{self.every} of each document ({found})"


def _checksum(text: str) -> int:
    return zlib.crc32(text.encode())


def _cut(text: str, place: int, within: int) -> int:
    """Where a paragraph, line or word begins at or behind a place."""
    for gap in ("\n\n", "\n", " "):
        found = text.find(gap, place, place + min(within, _CUT_CHARACTERS))
        if found >= 0:
            return found + len(gap)
    return place


def packed_rows(
    files: Sequence[str],
    stamps: Sequence[tuple[int, int]],
    tokenizer: GPTTokenizer,
    row_length: int,
    unwrap: bool,
    held_out: HeldOut | None,
    validation: bool,
) -> Iterator[dict[str, list[int]]]:
    """Rows of the documents of text files; `stamps` (size, time of change) only tell `datasets` fresh from stale."""
    texts: Iterator[str] = (text for _, text in iter_texts(files))
    if held_out is not None:
        texts = (piece for text in texts for piece in held_out.divide(text)[validation])
    documents = (encode_document(unwrap_paragraphs(text) if unwrap else text, tokenizer) for text in texts)
    yield from pack_documents(documents, row_length)


def packed_dataset(
    files: Sequence[str],
    tokenizer: GPTTokenizer,
    row_length: int,
    unwrap: bool = True,
    held_out: HeldOut | None = None,
    validation: bool = False,
    num_proc: int | None = None,
    cache_dir: str | None = None,
) -> Dataset:
    """
    Tokenize and pack text files once; later calls find the rows in the cache of `datasets`.

    Args:
        files (`Sequence[str]`): text files, folders or archives (see `iter_texts`).
        tokenizer (`GPTTokenizer`): adds no special tokens.
        row_length (`int`): tokens of a row.
        unwrap (`bool`, *optional*, defaults to `True`): join the hard-wrapped lines of a paragraph.
        held_out (`HeldOut`, *optional*): part of the texts that is left out.
        validation (`bool`, *optional*, defaults to `False`): take that part alone instead.
        num_proc (`int`, *optional*): processes; `files` are divided among them.
        cache_dir (`str`, *optional*): folder of the cache.

    Returns:
        `datasets.Dataset`: rows as `pack_documents` gives them.

    Raises:
        FileNotFoundError, ValueError: for files that are missing, unreadable or without enough text for one row.
    """
    _check_files(files)
    stamps = [(Path(file).stat().st_size, Path(file).stat().st_mtime_ns) for file in files]
    arguments = {
        "files": list(files),
        "stamps": stamps,
        "tokenizer": tokenizer,
        "row_length": row_length,
        "unwrap": unwrap,
        "held_out": held_out,
        "validation": validation,
    }
    if next(packed_rows(**arguments), None) is None:
        part, remedy = "text", "give more text, or make rows shorter (--n_positions)"
        if held_out is not None:
            part = "held-out text" if validation else "training text"
            remedy += f", change --hold_out_every ({held_out.every}), or hold out nothing with --hold_out_every 0"
        raise ValueError(f"{', '.join(map(str, files))}: less {part} than one row of {row_length} tokens; {remedy}.")
    try:
        return Dataset.from_generator(
            packed_rows,
            features=ROW_FEATURES,
            cache_dir=cache_dir,
            gen_kwargs=arguments,
            num_proc=min(num_proc, len(files)) if num_proc and len(files) > 1 else None,
        )
    except DatasetGenerationError as error:
        # The reader's own error names the file.
        raise ValueError(str(error.__cause__ or error)) from error


def _check_files(files: Sequence[str]) -> None:
    for file in files:
        if not Path(file).exists():
            raise FileNotFoundError(f"{file} does not exist: name text files, folders of them, or archives.")


def perplexity(loss: float) -> float:
    """`exp(loss)`, infinite where no number is large enough."""
    return math.exp(loss) if loss < math.log(sys.float_info.max) else math.inf


@in_output_folder
def pretrain(texts: TextArguments, shape: ShapeArguments, args: PretrainingArguments) -> dict[str, Any]:
    """
    Pack the texts, train, measure, and write model, tokenizer and, last, `pretraining.json` into `args.output_dir`.

    Returns:
        `dict`: what `pretraining.json` holds.

    Raises:
        ValueError, FileNotFoundError: for any input that is wrong, before training starts or a file is overwritten;
            and if training diverges.
    """
    checkpoint = check_output_dir(args)
    is_main, output = args.process_index == 0, Path(args.output_dir)
    if not texts.hold_out_every:
        args.eval_strategy = IntervalStrategy.NO
    set_seed(args.seed)
    tokenizer = open_source(texts.tokenizer, weights=False).tokenizer()
    config = new_config(shape, tokenizer)
    with args.main_process_first(desc="packing"):
        train, validation, held_out = _packed_parts(texts, tokenizer, shape.n_positions)
    model = GPTForCausalLM(config)
    if is_main:
        print(f"{len(train):,} training rows of {shape.n_positions} tokens, {model.num_parameters():,} parameters")
        print(f"Held out: {held_out or 'nothing'}", flush=True)
        if args.overwrite_output_dir and checkpoint is None:
            remove_earlier_results(output)
    trainer = WholeCheckpointTrainer(
        model=model,
        args=args,
        train_dataset=train,
        eval_dataset=validation,
        data_collator=PackedRowCollator(),
        processing_class=tokenizer,
    )
    result = trainer.train(resume_from_checkpoint=checkpoint)
    rows = trainer.state.global_step * args.train_batch_size * args.world_size * args.gradient_accumulation_steps
    record = {
        "steps": trainer.state.global_step,
        "tokens_seen": rows * shape.n_positions,
        "held_out": str(held_out) if held_out else None,
        "validation_tokens": 0 if validation is None else len(validation) * shape.n_positions,
        "training_tokens": len(train) * shape.n_positions,
        "train_runtime_s": result.metrics["train_runtime"],
    }
    if validation is not None:
        record["validation_loss"] = loss = trainer.evaluate()["eval_loss"]
        record["validation_perplexity"] = perplexity(loss)
        if not math.isfinite(loss):
            raise trainer.divergence(f"the held-out loss is {loss}")
    # The task heads that start from this model train with the paper's dropout.
    for name in _DROPOUTS:
        setattr(model.config, name, 0.1)
    model.generation_config = default_generation_config(model.config)
    trainer.save_whole_model()
    if is_main:
        write_json(output / PRETRAINING, record)
        print((output / PRETRAINING).read_text(encoding="utf-8"), end="")
        if record.get("validation_loss", 0) > 1 + math.log(config.vocab_size):
            print("The held-out loss is far above that of guessing: lower --learning_rate.", file=sys.stderr)
    if args.push_to_hub:
        trainer.push_to_hub()
    return record


def new_config(shape: ShapeArguments, tokenizer: GPTTokenizer) -> GPTConfig:
    """The configuration of a new model for a tokenizer."""
    config = GPTConfig(
        vocab_size=len(tokenizer),
        n_positions=shape.n_positions,
        n_embd=shape.n_embd,
        n_layer=shape.n_layer,
        n_head=shape.n_head,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        start_token_id=tokenizer.bos_token_id,
        delimiter_token_id=tokenizer.sep_token_id,
        classify_token_id=tokenizer.cls_token_id,
        # No text holds them.
        untrained_token_ids=[tokenizer.bos_token_id, tokenizer.sep_token_id, tokenizer.cls_token_id],
        **dict.fromkeys(_DROPOUTS, shape.dropout),
    )
    config._attn_implementation = shape.attn_implementation
    return config


def _packed_parts(
    texts: TextArguments, tokenizer: GPTTokenizer, row_length: int
) -> tuple[Dataset, Dataset | None, HeldOut | None]:
    """Training rows, the held-out rows that are measured, and what they are of."""
    _check_files(texts.text_files)
    arguments = (texts.text_files, tokenizer, row_length, texts.unwrap)
    if not texts.hold_out_every:
        return packed_dataset(*arguments, num_proc=texts.num_proc), None, None
    held_out = HeldOut.of((text for _, text in iter_texts(texts.text_files)), texts.hold_out_every)
    train = packed_dataset(*arguments, held_out, num_proc=texts.num_proc)
    rows = packed_dataset(*arguments, held_out, validation=True)
    step = max(1.0, len(rows) / texts.validation_rows)
    chosen = [int(number * step) for number in range(min(len(rows), texts.validation_rows))]
    return train, rows.select(chosen), held_out
