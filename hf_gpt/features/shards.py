"""Features of files, written as Parquet in shards by one process or several; resumable after an interruption."""

import dataclasses
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from accelerate import PartialState
from datasets import Dataset, Value
from datasets.fingerprint import Hasher
from pyarrow import compute, csv, parquet
from tqdm.auto import tqdm

from .. import files
from ..cards import TEMPLATES
from ..conversion.tokenizers import check_ids
from ..files import flag
from ..files.templates import get_template
from ..loading import NamesModel
from ..model.modeling_gpt import GPTModel
from ..performance import pack_for_inference, use_fast_float32
from ..tasks.formats import read_by_suffix, read_text
from ..tasks.load import cached_rows
from ..training.text_files import text_of
from . import POOLINGS, UNITS, WORD_COLUMNS, WORD_POOLINGS, FeatureExtractor, TextFeatures

# What the weights become; those of int8 are packed then, which halves the time on a CPU.
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "int8": torch.float32}
SETTINGS, RESULT, CARD, DATA = "feature_settings.json", "features.json", "README.md", "data"
CSV = "features.csv"
# The columns of the rows that are read, and those that are written next to the states.
TEXT, PAIR = "_text", "_pair"
UNIT_COLUMNS = ("input_ids", *WORD_COLUMNS, "word_tokens", "word")
COLUMNS = ("row", "tokens", "truncated", *UNIT_COLUMNS)


@dataclass
class FeatureArguments(NamesModel):
    """What to read, which states to keep, and where to write them."""

    model_name_or_path: str = flag(help="An hf_gpt folder or Hub id, with any head or none, or OpenAI's release.")
    input_files: list[str] = flag(help=".txt (a text a line), CSV, TSV, JSONL or Parquet files; .gz and .xz are fine.")
    output_dir: str = flag(help="Folder for the features; a run that was stopped resumes there.")
    text_column: str = flag("text", "Column of the text (not for text files).")
    pair_column: str | None = flag(None, "Column of a second text.")
    keep_columns: list[str] | None = flag(None, "Columns to copy next to the features.")
    quoted: bool = flag(True, "CSV and TSV: false where a double quote is a character like any other.")
    layers: list[str] = flag(["-1"], "Layers: 0 is the embedding, 1 the first block, -1 the last one; or all.")
    pooling: str = flag("mean", "State of a text: of which tokens, or none: a state per token or word.", POOLINGS)
    unit: str = flag("token", "With --pooling none: what has a state.", UNITS)
    word_pooling: str = flag("mean", "With --unit word: of which tokens of a word.", WORD_POOLINGS)
    context_words: int | None = flag(None, "With --unit word: read each word after so many words alone.")
    max_length: int | None = flag(None, "Longer texts are truncated to so many tokens; by default the context.")
    dtype: str = flag("float32", "Numbers of the model (int8 on a CPU); those of the files are float32.", DTYPES)
    rows_per_shard: int | None = flag(None, "Rows of a file; by default 10,000, and 500 with --pooling none.")
    tokens_per_batch: int | None = flag(None, "Tokens of a batch with padding (default: 512 on a CPU, else 8192).")
    csv: bool = flag(False, f"Write {CSV}, too: a line per text, word or token, a column per dimension.")
    use_cpu: bool = flag(False, "Stay on the CPU.")
    fast_float32: bool | None = flag(None, "CPU products of float32 by oneDNN; by default if faster and as exact.")
    overwrite_output_dir: bool = flag(False, "Replace the features that an earlier run left in --output_dir.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if taken := {*COLUMNS} & set(self.keep_columns or ()):
            raise ValueError(f"--keep_columns {', '.join(sorted(taken))}: the features have a column of that name.")
        self.rows_per_shard = self.rows_per_shard or (500 if self.pooling == "none" else 10_000)


def extract(args: FeatureArguments) -> dict[str, Any]:
    """
    Extract the features of files into `args.output_dir`: shards in `data`, a card and `features.json`, whose content
    is returned (in other processes than the first, the settings alone). The same call resumes where an earlier one was
    stopped. Wrong input, or a folder of something else, is a `ValueError` or `OSError` before a file is written.
    """
    # Processes that are done wait for the slowest; the launcher ends them where one has died.
    state = PartialState(cpu=args.use_cpu or not torch.accelerator.is_available(), timeout=timedelta(days=7))
    output, is_main = Path(args.output_dir), state.is_main_process
    with files.output_folder(output, state.process_index):
        if args.fast_float32 is None and (output / SETTINGS).is_file() and not args.overwrite_output_dir:
            args.fast_float32 = files.read_json(output / SETTINGS).get("fast_float32", False)
        args.fast_float32 = state.device.type == "cpu" and use_fast_float32(args.fast_float32)
        with state.main_process_first():
            rows, extractor = read_rows(args), load_extractor(args, state.device)
            settings = _settings(args, rows, extractor)
            if is_main:
                prepare_folder(output, settings, args.overwrite_output_dir)
        count = -(-len(rows) // args.rows_per_shard)
        shards = [output / DATA / f"features-{index:05d}-of-{count:05d}.parquet" for index in range(count)]
        if is_main:
            by = f" by {state.num_processes} processes" if state.num_processes > 1 else ""
            missing = sum(not shard.is_file() for shard in shards)
            print(f"{len(rows):,} rows; {missing} of {count} shards are to be made{by}", flush=True)
        own = range(state.process_index, count, state.num_processes)
        for index in tqdm(own, desc="extracting", unit="shard", disable=not is_main):
            if shards[index].is_file():
                continue
            numbers = np.arange(index * args.rows_per_shard, min(len(rows), (index + 1) * args.rows_per_shard))
            part = rows.with_format("arrow")[numbers[0] : numbers[-1] + 1]
            found = extractor(part[TEXT].to_pylist(), part[PAIR].to_pylist() if args.pair_column else None)
            with files.atomic(shards[index]) as temporary:
                parquet.write_table(features_table(numbers, found, part.select(args.keep_columns or [])), temporary)
        state.wait_for_everyone()
        if not is_main:
            return settings
        record = _finish(output, settings, shards)
        if args.csv and not (output / CSV).is_file():
            write_csv(output / CSV, shards, record["layers"])
        print(describe_rows(record), f"features, card (README.md) and {RESULT} are in {output}", sep="\n", flush=True)
        return record


def read_rows(args: FeatureArguments) -> Dataset:
    """
    The rows of all files in their order, in the cache of `datasets`: `_text`, maybe `_pair`, and the kept columns.
    What is wrong with a file is an `OSError` or `ValueError` that names file and row.
    """
    paths, kept = [Path(file) for file in args.input_files], list(args.keep_columns or ())
    texts = {TEXT: args.text_column} | ({PAIR: args.pair_column} if args.pair_column else {})

    def generate() -> Iterator[dict[str, Any]]:
        count = 0
        for path in paths:
            is_text = ".txt" in {suffix.lower() for suffix in path.suffixes}
            records = read_text(path, keep_blank=True) if is_text else read_by_suffix(path, quoted=args.quoted)
            for where, fields in records:
                count += 1
                row = {name: text_of(where, fields, column) for name, column in texts.items()}
                yield row | {name: text_of(where, fields, name, object) for name in kept}
        if not count:
            raise ValueError(f"{', '.join(map(str, paths))}: there is no row.")

    rows = cached_rows(generate, Hasher.hash(("features", [*map(_stamp, paths)], texts, kept, args.quoted)))
    if args.csv and (lists := [name for name in kept if not isinstance(rows.features[name], Value)]):
        raise ValueError(f"--keep_columns {' '.join(lists)}: CSV has no lists, leave out the column or --csv.")
    return rows


def _stamp(file: Path) -> list[Any]:
    """What distinguishes a file from a changed one."""
    return [str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns]


def load_extractor(args: FeatureArguments, device: torch.device) -> FeatureExtractor:
    """The template is on where the tokenizer was saved so, and for pairs and pooling `classify`."""
    needs_template = args.pooling == "classify" or args.pair_column is not None
    tokenizer = args.tokenizer_source.tokenizer(**({"task_template": True} if needs_template else {}))
    model = args.source.model(GPTModel, n_head=args.n_head)
    check_ids(model.config, tokenizer, args.model_name_or_path)
    how = (args.pooling, args.unit, args.word_pooling, args.max_length, args.tokens_per_batch, args.context_words)
    model = model.eval().to(device, DTYPES[args.dtype])
    if args.dtype == "int8":
        pack_for_inference(model, "int8")
    return FeatureExtractor(model, tokenizer, args.layers, *how)


def _settings(args: FeatureArguments, rows: Dataset, extractor: FeatureExtractor) -> dict[str, Any]:
    """What has to be the same for shards that belong together, as JSON has it."""
    free = ("output_dir", "tokens_per_batch", "csv", "use_cpu", "overwrite_output_dir")
    stamps, kinds = [], (".safetensors", ".json", ".npy", ".bpe")
    for source in dict.fromkeys((args.source, args.tokenizer_source)):
        # Of a model on the Hub its commit, of a folder its files.
        own = [_stamp(file) for file in sorted(source.folder.iterdir()) if file.suffix in kinds]
        stamps += own if source.commit is None else [[source.name, source.commit]]
    settings = {name: value for name, value in dataclasses.asdict(args).items() if name not in free}
    settings |= {"layers": extractor.layers, "task_template": extractor.tokenizer.task_template}
    settings |= {"max_length": extractor.max_length, "input_files": [_stamp(Path(file)) for file in args.input_files]}
    return settings | {"model_files": stamps, "width": extractor.model.config.n_embd, "rows": len(rows)}


def prepare_folder(output: Path, settings: dict[str, Any], overwrite: bool) -> None:
    """Make the folder or check its settings; `overwrite` deletes features, and whatever else is there stays."""
    file = output / SETTINGS
    if not file.is_file():
        files.check_empty(output, hint="It holds something else than features: name another --output_dir.")
    elif not overwrite:
        files.check_settings(output, {"fast_float32": False} | files.read_json(file), settings)
        return
    for name in (RESULT, CARD, CSV):
        (output / name).unlink(missing_ok=True)
    # Before the new settings are there: what is left of a deletion that was stopped belongs to the old ones.
    shutil.rmtree(output / DATA, ignore_errors=True)
    files.write_json(file, settings)


def features_table(rows: np.ndarray, features: TextFeatures, kept: pa.Table) -> pa.Table:
    """Features as an Arrow table that `datasets` reads: a row per text, its units as lists."""
    offsets, is_list = pa.array(features.offsets, pa.int32()), bool(features.columns)
    counts = {"tokens": features.tokens, "truncated": features.cut_tokens}
    columns: dict[str, Any] = {"row": rows} | {name: pa.array(values, pa.int32()) for name, values in counts.items()}
    columns |= dict(zip(kept.column_names, kept.columns, strict=True))
    for name, values in features.columns.items():
        kind = pa.string() if name == "word" else pa.int32()
        columns[name] = pa.ListArray.from_arrays(offsets, pa.array(values, kind))
    for layer, states in features.states.items():
        values = pa.FixedSizeListArray.from_arrays(pa.array(states.float().numpy().reshape(-1)), states.shape[1])
        columns[f"layer_{layer}"] = pa.ListArray.from_arrays(offsets, values) if is_list else values
    return pa.table(columns)


def write_csv(path: Path, shards: list[Path], layers: list[int]) -> None:
    """Write the features of shards into one CSV file, a shard at a time; a state that is NaN is an empty field."""
    schema = unit_table(parquet.read_schema(shards[0]).empty_table(), layers).schema
    with files.atomic(path) as temporary, csv.CSVWriter(temporary, schema) as writer:
        for shard in tqdm(shards, desc=path.name, unit="shard"):
            writer.write_table(unit_table(parquet.read_table(shard), layers))


def unit_table(shard: pa.Table, layers: list[int]) -> pa.Table:
    """A shard with a row per unit, and a column per dimension of a layer: `layer_4_0`, `layer_4_1`, ..."""
    states = [f"layer_{layer}" for layer in layers]
    columns: dict[str, Any] = {name: shard[name].combine_chunks() for name in shard.column_names}
    if of_units := [name for name in UNIT_COLUMNS if name in columns]:
        texts = compute.list_parent_indices(columns[of_units[0]])
        for name, values in columns.items():
            columns[name] = values.flatten() if name in (*of_units, *states) else values.take(texts)
    for name in states:
        values = columns.pop(name)
        matrix = values.flatten().to_numpy().reshape(-1, values.type.list_size)
        columns |= {f"{name}_{index}": pa.array(row, from_pandas=True) for index, row in enumerate(matrix.T)}
    return pa.table(columns)


def _finish(output: Path, settings: dict[str, Any], shards: list[Path]) -> dict[str, Any]:
    """Add the shards up and write card and result; what `features.json` holds."""
    if (output / RESULT).is_file():
        return files.read_json(output / RESULT)
    counts = pa.concat_tables([parquet.read_table(file, columns=["tokens", "truncated"]) for file in shards])
    tokens, truncated = (counts[name].to_numpy() for name in ("tokens", "truncated"))
    record = settings | {"shards": len(shards), "tokens": int(tokens.sum()), "empty_rows": int((tokens == 0).sum())}
    record |= {"truncated_rows": int((truncated > 0).sum()), "truncated_tokens": int(truncated.sum())}
    texts = ", ".join(Path(name).name for name, *_ in record["input_files"])
    values = {"record": record, "read": describe_rows(record), "files": texts}
    files.write_text(output / CARD, get_template(TEMPLATES / "features.md").render(**values))
    files.write_json(output / RESULT, record)
    return record


def describe_rows(record: dict[str, Any]) -> str:
    """What was read, and which rows are not as one may expect, of what `features.json` holds."""
    text = f"{record['rows']:,} rows, {record['tokens']:,} tokens"
    if record["truncated_rows"]:
        lost = f"{record['truncated_rows']:,} (they lost {record['truncated_tokens']:,} tokens in all)"
        text += f"; rows truncated to {record['max_length']} tokens: {lost}"
    if record["empty_rows"]:
        kind = "no states" if record["pooling"] == "none" else "NaN for states"
        text += f"; rows without any token, which have {kind}: {record['empty_rows']:,}"
    return text
