"""What users published with version 0.1 still loads: with its own code, and with the hf_gpt of today."""

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from transformers import (
    AutoModelForCausalLM,
    AutoModelForMultipleChoice,
    AutoModelForSequenceClassification,
    AutoTokenizer,
)

import hf_gpt

from ..support.published import ARCHIVE
from ..support.strangers import WITHOUT

# Of peft.
pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")

# Folders as version 0.1 uploaded them (weights random), and the numbers that its models gave.
CLASSES = {
    "base": AutoModelForCausalLM,
    "classifier": AutoModelForSequenceClassification,
    "choices": AutoModelForMultipleChoice,
}

STRANGER = """
import json, torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoModelForMultipleChoice, AutoModelForSequenceClassification
from transformers import AutoTokenizer

torch.set_num_threads(1)
def load(auto_class, name, **options):
    return auto_class.from_pretrained(name, trust_remote_code=True, **options).eval()
def logits(model, name):
    texts = {"base": ["Who wrote it?"], "choices": ["Who?", "Who?"]}.get(name, ["Who wrote it?"])
    pairs = {"text_pair": ["me", "you"], "padding": "max_length", "max_length": 12} if name == "choices" else {}
    tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=True)
    inputs = tokenizer(texts, return_tensors="pt", **pairs)
    if name == "choices":
        inputs = {key: value.unsqueeze(0) for key, value in inputs.items()}
    with torch.no_grad():
        return model(**inputs).logits
found = {
    "base": logits(load(AutoModelForCausalLM, "base"), "base")[0, -1, :8].tolist(),
    "classifier": logits(load(AutoModelForSequenceClassification, "classifier"), "classifier")[0].tolist(),
    "choices": logits(load(AutoModelForMultipleChoice, "choices"), "choices")[0].tolist(),
}
base = load(AutoModelForSequenceClassification, "base", num_labels=3)
found["lora"] = logits(PeftModel.from_pretrained(base, "lora").eval(), "lora")[0].tolist()
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    folder = tmp_path_factory.mktemp("published")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return folder / "published"


@pytest.fixture(scope="module")
def wanted(published):
    return json.loads((published / "wanted.json").read_text())


def run(code: str, folder: Path) -> str:
    environment = {"PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "HOME": str(folder)}
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )
    assert result.returncode == 0, result.stderr[-5000:]
    return result.stdout


def test_with_its_own_code(published, wanted):
    """In a process without hf_gpt: each repository runs the code that was uploaded with it."""
    found = json.loads(run(WITHOUT + STRANGER, published).splitlines()[-1])
    for name, numbers in found.items():
        torch.testing.assert_close(torch.tensor(numbers), torch.tensor(wanted[name]), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", [*CLASSES, "lora"])
def test_with_the_code_of_today(published, wanted, name):
    tokenizer = AutoTokenizer.from_pretrained(published / name)
    assert isinstance(tokenizer, hf_gpt.GPTTokenizer)
    if name == "choices":
        padding = {"padding": "max_length", "max_length": 12}
        inputs = tokenizer(["Who?", "Who?"], ["me", "you"], return_tensors="pt", **padding)
        inputs = {key: value.unsqueeze(0) for key, value in inputs.items()}
    else:
        inputs = tokenizer([wanted["text"]], return_tensors="pt")
    if name in ("classifier", "lora"):
        assert inputs["input_ids"][0].tolist() == wanted["ids"]
    if name == "lora":
        model = hf_gpt.load_adapter(str(published / "lora"), base_model=str(published / "base"))
        assert isinstance(model, PeftModel)
    else:
        model = CLASSES[name].from_pretrained(published / name)
        assert type(model).__module__.startswith("hf_gpt.")
    with torch.no_grad():
        logits = model.eval()(**inputs).logits[0]
    found = logits[-1, :8] if name == "base" else logits
    torch.testing.assert_close(found, torch.tensor(wanted[name]), rtol=1e-5, atol=1e-5)


def test_a_space_runs_on_its_own_copy(published):
    """A Space carries the modules that its page needs; what it imports is that copy."""
    code = (
        "import sys\nsys.path.insert(0, '.')\n"
        "import hf_gpt\n"
        "from hf_gpt.demo import LanguageModelDemo\n"
        "words = LanguageModelDemo.from_pretrained('../base').next_tokens('Who')\n"
        "print(hf_gpt.__file__, len(words))"
    )
    space = published / "space"
    file, count = run(code, space).split()
    assert Path(file).parent == space / "hf_gpt"
    assert int(count) == 10
