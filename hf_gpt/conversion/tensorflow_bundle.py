"""
OpenAI's TensorFlow files of GPT-2 (`model.ckpt.index`, `model.ckpt.data-00000-of-00001`, `hparams.json`), read without
TensorFlow. Every length is checked against the file before it is used, and every number against its checksum.

The index is a table of LevelDB (google/leveldb, `doc/table_format.md`) without compression: names of variables, and
for each a `BundleEntryProto` (tensorflow, `core/protobuf/tensor_bundle.proto`) that says where its numbers stand.
"""

import math
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from ..files import check_types, progress, read_json
from .checksums import masked_checksum

INDEX, DATA, SIZES = "model.ckpt.index", "model.ckpt.data-00000-of-00001", "hparams.json"
# Theirs -> the field of a stock `gpt2`.
_FIELDS = {"n_vocab": "vocab_size", "n_ctx": "n_positions"} | {name: name for name in ("n_embd", "n_head", "n_layer")}
# The largest published model's index has 15 kilobytes.
_MOST_INDEX_BYTES = 1 << 20
_FOOTER, _MAGIC = 48, 0xDB4775248B80FB57
_FLOAT32 = 1


@dataclass(frozen=True)
class _Entry:
    """Where a variable's numbers stand in the data file."""

    shape: tuple[int, ...]
    offset: int
    size: int
    checksum: int


def stock_fields(path: Path) -> dict[str, int | str]:
    """The `config.json` of the stock `gpt2` that `hparams.json` describes; a `ValueError` if it describes none."""
    sizes = read_json(path / SIZES)
    check_types(path / SIZES, sizes, dict.fromkeys(_FIELDS, int))
    missing = sorted(_FIELDS.keys() - sizes.keys())
    if missing:
        raise ValueError(f"{path / SIZES} lacks {', '.join(missing)}: copy the file again.")
    fields = {ours: sizes[name] for name, ours in _FIELDS.items()}
    # <|endoftext|> is the last of the vocabulary.
    return {"model_type": "gpt2", **fields, **dict.fromkeys(("bos_token_id", "eos_token_id"), sizes["n_vocab"] - 1)}


def read_bundle(path: Path) -> dict[str, torch.Tensor]:
    """
    The variables of a folder under the names of a stock `gpt2`, as float32.

    Raises:
        ValueError: if a file is damaged, or holds what GPT-2's does not; the file is named.
        FileNotFoundError: if the data file is missing.
    """
    data = path / DATA
    if not data.is_file():
        raise FileNotFoundError(f"{data} is missing: it stands beside {INDEX} where that was published.")
    entries = _read_index(path / INDEX, data.stat().st_size)
    return {
        _stock_name(name): _read_tensor(data, name, entries[name]) for name in progress(sorted(entries), "reading")
    }


def _stock_name(name: str) -> str:
    """`model/h0/attn/c_attn/w` is `h.0.attn.c_attn.weight`."""
    parts = name.removeprefix("model/").split("/")
    if parts[0][:1] == "h" and parts[0][1:].isdecimal():
        parts[:1] = ["h", parts[0][1:]]
    endings = {"w": "weight", "g": "weight", "b": "bias", "wte": "wte.weight", "wpe": "wpe.weight"}
    return ".".join([*parts[:-1], endings.get(parts[-1], parts[-1])])


def _read_tensor(path: Path, name: str, entry: _Entry) -> torch.Tensor:
    content = np.fromfile(path, np.uint8, count=entry.size, offset=entry.offset)
    if masked_checksum(content) != entry.checksum:
        raise ValueError(f"{path}: the numbers of {name} do not have their checksum: copy the file again.")
    values = torch.from_numpy(content.view("<f4").astype(np.float32).reshape(entry.shape))
    # Matrices stand behind an axis of 1.
    return values[0] if values.ndim == 3 and len(values) == 1 else values


def _read_index(path: Path, data_size: int) -> dict[str, _Entry]:
    if path.stat().st_size > _MOST_INDEX_BYTES:
        raise ValueError(f"{path} has {path.stat().st_size:,} bytes; an index of GPT-2 has at most a megabyte.")
    content = path.read_bytes()
    try:
        if len(content) < _FOOTER or struct.unpack("<Q", content[-8:]) != (_MAGIC,):
            raise ValueError("it is no table of LevelDB")
        footer = _Bytes(content[-_FOOTER:-8])
        footer.varint(), footer.varint()
        entries = {}
        for _, handle in _rows(_block(content, footer)):
            for key, value in _rows(_block(content, _Bytes(handle))):
                if key:
                    entries[key.decode("ascii")] = _entry(value, data_size)
                elif _fields(value).get(1, [1]) != [1] or _fields(value).get(2, [0]) != [0]:
                    raise ValueError("it is of several data files, or of big-endian numbers, as GPT-2's are not")
    except (ValueError, struct.error) as error:
        raise ValueError(f"{path} is not the index of OpenAI's GPT-2: {error}; copy the file again.") from error
    return entries


class _Bytes:
    """Bytes that are read from their beginning, never beyond their end."""

    def __init__(self, content: bytes):
        self.content, self.place = content, 0

    def __bool__(self) -> bool:
        return self.place < len(self.content)

    def take(self, size: int) -> bytes:
        if size > len(self.content) - self.place:
            raise ValueError("a length is beyond the end")
        self.place += size
        return self.content[self.place - size : self.place]

    def varint(self) -> int:
        value = 0
        for shift in range(0, 64, 7):
            (byte,) = self.take(1)
            value |= (byte & 127) << shift
            if byte < 128:
                return value
        raise ValueError("a number has more than ten bytes")


def _block(content: bytes, handle: _Bytes) -> bytes:
    """A block without its restart points, which only a search needs."""
    offset, size = handle.varint(), handle.varint()
    file = _Bytes(content)
    file.take(offset)
    block, kind, expected = file.take(size), file.take(1), *struct.unpack("<I", file.take(4))
    if kind != b"\0":
        raise ValueError("it is compressed")
    if masked_checksum(np.frombuffer(block + kind, np.uint8)) != expected:
        raise ValueError("a block does not have its checksum")
    (restarts,) = struct.unpack("<I", block[-4:])
    if 4 * restarts + 4 > len(block):
        raise ValueError("a length is beyond the end")
    return block[: len(block) - 4 * restarts - 4]


def _rows(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    rows, key = _Bytes(block), b""
    while rows:
        shared, rest, size = rows.varint(), rows.varint(), rows.varint()
        if shared > len(key) or shared + rest > 1000:
            raise ValueError("a name is longer than a thousand characters, or begins like none")
        key = key[:shared] + rows.take(rest)
        yield key, rows.take(size)


def _fields(message: bytes) -> dict[int, list[int | bytes]]:
    """The fields of a protocol buffer by their numbers."""
    rows, found = _Bytes(message), {}
    readers: dict[int, Callable[[], int | bytes]] = {
        0: rows.varint,
        1: lambda: rows.take(8),
        2: lambda: rows.take(rows.varint()),
        5: lambda: struct.unpack("<I", rows.take(4))[0],
    }
    while rows:
        number, kind = divmod(rows.varint(), 8)
        if kind not in readers:
            raise ValueError("an entry is no protocol buffer")
        found.setdefault(number, []).append(readers[kind]())
    return found


def _entry(message: bytes, data_size: int) -> _Entry:
    fields = _fields(message)
    if fields.get(1) != [_FLOAT32] or fields.get(3, [0]) != [0] or 7 in fields:
        raise ValueError("a variable is not of float32 in one piece, as GPT-2's are")
    shape = tuple(_fields(size).get(1, [0])[0] for size in _fields(fields.get(2, [b""])[0]).get(2, []))
    (offset,), (size,), (expected,) = (fields.get(number, [0]) for number in (4, 5, 6))
    if size != 4 * math.prod(shape) or offset + size > data_size:
        raise ValueError(f"a variable of the shape {list(shape)} does not fit into the {data_size:,} bytes of {DATA}")
    return _Entry(shape, offset, size, expected)
