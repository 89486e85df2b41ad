"""The way to the Hub and back: uploads that break off, downloads that were tampered with, and the local Hub itself."""

import json
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from huggingface_hub import HfApi, snapshot_download
from safetensors.torch import load_file

from hf_gpt import GPTForCausalLM
from hf_gpt.hub import RepositoryError, download, push
from hf_gpt.loading import open_source

from ..support.local_hub import TOKEN, Fault, LocalHub
from ..support.runs import REPOSITORY


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


@pytest.mark.parametrize(
    "fault",
    [
        Fault("POST", "/preupload/", "error", times=2),
        Fault("POST", "objects/batch", "drop"),
        Fault("PUT", "/lfs/", "error", times=2, status=503),
        Fault("PUT", "/lfs/", "cut", times=2),
        Fault("POST", "/verify", "drop"),
    ],
    ids=["500 before the upload", "no answer", "503 in the upload", "cut upload", "no answer behind the upload"],
)
def test_the_client_retries(hub, tiny_checkpoint, fault):
    hub.faults.append(fault)
    push(tiny_checkpoint, "alice/tiny")
    assert fault.times == 0
    assert_pulls_same(tiny_checkpoint)


@pytest.mark.parametrize(
    "fault",
    [Fault("POST", "/commit/", "error"), Fault("PUT", "/lfs/", "cut", times=1000)],
    ids=["the commit fails", "every upload is cut"],
)
def test_a_broken_upload_goes_on(hub, tiny_checkpoint, fault):
    hub.faults.append(fault)
    with pytest.raises(ValueError, match=r"alice/tiny broke off: .+ Give the same command again"):
        push(tiny_checkpoint, "alice/tiny")
    assert hub.repository("alice/tiny").files() == {}
    stored = len(hub.objects)
    hub.faults.clear()
    hub.requests.clear()
    push(tiny_checkpoint, "alice/tiny")
    # What was stored is not sent again.
    assert hub.sent("PUT /lfs/") == 1 - stored
    assert_pulls_same(tiny_checkpoint)


def test_large_files_go_in_parts(monkeypatch, tmp_path, tiny_checkpoint):
    with LocalHub(part_size=300_000) as hub:
        hub.use_here(monkeypatch, tmp_path / "cache")
        hub.faults.append(Fault("PUT", "/2$", "cut"))
        push(tiny_checkpoint, "alice/tiny")
        assert hub.sent("PUT /lfs/.*/1$") == 1
        assert hub.sent("PUT /lfs/.*/2$") == 2
        assert_pulls_same(tiny_checkpoint)


@pytest.mark.parametrize("kind", ["cut", "drop"])
def test_downloads_go_on(pushed, tiny_checkpoint, kind):
    pushed.faults.append(Fault("GET", "model.safetensors", kind))
    assert_pulls_same(tiny_checkpoint)
    assert pushed.sent("GET .*/model.safetensors") == 2


def test_a_hub_that_hangs(pushed, tiny_checkpoint, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DOWNLOAD_TIMEOUT", 0.3)
    pushed.faults.append(Fault("GET", "model.safetensors", "hang", seconds=1.0))
    assert_pulls_same(tiny_checkpoint)


def test_unchanged_files_are_not_sent_again(pushed, tiny_checkpoint):
    before = pushed.repository("alice/tiny").find("main")
    push(tiny_checkpoint, "alice/tiny")
    assert pushed.sent("PUT ") == 0
    assert pushed.repository("alice/tiny").find("main") == before


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
    with pytest.raises(Exception, match="Repository Not Found"):
        HfApi(token=False).model_info("alice/secret")


def test_private_where_it_is_public(pushed, tiny_checkpoint):
    with pytest.raises(ValueError, match="exists and is public"):
        push(tiny_checkpoint, "alice/tiny", private=True)


class Marker:
    """Pickled, it leaves a file behind where it is loaded."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


def edited(repository, name: str, **settings) -> dict[str, bytes]:
    """A configuration file of the repository with other settings."""
    return {name: json.dumps(json.loads(repository.files()[name].data) | settings).encode()}


TAMPERED = {
    "pickle beside": (lambda r, m: {"pytorch_model.bin": pickle.dumps(m)}, "pytorch_model.bin is a pickle"),
    "pickle in disguise": (lambda r, m: {"model.safetensors": pickle.dumps(m)}, "no safetensors file"),
    "cut short": (lambda r, m: {"model.safetensors": r.files()["model.safetensors"].data[:-100]}, "is cut short"),
    "path outside": (lambda r, m: {"../../evil.json": b"{}"}, "lies outside the folder"),
    "absolute path": (lambda r, m: {"/etc/evil.json": b"{}"}, "lies outside the folder"),
    "shard outside": (
        lambda r, m: {"model.safetensors.index.json": b'{"weight_map": {"a": "../../../a.safetensors"}}'},
        "a.safetensors' lies outside",
    ),
    "code elsewhere": (
        lambda r, m: edited(r, "config.json", auto_map={"AutoConfig": "mallory/evil--configuration_gpt.GPTConfig"}),
        "AutoConfig names code of another repository, mallory/evil",
    ),
    "other code": (
        lambda r, m: (
            edited(r, "config.json", auto_map={"AutoModelForCausalLM": "evil.GPTModel"}) | evil_code("evil.py", m)
        ),
        "evil.py is code that is not hf_gpt's",
    ),
    "other class": (
        lambda r, m: edited(r, "tokenizer_config.json", auto_map={"AutoTokenizer": ["os.system", None]}),
        "AutoTokenizer names code that is not hf_gpt's, os.system",
    ),
    "generation": (lambda r, m: evil_code("custom_generate/generate.py", m), "generate.py is code that is not"),
    "adapter": (
        lambda r, m: {"adapter_config.json": b'{"auto_mapping": {"parent_library": "evil"}}'},
        "names the package evil",
    ),
    "no json": (lambda r, m: {"config.json": b"{"}, "config.json is not JSON"),
}


def evil_code(name: str, marker: Marker) -> dict[str, bytes]:
    return {name: f"open({str(marker.path)!r}, 'w')\n".encode()}


@pytest.mark.parametrize("how", TAMPERED)
def test_tampered_repositories_are_refused(pushed, tmp_path, how):
    change, message = TAMPERED[how]
    marker = Marker(tmp_path / "ran")
    pushed.put("alice/tiny", change(pushed.repository("alice/tiny"), marker))
    with pytest.raises(RepositoryError, match=message) as error:
        download("alice/tiny")
    assert str(error.value).startswith("alice/tiny is refused: ")
    assert not marker.path.exists()
    assert not (tmp_path / "evil.json").exists()
    # Pickles and names are seen before anything is fetched but what says whose model it is.
    if "pickle beside" in how or "path" in how:
        assert pushed.sent("GET .*/resolve/(?!.*/config.json)") == 0


def test_the_state_of_training_is_neither_refused_nor_fetched(pushed):
    pushed.put("alice/tiny", {"last-checkpoint/optimizer.pt": b"pickle", "training_args.bin": b"pickle"})
    folder = download("alice/tiny")
    assert (folder / "model.safetensors").is_file()
    assert not list(folder.rglob("*.pt"))
    assert not list(folder.rglob("*.bin"))


def test_a_wrong_hash_is_refused_and_forgotten(pushed, tiny_checkpoint):
    pushed.faults.append(Fault("GET", "config.json|model.safetensors", "corrupt", times=1))
    with pytest.raises(RepositoryError, match=r"arrived with another hash .* try again"):
        download("alice/tiny")
    assert_pulls_same(tiny_checkpoint)


def test_models_load_from_the_commit_that_was_checked(pushed, tiny_checkpoint, monkeypatch):
    source = open_source("alice/tiny", "main")
    assert source.commit == pushed.repository("alice/tiny").find("main")
    fetched = pushed.sent("GET .*/resolve/")
    model = source.model(GPTForCausalLM)
    assert pushed.sent("GET .*/resolve/") == fetched
    assert model.name_or_path == model.config.name_or_path == "alice/tiny"
    own = open_source(tiny_checkpoint)
    assert (own.folder, own.commit, own.kind) == (tiny_checkpoint, None, "hf_gpt")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert open_source("alice/tiny").commit == source.commit


def test_a_damaged_cache_is_noticed_offline(pushed, monkeypatch):
    file = (download("alice/tiny") / "model.safetensors").resolve()
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    file.chmod(0o644)
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(RepositoryError, match="is cut short"):
        open_source("alice/tiny")


@pytest.mark.slow
def test_the_server_can_be_started_by_hand(tmp_path):
    command = [sys.executable, "-m", "tests.support.local_hub", "--port", "0"]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as process:
        lines = [process.stdout.readline().strip() for _ in range(3)]
        values = dict(line.removeprefix("export ").split("=", 1) for line in lines)
        assert HfApi(endpoint=values["HF_ENDPOINT"]).endpoint.startswith("http://127.0.0.1:")
        assert values["HF_TOKEN"] == TOKEN
        process.terminate()


def test_the_stock_client_sees_an_ordinary_hub(pushed):
    api = HfApi()
    assert api.whoami()["name"] == "alice"
    assert api.repo_exists("alice/tiny")
    assert not api.repo_exists("alice/none")
    assert not api.revision_exists("alice/tiny", "none")
    assert api.file_exists("alice/tiny", "config.json")
    assert [branch.name for branch in api.list_repo_refs("alice/tiny").branches] == ["main"]
    folder = Path(snapshot_download("alice/tiny"))
    assert sorted(path.name for path in folder.iterdir()) == sorted(api.list_repo_files("alice/tiny"))
