"""Files of every format, damaged at random: a reader gives a result, or an error that names the file."""

import gzip
import io
import json
import os
import shutil
import tarfile
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import joblib
import numpy as np
import pytest
import torch
from datasets import Dataset
from hypothesis import given, seed, settings
from hypothesis import strategies as st
from peft import get_peft_model

import hf_gpt.files
from hf_gpt import GPTForCausalLM, GPTForSequenceClassification
from hf_gpt.adapters import HEAD_CONFIG, adapter_config, head_config, load_adapter
from hf_gpt.cards.base import FACTS, Card
from hf_gpt.conversion.joblib_arrays import read_arrays
from hf_gpt.conversion.release import read_release
from hf_gpt.conversion.sources import SourceOptions, read_checkpoint
from hf_gpt.conversion.tokenizers import release_tokenizer
from hf_gpt.files import read_archive, read_json, read_npy, read_tensor_file, read_tensors, read_text_lines, read_yaml
from hf_gpt.generation.scoring import read_pairs
from hf_gpt.loading import open_source
from hf_gpt.tasks import formats
from hf_gpt.training.text_files import iter_texts

from ..support.formats import FORMATS
from ..support.golden import CARRIED
from ..support.stock_models import write_vocabulary
from ..support.tiny import build_model

# peft 0.21 asks transformers 5.23 under an old name; numpy multiplies the sizes of a header before it looks at them.
pytestmark = [
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]
RELEASE = CARRIED / "tiny_seed0" / "checkpoint"
MINI = Path(__file__).resolve().parents[2] / "model_cards" / "gpt-mini"
SEED = int(os.environ.get("HF_GPT_DAMAGE_SEED", 0))
# Of the whole: so many times as many inputs in the slow tests.
SLOW = 50

VALUES = [
    *(None, True, 0, -1, 2**31, 2**63, 10**12, 1.5, 1e308, float("nan"), "", "x", "a.*", "../x"),
    *([], [1], ["a"], [[1]], [None], {}, {"a": 1}, {"0": "a"}, {"a": {"b": []}}),
]
NAMES = [
    *("id2label", "num_labels", "architectures", "model_type", "dtype", "attn_implementation", "quantization_config"),
    *("sub_configs", "to_dict", "rope_parameters", "per_layer_config", "configuration_files", "auto_map", "mode"),
    *("added_tokens_decoder", "extra_special_tokens", "pad_token", "auto_mapping", "layer_replication", "eva_config"),
    *("max_position_embeddings", "hidden_size", "text_config", "num_beams", "trainable_token_indices"),
]
PIECES = [b"[", b"{", b'"', b"[" * 6000, b"1" * 5000, b"\xff", b"&a *a", b"!!int ''", b"- - - ", b"\x00", b"(", b"\t"]


@st.composite
def damaged_bytes(draw, valid: bytes) -> bytes:
    """Bytes changed, cut out, cut off, put in or doubled."""
    place = draw(st.integers(0, len(valid) - 1))
    start, end = valid[:place], valid[place:]
    how = draw(st.integers(0, 4))
    if how == 0:
        return start + bytes([draw(st.integers(0, 255))]) + end[1:]
    if how == 1:
        return start + end[draw(st.sampled_from([1, 5, 50])) :]
    if how == 2:
        return start
    return start + (draw(st.sampled_from(PIECES)) if how == 3 else start[-20:]) + end


@st.composite
def damaged_json(draw, valid: bytes) -> bytes:
    """JSON with a value of another kind at some place, or one more or one less."""
    content = parent = json.loads(valid)
    while True:
        key = draw(st.sampled_from(sorted(parent)[:50] if isinstance(parent, dict) else range(min(len(parent), 50))))
        if not (isinstance(parent[key], dict | list) and parent[key] and draw(st.booleans())):
            break
        parent = parent[key]
    how = draw(st.integers(0, 5))
    if how == 0:
        del parent[key]
    elif how == 1 and isinstance(parent, dict):
        parent[draw(st.sampled_from(NAMES))] = draw(st.sampled_from(VALUES))
    else:
        parent[key] = draw(st.sampled_from(VALUES))
    return json.dumps(content).encode()


def damaged(valid: bytes, is_json: bool) -> st.SearchStrategy[bytes]:
    return damaged_json(valid) | damaged_json(valid) | damaged_bytes(valid) if is_json else damaged_bytes(valid)


def model_folder(folder: Path, **options) -> Path:
    build_model(GPTForCausalLM).save_pretrained(folder, **options)
    return folder


def bin_folder(folder: Path) -> Path:
    torch.save(build_model(GPTForCausalLM, n_layer=1).state_dict(), folder / "pytorch_model.bin")
    return folder


def adapter_folder(folder: Path) -> Path:
    base = model_folder(folder.parent / "base")
    model = GPTForSequenceClassification.from_pretrained(base)
    adapted = get_peft_model(model, adapter_config("lora", model.config, size=2))
    adapted.save_pretrained(folder)
    (folder / HEAD_CONFIG).write_text(json.dumps(head_config(adapted)))
    return folder


def vocabulary_folder(folder: Path) -> Path:
    write_vocabulary(folder, "encoder_bpe_40000.json", "vocab_40000.bpe")
    return folder


def tokenizer_folder(folder: Path) -> Path:
    write_vocabulary(folder, "encoder_bpe_40000.json", "vocab_40000.bpe")
    release_tokenizer(folder).save_pretrained(folder)
    build_model(GPTForCausalLM).save_pretrained(folder)
    return folder


def joblib_file(folder: Path) -> Path:
    joblib.dump([np.zeros((3, 4)), np.zeros(5)], folder / "best_params.jl")
    return folder


TEXT = "She opened the door.\nIt was Zoë.\n\n"


def archives(folder: Path) -> Path:
    for method in (zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA):
        with zipfile.ZipFile(folder / f"texts{method}.zip", "w", method) as archive:
            archive.writestr("a.txt", TEXT)
            archive.writestr("b/c.txt", TEXT * 20)
    for kind in ("gz", "xz", "bz2"):
        with tarfile.open(folder / f"texts.tar.{kind}", f"w:{kind}") as archive:
            member = tarfile.TarInfo("a.txt")
            member.size = len(TEXT.encode())
            archive.addfile(member, io.BytesIO(TEXT.encode()))
    (folder / "text.txt.gz").write_bytes(gzip.compress(TEXT.encode()))
    (folder / "text.txt").write_text(TEXT)
    (folder / "rows.jsonl").write_text('{"text": "a", "id": 1}\n{"text": "b", "id": 2}\n')
    (folder / "pairs.tsv").write_text("The doors were open.\tThe doors was open.\n")
    (folder / "pairs.jsonl").write_text('{"sentence_good": "a b", "sentence_bad": "b a"}\n')
    return folder


def settings_files(folder: Path) -> Path:
    (folder / "config.yaml").write_text("model_name_or_path: x\ntask: trec\ntasks: [a, b]\nlimits: {a: 1}\n")
    shutil.copy(MINI / FACTS, folder / FACTS)
    return folder


def convert(folder: Path):
    return read_checkpoint(str(folder), SourceOptions(no_tokenizer=True))


# Files of data, as their publishers write them, and what reads them.
DATA_FILES = {
    "x.csv": (formats.read_table, FORMATS["swag"][0]["train.csv"]),
    "x.tsv": (formats.read_plain_tsv, FORMATS["qnli"][0]["train.tsv"]),
    "x.jsonl": (formats.read_jsonl, FORMATS["questions"][0]["questions.jsonl"]),
    "x.conllu": (formats.read_treebank, FORMATS["ud_pos"][0]["en_ewt-ud-dev.conllu"]),
    "x.xml": (partial(formats.read_xml, item="item"), FORMATS["copa"][0]["copa-test.xml"]),
    "x.json": (formats.read_squad, FORMATS["squad"][0]["train-v1.1.json"]),
    "x.parquet": (formats.read_parquet, None),
}


def data_files(folder: Path) -> None:
    for name, (_, text) in DATA_FILES.items():
        if text is not None:
            (folder / name).write_text(text, encoding="utf-8")
    Dataset.from_dict({"text": [f"text {n} é" for n in range(50)], "label": [0, 1] * 25}).to_parquet(
        folder / "x.parquet"
    )


# Of each file: what makes its folder, what reads the folder, and how many inputs the quick tests give it.
READERS: dict[str, tuple[Callable, Callable[[Path], object], int]] = {
    "params_shapes.json": (lambda folder: shutil.copytree(RELEASE, folder, dirs_exist_ok=True), read_release, 150),
    "params_3.npy": (lambda folder: shutil.copytree(RELEASE, folder, dirs_exist_ok=True), read_release, 150),
    "best_params.jl": (joblib_file, lambda folder: read_arrays(folder / "best_params.jl"), 150),
    "model.safetensors": (model_folder, read_tensors, 150),
    "pytorch_model.bin": (bin_folder, read_tensors, 100),
    "model.safetensors.index.json": (lambda folder: model_folder(folder, max_shard_size="20KB"), read_tensors, 100),
    "config.json": (model_folder, convert, 150),
    "generation_config.json": (model_folder, convert, 100),
    "adapter_config.json": (adapter_folder, load_adapter, 40),
    HEAD_CONFIG: (adapter_folder, load_adapter, 40),
    "adapter_model.safetensors": (adapter_folder, load_adapter, 40),
    "tokenizer_config.json": (tokenizer_folder, lambda folder: open_source(folder).tokenizer(), 40),
    "tokenizer.json": (tokenizer_folder, lambda folder: open_source(folder).tokenizer(), 40),
    "encoder_bpe_40000.json": (vocabulary_folder, release_tokenizer, 40),
    "vocab_40000.bpe": (vocabulary_folder, release_tokenizer, 40),
    **{
        name: (archives, lambda folder, name=name: list(iter_texts(folder / name)), count)
        for name, count in {
            "texts8.zip": 150,
            "texts14.zip": 150,
            "texts.tar.gz": 60,
            "texts.tar.xz": 60,
            "texts.tar.bz2": 60,
            "text.txt.gz": 60,
            "text.txt": 60,
            "rows.jsonl": 60,
        }.items()
    },
    "pairs.tsv": (archives, lambda folder: read_pairs(folder / "pairs.tsv"), 60),
    "pairs.jsonl": (archives, lambda folder: read_pairs(folder / "pairs.jsonl"), 60),
    **{
        name: (data_files, lambda folder, name=name, read=read: list(read(folder / name)), 60)
        for name, (read, _) in DATA_FILES.items()
    },
    "config.yaml": (settings_files, lambda folder: read_yaml(folder / "config.yaml"), 100),
    FACTS: (settings_files, lambda folder: Card.load(folder).render(), 40),
}
each_reader = pytest.mark.parametrize("name", READERS)


def check_reader(name: str, tmp_path: Path, times: int) -> None:
    make, read, count = READERS[name]
    folder = tmp_path / "folder"
    folder.mkdir()
    make(folder)
    path = folder / name
    valid = path.read_bytes()
    read(folder)

    @settings(max_examples=count * times, derandomize=False, database=None)
    @seed(SEED)
    @given(damaged(valid, path.suffix == ".json"))
    def every_damage_is_survived(content: bytes) -> None:
        path.write_bytes(content)
        try:
            read(folder)
        except (ValueError, OSError) as error:
            if str(tmp_path) not in str(error):
                raise AssertionError(f"{error!r} does not name the file") from error

    print(f"seed {SEED} (HF_GPT_DAMAGE_SEED), {count * times} inputs")
    every_damage_is_survived()


@each_reader
def test_a_damaged_file(name, tmp_path):
    check_reader(name, tmp_path, 1)


@pytest.mark.slow
@each_reader
def test_many_damaged_files(name, tmp_path):
    check_reader(name, tmp_path, SLOW)


def test_compressed_input_is_read_within_a_bound(tmp_path, monkeypatch):
    monkeypatch.setattr(hf_gpt.files, "LARGEST_TEXT", 1000)
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.txt", "a" * 10**6)
    with pytest.raises(ValueError, match=r"a\.zip/a\.txt: a text of more than"):
        list(read_archive(tmp_path / "a.zip", lambda name: True))
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"a" * 10**6))
    with pytest.raises(ValueError, match=r"a\.txt\.gz, line 1: a line of more than"):
        list(read_text_lines(tmp_path / "a.txt.gz"))
    with pytest.raises(ValueError, match=r"a\.txt\.gz: a text of more than"):
        list(iter_texts(tmp_path / "a.txt.gz"))


def test_a_pickle_that_promises_more_than_it_holds(tmp_path):
    path = tmp_path / "best_params.jl"
    path.write_bytes(b"\x80\x05\x96" + (3 << 30).to_bytes(8, "little") + b"abc.")
    with pytest.raises(ValueError, match=r"best_params.jl"):
        read_arrays(path)


@pytest.mark.parametrize("kind", ["sparse", "meta", "nested", "names"])
def test_a_pickle_of_other_tensors(tmp_path, kind):
    tensors = {
        "sparse": {"a": torch.eye(3).to_sparse()},
        "meta": {"a": torch.empty(3, device="meta")},
        "nested": {"a": {"b": torch.ones(3)}},
        "names": {0: torch.ones(3)},
    }
    torch.save(tensors[kind], tmp_path / "pytorch_model.bin")
    with pytest.raises(ValueError, match=r"pytorch_model\.bin"):
        read_tensor_file(tmp_path / "pytorch_model.bin")


@pytest.mark.parametrize("shape", [(10**12,), (10**6, 10**6), (2**62, 4), (6,)], ids=str)
def test_a_header_that_promises_more_than_the_file_holds(tmp_path, shape):
    path = tmp_path / "a.npy"
    np.save(path, np.zeros(5, np.float32))
    path.write_bytes(path.read_bytes().replace(b"(5,)", str(shape).encode(), 1))
    with pytest.raises(ValueError, match=r"a\.npy"):
        read_npy(path)


@pytest.mark.parametrize(
    "content", [b"[" * 100000, b'{"a": ' * 100000, b'{"a": ' * 60 + b"1" + b"}" * 60, b'{"a": ' + b"1" * 5000 + b"}"]
)
def test_json_that_is_too_deep_or_too_long(tmp_path, content):
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(ValueError, match=r"a\.json"):
        read_json(tmp_path / "a.json")


@pytest.mark.parametrize(
    "content", ["a: " + "[" * 20000, "- " * 20000, "a: &a [*a]", "a: 2001-99-99", "1: a", "\udcff"]
)
def test_yaml_that_is_no_settings(tmp_path, content):
    (tmp_path / "a.yaml").write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(ValueError, match=r"a\.yaml"):
        read_yaml(tmp_path / "a.yaml")
