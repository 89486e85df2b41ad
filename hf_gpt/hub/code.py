"""The code in a repository on the Hub, so that its model loads where hf_gpt is not installed."""

import sys
from pathlib import Path

from transformers.dynamic_module_utils import get_relative_import_files
from transformers.tokenization_utils_base import TOKENIZER_CONFIG_FILE
from transformers.utils import CONFIG_NAME

from ..files import read_json, write_json, write_text
from ..model.configuration_gpt import AUTO_MAP, GPTConfig
from ..model.modeling_gpt import GPTModel
from ..model.tokenization_gpt import GPTTokenizer


def code_files(*owners: type) -> list[Path]:
    """The modules that classes need, by default those of configuration, models and tokenizer, and what they import."""
    files: dict[Path, None] = {}
    for owner in owners or (GPTConfig, GPTModel, GPTTokenizer):
        module = sys.modules[owner.__module__].__file__
        files |= dict.fromkeys(map(Path, (module, *sorted(get_relative_import_files(module)))))
    return list(files)


def add_code(folder: Path) -> None:
    """Give a folder of ours a complete `auto_map` and the modules that it names, in place of links."""
    maps = {CONFIG_NAME: (AUTO_MAP, (GPTConfig, GPTModel))}
    tokenizer = folder / TOKENIZER_CONFIG_FILE
    # A tokenizer for GPT-2 may be one of transformers' own.
    if tokenizer.is_file() and read_json(tokenizer).get("tokenizer_class") == GPTTokenizer.__name__:
        maps[tokenizer.name] = ({"AutoTokenizer": ["tokenization_gpt.GPTTokenizer", None]}, (GPTTokenizer,))
    for name, (auto_map, owners) in maps.items():
        if (folder / name).is_file():
            write_json(folder / name, read_json(folder / name) | {"auto_map": auto_map})
            for file in code_files(*owners):
                write_text(folder / file.name, file.read_text(encoding="utf-8"))
