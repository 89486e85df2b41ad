"""
Files of every format, damaged at random: a reader gives a result, or an error that names the file. Weights are looked
at when they are opened: NaN, infinity and integers are refused with the tensor's name.
"""

import bz2
import gzip
import io
import json
import lzma
import os
import re
import shutil
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
from safetensors.torch import load_file, save_file

import hf_gpt.files
from hf_gpt import GPTForCausalLM
from hf_gpt.adapters import HEAD_CONFIG, load_adapter
from hf_gpt.cards import FineTunedCard
from hf_gpt.conversion.release import read_release
from hf_gpt.conversion.sources import SourceOptions, read_arrays, read_checkpoint
from hf_gpt.conversion.tokenizers import release_tokenizer
from hf_gpt.files import FACTS, read_json, read_tensor_file, read_tensors, read_text_lines, read_yaml
from hf_gpt.files.weights import check_tensors
from hf_gpt.generation.scoring import read_pairs
from hf_gpt.loading import open_source
from hf_gpt.tasks import formats
from hf_gpt.training.text_files import iter_texts

from ..support.adapters import adapted, save_adapter
from ..support.formats import FORMATS
from ..support.golden import BUNDLED
from ..support.runs import save_tiny_model
from ..support.stock_models import write_vocabulary
from ..support.tiny import build_model

# numpy multiplies the sizes of a header before it looks at them.
pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning", "ignore::UserWarning")
RELEASE = BUNDLED / "tiny_seed0" / "checkpoint"
SEED = int(os.environ.get("HF_GPT_DAMAGE_SEED", 0))
TEXT = "She opened the door.\nIt was Zoë.\n\n"

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


def model_folder(folder: Path) -> None:
    build_model(GPTForCausalLM).save_pretrained(folder)


def adapter_folder(folder: Path) -> None:
    model_folder(folder.parent / "base")
    save_adapter(adapted("lora", "classification", folder.parent / "base"), folder)


vocabulary_folder = partial(write_vocabulary, vocab_file="encoder_bpe_40000.json", merges_file="vocab_40000.bpe")
release_folder = partial(shutil.copytree, RELEASE, dirs_exist_ok=True)


def tokenizer_folder(folder: Path) -> None:
    vocabulary_folder(folder)
    release_tokenizer(folder).save_pretrained(folder)
    model_folder(folder)


def text_files(folder: Path) -> None:
    (folder / "text.txt").write_text(TEXT)
    for kind, pack in {"gz": gzip, "xz": lzma, "bz2": bz2}.items():
        (folder / f"text.txt.{kind}").write_bytes(pack.compress(TEXT.encode()))
    (folder / "rows.jsonl").write_text('{"text": "a", "id": 1}\n{"text": "b", "id": 2}\n')
    (folder / "pairs.jsonl").write_text('{"sentence_good": "a b", "sentence_bad": "b a"}\n')


def settings_files(folder: Path) -> None:
    (folder / "config.yaml").write_text("model_name_or_path: x\ntask: trec\ntasks: [a, b]\nlimits: {a: 1}\n")
    facts = {"metrics": {"test": {"f1": 0.5}}, "rows": {"test": 9}}
    FineTunedCard("trec", "classification", "someone/gpt", **facts).save(folder)


# Files of data, as their publishers write them, and what reads them.
DATA_FILES = {
    "x.csv": (formats.read_table, FORMATS["swag"][0]["train.csv"]),
    "x.tsv": (formats.read_plain_tsv, FORMATS["qnli"][0]["train.tsv"]),
    "x.jsonl": (formats.read_jsonl, FORMATS["questions"][0]["questions.jsonl"]),
    "x.conllu": (formats.read_treebank, FORMATS["ud_pos"][0]["en_ewt-ud-dev.conllu"]),
    "x.xml": (partial(formats.read_xml, item="item"), FORMATS["copa"][0]["copa-test.xml"]),
    "x.json": (formats.read_squad, FORMATS["squad"][0]["train-v1.1.json"]),
}


def data_files(folder: Path) -> None:
    for name, (_, text) in DATA_FILES.items():
        (folder / name).write_text(text, encoding="utf-8")
    rows = {"text": [f"text {n} é" for n in range(50)], "label": [0, 1] * 25}
    Dataset.from_dict(rows).to_parquet(folder / "x.parquet")


def state_file(folder: Path) -> None:
    torch.save(build_model(GPTForCausalLM, n_layer=1).state_dict(), folder / "pytorch_model.bin")


def joblib_file(folder: Path) -> None:
    joblib.dump([np.zeros((3, 4)), np.zeros(5)], folder / "best_params.jl")


def converted(path: Path) -> object:
    return read_checkpoint(str(path.parent), SourceOptions(no_tokenizer=True))


def of_folder(read: Callable) -> Callable:
    return lambda path: read(path.parent)


def of_parts(read: Callable) -> Callable:
    return lambda path: list(read(path))


# What makes a folder, files in it, and what reads each of them.
GROUPS: list[tuple[Callable[[Path], object], list[str], Callable[[Path], object]]] = [
    (release_folder, ["params_shapes.json", "params_3.npy"], of_folder(read_release)),
    (joblib_file, ["best_params.jl"], read_arrays),
    (model_folder, ["model.safetensors"], of_folder(read_tensors)),
    (state_file, ["pytorch_model.bin"], of_folder(read_tensors)),
    (model_folder, ["config.json", "generation_config.json"], converted),
    (adapter_folder, ["adapter_config.json", HEAD_CONFIG, "adapter_model.safetensors"], of_folder(load_adapter)),
    (tokenizer_folder, ["tokenizer_config.json", "tokenizer.json"], lambda path: open_source(path.parent).tokenizer()),
    (vocabulary_folder, ["encoder_bpe_40000.json", "vocab_40000.bpe"], of_folder(release_tokenizer)),
    (text_files, ["text.txt", "text.txt.gz", "text.txt.xz", "text.txt.bz2", "rows.jsonl"], of_parts(iter_texts)),
    (text_files, ["pairs.jsonl"], of_parts(read_pairs)),
    *((data_files, [name], of_parts(read)) for name, (read, _) in DATA_FILES.items()),
    (data_files, ["x.parquet"], of_parts(formats.read_parquet)),
    (settings_files, ["config.yaml"], read_yaml),
    (settings_files, [FACTS], lambda path: FineTunedCard.load(path.parent).render()),
]
READERS = {name: (make, read) for make, names, read in GROUPS for name in names}


@pytest.mark.parametrize("times", [1, pytest.param(50, marks=pytest.mark.slow)], ids=["quick", "many"])
@pytest.mark.parametrize("name", READERS)
def test_a_damaged_file(name, times, tmp_path):
    make, read = READERS[name]
    count = times * (40 if make in (adapter_folder, tokenizer_folder, vocabulary_folder) else 100)
    path = tmp_path / "folder" / name
    path.parent.mkdir()
    make(path.parent)
    valid = path.read_bytes()
    read(path)
    damaged = damaged_bytes(valid)
    if path.suffix == ".json":
        damaged = damaged_json(valid) | damaged_json(valid) | damaged

    @settings(max_examples=count, derandomize=False, database=None)
    @seed(SEED)
    @given(damaged)
    def every_damage_is_survived(content: bytes) -> None:
        path.write_bytes(content)
        try:
            read(path)
        except (ValueError, OSError) as error:
            if str(tmp_path) not in str(error):
                raise AssertionError(f"{error!r} does not name the file") from error

    print(f"seed {SEED} (HF_GPT_DAMAGE_SEED), {count} inputs")
    every_damage_is_survived()


def saved(tensors) -> bytes:
    torch.save(tensors, buffer := io.BytesIO())
    return buffer.getvalue()


def array_of_shape(shape: tuple[int, ...]) -> bytes:
    np.save(buffer := io.BytesIO(), np.zeros(5, np.float32))
    return buffer.getvalue().replace(b"(5,)", str(shape).encode(), 1)


def test_compressed_input_is_read_within_a_bound(tmp_path, monkeypatch):
    monkeypatch.setattr(hf_gpt.files, "LARGEST_TEXT", 1000)
    for name, pack in {"a.txt.gz": gzip, "a.txt.xz": lzma}.items():
        (tmp_path / name).write_bytes(pack.compress(b"a" * 10**6))
        for read in (read_text_lines, iter_texts):
            with pytest.raises(ValueError, match=rf"{name}: .*more than 0 MB"):
                list(read(tmp_path / name))


JSON = [b"[" * 100000, b'{"a": ' * 100000, b'{"a": ' + b"1" * 5000 + b"}"]
YAML = [b"a: " + b"[" * 20000, b"- " * 20000, b"a: &a [*a]", b"a: 2001-99-99", b"1: a", b"\xff"]
TENSORS = [
    *({"a": torch.eye(3).to_sparse()}, {"a": torch.empty(3, device="meta")}),
    *({"a": {"b": torch.ones(3)}}, {0: torch.ones(3)}),
]
SHAPES = [(10**12,), (10**6, 10**6), (2**62, 4), (6,)]
# Files that promise more than they hold, are too deep, or hold something else.
CRAFTED = [
    ("best_params.jl", read_arrays, b"\x80\x05\x96" + (3 << 30).to_bytes(8, "little") + b"abc."),
    *(("pytorch_model.bin", read_tensor_file, saved(tensors)) for tensors in TENSORS),
    *(("params_3.npy", of_folder(read_release), array_of_shape(shape)) for shape in SHAPES),
    *(("a.json", read_json, content) for content in JSON),
    *(("a.yaml", read_yaml, content) for content in YAML),
]


@pytest.mark.parametrize("number", range(len(CRAFTED)), ids=lambda number: f"{CRAFTED[number][0]}-{number}")
def test_a_crafted_file_is_refused_at_once(number, tmp_path):
    name, read, content = CRAFTED[number]
    release_folder(tmp_path)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=re.escape(name)):
        read(tmp_path / name)


# A tensor, and the commands that open its file.
NAME = "h.1.mlp.c_fc.weight"
COMMANDS = {
    "score": "score --text She",
    "surprisal": "surprisal --text She",
    "generate": "generate --text She",
    "perplexity": "perplexity --text She",
    "features": "extract-features --output_dir OUT --input_files FILE",
    "finetune": "finetune --task questions --output_dir OUT --use_cpu true",
    "pretrain": "pretrain --hold_out_every 0 --text_files FILE --output_dir OUT --use_cpu true",
    "convert": "convert MODEL OUT",
    "push": "push-to-hub MODEL --repo_id user/name --dry_run",
    "evaluate": "evaluate-task --zero_shot --task stories --output_dir OUT",
    "neurons": "analyze neurons --unit 1 3 --text She --output_dir OUT",
    **{what: f"analyze {what} --text She --output_dir OUT" for what in ("lens", "attention", "ablate", "importance")},
}


@pytest.fixture(scope="module")
def corrupted(tmp_path_factory):
    """`corrupted(kind)`: a folder with one tensor that is no weights."""
    folders = {}
    for kind in ("nan", "inf", "int8"):
        folders[kind] = save_tiny_model(tmp_path_factory.mktemp("corrupted") / "model")
        tensors = load_file(file := folders[kind] / "model.safetensors")
        weight = tensors[f"transformer.{NAME}"]
        if kind == "int8":
            tensors[f"transformer.{NAME}"] = weight.to(torch.int8)
        else:
            weight[0, 1] = float(kind)
        save_file(tensors, file, metadata={"format": "pt"})
    return folders.get


OTHERS = ("score", "convert", "push")
CASES = [*((command, "nan") for command in COMMANDS), *((command, "int8") for command in OTHERS), ("score", "inf")]


@pytest.mark.parametrize(("command", "kind"), CASES)
def test_every_command_refuses_weights_that_are_no_numbers(hf_gpt, corrupted, tmp_path, command, kind):
    (tmp_path / "texts.txt").write_text("She opened the door.\n" * 30)
    words = {"OUT": tmp_path / "out", "FILE": tmp_path / "texts.txt", "MODEL": corrupted(kind)}
    flags = COMMANDS[command] + ("" if "MODEL" in COMMANDS[command] else " --model_name_or_path MODEL")
    status, _, errors = hf_gpt(*(words.get(word, word) for word in flags.split()))
    assert status == 2
    assert re.search(rf"{corrupted(kind)}.*{NAME} holds ", errors.splitlines()[-1])
    assert not (tmp_path / "out").exists()


def test_large_numbers_are_numbers():
    check_tensors({"a": torch.full((10,), torch.finfo(torch.float32).max)}, "file")
    check_tensors({"a": torch.full((10,), 6e4, dtype=torch.float16)}, "file")
    check_tensors({"h.0.attn.bias": torch.ones(1, 1, 4, 4, dtype=torch.uint8)}, "file")
    with pytest.raises(ValueError, match="file: a holds numbers that are NaN or infinite"):
        check_tensors({"a": torch.tensor([6e4, float("inf"), 6e4], dtype=torch.float16)}, "file")
