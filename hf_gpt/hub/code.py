"""The code in a repository on the Hub, so that its model loads where hf_gpt is not installed."""

import sys
from pathlib import Path

from transformers import AutoTokenizer
from transformers.dynamic_module_utils import get_relative_import_files
from transformers.tokenization_utils_base import TOKENIZER_CONFIG_FILE
from transformers.utils import CONFIG_NAME

from ..files import read_json, write_json, write_text
from ..model.configuration_gpt import AUTO_MAP, GPTConfig
from ..model.modeling_gpt import GPTModel
from ..model.tokenization_gpt import GPTTokenizer, english_rules


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
    Make any folder of ours load with `trust_remote_code=True` where hf_gpt is not installed, those of older versions
    and of peft included: `auto_map` gets every class, and the folder their modules, in place of links.
    """
    maps: dict[str, dict] = {}
    owners: list[type] = []
    # An export, or the tokenizer of GPT-2, is one of transformers' own.
    tokenizer = folder / TOKENIZER_CONFIG_FILE
    if tokenizer.is_file() and read_json(tokenizer).get("tokenizer_class") == GPTTokenizer.__name__:
        maps[TOKENIZER_CONFIG_FILE] = {"AutoTokenizer": ["tokenization_gpt.GPTTokenizer", None]}
        owners.append(GPTTokenizer)
        words = folder / GPTTokenizer.vocab_files_names["words_file"]
        # Of English tokenizers that were saved before their rules were.
        if not words.exists() and not AutoTokenizer.from_pretrained(folder).byte_level:
            write_text(words, english_rules())
    if (folder / CONFIG_NAME).is_file():
        maps[CONFIG_NAME] = AUTO_MAP | maps.get(TOKENIZER_CONFIG_FILE, {})
        owners += [GPTConfig, GPTModel]
    for name, entries in maps.items():
        write_json(folder / name, read_json(folder / name) | {"auto_map": entries})
    for file in code_files(*owners) if owners else ():
        write_text(folder / file.name, file.read_text(encoding="utf-8"))
