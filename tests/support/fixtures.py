"""Fixtures shared by all tests, one thread, tiny models; `conftest.py` registers them."""

import gc
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import datasets
import pytest
import torch
import transformers.integrations.flex_attention
import transformers.masking_utils
from hypothesis import HealthCheck, settings
from transformers import set_seed

import hf_gpt.__main__ as entry

from .runs import finetune, save_tiny_model
from .stock_models import save_gpt2
from .tiny import build_config, build_model

# Tiny models gain nothing from threads, and parallel test processes lose by them.
torch.set_num_threads(1)

HANDLERS = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

# A test run repeats itself, and a busy machine fails nothing.
settings.register_profile(
    "repeatable", deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("repeatable")


@pytest.fixture(scope="session")
def tiny_config():
    """`tiny_config(**overrides)`: two blocks, width 32, 20 tokens, three special tokens and padding, no dropout."""
    return build_config


@pytest.fixture(scope="session")
def tiny_model():
    """
    `tiny_model(model_class, attention="sdpa", seed=0, **overrides)`: a model of `tiny_config` in evaluation mode whose
    weights, biases among them, are large enough for a wrong mask or index to show.
    """
    return build_model


@pytest.fixture(scope="session")
def tiny_checkpoint(tmp_path_factory) -> Path:
    """Folder of a random language model of width 32 with the tokenizer of gpt-mini; tests only read it."""
    return save_tiny_model(tmp_path_factory.mktemp("tiny") / "model")


@pytest.fixture(scope="session")
def stock_gpt2(tmp_path_factory) -> Path:
    """Folder of a small stock `gpt2` with its tokenizer; tests only read it."""
    folder = tmp_path_factory.mktemp("gpt2") / "stock"
    save_gpt2(folder)
    return folder


@pytest.fixture(scope="session")
def train(tiny_checkpoint):
    """`train(output, *flags)`: the record of a fine-tuning of that model, in this process."""
    return partial(finetune, "--model_name_or_path", tiny_checkpoint, "--output_dir")


@pytest.fixture(scope="module", params=["eager", "sdpa", "flex_attention"])
def attention(request):
    """Each attention in turn; FlexAttention without its compiler, which would take half a minute, and forward only."""
    flex = torch.nn.attention.flex_attention
    create = flex.create_block_mask
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flex, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True, raising=False)
        wrapper = transformers.integrations.flex_attention.WrappedFlexAttention
        patch.setattr(wrapper, "__init__", lambda self, training: None)
        patch.setattr(wrapper, "__call__", lambda self: flex.flex_attention)
        plain = partial(create, _compile=False)
        patch.setattr(
            transformers.masking_utils, "create_block_mask", lambda *args, _compile=None, **kw: plain(*args, **kw)
        )
        yield request.param


@pytest.fixture(autouse=True)
def seeded():
    """Every test begins with the same random state and with gradients, whichever ran before."""
    set_seed(0)
    torch.set_grad_enabled(True)  # which a page's code turns off


@pytest.fixture(scope="session")
def real_folder(tmp_path_factory):
    """
    `real_folder(name)`: the published files of one data set, in HF_GPT_DATA or ../shared/data; the test is skipped
    where they are not there.
    """
    script = Path(__file__).resolve().parents[3] / "shared" / "data" / "as_published.py"
    folder = Path(os.environ.get("HF_GPT_DATA") or tmp_path_factory.mktemp("published"))
    if "HF_GPT_DATA" not in os.environ and script.is_file():
        subprocess.run([sys.executable, str(script), str(folder)], check=True, stdout=subprocess.DEVNULL)

    def folder_of(name):
        if not (folder / name).is_dir():
            pytest.skip(f"no published files in {folder / name}")
        return folder / name

    return folder_of


@pytest.fixture
def own_datasets_cache(monkeypatch, tmp_path_factory):
    """A cache of `datasets` for the test alone, without network and progress bars."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path_factory.mktemp("datasets_cache"))
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    datasets.disable_progress_bars()
    yield
    datasets.enable_progress_bars()


@pytest.fixture
def script(monkeypatch, capsys):
    """`script(module, *words)` runs a module's `main` in this process; (exit status, output, errors)."""

    def run(module, *words):
        monkeypatch.setattr(sys, "argv", ["hf-gpt", *map(str, words)])
        status = 0
        try:
            module.main()
        except SystemExit as error:
            status = error.code
        return status, *capsys.readouterr()

    return run


@pytest.fixture
def hf_gpt(script):
    """`hf_gpt(*words)` runs a command in this process and returns (exit status, output, errors)."""
    return partial(script, entry)


@pytest.fixture(scope="module", autouse=True)
def frozen_imports():
    """Every training collects garbage: it need not look through libraries and tests, which takes most of its time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def own_signal_handlers():
    """Commands that tests run in this process leave theirs, which a process that is forked later might not end by."""
    for number, handler in HANDLERS.items():
        signal.signal(number, handler)


@pytest.fixture
def converted(hf_gpt):
    """`converted(source, output, *flags, status=0)`: what a conversion printed that ended with this exit status."""

    def run(source, output, *flags, status=0):
        found, printed, errors = hf_gpt("convert", source, output, *flags)
        assert found == status, printed + errors
        return printed + errors

    return run
