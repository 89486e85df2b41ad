"""What is pushed: the right files, clean and whole; wrong folders and names are refused before anything is sent."""

import json
import re
import shutil
from pathlib import Path

import pytest
from datasets import load_dataset
from huggingface_hub import ModelCard
from tqdm import tqdm
from transformers import AutoTokenizer, TrainingArguments

from hf_gpt import GPTForMultipleChoice, GPTForSequenceClassification
from hf_gpt.features.shards import FeatureArguments, extract
from hf_gpt.hub import code_files, download, push
from hf_gpt.hub.card import HEADING, OWN_METHODS
from hf_gpt.training.trainer import WholeCheckpointTrainer

from ..support.adapters import adapted

TOKENIZER_FILES = {"tokenizer.json", "tokenizer_config.json", "words.json"}
MODEL_FILES = {"config.json", "generation_config.json", "model.safetensors", "README.md", *TOKENIZER_FILES}
CODE = {file.name for file in code_files()}


def adapter_folder(folder: Path, method: str) -> Path:
    target = folder.parent / method
    adapted(method, "classification", folder).save_pretrained(target)
    AutoTokenizer.from_pretrained(folder).save_pretrained(target)
    return target


def features_folder(folder: Path) -> Path:
    texts = folder.parent / "texts.txt"
    texts.write_text("He said.\nShe asked.\n", encoding="utf-8")
    target = folder.parent / "features"
    names = {"model_name_or_path": str(folder), "input_files": [str(texts)], "output_dir": str(target)}
    extract(FeatureArguments(**names, use_cpu=True))
    return target


def change(path: Path, **settings) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))


PLANTED = ["credentials.json", "client_secret.json", "hf_token.txt", "settings.json", "notes.md", "LICENSE_KEY"]
PLANTED += ["card.yaml", "id_rsa", "config.json.bak", "Config.json", "model-1.safetensors", "optimizer.pt", ".secret"]
PLANTED += ["training_args.bin", "predictions.tsv", "trainer_state.json"]


def test_a_model_goes_with_code_map_and_card_and_nothing_else(hub, folder, capsys):
    change(folder / "config.json", _name_or_path="/home/somebody/models/x")
    metrics = {"model": str(folder), "rows": [1], "text": "and/or"}
    (folder / "metrics.json").write_text(json.dumps(metrics))
    for name in (*PLANTED, "notes.py", "LICENSE"):
        (folder / name).write_text("x")
    (folder / "checkpoint-4").mkdir()
    (folder / ".eval_results").mkdir()
    (folder / ".eval_results" / "cola.yaml").write_text("[]")
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    address = push(folder, "alice/tiny")
    left = re.search(r"^Not uploaded: (.*)\.$", capsys.readouterr().out, flags=re.MULTILINE)[1].split(", ")
    assert sorted(left) == sorted([*PLANTED, "checkpoint-4"])
    repository = hub.repository("alice/tiny")
    files = repository.files()
    assert address == f"{hub.endpoint}/alice/tiny/commit/{repository.branches['main']}"
    assert files.keys() == MODEL_FILES | CODE | {"metrics.json", "LICENSE", ".eval_results/cola.yaml"}
    config = json.loads(files["config.json"])
    assert config["auto_map"]["AutoModelForMultipleChoice"] == "modeling_gpt.GPTForMultipleChoice"
    assert config["_name_or_path"] == "x"
    assert json.loads(files["metrics.json"]) == metrics | {"model": "tiny"}
    assert all(str(folder).encode() not in data for data in files.values())
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before


def test_the_card_tells_how_to_load_the_head(hub, folder):
    GPTForMultipleChoice.from_pretrained(folder).save_pretrained(folder)
    own = '---\nlicense: mit\ntags: [mine]\n---\n\n# Mine\n\nText.\n\n    folder = "."  # this repository\n'
    (folder / "README.md").write_text(own)
    push(folder, "alice/tiny", base_model="alice/base")
    push(folder, "alice/tiny", base_model="alice/base", tag="v1")
    text = hub.repository("alice/tiny").files()["README.md"].decode()
    card = ModelCard(text)
    added = {"library_name": "transformers", "pipeline_tag": "multiple-choice", "base_model": "alice/base"}
    assert card.data.to_dict() == {"license": "mit", "tags": ["mine"]} | added
    assert card.text.strip().startswith('# Mine\n\nText.\n\n    folder = "alice/tiny"')
    assert text.count(HEADING) == 1
    assert 'AutoModelForMultipleChoice.from_pretrained("alice/tiny", revision="v1", trust_remote_code=True)' in text
    assert "pip install ftfy" in text


def test_a_tokenizer(hub, folder, tmp_path):
    AutoTokenizer.from_pretrained(folder).save_pretrained(tmp_path / "words")
    push(tmp_path / "words", "alice/words")
    files = hub.repository("alice/words").files()
    own = {file.name for file in code_files(type(AutoTokenizer.from_pretrained(folder)))}
    assert files.keys() == TOKENIZER_FILES | own | {"README.md"}
    assert 'AutoTokenizer.from_pretrained("alice/words"' in files["README.md"].decode()


@pytest.mark.parametrize("method", ["lora", "houlsby", "prefix"])
def test_an_adapter(hub, folder, method):
    push(folder, "alice/base")
    adapter = adapter_folder(folder, method)
    with pytest.raises(ValueError, match=r"base model is .* --base_model user/name"):
        push(adapter, "alice/adapter")
    with pytest.raises(ValueError, match="base model alice/none is not on the Hub"):
        push(adapter, "alice/adapter", base_model="alice/none")
    assert ("models", "alice/adapter") not in hub.repositories
    push(adapter, "alice/adapter", base_model="alice/base")
    files = hub.repository("alice/adapter").files()
    config = json.loads(files["adapter_config.json"])
    assert config["base_model_name_or_path"] == "alice/base"
    assert {"adapter_config.json", "adapter_model.safetensors", "tokenization_gpt.py"} < files.keys()
    text = files["README.md"].decode()
    assert ("need hf_gpt" in text) == (config["peft_type"] in OWN_METHODS)
    assert str(folder) not in text
    data = ModelCard(text).data
    assert (data.library_name, data.base_model) == ("peft", "alice/base")


def test_features(hub, folder, own_datasets_cache, monkeypatch):
    push(features_folder(folder), "alice/states")
    repository = hub.repository("alice/states", "datasets")
    names = repository.files().keys()
    assert {"README.md", "features.json"} < names
    assert all(name.startswith("data/features-") for name in names - {"README.md", "features.json"})
    assert all(str(folder.parent).encode() not in data for data in repository.files().values())
    data = download("alice/states", repo_type="dataset") / "data"
    assert load_dataset("parquet", data_files=str(data / "*.parquet"))["train"]["tokens"][:] == [3, 3]


# A file, what it becomes (None: it is gone, settings: they change), and the error.
WRONG = [
    ("", None, "is no folder with exactly one of"),
    ("adapter_config.json", "{}", "is no folder with exactly one of"),
    ("model.safetensors", "{", "tiny/model.safetensors: "),
    ("model.safetensors", None, "has no weights"),
    ("config.json", {"model_type": "bert"}, "of the type bert"),
    ("config.json", {"n_positions": 32}, "lacks transformer.embed_positions.weight, or has them in other shapes"),
    ("config.json", {"n_layer": 1}, "does not ask for transformer.h.1"),
    ("config.json", {"n_head": 5}, "config.json: "),
    ("generation_config.json", "{", "tiny/generation_config.json is not valid JSON"),
    ("generation_config.json", {"num_beams": [1]}, "tiny/generation_config.json: num_beams"),
    ("tokenizer.json", None, "tiny/tokenizer.json: "),
    ("README.md", "---\na: [\n---\n", "metadata between the lines"),
]


@pytest.mark.parametrize(("name", "content", "message"), WRONG)
def test_wrong_folders_are_refused_before_anything_is_sent(hub, folder, name, content, message):
    path = folder / name
    if isinstance(content, dict):
        change(path, **content)
    elif content is not None:
        path.write_text(content)
    else:
        path.unlink() if name else shutil.rmtree(folder)
    with pytest.raises(ValueError, match=re.escape(message)):
        push(folder, "alice/tiny")
    assert hub.requests == []


def test_wrong_names_and_tokens(hub, folder, monkeypatch):
    wrong = {"tiny": "say whose it is", "alice/a b": "alphanumeric", "bob/tiny": "broke off: 403 Forbidden: You don't"}
    for repo_id, message in wrong.items():
        with pytest.raises(ValueError, match=message):
            push(folder, repo_id)
    with pytest.raises(ValueError, match="--base_model base: say whose"):
        push(folder, "alice/tiny", base_model="base")
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", "no/such/file")
    for token in ("hf_wrong", ""):
        monkeypatch.setenv("HF_TOKEN", token)
        with pytest.raises(ValueError, match=r"broke off: .*hf auth login"):
            push(folder, "alice/tiny")
    assert hub.repositories == {}


def test_the_command_shows_all_without_network_then_pushes_and_ends_with_one_line(hub, folder, hf_gpt, monkeypatch):
    flags = ("push-to-hub", folder, "--repo_id", "alice/tiny", "--tag", "v1")
    with monkeypatch.context() as patch:
        patch.delenv("HF_TOKEN", raising=False)
        _, printed, _ = hf_gpt(*flags, "--dry_run")
    assert hub.requests == []
    sizes = dict(re.findall(r"^  (\S+) +([\d.]+\w+)$", printed, flags=re.MULTILINE))
    assert sizes.keys() == MODEL_FILES | CODE
    assert sizes["model.safetensors"] == f"{tqdm.format_sizeof((folder / 'model.safetensors').stat().st_size)}B"
    assert f"{HEADING}\n\n```python\nfrom transformers import AutoModelForCausalLM, AutoTokenizer" in printed
    assert printed.endswith("Nothing was sent (dry run).\n")
    assert hf_gpt(*flags)[1].splitlines()[-1].startswith(f"Pushed: {hub.endpoint}/alice/tiny/commit/")
    status, _, errors = hf_gpt(*flags)
    assert (status, errors.count("\n"), "409 Conflict" in errors) == (2, 1, True), errors


def test_pushing_after_training(hub, folder, tmp_path):
    """The best model, once; nothing is sent before."""
    model = GPTForSequenceClassification.from_pretrained(folder, num_labels=3)
    tokenizer = AutoTokenizer.from_pretrained(folder, task_template=True)
    rows = [dict(tokenizer("She ran."), labels=label) for label in (0, 1, 2)]
    settings = {"max_steps": 4, "save_steps": 2, "use_cpu": True, "report_to": "none", "disable_tqdm": True}
    settings |= {"eval_strategy": "steps", "eval_steps": 2, "load_best_model_at_end": True}
    arguments = TrainingArguments(tmp_path / "run", push_to_hub=True, hub_model_id="alice/run", **settings)
    run = WholeCheckpointTrainer(model, arguments, train_dataset=rows, eval_dataset=rows, processing_class=tokenizer)
    run.train()
    assert not hub.repository("alice/run").files().keys() - {".gitattributes"}
    run.save_whole_model()
    run.push_to_hub()
    repository = hub.repository("alice/run")
    assert repository.titles[repository.branches["main"]] == "End of training"
    assert repository.files().keys() - {".gitattributes"} == MODEL_FILES | CODE
    assert all(str(tmp_path).encode() not in data for data in repository.files().values())
    assert download("alice/run").is_dir()


def test_pushing_needs_a_token_and_a_base_model_that_others_have(hub, folder, tmp_path, monkeypatch):
    adapter = adapted("lora", "classification", folder)
    arguments = TrainingArguments(str(tmp_path / "run"), push_to_hub=True, use_cpu=True, report_to="none")
    with pytest.raises(ValueError, match="which nobody else has"):
        WholeCheckpointTrainer(adapter, arguments, train_dataset=[])
    monkeypatch.delenv("HF_TOKEN")
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", "no/such/file")
    with pytest.raises(ValueError, match="not logged in"):
        WholeCheckpointTrainer(GPTForMultipleChoice.from_pretrained(folder), arguments, train_dataset=[])
    assert hub.repositories == {}
