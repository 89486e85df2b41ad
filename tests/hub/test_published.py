"""What users published with version 0.1 still loads: with its own code, and with the hf_gpt of today."""

import inspect
import json
import tarfile
from pathlib import Path

import pytest
import torch
import transformers
from transformers import AutoTokenizer

import hf_gpt
from hf_gpt.loading import open_source

from ..support.remote_user import run_without_hf_gpt

CLASSES = {"base": "AutoModelForCausalLM", "choices": "AutoModelForMultipleChoice"}
CLASSES["classifier"] = "AutoModelForSequenceClassification"
REMOTE_USER = """
from peft import PeftModel
torch.set_num_threads(1)
trust = {"trust_remote_code": True}
found = {name: logits(load(name, auto, **trust), name, **trust).tolist() for name, auto in CLASSES.items()}
base = load("base", CLASSES["classifier"], num_labels=3, **trust)
found["lora"] = logits(PeftModel.from_pretrained(base, "lora"), "lora", **trust).tolist()
print(json.dumps(found))
"""


def logits(model, name: str, **options) -> torch.Tensor:
    """Of a folder, as version 0.1 uploaded it with random weights, what its `wanted.json` has."""
    texts, padding = (["Who wrote it?"],), {}
    if name == "choices":
        texts, padding = (["Who?", "Who?"], ["me", "you"]), {"padding": "max_length", "max_length": 12}
    inputs = AutoTokenizer.from_pretrained(name, **options)(*texts, return_tensors="pt", **padding)
    if name == "choices":
        inputs = {key: value.unsqueeze(0) for key, value in inputs.items()}
    with torch.no_grad():
        found = model.eval()(**inputs).logits[0]
    return found[-1, :8] if name == "base" else found


def load(name: str, auto_class: str, **options):
    return getattr(transformers, auto_class).from_pretrained(name, **options)


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
    imports = "import json, torch, transformers\nfrom transformers import AutoTokenizer\n"
    code = imports + f"CLASSES = {CLASSES}\n" + inspect.getsource(logits) + inspect.getsource(load) + REMOTE_USER
    for name, found in json.loads(run_without_hf_gpt(code, published, HF_HUB_OFFLINE="1")).items():
        assert_wanted(published, name, found)


@pytest.mark.parametrize("name", [*CLASSES, "lora"])
def test_with_the_code_of_today(hub, published, name, monkeypatch):
    monkeypatch.chdir(published)
    assert type(AutoTokenizer.from_pretrained(name)) is hf_gpt.GPTTokenizer
    if name == "lora":
        assert_wanted(published, name, logits(hf_gpt.load_adapter("lora", base_model="base"), name))
        return
    model = load(name, CLASSES[name])
    assert type(model).__module__.startswith("hf_gpt.")
    assert_wanted(published, name, logits(model, name))
    hub.put(f"alice/{name}", {path.name: path.read_bytes() for path in Path(name).iterdir() if path.is_file()})
    source = open_source(f"alice/{name}")
    assert not list(source.folder.glob("*.py"))
    assert type(source.tokenizer()) is hf_gpt.GPTTokenizer
    assert source.model(hf_gpt.GPTForCausalLM).config.n_layer == source.config().n_layer
