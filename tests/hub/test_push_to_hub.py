"""What is pushed: the right files, clean and whole; wrong folders and names are refused before anything is sent."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from datasets import load_dataset
from huggingface_hub import ModelCard
from peft import get_peft_model
from safetensors.torch import load_file, save_file
from tqdm import tqdm
from transformers import AutoTokenizer, TrainingArguments

from hf_gpt import GPTConfig, GPTForMultipleChoice, GPTForSequenceClassification, adapter_config
from hf_gpt.features.shards import FeatureArguments, extract
from hf_gpt.hub import code_files, download, push
from hf_gpt.hub.card import HEADING, OWN_METHODS
from hf_gpt.hub.staging import checkpoint_files, clean_settings
from hf_gpt.training.trainer import WholeCheckpointTrainer

from ..support.local_hub import Fault, LocalHub
from ..support.runs import REPOSITORY
from ..support.strangers import run_stranger

# Of peft.
pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")

TOKENIZER_FILES = {"tokenizer.json", "tokenizer_config.json", "words.json"}
MODEL_FILES = {"config.json", "generation_config.json", "model.safetensors", "README.md", *TOKENIZER_FILES}
CODE = {file.name for file in code_files()}
QUESTIONS = REPOSITORY / "hf_gpt" / "tasks" / "data" / "questions.jsonl"


@pytest.fixture
def folder(tiny_checkpoint, tmp_path):
    return Path(shutil.copytree(tiny_checkpoint, tmp_path / "tiny"))


@pytest.fixture
def hub(monkeypatch, tmp_path):
    with LocalHub() as server:
        yield server.use_here(monkeypatch, tmp_path / "cache")


def adapter_folder(folder: Path, method: str) -> Path:
    base = GPTForSequenceClassification.from_pretrained(folder, num_labels=3)
    target = folder.parent / method
    get_peft_model(base, adapter_config(method, base.config)).save_pretrained(target)
    AutoTokenizer.from_pretrained(folder).save_pretrained(target)
    return target


def features_folder(folder: Path, **options) -> Path:
    texts = folder.parent / "texts.txt"
    texts.write_text("He said.\nShe asked.\n", encoding="utf-8")
    target = folder.parent / "features"
    names = {"model_name_or_path": str(folder), "input_files": [str(texts)], "output_dir": str(target)}
    extract(FeatureArguments(**names, use_cpu=True, **options))
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
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    address = push(folder, "alice/tiny")
    left = re.search(r"^Not uploaded: (.*)\.$", capsys.readouterr().out, flags=re.MULTILINE)[1].split(", ")
    assert sorted(left) == sorted([*PLANTED, "checkpoint-4"])
    repository = hub.repository("alice/tiny")
    files = repository.files()
    assert address == f"{hub.endpoint}/alice/tiny/commit/{repository.branches['main']}"
    assert files.keys() == MODEL_FILES | CODE | {"metrics.json", "LICENSE"}
    assert files["model.safetensors"].lfs
    config = json.loads(files["config.json"].data)
    assert config["auto_map"]["AutoModelForMultipleChoice"] == "modeling_gpt.GPTForMultipleChoice"
    assert config["auto_map"]["AutoTokenizer"] == ["tokenization_gpt.GPTTokenizer", None]
    assert "_name_or_path" not in config
    assert json.loads(files["metrics.json"].data) == metrics | {"model": "tiny"}
    assert all(str(folder).encode() not in blob.data for blob in files.values())
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before


@pytest.mark.parametrize(
    ("head", "tag"),
    [(GPTForMultipleChoice, "multiple-choice"), (GPTForSequenceClassification, "text-classification")],
)
def test_the_card_tells_how_to_load_the_head(hub, folder, head, tag):
    head.from_pretrained(folder).save_pretrained(folder)
    (folder / "README.md").write_text(
        '---\nlicense: mit\ntags: [mine]\n---\n\n# Mine\n\nText.\n\n    folder = "."  # this repository\n'
    )
    push(folder, "alice/tiny", base_model="alice/base")
    push(folder, "alice/tiny", base_model="alice/base", tag="v1")
    text = hub.repository("alice/tiny").files()["README.md"].data.decode()
    card = ModelCard(text)
    assert card.data.to_dict() == {
        "license": "mit",
        "tags": ["mine"],
        "library_name": "transformers",
        "pipeline_tag": tag,
        "base_model": "alice/base",
    }
    assert card.text.strip().startswith('# Mine\n\nText.\n\n    folder = "alice/tiny"')
    assert text.count(HEADING) == 1
    auto_class = head.__name__.replace("GPT", "AutoModel")
    assert f'{auto_class}.from_pretrained("alice/tiny", revision="v1", trust_remote_code=True)' in text
    assert "pip install ftfy" in text


def test_a_tokenizer(hub, folder, tmp_path):
    AutoTokenizer.from_pretrained(folder).save_pretrained(tmp_path / "words")
    push(tmp_path / "words", "alice/words")
    files = hub.repository("alice/words").files()
    own = {file.name for file in code_files(type(AutoTokenizer.from_pretrained(folder)))}
    assert files.keys() == TOKENIZER_FILES | own | {"README.md"}
    assert 'AutoTokenizer.from_pretrained("alice/words"' in files["README.md"].data.decode()


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
    config = json.loads(files["adapter_config.json"].data)
    assert config["base_model_name_or_path"] == "alice/base"
    assert {"adapter_config.json", "adapter_model.safetensors", "tokenization_gpt.py"} < files.keys()
    text = files["README.md"].data.decode()
    assert ("need hf_gpt" in text) == (config["peft_type"] in OWN_METHODS)
    assert str(folder) not in text
    data = ModelCard(text).data
    assert (data.library_name, data.base_model) == ("peft", "alice/base")


@pytest.mark.parametrize("form", ["parquet", "npy"])
def test_features(hub, folder, form, own_datasets_cache, monkeypatch):
    push(features_folder(folder, format=form), "alice/states")
    repository = hub.repository("alice/states", "datasets")
    names = repository.files().keys()
    assert {"README.md", "features.json"} < names
    assert all(name.startswith("data/features-") for name in names - {"README.md", "features.json"})
    assert all(str(folder.parent).encode() not in blob.data for blob in repository.files().values())
    pulled = download("alice/states", repo_type="dataset")
    if form == "parquet":
        rows = load_dataset("parquet", data_files=str(pulled / "data" / "*.parquet"))["train"]
        assert rows["tokens"][:] == [3, 3]
    else:
        assert (pulled / "data" / "features-00000-of-00001.npy").is_file()


def spoil_weights(folder: Path) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-8])


def make_adapter_too(folder: Path) -> None:
    (folder / "adapter_config.json").write_text("{}")


def empty(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()


WRONG = {
    "no folder": (shutil.rmtree, "is no folder with exactly one of"),
    "empty": (empty, "is no folder with exactly one of"),
    "two kinds": (make_adapter_too, "is no folder with exactly one of"),
    "cut weights": (spoil_weights, "model.safetensors cannot be read"),
    "no weights": (lambda folder: (folder / "model.safetensors").unlink(), "has no weights"),
    "other model": (lambda folder: change(folder / "config.json", model_type="bert"), "of the type bert"),
    "other class": (lambda folder: change(folder / "config.json", architectures=["GPTForFun"]), "GPTForFun"),
    "other shape": (
        lambda folder: change(folder / "config.json", n_positions=32),
        "lacks transformer.embed_positions.weight, or has them in other shapes",
    ),
    "too few blocks": (lambda folder: change(folder / "config.json", n_layer=1), "does not ask for transformer.h.1"),
    "too many blocks": (
        lambda folder: change(folder / "config.json", n_layer=3),
        "lacks transformer.h.2",
    ),
    "no configuration": (lambda folder: change(folder / "config.json", n_head=5), "config.json: "),
    "bad json": (lambda folder: (folder / "generation_config.json").write_text("{"), "is not valid JSON"),
    "no tokenizer": (lambda folder: (folder / "tokenizer.json").unlink(), "tokenizer.json: "),
    "bad tokenizer": (lambda folder: (folder / "tokenizer.json").write_text("{}"), "tokenizer.json: "),
    "bad card": (lambda folder: (folder / "README.md").write_text("---\na: [\n---\n"), "metadata between the lines"),
    "card with a path": (
        lambda folder: (folder / "README.md").write_text("# Mine\n\nFrom /home/me/gpt1.\n"),
        "path of this machine, /home/me/gpt1",
    ),
    "unfinished features": (
        lambda folder: (empty(folder), (folder / "feature_settings.json").write_text("{}")),
        "features.json",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_wrong_folders_are_refused_before_anything_is_sent(hub, folder, what):
    spoil, message = WRONG[what]
    spoil(folder)
    with pytest.raises(ValueError, match=re.escape(message)):
        push(folder, "alice/tiny")
    assert hub.requests == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"repo_id": "tiny"}, "say whose it is"),
        ({"repo_id": "alice/a b"}, "alphanumeric"),
        ({"repo_id": "alice/tiny", "create_pr": True, "tag": "v1"}, "leave out --revision and --tag"),
        ({"repo_id": "alice/tiny", "base_model": "base"}, "--base_model base: say whose"),
    ],
    ids=["no user", "bad name", "pull request and tag", "base model"],
)
def test_wrong_names_are_refused_before_anything_is_sent(hub, folder, arguments, message):
    with pytest.raises(ValueError, match=message):
        push(folder, **arguments)
    assert hub.requests == []


def test_without_a_token_or_with_a_wrong_one_or_for_somebody_elses_repository(hub, folder, monkeypatch):
    with pytest.raises(ValueError, match=r"bob/tiny broke off: 403 Forbidden: You don't have the rights"):
        push(folder, "bob/tiny")
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    with pytest.raises(ValueError, match=r"broke off: .*hf auth login"):
        push(folder, "alice/tiny")
    monkeypatch.delenv("HF_TOKEN")
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", "no/such/file")
    with pytest.raises(ValueError, match=r"broke off: .*hf auth login"):
        push(folder, "alice/tiny")
    assert hub.repositories == {}


def test_dry_run_shows_all_and_needs_no_network(folder, hf_gpt, monkeypatch):
    monkeypatch.delenv("HF_TOKEN", raising=False)
    (folder / "optimizer.pt").write_text("x")
    _, printed, _ = hf_gpt("push-to-hub", folder, "--repo_id", "alice/tiny", "--dry_run")
    sizes = dict(re.findall(r"^  (\S+) +([\d.]+\w+)$", printed, flags=re.MULTILINE))
    assert sizes.keys() == MODEL_FILES | CODE
    assert sizes["model.safetensors"] == f"{tqdm.format_sizeof((folder / 'model.safetensors').stat().st_size)}B"
    assert "Not uploaded: optimizer.pt." in printed
    assert "names no licence" in printed
    assert f"{HEADING}\n\n```python\nfrom transformers import AutoModelForCausalLM, AutoTokenizer" in printed
    assert printed.endswith("Nothing was sent (dry run).\n")


def test_the_command_pushes_and_ends_with_one_line(hub, folder, hf_gpt):
    flags = ("push-to-hub", folder, "--repo_id", "alice/tiny", "--tag", "v1")
    assert hf_gpt(*flags)[1].splitlines()[-1].startswith(f"Pushed: {hub.endpoint}/alice/tiny/commit/")
    status, _, errors = hf_gpt(*flags)
    assert status == 2
    (line,) = errors.splitlines()
    assert line.startswith("hf-gpt push-to-hub: alice/tiny has a tag v1 already")


class Rows(torch.utils.data.Dataset):
    """Random rows of tokens that end with the classify token, the same everywhere."""

    def __init__(self, config: GPTConfig):
        generator = torch.Generator().manual_seed(3)
        self.ids = torch.randint(0, 100, (16, 6), generator=generator)
        self.ids[:, -1] = config.classify_token_id

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, index):
        return {"input_ids": self.ids[index], "labels": torch.tensor(index % 3)}


def train(folder: Path, output: Path, steps: int, **options):
    torch.manual_seed(0)
    model = GPTForSequenceClassification.from_pretrained(folder, num_labels=3, return_dict=True)
    settings = {"max_steps": steps, "save_steps": 2, "per_device_train_batch_size": 2, "use_cpu": True}
    settings |= {"report_to": "none", "disable_tqdm": True, "remove_unused_columns": False}
    # Without clipping, for which transformers' own Trainer takes another norm.
    settings |= {"learning_rate": 1e-2, "lr_scheduler_type": "constant", "max_grad_norm": 0}
    arguments = TrainingArguments(str(output), **settings, **options)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    rows = Rows(model.config)
    trainer = WholeCheckpointTrainer(
        model, arguments, train_dataset=rows, eval_dataset=rows, processing_class=tokenizer
    )
    trainer.train()
    return trainer


def test_pushing_while_training(hub, folder, tmp_path):
    best = {"eval_strategy": "steps", "eval_steps": 2, "metric_for_best_model": "loss", "load_best_model_at_end": True}
    options = {"push_to_hub": True, "hub_model_id": "alice/run", "hub_strategy": "checkpoint"}
    trainer = train(folder, tmp_path / "run", 4, **options, **best)
    repository = hub.repository("alice/run")
    titles = [repository.titles[sha] for sha in repository.commits]
    assert "Training in progress, step 2" in titles
    files = repository.files()
    last = {path.removeprefix("last-checkpoint/") for path in files if path.startswith("last-checkpoint/")}
    assert CODE | TOKENIZER_FILES | {"config.json", "model.safetensors", "optimizer.pt", "trainer_state.json"} < last
    assert "training_args.bin" not in last
    assert {path for path in files if "/" not in path} - {".gitattributes"} >= CODE | {"model.safetensors"}
    assert not {path for path in files if "unfinished" in path or path == "optimizer.pt"}
    # Nothing of this machine goes along, and the run's own files stay as they are.
    kept = json.loads((tmp_path / "run" / "checkpoint-4" / "trainer_state.json").read_text())["best_model_checkpoint"]
    assert Path(kept).parent == tmp_path / "run"
    state = json.loads(files["last-checkpoint/trainer_state.json"].data)
    assert state["best_model_checkpoint"] == Path(kept).name
    assert all(str(tmp_path).encode() not in blob.data for blob in files.values())
    trainer.save_whole_model()
    trainer.push_to_hub()
    assert repository.titles[repository.branches["main"]] == "End of training"
    assert "README.md" in repository.files()
    assert download("alice/run").is_dir()


def test_a_relative_folder_of_this_machine_stays_here_too(tmp_path):
    state = tmp_path / "trainer_state.json"
    state.write_text(json.dumps({"best_model_checkpoint": "outputs/mine/checkpoint-2", "epoch": 1.0}))
    clean_settings(tmp_path)
    assert json.loads(state.read_text()) == {"best_model_checkpoint": "checkpoint-2", "epoch": 1.0}


def test_what_deepspeed_keeps_is_not_the_model(tmp_path):
    state = ["global_step4/mp_rank_00_model_states.pt", "global_step4/bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt"]
    state += ["latest", "rng_state_1.pth", "scheduler.pt", "trainer_state.json"]
    model = ["config.json", "model.safetensors", "modeling_gpt.py", "tokenizer.json"]
    for name in (*state, *model, "zero_to_fp32.py", "zero_to_torch.py", "README.md", "hf_token.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert checkpoint_files(tmp_path) == (model, [*model, *sorted(state)])


def test_a_checkpoint_that_cannot_be_sent_is_said_and_training_goes_on(hub, folder, tmp_path, capsys):
    hub.faults.append(Fault("POST", "/commit/", "error", times=1))
    train(folder, tmp_path / "run", 2, push_to_hub=True, hub_model_id="alice/run")
    assert "A checkpoint was not pushed to alice/run" in capsys.readouterr().err
    assert (tmp_path / "run" / "checkpoint-2" / "model.safetensors").is_file()


def test_pushing_while_training_needs_a_token_and_a_base_model_that_others_have(hub, folder, tmp_path, monkeypatch):
    base = GPTForSequenceClassification.from_pretrained(folder, num_labels=3)
    adapted = get_peft_model(base, adapter_config("lora", base.config))
    arguments = TrainingArguments(str(tmp_path / "run"), push_to_hub=True, use_cpu=True, report_to="none")
    with pytest.raises(ValueError, match="folder that nobody else has"):
        WholeCheckpointTrainer(adapted, arguments, train_dataset=Rows(base.config))
    monkeypatch.delenv("HF_TOKEN")
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", "no/such/file")
    with pytest.raises(ValueError, match="not logged in"):
        WholeCheckpointTrainer(base, arguments, train_dataset=Rows(base.config))
    assert hub.repositories == {}


RESUME = """
import torch
from huggingface_hub import snapshot_download
from safetensors.torch import load_file
from transformers import AutoModelForSequenceClassification, Trainer, TrainingArguments

torch.set_num_threads(1)
checkpoint = snapshot_download("alice/run") + "/last-checkpoint"
model = AutoModelForSequenceClassification.from_pretrained(checkpoint, trust_remote_code=True)
rows = load_file("rows.safetensors")
rows = [{"input_ids": ids, "labels": label} for ids, label in zip(rows["input_ids"], rows["labels"])]
args = TrainingArguments("out", max_steps=4, save_steps=2, per_device_train_batch_size=2, use_cpu=True,
                         learning_rate=1e-2, lr_scheduler_type="constant", max_grad_norm=0,
                         report_to="none", disable_tqdm=True, remove_unused_columns=False)
trainer = Trainer(model, args, train_dataset=rows)
trainer.train(resume_from_checkpoint=checkpoint)
assert trainer.state.global_step == 4
AutoModelForSequenceClassification.from_pretrained("out/checkpoint-4", trust_remote_code=True)
"""


@pytest.mark.slow
def test_a_stranger_goes_on_from_a_pushed_checkpoint(hub, folder, tmp_path):
    whole = train(folder, tmp_path / "whole", 4)
    options = {"push_to_hub": True, "hub_model_id": "alice/run", "hub_strategy": "checkpoint"}
    train(folder, tmp_path / "run", 2, **options)
    rows = [whole.train_dataset[index] for index in range(len(whole.train_dataset))]
    columns = {name: torch.stack([row[name] for row in rows]) for name in ("input_ids", "labels")}
    save_file(columns, tmp_path / "rows.safetensors")
    run_stranger(hub, tmp_path, RESUME)
    theirs = load_file(tmp_path / "out" / "checkpoint-4" / "model.safetensors")
    ours = load_file(tmp_path / "whole" / "checkpoint-4" / "model.safetensors")
    assert all(value.equal(theirs[name]) for name, value in ours.items())


def readme_section() -> str:
    text = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    match = re.search(r"^## The Hub\n(.*?)(?=^## )", text, flags=re.MULTILINE | re.DOTALL)
    return match[1] if match else ""


@pytest.mark.slow
@pytest.mark.skipif(not readme_section(), reason="the README has no section on the Hub yet")
def test_the_readme_section_runs_as_printed(hub, tmp_path):
    environment = os.environ | hub.environment(tmp_path / "own") | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "0"}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    for language, code, printed in re.findall(
        r"```(bash|python)\n(.*?)```(?:\n```text\n(.*?)```)?", readme_section(), flags=re.DOTALL
    ):
        code = code.replace("user/", "alice/")
        if language == "python":
            output = run_stranger(hub, tmp_path, code)
        else:
            command = ["bash", "-e", "-c", code]
            result = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True)
            assert result.returncode == 0, result.stderr[-3000:]
            output = result.stdout
        assert output.endswith(printed.replace("user/", "alice/"))
    assert hub.repositories == {}  # its command is a dry run
