"""The code in a repository on the Hub, so that its model loads where hf_gpt is not installed."""

import shutil
import sys
from pathlib import Path

from transformers import AutoTokenizer
from transformers.dynamic_module_utils import get_relative_import_files
from transformers.tokenization_utils_base import TOKENIZER_CONFIG_FILE
from transformers.utils import CONFIG_NAME

from ..files import read_json, write_json
from ..model.configuration_gpt import AUTO_MAP, GPTConfig
from ..model.modeling_gpt import GPTModel
from ..model.tokenization_gpt import GPTTokenizer, english_rules

TOKENIZER_AUTO_MAP = {"AutoTokenizer": ["tokenization_gpt.GPTTokenizer", None]}


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
    class into `auto_map`, and the modules next to it. Where there is neither model nor tokenizer, nothing is done.
    """
    maps: dict[str, dict] = {}
    owners: list[type] = []
    # An export, or the tokenizer of GPT-2, is one of transformers' own.
    tokenizer = folder / TOKENIZER_CONFIG_FILE
    if tokenizer.is_file() and read_json(tokenizer).get("tokenizer_class") == GPTTokenizer.__name__:
        maps[TOKENIZER_CONFIG_FILE] = TOKENIZER_AUTO_MAP
        rules = Path(sys.modules[GPTTokenizer.__module__].__file__).with_name("words_en.json")
        # Of tokenizers that were saved before their rules were.
        if not (folder / "words.json").exists() and read_json(tokenizer).get("language", "en") == "en":
            shutil.copyfile(rules, folder / "words.json")
        owners.append(GPTTokenizer)
        words = folder / GPTTokenizer.vocab_files_names["words_file"]
        if not words.exists() and not AutoTokenizer.from_pretrained(folder).byte_level:
            # Saved before words.json was.
            words.unlink(missing_ok=True)  # a link that leads nowhere
            words.write_text(english_rules(), encoding="utf-8")
    if (folder / CONFIG_NAME).is_file():
        maps[CONFIG_NAME] = AUTO_MAP | maps.get(TOKENIZER_CONFIG_FILE, {})
        owners += [GPTConfig, GPTModel]
    for name, entries in maps.items():
        write_json(folder / name, read_json(folder / name) | {"auto_map": entries})
    for file in code_files(*owners) if owners else ():
        (folder / file.name).unlink(missing_ok=True)  # not what it may be a link to
        shutil.copyfile(file, folder / file.name)


def register_for_hub() -> None:
    """Does nothing: `save_pretrained` of our models, configurations and tokenizers writes their code by itself."""
