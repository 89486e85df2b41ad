"""What is imported when, in fresh processes: `import hf_gpt` takes no time, registration comes with its library."""

import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
# What `import hf_gpt` leaves alone, and what the Auto classes need no more than transformers itself does.
HEAVY = {"torch", "transformers", "peft", "datasets", "sklearn", "evaluate", "spacy", "ftfy", "pandas", "gradio"}
TRAINING = {"peft", "datasets", "sklearn", "evaluate", "spacy", "transformers.trainer", "hf_gpt.model.modeling_gpt"}
USED = """
from transformers import AutoModelForCausalLM, AutoModelForMultipleChoice
config = hf_gpt.GPTConfig(vocab_size=12, n_embd=8, n_layer=1, n_head=2, **dict.fromkeys(
    ("pad_token_id", "bos_token_id", "start_token_id", "delimiter_token_id", "classify_token_id"), 1))
assert AutoModelForCausalLM._model_mapping[hf_gpt.GPTConfig].__name__ == "GPTForCausalLM"
assert type(AutoModelForCausalLM.from_config(config)) is hf_gpt.GPTForCausalLM
assert AutoModelForMultipleChoice._model_mapping[hf_gpt.GPTConfig] is hf_gpt.GPTForMultipleChoice
import peft
assert peft.PeftType("HOULSBY") in peft.mapping.PEFT_TYPE_TO_TUNER_MAPPING
assert {*hf_gpt.__all__} <= {*dir(hf_gpt)} and all(getattr(hf_gpt, name) for name in hf_gpt.__all__)
"""


def fresh(code: str, *words: str) -> str:
    """The last line that a process of its own prints."""
    done = subprocess.run([sys.executable, "-c", code, *words], cwd=REPOSITORY, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return (done.stdout.splitlines() or [""])[-1]


STARTS = {
    "import hf_gpt": HEAVY,
    "import hf_gpt; from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer": TRAINING,
    "import sys; sys.argv = ['hf-gpt', '--help']; from hf_gpt.__main__ import main; main()": HEAVY,
}


@pytest.mark.parametrize(("code", "absent"), STARTS.items(), ids=["import", "auto classes", "list of commands"])
def test_what_is_not_imported(code, absent):
    assert fresh(f"{code}\nimport sys; print(*({absent} & sys.modules.keys()))") == ""


# Each in a process of its own, forked from one that has imported what registers nothing: that takes seconds.
FORKED = """
import os, sys
import accelerate, datasets, sklearn.metrics, torch._dynamo, torch.distributed.tensor
for code in sys.argv[1:]:
    child = os.fork()
    if not child:
        exec(code)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, code
"""
FIRST = [
    "import hf_gpt, importlib; importlib.reload(hf_gpt)",
    "import hf_gpt, sys; [sys.modules.pop(name) for name in [*sys.modules] if name.startswith('hf_gpt')]",
    "import hf_gpt; from trl import SFTTrainer",
    *(f"import hf_gpt.{name}" for name in ("adapters", "hub", "conversion.stock")),
    "import peft, transformers, transformers.models.auto.modeling_auto",
]


def test_anything_may_be_imported_first():
    """Registration takes place in the middle of others' imports, and must not run into what is half imported."""
    fresh(FORKED, *(f"{code}\nimport hf_gpt\n{USED}" for code in FIRST))
