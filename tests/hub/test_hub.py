"""The way to the Hub and back: uploads that break off, crafted repositories, names, and the local Hub itself."""

import json
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
from transformers import OpenAIGPTLMHeadModel

from hf_gpt import GPTForCausalLM, load_adapter
from hf_gpt.conversion.sources import read_checkpoint
from hf_gpt.hub import RepositoryError, download, push
from hf_gpt.loading import open_source

from ..support.adapters import adapted, save_adapter
from ..support.stock_models import Trap, save_old_bin, stock_model, write_vocabulary


@pytest.fixture
def pushed(hub, tiny_checkpoint):
    push(tiny_checkpoint, "alice/tiny")
    hub.requests.clear()
    return hub


def test_a_broken_upload_resumes(hub, tiny_checkpoint):
    hub.faults |= {"PUT /lfs/": 2, "POST .*/commit/": 1}
    with pytest.raises(ValueError, match=r"alice/tiny broke off: .+ Give the same command again"):
        push(tiny_checkpoint, "alice/tiny")
    assert hub.repository("alice/tiny").files() == {}
    hub.faults.clear()
    hub.requests.clear()
    push(tiny_checkpoint, "alice/tiny")
    assert hub.sent("PUT /lfs/") == 0  # what was stored is not sent again
    weights = (download("alice/tiny") / "model.safetensors").read_bytes()
    assert weights == (tiny_checkpoint / "model.safetensors").read_bytes()


def test_branches_tags_and_privacy(hub, tiny_checkpoint):
    push(tiny_checkpoint, "alice/secret", private=True, tag="v1")
    push(tiny_checkpoint, "alice/secret", revision="trial", commit_message="Try it")
    repository = hub.repository("alice/secret")
    assert repository.private
    assert repository.tags == {"v1": repository.branches["main"]}
    for name in ("trial", "v1"):
        assert f'revision="{name}"' in repository.files(name)["README.md"].decode()
    titles = [repository.titles[repository.branches[name]] for name in ("main", "trial")]
    assert titles == ["Upload model with hf_gpt", "Try it"]
    push(tiny_checkpoint, "alice/open")
    with pytest.raises(ValueError, match="exists and is public"):
        push(tiny_checkpoint, "alice/open", private=True)


def config(name="config.json", **settings):
    """A configuration file of the repository with other settings."""
    return lambda r, m: {name: json.dumps(json.loads(r.files()[name]) | settings).encode()}


def files(*names):
    """Files with a pickle or code that would leave its mark."""
    return lambda r, m: {
        name: f"open({m.path!r}, 'w')\n".encode() if name.lower().endswith(".py") else pickle.dumps(m)
        for name in names
    }


def both(*changes):
    return lambda r, m: {name: data for change in changes for name, data in change(r, m).items()}


KERNEL, TOKENIZER = "kernels-community/flash-attn3", "tokenizer_config.json"
UNKNOWN = {"tokenizer_class": "Evil", "auto_map": {"AutoTokenizer": ["evil.Evil", None]}}
ADAPTER = {"adapter_config.json": b'{"auto_mapping": {"parent_library": "evil"}, "peft_type": "LORA"}'}
# What is added to a repository whose model loads without it.
IGNORED = {
    "pickle next to it": files("pytorch_model.bin", "a.PKL", "data/a.pkl", "last-checkpoint/optimizer.pt"),
    "path outside": lambda r, m: dict.fromkeys(("../../evil.json", "/etc/evil.json"), b"{}"),
    "code elsewhere": config(auto_map={"AutoConfig": "mallory/evil--configuration_gpt.GPTConfig"}),
    "other code": both(config(auto_map={"AutoModelForCausalLM": "evil.GPTModel"}), files("evil.py")),
    "other version of our code": files("modeling_gpt.py", "tokenization_gpt.py", "evil.PY", "data/features.py"),
    "other class": config(TOKENIZER, auto_map={"AutoTokenizer": ["os.system", None]}, trust_remote_code=True),
    "code of generation": files("custom_generate/generate.py"),
    "pipelines": config(custom_pipelines={"a": {"impl": "evil.A"}}),
}
# What a repository is changed to, and how loading it ends.
REFUSED = {
    "pickle in disguise": (files("model.safetensors"), r"model\.safetensors: "),
    "cut short": (lambda r, m: {"model.safetensors": r.files()["model.safetensors"][:-9]}, r"model\.safetensors: "),
    "unknown class": (both(config(TOKENIZER, **UNKNOWN), files("evil.py")), "a GPTTokenizer is needed"),
    "nested map": (config(text_config={"x": [{"auto_map": {"AutoModel": "evil/repo--a.B"}}]}), "alice/tiny: "),
    "kernel": (config(_attn_implementation=KERNEL), "names a kernel of the Hub"),
    "kernel of a part": (config(attn_implementation={"x": KERNEL}), "names a kernel of the Hub"),
    "other weights": (config(transformers_weights="evil.bin"), "names other weights"),
    "adapter": (lambda r, m: ADAPTER, "no base model"),
    "no json": (lambda r, m: {"config.json": b"{"}, r"config\.json"),
}


@pytest.mark.parametrize("how", [*IGNORED, *REFUSED])
def test_nothing_of_a_crafted_repository_runs_or_reaches_the_disk(pushed, tmp_path, how):
    change, message = REFUSED.get(how) or (IGNORED[how], None)
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
    pushed.put("alice/tiny", config(afn="relu")(pushed.repository("alice/tiny"), None))
    model = source.model(GPTForCausalLM)
    assert model.config.afn == "gelu"
    assert pushed.sent("GET .*/resolve/") == fetched
    assert model.name_or_path == model.config.name_or_path == "alice/tiny"
    own = open_source(tiny_checkpoint)
    assert (own.folder, own.commit, own.kind) == (tiny_checkpoint, None, "hf_gpt")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert open_source("alice/tiny").commit == source.commit


def test_an_adapter_and_its_base_model_come_from_the_hub(pushed, tiny_checkpoint, tmp_path):
    adapter = save_adapter(adapted("lora", "classification", tiny_checkpoint), tmp_path / "lora")
    push(adapter, "alice/lora", base_model="alice/tiny")
    assert load_adapter("alice/lora").config.num_labels == 3
    assert read_checkpoint("alice/lora").head == "sequence-classification"
    with pytest.raises(ValueError, match=r"its base model alice/lora is an adapter itself\. Merge that one first"):
        load_adapter("alice/lora", "alice/lora")
    files = pushed.repository("alice/lora").files()
    other = {"peft_type": "MULTITASK_PROMPT_TUNING", "prompt_tuning_init_state_dict_path": "x.pt"}
    changed = json.loads(files["adapter_config.json"]) | other
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
    hub.put("alice/old", stock_files(tmp_path / "old", save_old_bin))
    for source in (open_source("alice/stock"), open_source("alice/stock", weights=False)):
        assert source.kind == "openai-gpt"
        assert source.model(GPTForCausalLM).config.vocab_size == len(source.tokenizer())
    assert read_checkpoint("alice/stock").kind == "openai-gpt"
    with pytest.raises(RepositoryError, match="pickles are not fetched"):
        open_source("alice/old")
    assert hub.sent(r"GET .*/resolve/.*(bin|msgpack|h5|ot|py)$") == 0


# A name, what is patched in the constants of huggingface_hub, and the error, in one line.
WRONG_NAMES = {
    "not on the Hub": ("model_card/gpt-mini", {}, "the Hub does not give it: .*Repository Not Found"),
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
