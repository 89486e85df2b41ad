"""Settings of all tests before libraries read them: no network, own caches, one thread."""

import atexit
import os
import shutil
import tempfile
from importlib import import_module

_CACHE = tempfile.mkdtemp(prefix="hf_gpt_tests_")
atexit.register(shutil.rmtree, _CACHE, ignore_errors=True)
os.environ["HF_HOME"] = _CACHE
os.environ["HF_DATASETS_CACHE"] = os.path.join(_CACHE, "datasets")
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as torch in the fixtures
# Bars come up where something takes long, as in the commands themselves: never next to an error's one line.
os.environ.setdefault("TQDM_DELAY", "3")


def pytest_configure(config):
    """The fixtures, which import all libraries: not in the process that only hands tests to workers."""
    if config.getoption("dist", "no") == "no":
        config.pluginmanager.register(import_module("tests.support.fixtures"))
