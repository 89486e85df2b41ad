"""What users published with version 0.1 still loads: with its own code, and with the hf_gpt of today."""

import json
import tarfile
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer

import hf_gpt
from hf_gpt.loading import open_source

from ..support.remote_user import run_without_hf_gpt

# Of peft.
pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")

# Of a folder, as version 0.1 uploaded it with random weights: the logits that its `wanted.json` has.
LOGITS = """
import json, sys, torch, transformers
from transformers import AutoTokenizer

CLASSES = {"base": "AutoModelForCausalLM", "choices": "AutoModelForMultipleChoice"}
def logits(model, name, **options):
    tokenizer = AutoTokenizer.from_pretrained(name, **options)
    if name == "choices":
        padding = {"padding": "max_length", "max_length": 12}
        inputs = tokenizer(["Who?", "Who?"], ["me", "you"], return_tensors="pt", **padding)
        inputs = {key: value.unsqueeze(0) for key, value in inputs.items()}
    else:
        inputs = tokenizer(["Who wrote it?"], return_tensors="pt")
    with torch.no_grad():
        found = model.eval()(**inputs).logits[0]
    return found[-1, :8] if name == "base" else found
def load(name, auto_class=None, **options):
    auto_class = auto_class or CLASSES.get(name, "AutoModelForSequenceClassification")
    return getattr(transformers, auto_class).from_pretrained(name, **options)
"""
REMOTE_USER = """
from peft import PeftModel
torch.set_num_threads(1)
trust = {"trust_remote_code": True}
found = {name: logits(load(name, **trust), name, **trust).tolist() for name in ("base", "classifier", "choices")}
base = load("base", "AutoModelForSequenceClassification", num_labels=3, **trust)
found["lora"] = logits(PeftModel.from_pretrained(base, "lora"), "lora", **trust).tolist()
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    folder = tmp_path_factory.mktemp("published")
    with tarfile.open(Path(__file__).parents[1] / "data" / "published_0.1.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder / "published"


def assert_wanted(published: Path, name: str, found) -> None:
    wanted = json.loads((published / "wanted.json").read_text())[name]
    torch.testing.assert_close(torch.as_tensor(found), torch.tensor(wanted), rtol=1e-5, atol=1e-5)


def test_with_its_own_code(published):
    """In a process without hf_gpt: each repository runs the code that was uploaded with it."""
    answers = json.loads(run_without_hf_gpt(LOGITS + REMOTE_USER, published, HF_HUB_OFFLINE="1"))
    for name, found in answers.items():
        assert_wanted(published, name, found)


@pytest.mark.parametrize("name", ["base", "classifier", "choices", "lora"])
def test_with_the_code_of_today(published, name, monkeypatch):
    monkeypatch.chdir(published)
    names = {}
    exec(LOGITS, names)
    assert type(AutoTokenizer.from_pretrained(name)) is hf_gpt.GPTTokenizer
    model = hf_gpt.load_adapter("lora", base_model="base") if name == "lora" else names["load"](name)
    assert name == "lora" or type(model).__module__.startswith("hf_gpt.")
    assert_wanted(published, name, names["logits"](model, name))


def test_what_version_0_1_published_is_fetched_and_loads(hub, published):
    for name in ("base", "classifier", "choices"):
        files = {path.name: path.read_bytes() for path in (published / name).iterdir() if path.is_file()}
        hub.put(f"alice/{name}", files)
        source = open_source(f"alice/{name}")
        assert not list(source.folder.glob("*.py"))
        assert type(source.tokenizer()) is hf_gpt.GPTTokenizer
        assert source.model(hf_gpt.GPTForCausalLM).config.n_layer == source.config().n_layer
