"""What the name of a model stands for (a folder, a Hub id, OpenAI's release, a stock checkpoint, an adapter)."""

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer, GPT2Tokenizer, OpenAIGPTTokenizer
from transformers.tokenization_utils_base import TOKENIZER_CONFIG_FILE
from transformers.utils import CONFIG_NAME

from .conversion.release import load_release, read_release, release_config
from .conversion.sources import KINDS, NEW_ROWS, lacks_special_tokens, recognise
from .conversion.stock import STOCK_CONFIGS
from .conversion.tokenizers import release_tokenizer
from .files import GPT_MINI, flag, reading
from .files.ranges import check_ranges
from .files.weights import load_weights
from .hub.repositories import local_folder
from .model.configuration_gpt import GPTConfig
from .model.modeling_gpt import GPTForCausalLM, GPTPreTrainedModel
from .model.tokenization_gpt import GPTTokenizer


@dataclass(frozen=True)
class Source:
    """What a name stands for: a folder of the user's own, or the copy of one commit of a repository."""

    name: str
    folder: Path

    @cached_property
    def kind(self) -> str:
        """A key of `hf_gpt.conversion.sources.KINDS`; a `ValueError` where it is none that can be loaded."""
        kind = recognise(self.folder)
        if kind == "best-params":
            raise ValueError(f"{self.name} holds {KINDS[kind]}: convert it first (scripts/convert.py).")
        return kind

    @property
    def commit(self) -> str | None:
        """The commit of a repository on the Hub, else None."""
        return None if self.folder == Path(self.name) else self.folder.name

    @property
    def new_rows(self) -> str:
        """The rows that its files lack and a model gets when it is loaded, for people; or empty."""
        return f", with new {NEW_ROWS}" if lacks_special_tokens(self.kind, self.folder) else ""

    def config(self, n_head: int | None = None, **changes: Any) -> GPTConfig:
        """The configuration, of an adapter that of the adapted model, with other settings; `n_head` is a release's."""
        if self.kind == "tf-release":
            return release_config(read_release(self.folder), n_head=n_head, **changes)
        if self.kind == "adapter":
            from .adapters import adapted_config

            return GPTConfig.from_dict(adapted_config(self.folder).to_dict(), **changes)
        return GPTConfig.from_pretrained(self.folder, **changes)

    def tokenizer(self, **settings: Any) -> GPTTokenizer:
        """The tokenizer, of an adapter without one its base model's; a `ValueError` if it is no `GPTTokenizer`."""
        # A folder of a tokenizer alone is of no kind.
        is_alone = (self.folder / TOKENIZER_CONFIG_FILE).is_file() and not (self.folder / CONFIG_NAME).is_file()
        kind = None if is_alone else self.kind
        if kind == "tf-release":
            return release_tokenizer(self.folder, **settings)
        if kind == "adapter":
            from .adapters import base_folder

            return Source(*base_folder(self.folder)).tokenizer(**settings)
        if not any((self.folder / name).is_file() for name in ("tokenizer.json", "vocab.json")):
            raise ValueError(f"{self.name} has no tokenizer: there is no tokenizer.json and no vocab.json in it.")
        with reading(self.name, "its tokenizer"):
            tokenizer = None
            if kind not in STOCK_CONFIGS:
                tokenizer = AutoTokenizer.from_pretrained(self.folder, trust_remote_code=False, **settings)
            # Stock classes split words in another way, or lack the special tokens.
            if isinstance(tokenizer, GPT2Tokenizer | OpenAIGPTTokenizer | None):
                tokenizer = GPTTokenizer.from_pretrained(self.folder, **settings)
            if not isinstance(tokenizer, GPTTokenizer):
                raise TypeError(f"it is a {type(tokenizer).__name__}; a GPTTokenizer is needed")
        tokenizer.name_or_path = self.name
        return tokenizer

    def model(
        self, model_class: type[GPTPreTrainedModel], *, new_head: bool = False, seed: int = 0, **changes: Any
    ) -> GPTPreTrainedModel:
        """
        The model with the wanted head, in float32 and evaluation mode; of an adapter the one that it is merged into.
        With `new_head` the source may lack the head, or have another: it is newly initialized then. `seed` is that of
        `hf_gpt.conversion.release.load_release`; `changes` are settings of the configuration, `attn_implementation`,
        and of a release `n_head`. A `ValueError` or `FileNotFoundError` if there is no such model, or its files are
        not as they should be.
        """
        if self.kind == "tf-release":
            return load_release(self.folder, model_class, seed=seed, **changes)
        config = self.config(**changes)
        if model_class is GPTForCausalLM and not config.is_causal:
            raise ValueError(f"{self.name} is a masked language model; a causal one is needed.")
        folder, state = self.folder, {}
        with reading(self.name):
            if self.kind == "adapter":
                from .adapters import load_adapter, merge_adapter

                folder, state = None, {"state_dict": merge_adapter(load_adapter(self.folder)).state_dict()}
            model = load_weights(model_class, folder, config, new_head=new_head, dtype=torch.float32, **state)
        # Not the place of the copy: an adapter is saved with the name of its base model.
        model.name_or_path = model.config.name_or_path = self.name
        return model


def open_source(name: str | os.PathLike, revision: str | None = None, weights: bool = True) -> Source:
    """
    What a name (folder, gpt-mini or Hub id) stands for; of a Hub id the commit that its revision is now. A
    `ValueError` if there is no such folder, and the Hub does not give it.
    """
    folder = local_folder(name, revision, weights=weights)
    return Source(GPT_MINI if folder == Path(GPT_MINI) else os.fspath(name), folder)


@dataclass(kw_only=True)
class NamesModel:
    """Arguments that name a model and its tokenizer: what the names stand for is looked up once for a whole run."""

    model_name_or_path: str | None = flag(None, "Folder or Hub id of the model, or gpt-mini, which is bundled.")
    tokenizer_name: str | None = flag(None, "Folder or Hub id of the tokenizer; by default the model's own.")
    revision: str = flag("main", "Branch, tag or commit of a model on the Hub.")
    n_head: int | None = flag(None, "Attention heads of OpenAI's files whose width is not 64 times their number.")

    def __post_init__(self) -> None:
        check_ranges(self)

    @cached_property
    def source(self) -> Source:
        """`Source`: what the model's name stands for; a `ValueError` or `OSError` if it is not there."""
        return open_source(self.model_name_or_path, self.revision)

    @cached_property
    def tokenizer_source(self) -> Source:
        """`Source`: that of the tokenizer, by default the model's."""
        name = self.tokenizer_name
        return self.source if name is None else open_source(name, self.revision, weights=False)
