"""Features of files, written in shards by one process or several; resumable after a kill."""

import dataclasses
import hashlib
import json
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from accelerate import PartialState
from accelerate.utils import broadcast_object_list
from datasets import Dataset, Features, List, Value
from datasets.exceptions import DatasetGenerationError
from pyarrow import parquet
from safetensors.torch import save_file
from tqdm.auto import tqdm
from transformers.models.auto.tokenization_auto import get_tokenizer_config

from ..cards.features import card_text, describe_rows
from ..conversion.tokenizers import check_ids
from ..files import (
    COMPRESSIONS,
    OVERWRITE,
    UNFINISHED,
    check_empty,
    check_settings,
    flag,
    input_error,
    output_folder,
    read_json,
    read_text_lines,
    reading,
    write_json,
    write_text,
)
from ..loading import NamesModel, Source, load_tokenizer
from ..model.modeling_gpt import GPTModel
from ..tasks.formats import Record, field_of, read_by_suffix
from ..training.arguments import check_ranges
from . import (
    TOKEN_COLUMNS,
    WORD_COLUMNS,
    FeatureExtractor,
    TextFeatures,
    check_pooling,
    keep_lowest_blocks,
    resolve_layers,
)

FORMATS = ("parquet", "arrow", "npy", "safetensors")
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
SETTINGS, RESULT, CARD = "feature_settings.json", "features.json", "README.md"
# Folder of whole shards; `UNFINISHED` holds what is being written, and a record of each whole shard.
DATA = "data"
# The columns of the rows that are read, and of those that are written.
TEXT, PAIR = "_text", "_pair"
ROW_COLUMNS = ("row", "tokens", "truncated")
# Processes that are done wait for the slowest; the launcher ends them where one has died.
_PATIENCE = timedelta(days=7)


@dataclass
class FeatureArguments(NamesModel):
    """What to read, which states to keep, and how to write them."""

    model_name_or_path: str = flag(
        help="An hf_gpt folder or Hub id, with or without a head, or the folder of the OpenAI release."
    )
    input_files: list[str] = flag(
        help="Text files (.txt, one text a line), CSV, TSV, JSONL or Parquet; .gz and .xz are fine."
    )
    output_dir: str = flag(help="Folder for the features; a run that was stopped goes on there.")
    text_column: str = flag("text", "Column of the text (not for text files).")
    pair_column: str | None = flag(None, "Column of a second text.")
    keep_columns: list[str] | None = flag(None, "Columns to copy beside the features (parquet and arrow).")
    quoted: bool = flag(True, "CSV and TSV: false where a double quote is a character like any other.")
    layers: list[str] = flag(
        ["-1"], "Layers: 0 is the embedding's output, 1 the first block's, -1 the last block's; or all."
    )
    pooling: str = flag(
        "mean",
        "What a text gives: mean of its tokens, state of its last token, state of its classify token, or none: a "
        "state per token or word.",
    )
    unit: str = flag("token", "With --pooling none: a state per token or per word.")
    word_pooling: str = flag("mean", "With --unit word: mean of a word's tokens, or the last of them.")
    task_template: bool | None = flag(
        None,
        "Read _start_ text _classify_ as the task heads do; by default as the tokenizer was saved, and always with "
        "--pooling classify and with pairs.",
    )
    max_length: int | None = flag(None, "Longer texts are cut to so many tokens; by default the model's context.")
    format: str = flag("parquet", "parquet, arrow, safetensors, or, not for --pooling none, npy.")
    dtype: str = flag("float32", "The model's numbers: float32 or bfloat16.")
    rows_per_shard: int | None = flag(None, "Rows of a file; by default 10,000, and 500 with --pooling none.")
    tokens_per_batch: int | None = flag(
        None, "Tokens of a batch, padding included; by default 512 on a CPU and 8192 elsewhere."
    )
    attn_implementation: str | None = flag(None, "sdpa, eager or flex_attention.")
    use_cpu: bool = flag(False, "Stay on the CPU.")
    overwrite_output_dir: bool = flag(False, "Replace the features that an earlier run left in --output_dir.")

    def __post_init__(self) -> None:
        check_ranges(self)
        check_pooling(self.pooling, self.unit, self.word_pooling)
        for name, known in (("format", FORMATS), ("dtype", tuple(DTYPES))):
            if getattr(self, name) not in known:
                raise ValueError(f"--{name} {getattr(self, name)} is unknown; choose one of {', '.join(known)}.")
        if self.format == "npy" and self.pooling == "none":
            raise ValueError("--format npy holds one array of equal rows: choose a --pooling, or another --format.")
        if self.task_template is False and (self.pooling == "classify" or self.pair_column is not None):
            raise ValueError("--pooling classify and --pair_column need the task template: leave out --task_template.")
        if self.keep_columns and self.format not in ("parquet", "arrow"):
            raise ValueError(f"--format {self.format} holds numbers only: leave out --keep_columns, or use parquet.")
        taken = {*ROW_COLUMNS, *TOKEN_COLUMNS, *WORD_COLUMNS} & set(self.keep_columns or ())
        if taken:
            raise ValueError(f"--keep_columns {', '.join(sorted(taken))}: the features have a column of that name.")

    @property
    def shard_size(self) -> int:
        """`int`: rows of a shard."""
        return self.rows_per_shard or (500 if self.pooling == "none" else 10_000)


def extract(args: FeatureArguments) -> dict[str, Any]:
    """
    Extract the features of files into `args.output_dir`: shards in `data`, a card (README.md) and `features.json`,
    whose content is returned (in other processes than the first, the settings alone). The same call goes on where an
    earlier one was stopped, with any number of processes. Input that is wrong, or a folder that holds something else,
    is a `ValueError` or `OSError` before a file is written.
    """
    state = PartialState(cpu=args.use_cpu or not torch.accelerator.is_available(), timeout=_PATIENCE)
    # Two commands may share the work; none may throw away what another is writing.
    is_shared = not args.overwrite_output_dir
    with output_folder(Path(args.output_dir), state.process_index, state.num_processes, shared=is_shared):
        return _extract(args, state)


def _extract(args: FeatureArguments, state: PartialState) -> dict[str, Any]:
    output = Path(args.output_dir)
    with state.main_process_first():
        rows = read_rows(args)
        extractor = load_extractor(args, state.device)
        settings = _settings(args, rows, extractor)
        if state.is_main_process:
            prepare_folder(output, settings, args.overwrite_output_dir)
    shards = Shards(output, args.format, len(rows), args.shard_size)
    # The first process decides for all: another one might look when shards are being written already.
    plan = [shards.unfinished() if state.is_main_process else None]
    broadcast_object_list(plan)
    if state.is_main_process:
        by = f" by {state.num_processes} processes" if state.num_processes > 1 else ""
        print(f"{len(rows):,} rows; {len(plan[0])} of {shards.count} shards are to be made{by}", flush=True)
    tables, started = rows.with_format("arrow"), time.monotonic()
    own = plan[0][state.process_index :: state.num_processes]
    total = sum(len(shards.rows_of(index)) for index in own)
    desc = "extracting" if state.num_processes == 1 else f"extracting, process 1 of {state.num_processes}"
    with tqdm(total=total, desc=desc, unit="row", disable=not state.is_main_process) as bar:
        for index in own:
            part = tables[shards.rows_of(index)]
            pairs = part[PAIR].to_pylist() if args.pair_column else None
            features = extractor(part[TEXT].to_pylist(), pairs, progress=bar.update)
            shards.write(index, features, part.select(args.keep_columns or []))
    state.wait_for_everyone()
    if not state.is_main_process:
        return settings
    record = shards.finish(settings)
    print(describe_rows(record), flush=True)
    if plan[0]:
        print(f"this run took {time.monotonic() - started:.1f} s", flush=True)
    print(f"features, card (README.md) and {RESULT} are in {output}")
    return record


def read_rows(args: FeatureArguments) -> Dataset:
    """
    The rows of all files in their order, kept in the cache of `datasets`: columns `_text`, `_pair` where one is named,
    and the kept ones. A file that does not exist or cannot be read, a column that is missing or holds something else
    than texts, and files without any row are a `FileNotFoundError` or `ValueError` that names file and row.
    """
    files = [Path(file) for file in args.input_files]
    for file in files:
        if not file.is_file():
            raise FileNotFoundError(f"{file} does not exist: name text, CSV, TSV, JSONL or Parquet files.")
    texts = {TEXT: args.text_column} | ({PAIR: args.pair_column} if args.pair_column else {})
    kept = list(args.keep_columns or ())

    def generate() -> Iterator[dict[str, Any]]:
        found = False
        for file in files:
            for record in _records(file, args.quoted):
                found = True
                yield _checked_row(record, texts, kept)
        if not found:
            raise ValueError(f"{', '.join(map(str, files))}: there is no row.")

    # Our own key: hashing the generator would hash code.
    identity = json.dumps(["features 1", [_stamp(file.resolve()) for file in files], texts, kept, args.quoted])
    try:
        return Dataset.from_generator(
            generate,
            features=None if kept else Features({name: Value("string") for name in texts}),
            fingerprint=hashlib.sha256(identity.encode()).hexdigest()[:32],
        )
    except DatasetGenerationError as error:
        # The reader's own error names file and row.
        raise ValueError(str(error.__cause__ or error)) from error


def _records(file: Path, quoted: bool) -> Iterator[Record]:
    name = file.name.lower()
    if any(name.endswith(f".txt{compression}") for compression in COMPRESSIONS):
        return (Record(str(file), f"line {number}", {"text": line}) for number, line in read_text_lines(file))
    return read_by_suffix(file, quoted=quoted)


def _checked_row(record: Record, texts: dict[str, str], kept: Sequence[str]) -> dict[str, Any]:
    row: dict[str, Any] = texts | {column: column for column in kept}
    for name, column in row.items():
        with reading(record.path, record.place):
            row[name] = value = field_of(record.fields, column)
        if name in texts and not isinstance(value, str):
            problem = f"column {column!r} holds {value!r}, a text was expected."
            raise input_error(record.where, problem, "Write a text there (it may be empty), or leave the row out.")
    return row


def _stamp(file: Path) -> list[Any]:
    """What tells a file from a changed one: path, size and time of change."""
    stat = file.stat()
    return [str(file), stat.st_size, stat.st_mtime_ns]


def load_extractor(args: FeatureArguments, device: torch.device) -> FeatureExtractor:
    """Tokenizer and model, without the blocks above the highest layer that is wanted."""
    tokenizer, template = load_tokenizer(args), args.task_template
    if template is None:
        saved = get_tokenizer_config(args.tokenizer_source.folder).get("task_template", False)
        template = args.pooling == "classify" or args.pair_column is not None or bool(saved)
    tokenizer.task_template = template
    model = args.source.model(
        GPTModel, n_head=args.n_head, dtype=DTYPES[args.dtype], attn_implementation=args.attn_implementation
    )
    check_ids(model.config, tokenizer, args.model_name_or_path)
    layers = resolve_layers(args.layers, len(model.h))
    keep_lowest_blocks(model, layers[-1])
    names = ("pooling", "unit", "word_pooling", "max_length", "tokens_per_batch")
    settings = {name: getattr(args, name) for name in names}
    return FeatureExtractor(model.eval().to(device), tokenizer, layers, **settings)


def _settings(args: FeatureArguments, rows: Dataset, extractor: FeatureExtractor) -> dict[str, Any]:
    """What has to be the same for shards that belong together, as JSON has it."""
    free = ("output_dir", "tokens_per_batch", "attn_implementation", "use_cpu", "overwrite_output_dir")
    given = {name: value for name, value in dataclasses.asdict(args).items() if name not in free}
    sources = [args.source, *([args.tokenizer_source] if args.tokenizer_name else [])]
    return given | {
        "layers": extractor.layers,
        "task_template": extractor.tokenizer.task_template,
        "max_length": extractor.max_length,
        "rows_per_shard": args.shard_size,
        "input_files": [_stamp(Path(file)) for file in args.input_files],
        "model_files": [stamp for source in sources for stamp in _model_stamps(source)],
        "width": extractor.model.config.n_embd,
        "rows": len(rows),
    }


def _model_stamps(source: Source) -> list[Any]:
    """The files of a model's folder; of a model on the Hub the commit."""
    if source.commit is not None:
        return [[source.name, source.commit]]
    kinds = (".safetensors", ".json", ".npy", ".bpe")
    return [_stamp(file) for file in sorted(source.folder.iterdir()) if file.suffix in kinds]


def prepare_folder(output: Path, settings: dict[str, Any], overwrite: bool) -> None:
    """
    Make the folder, or make sure that it holds features of the same settings; `overwrite` throws away features of
    other settings, and whatever else is there is never touched.
    """
    file = output / SETTINGS
    if file.is_file():
        if not overwrite:
            check_settings(output, read_json(file), settings, OVERWRITE)
            return
        for name in (RESULT, CARD):
            (output / name).unlink(missing_ok=True)
        # Records first: without them no shard is whole, however far the deletion comes.
        shutil.rmtree(output / UNFINISHED, ignore_errors=True)
        for shard in (output / DATA).glob("features-*-of-*"):
            shard.unlink()
    else:
        check_empty(output, hint="It holds something else than features: name another --output_dir.")
    write_json(file, settings)


@dataclass(frozen=True)
class Shards:
    """
    The files of an extraction: contiguous `rows`, `size` of them each, whatever the number of processes. A shard is
    written under `unfinished`, renamed into `data`, and then recorded; it is whole where its record is.
    """

    output: Path
    format: str
    rows: int
    size: int

    @property
    def count(self) -> int:
        """`int`: number of shards."""
        return -(-self.rows // self.size)

    def rows_of(self, index: int) -> range:
        """The rows of a shard."""
        return range(index * self.size, min(self.rows, (index + 1) * self.size))

    def names(self, index: int) -> list[str]:
        """The file names of a shard."""
        stem = f"features-{index:05d}-of-{self.count:05d}"
        return [f"{stem}.npy", f"{stem}.rows.npy"] if self.format == "npy" else [f"{stem}.{self.format}"]

    def _record(self, index: int) -> Path:
        return self.output / UNFINISHED / f"{index:05d}.json"

    def unfinished(self) -> list[int]:
        """The shards that are not there; a `ValueError` if the extraction was finished and has lost a file since."""
        names = {index: self.names(index) for index in range(self.count)}
        missing = [index for index in names if not all((self.output / DATA / name).is_file() for name in names[index])]
        if not (self.output / RESULT).is_file():
            return sorted({*missing, *(index for index in names if not self._record(index).is_file())})
        if missing:
            lost = names[missing[0]][0]
            raise ValueError(f"{self.output} was finished and has lost {lost}: start anew (--overwrite_output_dir).")
        return []

    def write(self, index: int, features: TextFeatures, kept: pa.Table) -> None:
        """Write a shard atomically; `kept` are columns to write beside the features."""
        rows = self.rows_of(index)
        for folder in (DATA, UNFINISHED):
            (self.output / folder).mkdir(exist_ok=True)
        paths = [self.output / UNFINISHED / name for name in self.names(index)]
        write_shard(self.format, paths, np.arange(rows.start, rows.stop), features, kept)
        for path in paths:
            path.replace(self.output / DATA / path.name)
        counts = {
            "tokens": int(features.tokens.sum()),
            "states": int(features.offsets[-1]),
            "truncated_rows": int((features.cut_tokens > 0).sum()),
            "truncated_tokens": int(features.cut_tokens.sum()),
            "empty_rows": int((features.tokens == 0).sum()),
        }
        write_json(self._record(index), counts)

    def finish(self, settings: dict[str, Any]) -> dict[str, Any]:
        """Add the shards up and write card and result; what `features.json` holds."""
        result = self.output / RESULT
        if result.is_file():
            record = read_json(result)
        else:
            records = [read_json(self._record(index)) for index in range(self.count)]
            totals = {name: sum(record[name] for record in records) for name in records[0]}
            record = settings | {"shards": self.count} | totals
            write_text(self.output / CARD, card_text(record))
            write_json(result, record)
        shutil.rmtree(self.output / UNFINISHED, ignore_errors=True)
        return record


def features_table(rows: np.ndarray, features: TextFeatures, kept: pa.Table) -> pa.Table:
    """Features as an Arrow table that `datasets` reads: a row per text, its units as lists."""
    offsets = pa.array(features.offsets, pa.int32())
    columns: dict[str, tuple[Any, Any]] = {
        "row": (Value("int64"), pa.array(rows)),
        "tokens": (Value("int32"), pa.array(features.tokens, pa.int32())),
        "truncated": (Value("bool"), pa.array(features.cut_tokens > 0)),
    }
    for name, feature in Features.from_arrow_schema(kept.schema).items():
        columns[name] = (feature, kept[name])
    for name, values in features.columns.items():
        columns[name] = (List(Value("int32")), pa.ListArray.from_arrays(offsets, pa.array(values, pa.int32())))
    for layer, states in features.states.items():
        vector = List(Value("float32"), length=states.shape[1])
        values = pa.FixedSizeListArray.from_arrays(pa.array(states.float().numpy().reshape(-1)), states.shape[1])
        if features.columns:
            vector, values = List(vector), pa.ListArray.from_arrays(offsets, values)
        columns[f"layer_{layer}"] = (vector, values)
    schema = Features({name: feature for name, (feature, _) in columns.items()}).arrow_schema
    return pa.table([values for _, values in columns.values()], schema=schema)


def write_shard(kind: str, paths: Sequence[Path], rows: np.ndarray, features: TextFeatures, kept: pa.Table) -> None:
    """
    Write the file of a shard, of `npy` that of the states and that of the numbers of the rows; `kept` are columns to
    write beside the features.
    """
    if kind == "parquet":
        parquet.write_table(features_table(rows, features, kept), paths[0])
    elif kind == "arrow":
        table = features_table(rows, features, kept)
        with pa.OSFile(str(paths[0]), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
            writer.write_table(table, max_chunksize=1000)
    elif kind == "npy":
        np.save(paths[0], torch.stack([*features.states.values()], dim=1).float().numpy(), allow_pickle=False)
        np.save(paths[1], rows, allow_pickle=False)
    else:
        arrays = {"row": rows, "tokens": features.tokens, "truncated": features.cut_tokens > 0, **features.columns}
        if features.columns:
            arrays["offsets"] = features.offsets
        tensors = {name: torch.from_numpy(values) for name, values in arrays.items()}
        save_file(tensors | {f"layer_{layer}": states for layer, states in features.states.items()}, paths[0])
