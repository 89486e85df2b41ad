"""OpenAI's TensorFlow files of GPT-2, written as TensorFlow's `BundleWriter` does."""

import json
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from transformers import GPT2LMHeadModel, GPT2Tokenizer

from hf_gpt.conversion.checksums import masked_checksum
from hf_gpt.conversion.tensorflow_bundle import DATA, INDEX, SIZES


def varint(value: int) -> bytes:
    content = b""
    while value > 127:
        content += bytes([value & 127 | 128])
        value >>= 7
    return content + bytes([value])


def checksum_of(content: bytes) -> bytes:
    return struct.pack("<I", masked_checksum(np.frombuffer(content, np.uint8)))


def block(rows: Iterable[tuple[bytes, bytes]], kind: bytes = b"\0") -> bytes:
    """A block of LevelDB's table; every name begins as the one before it does, as far as that goes."""
    content, before = b"", b""
    for key, value in rows:
        shared = next(
            (i for i, (a, b) in enumerate(zip(key, before, strict=False)) if a != b), min(len(key), len(before))
        )
        content += varint(shared) + varint(len(key) - shared) + varint(len(value)) + key[shared:] + value
        before = key
    content += struct.pack("<II", 0, 1) + kind
    return content + checksum_of(content)


def entry(shape: Sequence[int], offset: int, content: bytes, dtype: int = 1) -> bytes:
    """A `BundleEntryProto`."""
    sizes = b"".join(b"\x12" + varint(len(size)) + size for size in (b"\x08" + varint(length) for length in shape))
    message = b"\x08" + varint(dtype) + b"\x12" + varint(len(sizes)) + sizes
    message += b"\x20" + varint(offset) + b"\x28" + varint(len(content))
    return message + b"\x35" + checksum_of(content)


def table(rows: Sequence[tuple[bytes, bytes]], kind: bytes = b"\0", per_block: int = 5) -> bytes:
    """A table of LevelDB."""
    content, handles = b"", []
    for start in range(0, len(rows), per_block):
        written = block(rows[start : start + per_block], kind)
        handles.append((rows[start : start + per_block][-1][0], varint(len(content)) + varint(len(written) - 5)))
        content += written
    footer = b""
    for written in (block([]), block(handles)):
        footer += varint(len(content)) + varint(len(written) - 5)
        content += written
    return content + footer.ljust(40, b"\0") + struct.pack("<Q", 0xDB4775248B80FB57)


def their_arrays(model: GPT2LMHeadModel) -> dict[str, np.ndarray]:
    """The variables of OpenAI's code with the values of a stock model."""
    arrays = {}
    for name, value in model.transformer.state_dict().items():
        parts = name.replace("h.", "h", 1).split(".") if name.startswith("h.") else name.split(".")
        ending = {"weight": "g" if parts[-2].startswith("ln") else "w", "bias": "b"}[parts[-1]]
        parts = parts[:-1] if parts[0] in ("wte", "wpe") else [*parts[:-1], ending]
        is_matrix = value.ndim == 2 and ending == "w" and parts[0] not in ("wte", "wpe")
        arrays["/".join(["model", *parts])] = (value[None] if is_matrix else value).numpy()
    return arrays


def save_sizes(model: GPT2LMHeadModel, tokenizer: GPT2Tokenizer, folder: Path) -> None:
    """`hparams.json`, `encoder.json` and `vocab.bpe`."""
    config = model.config
    sizes = {"n_vocab": config.vocab_size, "n_ctx": config.n_positions, "n_embd": config.n_embd}
    (folder / SIZES).write_text(json.dumps(sizes | {"n_head": config.n_head, "n_layer": config.n_layer}))
    learnt = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    (folder / "encoder.json").write_text(json.dumps(learnt["vocab"]))
    lines = ["#version: 0.2", *map(" ".join, learnt["merges"]), ""]
    (folder / "vocab.bpe").write_text("\n".join(lines), encoding="utf-8")


def save_bundle(model: GPT2LMHeadModel, tokenizer: GPT2Tokenizer, folder: Path) -> dict[str, tuple[bytes, bytes]]:
    """The files of OpenAI's GPT-2; returns the rows of its index."""
    folder.mkdir()
    save_sizes(model, tokenizer, folder)
    rows, data = [(b"", b"\x08\x01\x1a\x02\x08\x01")], b""
    for name, array in sorted(their_arrays(model).items()):
        content = array.astype("<f4").tobytes()
        rows.append((name.encode(), entry(array.shape, len(data), content)))
        data += content
    (folder / DATA).write_bytes(data)
    (folder / INDEX).write_bytes(table(rows))
    return dict(rows)
