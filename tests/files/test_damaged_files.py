"""Files of every format, damaged at random: only a `ValueError` or `OSError` that names them leaves the reader."""

import contextlib
import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import joblib
import numpy as np
import pytest
import yaml
from peft import get_peft_model

from hf_gpt import GPTConfig, GPTForCausalLM, GPTForSequenceClassification, GPTTokenizer
from hf_gpt.adapters import HEAD_CONFIG, adapter_config, head_config, load_adapter
from hf_gpt.cards.base import FACTS, Card
from hf_gpt.commands import parse_arguments
from hf_gpt.conversion.joblib_arrays import read_arrays
from hf_gpt.conversion.release import read_release
from hf_gpt.conversion.sources import SourceOptions, read_checkpoint
from hf_gpt.files import read_json, read_npy, read_tensors, read_yaml
from hf_gpt.training.arguments import DataArguments, ModelArguments

from ..support.golden import CARRIED
from ..support.tiny import build_config, build_model

# peft 0.21 asks transformers 5.23 under an old name; numpy multiplies the sizes of a header before it looks at them.
pytestmark = [
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]
RELEASE = CARRIED / "tiny_seed0" / "checkpoint"
MINI = Path(__file__).resolve().parents[2] / "model_cards" / "gpt-mini"
VALUES = [
    *(None, True, 0, -1, 2**31, 2**63, 1.5, float("nan"), "", "x", "a.*", "../x", [], [1], ["a"], [[1]], [None], {}),
    *({"a": 1}, {"0": "a"}, {"a": {"b": []}}),
]
NAMES = [
    *("id2label", "num_labels", "architectures", "model_type", "dtype", "attn_implementation", "quantization_config"),
    *("sub_configs", "to_dict", "rope_parameters", "per_layer_config", "configuration_files", "auto_map", "mode"),
    *("added_tokens_decoder", "extra_special_tokens", "pad_token", "auto_mapping", "layer_replication", "eva_config"),
]
PIECES = [b"[", b"{", b'"', b"[" * 6000, b"1" * 5000, b"\xff", b"&a *a", b"!!int ''", b"- - - ", b"\x00", b"("]


def changed(generator: random.Random, content):
    """JSON with a value of another kind at a random place, or one more or one less."""
    places = [(content, key) for key in (content if isinstance(content, dict) else range(len(content)))]
    for parent, key in list(places):
        inner = parent[key]
        if isinstance(inner, dict | list):
            places += [(inner, key) for key in (inner if isinstance(inner, dict) else range(len(inner)))][:20]
    parent, key = generator.choice(places)
    action = generator.random()
    if action < 0.15:
        del parent[key]
    elif action < 0.3 and isinstance(parent, dict):
        parent[generator.choice(NAMES)] = generator.choice(VALUES)
    else:
        parent[key] = generator.choice(VALUES)
    return content


def damaged(generator: random.Random, content: bytes) -> bytes:
    """Bytes changed, cut out, cut off, put in or doubled."""
    place = generator.randrange(len(content))
    start, end = content[:place], content[place:]
    return generator.choice(
        [
            start + bytes([generator.randrange(256)]) + end[1:],
            start + end[generator.choice([1, 5, 50]) :],
            start,
            start + generator.choice(PIECES) + end,
            start + start[-20:] + end,
        ]
    )


def survives(path: Path, read: Callable[[], object], count: int, named: str | None = None) -> None:
    """Reads `count` damaged variants of a file; those that are refused are named."""
    valid = path.read_bytes()
    read()
    generator = random.Random(f"{path.name} {os.environ.get('HF_GPT_DAMAGE_SEED', 0)}")
    for _ in range(count):
        content = damaged(generator, valid)
        if path.suffix == ".json" and generator.random() < 0.6:
            content = json.dumps(changed(generator, json.loads(valid))).encode()
        path.write_bytes(content)
        try:
            read()
        except Exception as error:
            if not isinstance(error, ValueError | OSError) or (named or path.name) not in str(error):
                raise AssertionError(f"{error!r} left the reader of {content[:300]!r}") from error
    path.write_bytes(valid)


@pytest.fixture(scope="module")
def release(tmp_path_factory) -> Path:
    return Path(shutil.copytree(RELEASE, tmp_path_factory.mktemp("release") / "release"))


@pytest.mark.parametrize("name", ["params_shapes.json", "params_3.npy"])
def test_the_release(release, name):
    # A piece that fits no shapes names one of the two.
    survives(release / name, lambda: read_release(release), 200, named="params_")


def test_joblib(tmp_path):
    path = tmp_path / "best_params.jl"
    joblib.dump([np.zeros((3, 4)), np.zeros(5)], path)
    survives(path, lambda: read_arrays(path), 300)


def test_a_pickle_that_promises_more_than_it_holds(tmp_path):
    path = tmp_path / "best_params.jl"
    path.write_bytes(b"\x80\x05\x96" + (3 << 30).to_bytes(8, "little") + b"abc.")
    with pytest.raises(ValueError, match=r"best_params.jl is refused: it holds bytes that can be written to"):
        read_arrays(path)


@pytest.mark.parametrize("shape", [(10**12,), (10**6, 10**6), (2**62, 4), (6,)], ids=str)
def test_a_header_that_promises_more_than_the_file_holds(tmp_path, shape):
    path = tmp_path / "a.npy"
    np.save(path, np.zeros(5, np.float32))
    content = path.read_bytes().replace(b"(5,)", str(shape).encode(), 1)
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"a\.npy is not a readable array of numbers"):
        read_npy(path)


@pytest.mark.parametrize(
    "content", [b"[" * 100000, b'{"a": ' * 100000, b'{"a": ' * 60 + b"1" + b"}" * 60, b'{"a": ' + b"1" * 5000 + b"}"]
)
def test_json_that_is_too_deep_or_too_long(tmp_path, content):
    path = tmp_path / "a.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"a\.json"):
        read_json(path)


@pytest.mark.parametrize(
    "content", ["a: " + "[" * 20000, "- " * 20000, "a: &a [*a]", "a: 2001-99-99", "1: a", "\udcff"]
)
def test_yaml_that_is_no_settings(tmp_path, content):
    path = tmp_path / "a.yaml"
    path.write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(ValueError, match=r"a\.yaml"):
        read_yaml(path)


def test_config_of_a_command(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("model_name_or_path: x\ntask: trec\ntasks: [a, b]\n")

    def read():
        with contextlib.suppress(SystemExit):  # a flag that argparse refuses
            parse_arguments((ModelArguments, DataArguments), ["--config", str(path)])

    survives(path, read, 200)


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    build_model(GPTForCausalLM).save_pretrained(folder, max_shard_size="20KB")
    return folder


def test_configuration(model_folder):
    survives(
        model_folder / "config.json",
        lambda: read_checkpoint(str(model_folder), SourceOptions(no_tokenizer=True)),
        200,
        named=str(model_folder),
    )


def test_index_of_the_weights(model_folder):
    path = model_folder / "model.safetensors.index.json"
    survives(path, lambda: read_tensors(model_folder), 200, named=str(model_folder))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tokenizer_config.json", "tokenizer.json"])
def test_tokenizer(tmp_path, name):
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(MINI / file, tmp_path / file)
    survives(tmp_path / name, lambda: GPTTokenizer.from_pretrained(tmp_path), 200, named=str(tmp_path))


@pytest.mark.parametrize("method", ["lora", "prefix"])
def test_adapter(tmp_path, method):
    base, folder = tmp_path / "base", tmp_path / "adapter"
    build_model(GPTForCausalLM).save_pretrained(base)
    model = GPTForSequenceClassification.from_pretrained(base)
    adapted = get_peft_model(model, adapter_config(method, model.config, size=2))
    adapted.save_pretrained(folder)
    (folder / HEAD_CONFIG).write_text(json.dumps(head_config(adapted)))
    for name in ("adapter_config.json", HEAD_CONFIG):
        survives(folder / name, lambda: load_adapter(str(folder)), 60, named=str(tmp_path))


@pytest.mark.slow
def test_card(tmp_path):
    spread = {"values": [0.1], "median": 0.1, "lowest": 0.1, "highest": 0.2}
    facts = {
        "kind": "fine_tuned",
        "task": "t",
        "family": "classification",
        "base_model": "b",
        "seed": 3,
        "metrics": {"test": {"accuracy": 0.5}},
        "rows": {"train": 5},
        "losses": [{"part": "x", "loss": 1.0}],
        "emissions": {"grams": 1.0, "seconds": 2.0},
        "label_names": ["a"],
        "limits": ["b"],
        "seeds": {"seeds": [1, 2], "metrics": {"test": {"accuracy": spread}}},
    }
    # JSON is YAML, too.
    for name, content in (("card.json", facts), ("pretrained.json", yaml.safe_load((MINI / FACTS).read_text()))):
        path = tmp_path / name
        path.write_text(json.dumps(content))

        def read(path=path):
            shutil.copyfile(path, tmp_path / FACTS)
            Card.load(tmp_path).render()

        survives(path, read, 150, named=FACTS)


def test_small_configurations_are_read_as_before():
    assert GPTConfig.from_dict(build_config().to_dict()).to_dict() == build_config().to_dict()
