"""The way to the Hub and back: uploads that break off, crafted repositories, names, and the local Hub itself."""

import json
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
from peft import get_peft_model
from transformers import OpenAIGPTLMHeadModel

from hf_gpt import GPTForCausalLM, GPTForSequenceClassification, adapter_config, load_adapter
from hf_gpt.adapters import HEAD_CONFIG, head_config
from hf_gpt.conversion.sources import read_checkpoint
from hf_gpt.hub import RepositoryError, download, push
from hf_gpt.loading import open_source

from ..support.local_hub import Fault
from ..support.stock_models import Trap, save_old_bin, stock_model, write_vocabulary

pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")


@pytest.fixture
def pushed(hub, tiny_checkpoint):
    push(tiny_checkpoint, "alice/tiny")
    hub.requests.clear()
    return hub


def test_a_broken_upload_resumes(hub, tiny_checkpoint):
    hub.faults += [Fault("PUT", "/lfs/", "cut", times=2), Fault("POST", "/commit/", "error")]
    with pytest.raises(ValueError, match=r"alice/tiny broke off: .+ Give the same command again"):
        push(tiny_checkpoint, "alice/tiny")
    assert hub.repository("alice/tiny").files() == {}
    hub.faults.clear()
    hub.requests.clear()
    push(tiny_checkpoint, "alice/tiny")
    assert hub.sent("PUT /lfs/") == 0  # what was stored is not sent again
    weights = (download("alice/tiny") / "model.safetensors").read_bytes()
    assert weights == (tiny_checkpoint / "model.safetensors").read_bytes()


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


def edited(repository, name: str, **settings) -> dict[str, bytes]:
    """A configuration file of the repository with other settings."""
    return {name: json.dumps(json.loads(repository.files()[name].data) | settings).encode()}


def code(name: str, marker: Trap) -> dict[str, bytes]:
    return {name: f"open({marker.path!r}, 'w')\n".encode()}


def config(**settings):
    return lambda r, m: edited(r, "config.json", **settings)


KERNEL = "kernels-community/flash-attn3"
# What a repository is changed to, and how loading it ends: None for a model that loads.
CRAFTED = {
    "pickle next to it": (lambda r, m: {"pytorch_model.bin": pickle.dumps(m)}, None),
    "pickle in capitals": (lambda r, m: {"a.PKL": pickle.dumps(m), "data/a.pkl": pickle.dumps(m)}, None),
    "pickle in disguise": (lambda r, m: {"model.safetensors": pickle.dumps(m)}, r"model\.safetensors: "),
    "cut short": (
        lambda r, m: {"model.safetensors": r.files()["model.safetensors"].data[:-9]},
        r"model\.safetensors: ",
    ),
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
    marker = Trap(tmp_path / "ran")
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
    assert not (tmp_path / "ran").exists()
    assert not (tmp_path / "evil.json").exists()
    fetched = [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert all(path.suffix not in (".py", ".bin", ".pt", ".pkl", ".PKL", ".PY") for path in fetched)
    assert all("last-checkpoint" not in path.parts for path in fetched)
    assert how == "pickle in disguise" or all(marker.path.encode() not in path.read_bytes() for path in fetched)


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


def stock_files(folder: Path, save: Callable) -> dict[str, bytes]:
    save(stock_model(OpenAIGPTLMHeadModel), folder)
    write_vocabulary(folder, tokenizer=True)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_of_stock_repositories_only_what_is_read_is_fetched(hub, tmp_path):
    others = dict.fromkeys(("pytorch_model.bin", "flax_model.msgpack", "tf_model.h5", "rust_model.ot", "a.py"), b"x")
    hub.put("alice/stock", stock_files(tmp_path / "stock", OpenAIGPTLMHeadModel.save_pretrained) | others)
    hub.requests.clear()
    for source in (open_source("alice/stock"), open_source("alice/stock", weights=False)):
        assert source.kind == "openai-gpt"
        assert source.model(GPTForCausalLM).config.vocab_size == len(source.tokenizer())
    assert read_checkpoint("alice/stock").kind == "openai-gpt"
    assert hub.sent(r"GET .*/resolve/.*(bin|msgpack|h5|ot|py)$") == 0


def test_bin_alone_is_for_the_converter(hub, tmp_path):
    hub.put("alice/old", stock_files(tmp_path / "old", save_old_bin))
    with pytest.raises(RepositoryError, match=r"can be converted: scripts/convert\.py alice/old FOLDER"):
        open_source("alice/old")
    assert read_checkpoint("alice/old").model.config.n_layer == 2
    hub.put("alice/old", {"pytorch_model.bin": pickle.dumps(Trap(tmp_path / "ran"))})
    with pytest.raises(ValueError, match=r"pytorch_model\.bin"):
        read_checkpoint("alice/old")
    assert not (tmp_path / "ran").exists()


# A name, what is patched in the constants of huggingface_hub, and the error, in one line.
WRONG_NAMES = {
    "not on the Hub": ("model_card/gpt-mini", {}, r": there is no such .*, and the Hub .*: .*Repository Not Found"),
    "no network": ("model_card/gpt-mini", {"ENDPOINT": "http://127.0.0.1:9"}, "the Hub does not give it: "),
    "offline": ("model_card/gpt-mini", {"HF_HUB_OFFLINE": True}, "the Hub does not give it: .*outgoing traffic"),
    "no path": ("../nowhere", {}, r"\.\./nowhere: there is no such folder"),
    "revision": ("alice/tiny", {}, "the Hub does not give it: .*v9"),
    "file": (__file__, {}, "no such folder"),
}


@pytest.mark.parametrize("what", WRONG_NAMES)
def test_a_wrong_name_ends_with_one_line(pushed, monkeypatch, what):
    name, constants, message = WRONG_NAMES[what]
    for constant, value in constants.items():
        monkeypatch.setattr(f"huggingface_hub.constants.{constant}", value)
    with pytest.raises(ValueError, match=rf"^[^\n]*{message}[^\n]*$"):
        open_source(name, "v9" if what == "revision" else None)
