"""The way to the Hub and back: uploads that break off, crafted repositories, names, and the local Hub itself."""

import json
import pickle
import tarfile
from pathlib import Path

import pytest
from peft import get_peft_model
from safetensors.torch import load_file
from transformers import OpenAIGPTLMHeadModel

from hf_gpt import GPTForCausalLM, GPTForSequenceClassification, GPTTokenizer, adapter_config, load_adapter
from hf_gpt.adapters import HEAD_CONFIG, head_config
from hf_gpt.conversion.sources import read_checkpoint
from hf_gpt.hub import RepositoryError, download, push
from hf_gpt.loading import open_source

from ..support.local_hub import Fault, LocalHub
from ..support.published import ARCHIVE
from ..support.stock_models import Trap, save_old_bin, stock_model, write_vocabulary

pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")


@pytest.fixture
def hub(monkeypatch, tmp_path):
    with LocalHub() as server:
        yield server.use_here(monkeypatch, tmp_path / "cache")


@pytest.fixture
def pushed(hub, tiny_checkpoint):
    push(tiny_checkpoint, "alice/tiny")
    hub.requests.clear()
    return hub


def assert_pulls_same(folder: Path, repo_id: str = "alice/tiny") -> None:
    pulled = load_file(download(repo_id) / "model.safetensors")
    ours = load_file(folder / "model.safetensors")
    assert pulled.keys() == ours.keys()
    assert all(value.equal(pulled[name]) for name, value in ours.items())


def test_a_broken_upload_resumes(hub, tiny_checkpoint):
    hub.faults += [Fault("PUT", "/lfs/", "cut", times=2), Fault("POST", "/commit/", "error")]
    with pytest.raises(ValueError, match=r"alice/tiny broke off: .+ Give the same command again"):
        push(tiny_checkpoint, "alice/tiny")
    assert hub.repository("alice/tiny").files() == {}
    hub.faults.clear()
    hub.requests.clear()
    push(tiny_checkpoint, "alice/tiny")
    assert hub.sent("PUT /lfs/") == 0  # what was stored is not sent again
    assert_pulls_same(tiny_checkpoint)


def test_branches_tags_pull_requests_and_privacy(hub, tiny_checkpoint):
    push(tiny_checkpoint, "alice/secret", private=True, tag="v1")
    push(tiny_checkpoint, "alice/secret", revision="trial", commit_message="Try it")
    repository = hub.repository("alice/secret")
    assert repository.private
    assert repository.tags == {"v1": repository.branches["main"]}
    assert 'revision="trial"' in repository.files("trial")["README.md"].data.decode()
    assert 'revision="v1"' in repository.files("v1")["README.md"].data.decode()
    assert repository.titles[repository.branches["trial"]] == "Try it"
    assert push(tiny_checkpoint, "alice/secret", create_pr=True) == f"{hub.endpoint}/alice/secret/discussions/1"
    assert repository.pull_requests.keys() == {"refs/pr/1"}
    assert repository.titles[repository.branches["main"]] == "Upload model with hf_gpt"
    with pytest.raises(ValueError, match="has a tag v1 already"):
        push(tiny_checkpoint, "alice/secret", tag="v1")
    push(tiny_checkpoint, "alice/open")
    with pytest.raises(ValueError, match="exists and is public"):
        push(tiny_checkpoint, "alice/open", private=True)


class Marker:
    """Pickled, it leaves a file behind where it is loaded."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


def edited(repository, name: str, **settings) -> dict[str, bytes]:
    """A configuration file of the repository with other settings."""
    return {name: json.dumps(json.loads(repository.files()[name].data) | settings).encode()}


def code(name: str, marker: Marker) -> dict[str, bytes]:
    return {name: f"open({str(marker.path)!r}, 'w')\n".encode()}


def config(**settings):
    return lambda r, m: edited(r, "config.json", **settings)


KERNEL = "kernels-community/flash-attn3"
# What a repository is changed to, and how loading it ends: None for a model that loads.
CRAFTED = {
    "pickle next to it": (lambda r, m: {"pytorch_model.bin": pickle.dumps(m)}, None),
    "pickle in capitals": (lambda r, m: {"a.PKL": pickle.dumps(m), "data/a.pkl": pickle.dumps(m)}, None),
    "pickle in disguise": (lambda r, m: {"model.safetensors": pickle.dumps(m)}, "model.safetensors cannot be read"),
    "cut short": (lambda r, m: {"model.safetensors": r.files()["model.safetensors"].data[:-9]}, "cannot be read"),
    "state of training": (
        lambda r, m: {"last-checkpoint/optimizer.pt": pickle.dumps(m), "last-checkpoint/config.json": b"{}"},
        None,
    ),
    "path outside": (lambda r, m: {"../../evil.json": b"{}"}, None),
    "absolute path": (lambda r, m: {"/etc/evil.json": b"{}"}, None),
    "shard outside": (
        lambda r, m: {"model.safetensors.index.json": b'{"weight_map": {"a": "../../../a.safetensors"}}'},
        None,
    ),
    "code elsewhere": (config(auto_map={"AutoConfig": "mallory/evil--configuration_gpt.GPTConfig"}), None),
    "other code": (
        lambda r, m: edited(r, "config.json", auto_map={"AutoModelForCausalLM": "evil.GPTModel"}) | code("evil.py", m),
        None,
    ),
    "other version of our code": (lambda r, m: code("modeling_gpt.py", m) | code("tokenization_gpt.py", m), None),
    "other class": (
        lambda r, m: edited(r, "tokenizer_config.json", auto_map={"AutoTokenizer": ["os.system", None]}),
        None,
    ),
    "unknown class": (
        lambda r, m: (
            edited(r, "tokenizer_config.json", tokenizer_class="Evil", auto_map={"AutoTokenizer": ["evil.Evil", None]})
            | code("evil.py", m)
        ),
        "a GPTTokenizer is needed",
    ),
    "code in capitals": (lambda r, m: code("evil.PY", m) | code("data/features.py", m), None),
    "code of generation": (lambda r, m: code("custom_generate/generate.py", m), None),
    "pipelines": (config(custom_pipelines={"a": {"impl": "evil.A"}}), None),
    "nested map": (config(text_config={"x": [{"auto_map": {"AutoModel": "evil/repo--a.B"}}]}), "alice/tiny: "),
    "kernel": (config(_attn_implementation=KERNEL), "names a kernel of the Hub"),
    "kernel of a part": (config(attn_implementation={"x": KERNEL}), "names a kernel of the Hub"),
    "other weights": (config(transformers_weights="evil.bin"), "names other weights"),
    "adapter": (
        lambda r, m: {"adapter_config.json": b'{"auto_mapping": {"parent_library": "evil"}, "peft_type": "LORA"}'},
        "no base model",
    ),
    "no json": (lambda r, m: {"config.json": b"{"}, "config.json is not valid JSON"),
    "trust": (lambda r, m: edited(r, "tokenizer_config.json", trust_remote_code=True), None),
}


@pytest.mark.parametrize("how", CRAFTED)
def test_nothing_of_a_crafted_repository_runs_or_reaches_the_disk(pushed, tmp_path, how):
    change, message = CRAFTED[how]
    marker = Marker(tmp_path / "ran")
    pushed.put("alice/tiny", change(pushed.repository("alice/tiny"), marker))

    def load():
        source = open_source("alice/tiny")
        assert source.tokenizer()("a b")["input_ids"]
        return source.model(GPTForCausalLM)

    if message is None:
        assert load().config.n_layer == 2
    else:
        with pytest.raises(ValueError, match=message):
            load()
    assert not marker.path.exists()
    assert not (tmp_path / "evil.json").exists()
    fetched = [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert all(path.suffix not in (".py", ".bin", ".pt", ".pkl", ".PKL", ".PY") for path in fetched)
    assert all("last-checkpoint" not in path.parts for path in fetched)
    assert how == "pickle in disguise" or all(str(marker.path).encode() not in path.read_bytes() for path in fetched)


def test_all_files_are_of_one_commit(pushed, tiny_checkpoint, monkeypatch):
    source = open_source("alice/tiny", "main")
    assert source.commit == pushed.repository("alice/tiny").find("main")
    fetched = pushed.sent("GET .*/resolve/")
    pushed.put("alice/tiny", edited(pushed.repository("alice/tiny"), "config.json", afn="relu"))
    model = source.model(GPTForCausalLM)
    assert model.config.afn == "gelu"
    assert pushed.sent("GET .*/resolve/") == fetched
    assert model.name_or_path == model.config.name_or_path == "alice/tiny"
    own = open_source(tiny_checkpoint)
    assert (own.folder, own.commit, own.kind) == (tiny_checkpoint, None, "hf_gpt")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert open_source("alice/tiny").commit == source.commit


def test_an_adapter_and_its_base_model_come_from_the_hub(pushed, tiny_checkpoint, tmp_path):
    model = GPTForSequenceClassification.from_pretrained(tiny_checkpoint, num_labels=3)
    adapted = get_peft_model(model, adapter_config("lora", model.config))
    adapted.save_pretrained(tmp_path / "lora")
    (tmp_path / "lora" / HEAD_CONFIG).write_text(json.dumps(head_config(adapted)))
    push(tmp_path / "lora", "alice/lora", base_model="alice/tiny")
    assert load_adapter("alice/lora").config.num_labels == 3
    assert read_checkpoint("alice/lora").head == "sequence-classification"
    with pytest.raises(ValueError, match=r"its base model alice/lora is an adapter itself\. Merge that one first"):
        load_adapter("alice/lora", "alice/lora")
    files = pushed.repository("alice/lora").files()
    other = {"peft_type": "MULTITASK_PROMPT_TUNING", "prompt_tuning_init_state_dict_path": "x.pt"}
    changed = json.loads(files["adapter_config.json"].data) | other
    pushed.put("alice/lora", {"adapter_config.json": json.dumps(changed).encode()})
    with pytest.raises(ValueError, match=r"of the method MULTITASK_PROMPT_TUNING|x\.pt"):
        load_adapter("alice/lora")


def stock_files(folder: Path, with_bin: bool = False) -> dict[str, bytes]:
    model = stock_model(OpenAIGPTLMHeadModel)
    if with_bin:
        save_old_bin(model, folder)
    else:
        model.save_pretrained(folder)
    write_vocabulary(folder, tokenizer=True)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_of_stock_repositories_only_what_is_read_is_fetched(hub, tmp_path):
    others = dict.fromkeys(("pytorch_model.bin", "flax_model.msgpack", "tf_model.h5", "rust_model.ot", "a.py"), b"x")
    hub.put("alice/stock", stock_files(tmp_path / "stock") | others)
    hub.requests.clear()
    for source in (open_source("alice/stock"), open_source("alice/stock", weights=False)):
        assert source.kind == "openai-gpt"
        assert source.model(GPTForCausalLM).config.vocab_size == len(source.tokenizer())
    assert read_checkpoint("alice/stock").kind == "openai-gpt"
    assert hub.sent(r"GET .*/resolve/.*(bin|msgpack|h5|ot|py)$") == 0


def test_bin_alone_is_for_the_converter(hub, tmp_path):
    hub.put("alice/old", stock_files(tmp_path / "old", with_bin=True))
    with pytest.raises(RepositoryError, match=r"can be converted: scripts/convert\.py alice/old FOLDER"):
        open_source("alice/old")
    assert read_checkpoint("alice/old").config.n_layer == 2
    hub.put("alice/old", {"pytorch_model.bin": pickle.dumps(Trap(tmp_path / "ran"))})
    with pytest.raises(ValueError, match=r"pytorch_model\.bin"):
        read_checkpoint("alice/old")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("name", ["base", "classifier", "choices"])
def test_what_version_0_1_published_is_fetched_and_loads(hub, tmp_path, name):
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    files = (path for path in (tmp_path / "published" / name).iterdir() if path.is_file())
    hub.put(f"alice/{name}", {path.name: path.read_bytes() for path in files})
    source = open_source(f"alice/{name}")
    assert not list(source.folder.glob("*.py"))
    assert type(source.tokenizer()) is GPTTokenizer
    assert source.model(GPTForCausalLM).config.n_layer == source.config().n_layer


@pytest.mark.parametrize(
    ("endpoint", "offline", "message"),
    [
        (None, False, r"model_card/gpt-mini: there is no such .* and the Hub has none of that name"),
        ("http://127.0.0.1:9", False, r"model_card/gpt-mini: there is no such .* and the Hub could not be asked \("),
        (None, True, r"model_card/gpt-mini: there is no such .* its cache holds no copy"),
    ],
    ids=["not on the Hub", "no network", "offline"],
)
def test_a_mistyped_name_is_said_in_one_line(hub, monkeypatch, endpoint, offline, message):
    if endpoint:
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", endpoint)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", offline)
    with pytest.raises(ValueError, match=message) as error:
        open_source("model_card/gpt-mini")
    assert "\n" not in str(error.value)


def test_other_wrong_names(pushed, tiny_checkpoint):
    with pytest.raises(ValueError, match="has no revision v9 on the Hub"):
        open_source("alice/tiny", "v9")
    with pytest.raises(ValueError, match=r"\.\./nowhere: there is no such file or folder\.$"):
        open_source("../nowhere")
    with pytest.raises(ValueError, match="is a file: name the folder"):
        open_source(tiny_checkpoint / "config.json")
