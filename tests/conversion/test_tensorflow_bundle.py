"""OpenAI's TensorFlow files of GPT-2, whole and damaged; tests/support writes them as TensorFlow does."""

import contextlib
import json
import shutil

import pytest
from transformers import AutoTokenizer

from hf_gpt.conversion.tensorflow_bundle import DATA, INDEX, SIZES, read_bundle

from ..support.stock_models import save_gpt2
from ..support.tensorflow_bundle import entry, save_bundle, table


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A small stock model's folder `stock`, and `openai` with the same numbers; the rows of the latter's index."""
    folder = tmp_path_factory.mktemp("written")
    model = save_gpt2(folder / "stock")
    return folder, save_bundle(model, AutoTokenizer.from_pretrained(folder / "stock"), folder / "openai")


@pytest.fixture
def bundle(written, tmp_path):
    """A copy of both folders in `tmp_path`; the rows of the index."""
    shutil.copytree(written[0], tmp_path, dirs_exist_ok=True)
    return written[1]


def test_same_as_stock(bundle, tmp_path, converted):
    printed = converted(tmp_path / "openai", tmp_path / "ours")
    assert "is OpenAI's TensorFlow files of GPT-2" in printed
    converted(tmp_path / "ours", tmp_path / "again", "--to", "gpt2")
    for name in ("model.safetensors", "tokenizer.json", "tokenizer_config.json"):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "stock" / name).read_bytes(), name
    assert (tmp_path / "again" / "vocab.json").read_bytes() == (tmp_path / "openai" / "encoder.json").read_bytes()
    assert (tmp_path / "again" / "merges.txt").read_bytes() == (tmp_path / "openai" / "vocab.bpe").read_bytes()


def with_row(rows, name, value):
    return table(sorted((rows | {name: value}).items()))


DAMAGES = {
    "no table": lambda rows: b"x" * 100,
    "nothing": lambda rows: b"",
    "cut": lambda rows: table([*rows.items()])[-80:],
    "compressed": lambda rows: table([*rows.items()], kind=b"\1"),
    "flipped": lambda rows: bytes([table([*rows.items()])[0] ^ 1]) + table([*rows.items()])[1:],
    "several files": lambda rows: with_row(rows, b"", b"\x08\x02"),
    "big-endian": lambda rows: with_row(rows, b"", b"\x08\x01\x10\x01"),
    "doubles": lambda rows: with_row(rows, b"model/wte", entry([1], 0, b"1234", dtype=2)),
    "beyond the end": lambda rows: with_row(rows, b"model/wte", entry([1], 1 << 40, b"1234")),
    "huge": lambda rows: with_row(rows, b"model/wte", entry([1 << 62, 1 << 62], 0, b"1234")),
    "long name": lambda rows: with_row(rows, b"n" * 1001, b""),
    "no protocol buffer": lambda rows: with_row(rows, b"model/wte", b"\x0f"),
    "endless number": lambda rows: with_row(rows, b"model/wte", b"\x08" + b"\xff" * 11),
    "too large": lambda rows: bytes(2 << 20),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damaged_index(name, bundle, tmp_path, convert):
    (tmp_path / "openai" / INDEX).write_bytes(DAMAGES[name](bundle))
    status, printed = convert(tmp_path / "openai", tmp_path / "ours")
    assert status == 2
    assert INDEX in printed
    assert not (tmp_path / "ours").exists()


def test_any_changed_byte_of_the_index_is_seen(bundle, tmp_path):
    path = tmp_path / "openai" / INDEX
    whole = path.read_bytes()
    names = read_bundle(tmp_path / "openai").keys()
    for place in range(0, len(whole), len(whole) // 25):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        # Nothing is lost where what is not needed has changed: the block of metadata, and padding.
        with contextlib.suppress(ValueError):
            assert read_bundle(tmp_path / "openai").keys() == names


def test_other_damages(bundle, tmp_path, convert):
    folder = tmp_path / "openai"
    data, sizes = (folder / DATA).read_bytes(), json.loads((folder / SIZES).read_text())
    (folder / DATA).write_bytes(data[:40] + bytes([data[40] ^ 1]) + data[41:])
    assert "do not have their checksum" in convert(folder, tmp_path / "ours")[1]
    (folder / DATA).write_bytes(data[:-4])
    assert "does not fit" in convert(folder, tmp_path / "ours")[1]
    (folder / DATA).unlink()
    assert "model.ckpt.data-00000-of-00001 is missing" in convert(folder, tmp_path / "ours")[1]
    (folder / DATA).write_bytes(data)
    for changes, message in (
        ({"n_layer": 3}, "lacks h.2."),
        ({"n_layer": 1}, "does not ask for: h.1."),
        ({"n_embd": 34}, "shape"),
    ):
        (folder / SIZES).write_text(json.dumps(sizes | changes))
        assert message in convert(folder, tmp_path / "ours")[1]
    (folder / SIZES).write_text(json.dumps({"n_layer": 1}))
    assert "lacks n_ctx" in convert(folder, tmp_path / "ours")[1]
    (folder / SIZES).write_text(json.dumps(sizes | {"n_embd": 1 << 40}))
    assert "n_embd" in convert(folder, tmp_path / "ours")[1]
