"""Whatever reads a Hub id goes through one door: refused before anything is loaded, loaded as it was checked."""

import json
import pickle
import shutil
import tarfile
from pathlib import Path

import pytest
import torch
from peft import get_peft_model
from transformers import AutoTokenizer, OpenAIGPTLMHeadModel, PreTrainedModel

from hf_gpt import GPTForCausalLM, GPTForSequenceClassification, adapter_config, load_adapter
from hf_gpt.adapters import HEAD_CONFIG, head_config, load_adapters
from hf_gpt.conversion.sources import read_checkpoint
from hf_gpt.demo import ClassifierDemo, LanguageModelDemo
from hf_gpt.evaluation import EvaluationArguments, evaluate
from hf_gpt.features.shards import FeatureArguments, load_extractor
from hf_gpt.hub import RepositoryError, download, push
from hf_gpt.hub import downloads as door
from hf_gpt.hub.checks import check_names, check_repository
from hf_gpt.loading import load_tokenizer, open_source
from hf_gpt.tasks import get_task
from hf_gpt.training.arguments import DataArguments, ModelArguments
from hf_gpt.training.loading import load_model

from ..support.local_hub import LocalHub
from ..support.published import ARCHIVE
from ..support.runs import save_tiny_model
from ..support.stock_models import Trap, save_old_bin, stock_model, write_vocabulary

pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str, Path]:
    """A language model, a classifier, and an adapter on the Hub's `alice/model`."""
    root = tmp_path_factory.mktemp("readers")
    found = {"model": save_tiny_model(root / "model"), "classifier": root / "classifier", "adapter": root / "adapter"}
    tokenizer = AutoTokenizer.from_pretrained(found["model"])
    classifier = GPTForSequenceClassification.from_pretrained(found["model"], num_labels=3)
    classifier.save_pretrained(found["classifier"])
    adapted = get_peft_model(classifier, adapter_config("lora", classifier.config))
    adapted.peft_config["default"].base_model_name_or_path = "alice/model"
    adapted.save_pretrained(found["adapter"])
    (found["adapter"] / HEAD_CONFIG).write_text(json.dumps(head_config(adapted)))
    for folder in (found["classifier"], found["adapter"]):
        tokenizer.save_pretrained(folder)
    return found


@pytest.fixture
def hub(monkeypatch, tmp_path, folders):
    with LocalHub() as server:
        server.use_here(monkeypatch, tmp_path / "cache")
        for name, folder in folders.items():
            push(folder, f"alice/{name}", base_model="alice/model" if name == "adapter" else None)
        yield server


def fine_tuning(name: str, folders, tmp_path):
    args = ModelArguments(name)
    return load_model(args, get_task("questions"), load_tokenizer(args), 0).config


def evaluation(name: str, folders, tmp_path):
    args = EvaluationArguments(str(tmp_path / "out"), use_cpu=True, zero_shot=True, disable_tqdm=True)
    model_args = ModelArguments(name)
    evaluate(model_args, DataArguments("stories", max_eval_rows=2), args)
    return model_args.source.config()


def features(name: str, folders, tmp_path):
    args = FeatureArguments(name, ["texts.txt"], str(tmp_path / "out"))
    return load_extractor(args, torch.device("cpu")).model.config


def demo(name: str, folders, tmp_path):
    return LanguageModelDemo.from_pretrained(name).model.config


def classifier_demo(name: str, folders, tmp_path):
    return ClassifierDemo.from_pretrained(name).model.config


def conversion(name: str, folders, tmp_path):
    return read_checkpoint(name).config


def tokenizer(name: str, folders, tmp_path):
    load_tokenizer(ModelArguments(str(folders["model"]), tokenizer_name=name))
    return open_source(folders["model"]).config()


def adapter(name: str, folders, tmp_path):
    return load_adapter(name, str(folders["model"])).config


def second_adapter(name: str, folders, tmp_path):
    return load_adapters({"one": str(folders["adapter"]), "two": name}, str(folders["model"])).config


def base_model(name: str, folders, tmp_path):
    assert name == "alice/model"
    return load_adapter(str(folders["adapter"])).config


READERS = {
    fine_tuning: "model",
    evaluation: "model",
    features: "model",
    demo: "model",
    classifier_demo: "classifier",
    conversion: "model",
    tokenizer: "model",
    adapter: "adapter",
    second_adapter: "adapter",
    base_model: "model",
}
each_reader = pytest.mark.parametrize(("reader", "what"), READERS.items(), ids=[reader.__name__ for reader in READERS])


def with_settings(files, **settings) -> dict[str, bytes]:
    """The configuration of a model, or of an adapter's head, with further settings."""
    name = HEAD_CONFIG if HEAD_CONFIG in files else "config.json"
    return {name: json.dumps(json.loads(files[name].data) | settings).encode()}


KERNEL = "kernels-community/flash-attn3"
CRAFTED = {
    "pickle in capitals": (lambda files: {"a.PKL": pickle.dumps(1)}, "a.PKL is a pickle"),
    "code in capitals": (lambda files: {"evil.PY": b"1/0"}, "evil.PY is code that is not hf_gpt's"),
    "unknown kind": (lambda files: {"a.npz": b"x"}, "a.npz is of a kind that is not known"),
    "own name, other code": (
        lambda files: {"tokenization_gpt.py": b"1/0"},
        r"is no tokenization_gpt\.py that this hf_gpt knows",
    ),
    "pipelines": (lambda files: with_settings(files, custom_pipelines={"a": {"impl": "b"}}), "custom_pipelines"),
    "nested map": (
        lambda files: with_settings(files, text_config={"x": [{"auto_map": {"AutoModel": "evil/repo--a.B"}}]}),
        "AutoModel names code of another repository, evil/repo",
    ),
    "kernel": (lambda files: with_settings(files, _attn_implementation=KERNEL), "names a kernel of the Hub"),
    "kernel of a part": (lambda files: with_settings(files, attn_implementation={"x": KERNEL}), "names a kernel"),
    "trust": (lambda files: with_settings(files, tokenizer_kwargs={"trust_remote_code": True}), "is switched on"),
}


@each_reader
@pytest.mark.parametrize("how", CRAFTED)
def test_crafted_repositories_are_refused_by_every_reader(hub, folders, tmp_path, monkeypatch, reader, what, how):
    change, message = CRAFTED[how]
    hub.put(f"alice/{what}", change(hub.repository(f"alice/{what}").files()))
    monkeypatch.setattr(PreTrainedModel, "from_pretrained", lambda *args, **kwargs: pytest.fail("a model was loaded"))
    with pytest.raises(RepositoryError, match=message) as error:
        reader(f"alice/{what}", folders, tmp_path)
    assert str(error.value).startswith(f"alice/{what} is refused: ")


@each_reader
def test_what_was_checked_is_what_is_loaded(hub, folders, tmp_path, monkeypatch, reader, what):
    """Behind the check the branch moves to a model that no check would let pass."""
    checked, check = [], door.check_repository

    def check_and_move(folder, where, **kwargs):
        check(folder, where, **kwargs)
        checked.append(where)
        files = hub.repository(where).files()
        hub.put(where, with_settings(files, afn="relu") | {"evil.py": b"1/0", "a.pkl": b"x"})

    monkeypatch.setattr(door, "check_repository", check_and_move)
    assert reader(f"alice/{what}", folders, tmp_path).afn == "gelu"
    assert checked == [f"alice/{what}"]


def test_an_adapter_that_names_a_foreign_package_is_refused(hub):
    settings = {"auto_mapping": {"base_model_class": "A", "parent_library": "transformers_modules.evil"}}
    files = hub.repository("alice/adapter").files()
    changed = json.loads(files["adapter_config.json"].data) | settings
    hub.put("alice/adapter", {"adapter_config.json": json.dumps(changed).encode()})
    with pytest.raises(RepositoryError, match=r"names the package transformers_modules\.evil"):
        load_adapter("alice/adapter")


def test_methods_of_peft_that_fetch_more_are_not_loaded(folders, tmp_path):
    folder = Path(shutil.copytree(folders["adapter"], tmp_path / "adapter"))
    settings = {"peft_type": "MULTITASK_PROMPT_TUNING", "prompt_tuning_init_state_dict_path": "x.pt"}
    (folder / "adapter_config.json").write_text(json.dumps(settings | {"num_virtual_tokens": 3}))
    with pytest.raises(ValueError, match=r"of the method .*MULTITASK_PROMPT_TUNING; hf_gpt loads lora"):
        load_adapter(folder, folders["model"])


def test_a_base_model_that_is_an_adapter_is_not_loaded(hub, folders):
    with pytest.raises(ValueError, match=r"its base model alice/adapter is an adapter itself\. Merge that one first"):
        load_adapter(folders["adapter"], "alice/adapter")


def stock_files(folder: Path, with_bin: bool = False) -> dict[str, bytes]:
    model = stock_model(OpenAIGPTLMHeadModel)
    if with_bin:
        save_old_bin(model, folder)
    else:
        model.save_pretrained(folder)
    write_vocabulary(folder, tokenizer=True)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_of_stock_repositories_only_what_is_read_is_fetched(hub, tmp_path):
    beside = dict.fromkeys(
        ("pytorch_model.bin", "flax_model.msgpack", "tf_model.h5", "rust_model.ot", "evil.py"), b"x"
    )
    hub.put("alice/stock", stock_files(tmp_path / "stock") | beside)
    hub.requests.clear()
    source = open_source("alice/stock")
    assert source.kind == "openai-gpt"
    assert not set(beside) & {path.name for path in source.folder.iterdir()}
    assert source.model(GPTForCausalLM).config.vocab_size == len(source.tokenizer())
    assert hub.sent(r"GET .*/resolve/.*(bin|msgpack|h5|ot|py)$") == 0
    hub.put("alice/stock", with_settings(hub.repository("alice/stock").files(), custom_pipelines={"a": 1}))
    for reader in (fine_tuning, features, demo, conversion):
        with pytest.raises(RepositoryError, match="custom_pipelines"):
            reader("alice/stock", {}, tmp_path)


def test_bin_alone_is_for_the_converter(hub, tmp_path):
    hub.put("alice/old", stock_files(tmp_path / "old", with_bin=True))
    with pytest.raises(RepositoryError, match=r"Convert it first: scripts/convert\.py alice/old FOLDER"):
        open_source("alice/old")
    assert conversion("alice/old", {}, tmp_path).n_layer == 2
    hub.put("alice/old", {"pytorch_model.bin": pickle.dumps(Trap(tmp_path / "ran"))})
    with pytest.raises(ValueError, match="something else than tensors"):
        conversion("alice/old", {}, tmp_path)
    assert not (tmp_path / "ran").exists()


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


def test_other_wrong_names(hub, folders):
    with pytest.raises(ValueError, match="has no revision v9 on the Hub"):
        open_source("alice/model", "v9")
    with pytest.raises(ValueError, match=r"\.\./nowhere: there is no such file or folder\.$"):
        open_source("../nowhere")
    with pytest.raises(ValueError, match="is a file: name the folder"):
        open_source(folders["model"] / "config.json")


@pytest.mark.parametrize("name", ["base", "classifier", "choices", "lora"])
def test_what_version_0_1_published_is_not_refused(tmp_path, name):
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    check_repository(tmp_path / "published" / name)


def test_files_of_features_are_held_to_the_same_list(hub):
    hub.put("alice/states", {"features.json": b"{}", "data/a.pkl": b"x"}, kind="datasets")
    with pytest.raises(RepositoryError, match=r"data/a\.pkl is a pickle"):
        download("alice/states", repo_type="dataset")


@pytest.mark.parametrize(
    "name", ["a.so", "a.pyc", "a.h5", "a.msgpack", "a.Bin", "x/modeling_gpt.py", "data/a.NPZ", "a"]
)
def test_what_is_not_on_the_list_is_refused(name):
    with pytest.raises(RepositoryError, match="is refused"):
        check_names([name], "alice/tiny")


def test_what_a_hub_id_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "alice" / "here").mkdir(parents=True)
    assert all(map(door.is_hub_id, ("alice/model", "gpt2")))
    assert not any(map(door.is_hub_id, ("alice/here", "./model", "a/b/c", "~/model", "/model", "alice/a model", "")))
