"""The code that a repository on the Hub carries, so that its model loads where hf_gpt is not installed."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

from transformers.dynamic_module_utils import get_relative_import_files
from transformers.models import auto
from transformers.tokenization_utils_base import TOKENIZER_CONFIG_FILE
from transformers.utils import CONFIG_NAME

from ..files import read_json
from ..model.configuration_gpt import AUTO_MAP, GPTConfig
from ..model.modeling_gpt import GPTModel
from ..model.tokenization_gpt import GPTTokenizer

TOKENIZER_AUTO_MAP = {"AutoTokenizer": ["tokenization_gpt.GPTTokenizer", None]}
# SHA-256 of the modules that earlier versions uploaded with their models; a release adds those it changed.
RELEASED_CODE: dict[str, tuple[str, ...]] = {
    "attention.py": ("d7699644cf6b4a4eb34e47118c50a134714eb2a36b27b355c83304915563a8e6",),
    "blocks.py": ("21183a8c98c74c37480dd7574bf4a369453d7d99fde608b774a4a9ff243bdb9b",),
    "configuration_gpt.py": ("d20da6275c2144c67cd663b41b7db9780219666080644a941ebf65d70ace4d3d",),
    "dropout.py": ("c91437b10f56df14b6f94791462b6e5d5f32c1c444607f44232eed25424690b1",),
    "fast_splitting.py": ("8bc8c14b6a72cf8613ac2d435d5ed97b3744a2690858b5ce10ff6869ed988fca",),
    "losses.py": ("9fba86d904c69179d06228e89aac7b838ed23a7eb017bbcb24dedf4d9e187ad6",),
    "modeling_gpt.py": ("d29e7959349679a61040c4efc39b39cda056ca5019a6e9b30130327467f1399a",),
    "stock_checkpoints.py": ("19fe854c9c3061878dfa8581e1b6fdc61746ef50034d93726d795531b7e5ff1d",),
    "tokenization_gpt.py": ("8db955e8d0e7131489cbc111fcde7dad51a4a7340d1e6e3bd412cabb492d3e97",),
    "word_splitting.py": ("2dafc6823cdb41e7308b5b194f6d7c283ef6f83f55e89a0b7b276962024748e2",),
}


def code_files(*owners: type) -> list[Path]:
    """
    The modules that classes need, by default those of configuration, models and tokenizer, their own first: what they
    import relatively, and what that imports.
    """
    files: dict[Path, None] = {}
    for owner in owners or (GPTConfig, GPTModel, GPTTokenizer):
        module = sys.modules[owner.__module__].__file__
        files |= dict.fromkeys(map(Path, (module, *sorted(get_relative_import_files(module)))))
    return list(files)


def add_code(folder: Path) -> None:
    """
    Make what `save_pretrained` wrote load with `trust_remote_code=True` where hf_gpt is not installed: write every
    class into `auto_map`, and the modules beside it. Where there is neither model nor tokenizer, nothing is done.
    """
    config, tokenizer = folder / CONFIG_NAME, folder / TOKENIZER_CONFIG_FILE
    owners: list[type] = []
    tokenizer_map: dict[str, Any] = {}
    # An export, or the tokenizer of GPT-2, is one of transformers' own.
    if tokenizer.is_file() and read_json(tokenizer).get("tokenizer_class") == GPTTokenizer.__name__:
        tokenizer_map = TOKENIZER_AUTO_MAP
        _set_auto_map(tokenizer, tokenizer_map)
        owners.append(GPTTokenizer)
    if config.is_file():
        _set_auto_map(config, AUTO_MAP | tokenizer_map)
        owners += [GPTConfig, GPTModel]
    for file in code_files(*owners) if owners else ():
        shutil.copyfile(file, folder / file.name)


def _set_auto_map(path: Path, entries: dict[str, Any]) -> None:
    settings = read_json(path) | {"auto_map": entries}
    path.write_text(json.dumps(settings, indent=2, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")


def register_for_hub() -> None:
    """
    From here on, `save_pretrained` and `push_to_hub` of our models, configurations and tokenizers write their code and
    a complete `auto_map`, too (`register_for_auto_class` of transformers, for all classes at once).
    """
    GPTConfig.register_for_auto_class()
    GPTTokenizer.register_for_auto_class()
    for name in AUTO_MAP.keys() - {"AutoConfig"}:
        getattr(auto, name)._model_mapping[GPTConfig].register_for_auto_class(name)
