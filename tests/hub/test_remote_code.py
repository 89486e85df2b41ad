"""What was pushed loads in a process that cannot import hf_gpt, and gives the same numbers there."""

import inspect
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer, pipeline

import hf_gpt
from hf_gpt import GPTConfig, GPTForCausalLM, GPTForSequenceClassification, GPTModel, GPTTokenizer
from hf_gpt.commands.convert import ConversionArguments, convert
from hf_gpt.hub import code_files, push
from hf_gpt.model.configuration_gpt import AUTO_MAP

from ..support.adapters import adapted, save_adapter
from ..support.local_hub import LocalHub
from ..support.remote_user import run_without_hf_gpt
from ..support.runs import save_tiny_model
from ..support.stock_models import save_gpt2

HEADS = {
    "base": ("AutoModel", GPTModel),
    "lm": ("AutoModelForCausalLM", GPTForCausalLM),
    "choice": ("AutoModelForMultipleChoice", hf_gpt.GPTForMultipleChoice),
    "token": ("AutoModelForTokenClassification", hf_gpt.GPTForTokenClassification),
    "span": ("AutoModelForQuestionAnswering", hf_gpt.GPTForQuestionAnswering),
    "masked": ("AutoModelForMaskedLM", hf_gpt.GPTForMaskedLM),
    "class": ("AutoModelForSequenceClassification", GPTForSequenceClassification),
}
LABELS = {0: "quiet", 1: "loud", 2: "neither"}
SETTINGS = {"class": {"id2label": LABELS}, "masked": {"is_causal": False}}
TEXTS = ["Don't open the door, he said.", "It was \u201cquiet\u201d in the U.S. \u2014 wasn't it?"]
ADAPTERS = ("lora", "ia3", "ln")

REMOTE_USER = """
import json, torch, transformers
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoTokenizer, pipeline

torch.set_num_threads(1)
wanted, found = load_file("wanted.safetensors"), {}
remote = {"revision": "v1", "trust_remote_code": True}

def error_of(action, *arguments, **options):
    try:
        action(*arguments, **options)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "nothing was wrong"

Missing.names += ["ftfy", "spacy"]
found["bytes"] = AutoTokenizer.from_pretrained("alice/bytes", **remote)(TEXTS)["input_ids"]
found["exact error"] = error_of(AutoTokenizer.from_pretrained("alice/lm", **remote), TEXTS[0])
Missing.names = ["hf_gpt", "spacy"]
for name in [name for name in sys.modules if name.startswith("transformers_modules")]:
    del sys.modules[name]

tokenizer = AutoTokenizer.from_pretrained("alice/class", **remote)
found["exact tokenizer"] = tokenizer(TEXTS)["input_ids"] == json.load(open("wanted.json"))
inputs = {name: value for name, value in wanted.items() if "_" in name}

def is_wanted(model, name, head):
    return torch.allclose(logits(model, head, inputs), wanted[name], rtol=0, atol=1e-5)

for name, auto_class in HEADS.items():
    model = getattr(transformers, auto_class).from_pretrained(f"alice/{name}", **remote)
    found[name] = is_wanted(model, name, name)
    # Every checkpoint loads under every class.
    assert type(getattr(transformers, "AutoModel").from_pretrained(f"alice/{name}", **remote)).__name__ == "GPTModel"
model.save_pretrained("saved_again")
for name in ADAPTERS:
    base = transformers.AutoModelForSequenceClassification.from_pretrained("alice/base", num_labels=3, **remote)
    model = PeftModel.from_pretrained(base, f"alice/{name}", revision="v1")
    found[name] = is_wanted(model, name, "class")
    found[f"{name} tokenizer"] = len(AutoTokenizer.from_pretrained(f"alice/{name}", **remote)) == len(tokenizer)
answers = pipeline("text-classification", model="alice/class", **remote)(TEXTS)
found["pipeline"] = [answer["label"] for answer in answers]
generate = pipeline("text-generation", model="alice/lm", **remote)
found["generation"] = generate("He ", max_new_tokens=5, do_sample=False)[0]["generated_text"]
found["code not trusted"] = error_of(transformers.AutoModel.from_pretrained, "alice/lm", trust_remote_code=False)
found["hf_gpt"] = any(name.split(".")[0] == "hf_gpt" for name in sys.modules)
print(json.dumps(found))
"""


def logits(model, name: str, inputs) -> torch.Tensor:
    given = {key: value.unsqueeze(0) if name == "choice" else value for key, value in inputs.items()}
    with torch.no_grad():
        output = model.eval()(**given)
    return output[{"base": "last_hidden_state", "span": "start_logits"}.get(name, "logits")].contiguous()


def make_heads(folder: Path, inputs, tokenizer) -> dict[str, torch.Tensor]:
    """A model with each head in a folder of its own, adapters among them, and what they answer."""
    wanted = {}
    for name, (_, model_class) in HEADS.items():
        torch.manual_seed(1)
        model = model_class.from_pretrained(folder / "tiny", **SETTINGS.get(name, {}))
        model.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
        wanted[name] = logits(model, name, inputs)
    for name in ADAPTERS:
        model = adapted(name, "classification", folder / "base", id2label=LABELS)
        save_adapter(model, folder / name)
        tokenizer.save_pretrained(folder / name)
        wanted[name] = logits(model, "class", inputs)
    return wanted


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """All heads, adapters and tokenizers on a local Hub at the tag v1, and what a user without hf_gpt finds there."""
    folder = tmp_path_factory.mktemp("published")
    save_tiny_model(folder / "tiny")
    save_gpt2(folder / "gpt2")
    convert(str(folder / "gpt2"), folder / "bytes", ConversionArguments())
    tokenizer = AutoTokenizer.from_pretrained(folder / "tiny", task_template=True)
    inputs = dict(tokenizer(TEXTS, padding=True, return_tensors="pt"))
    wanted = make_heads(folder, inputs, tokenizer)
    with pytest.MonkeyPatch.context() as patch, LocalHub() as hub:
        hub.use_here(patch, folder / "cache")
        for name in ("bytes", *HEADS):
            push(folder / name, f"alice/{name}", tag="v1")
        for name in ADAPTERS:
            push(folder / name, f"alice/{name}", tag="v1", base_model="alice/base")
        # What comes later is not what is tagged.
        GPTForCausalLM(GPTConfig.from_pretrained(folder / "lm")).save_pretrained(folder / "lm")
        push(folder / "lm", "alice/lm")
        save_file(wanted | inputs, folder / "wanted.safetensors")
        (folder / "wanted.json").write_text(json.dumps(tokenizer(TEXTS)["input_ids"]))
        heads = {name: auto_class for name, (auto_class, _) in HEADS.items()}
        constants = f"HEADS, ADAPTERS, TEXTS = {heads!r}, {ADAPTERS!r}, {TEXTS!r}\nimport torch\n"
        code = constants + inspect.getsource(logits) + REMOTE_USER
        yield folder, json.loads(run_without_hf_gpt(code, folder, **hub.environment(folder / "cache")))


def test_equal_numbers_without_hf_gpt(published):
    folder, found = published
    exact = {name: found[name] for name in (*HEADS, *ADAPTERS, "exact tokenizer", "lora tokenizer")}
    assert exact == dict.fromkeys(exact, True)
    assert found["hf_gpt"] is False
    # GPT-2's tokenizer needs no ftfy.
    assert found["bytes"] == AutoTokenizer.from_pretrained(folder / "gpt2")(TEXTS)["input_ids"]
    assert found["exact error"] == "ImportError: GPT's tokenizer needs ftfy: pip install ftfy"
    ours = pipeline("text-classification", model=str(folder / "class"))(TEXTS)
    assert found["pipeline"] == [answer["label"] for answer in ours]
    assert found["generation"].startswith("He ")
    assert "trust_remote_code=True" in found["code not trusted"]
    # Saved again there, a model still holds its code.
    saved = folder / "saved_again"
    assert {file.name for file in code_files(GPTModel)} <= {path.name for path in saved.iterdir()}
    assert json.loads((saved / "config.json").read_text())["auto_map"] == AUTO_MAP


def test_with_hf_gpt_the_code_of_a_repository_is_not_run(published):
    assert type(AutoConfig.from_pretrained("alice/class")) is GPTConfig
    assert type(AutoTokenizer.from_pretrained("alice/class")) is GPTTokenizer
    # Nor if it is trusted; of tokenizers transformers then takes the repository's.
    for trust in (None, True):
        model = AutoModelForSequenceClassification.from_pretrained("alice/class", trust_remote_code=trust)
        assert type(model) is GPTForSequenceClassification
