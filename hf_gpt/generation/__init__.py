"""
A language model read as one: texts measured (`scoring`), looked at position by position (`inspection`), continued by
several strategies side by side (`strategies`), and what was generated compared with human text (`comparison`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers.hf_argparser import HfArg

from ..loading import NamesModel, check_ids
from ..model.modeling_gpt import GPTForCausalLM, GPTPreTrainedModel
from ..model.tokenization_gpt import GPTTokenizer
from ..training.arguments import check_ranges


@dataclass
class LanguageModelArguments(NamesModel):
    """Which language model."""

    model_name_or_path: str = HfArg(
        help=(
            "Folder or Hub id of a language model: hf_gpt, OpenAI's release, a stock one, or an adapter, "
            "which is merged."
        )
    )
    tokenizer_name: str | None = HfArg(
        default=None, help="Folder or Hub id of the tokenizer; by default the model's own."
    )
    revision: str = HfArg(default="main", help="Branch, tag or commit of a model on the Hub.")
    n_head: int | None = HfArg(default=None, help="Attention heads of OpenAI's files, where not width / 64.")
    device: str | None = HfArg(
        default=None, help="Such as cpu or cuda:1; by default the accelerator, if there is one."
    )

    def __post_init__(self) -> None:
        check_ranges(self)

    def load(self, model_class: type[GPTPreTrainedModel] = GPTForCausalLM) -> tuple[GPTPreTrainedModel, GPTTokenizer]:
        """
        The model, with the head that is wanted, in evaluation mode on its device, and its tokenizer.

        Raises:
            ValueError, FileNotFoundError: if there is none, it is a masked one, they do not belong together, or
            there is no such device.
        """
        try:
            device = torch.device(self.device) if self.device else torch.accelerator.current_accelerator()
            torch.empty(0, device=device)
        except (RuntimeError, AssertionError) as error:
            raise ValueError(f"--device {self.device} cannot be used: {str(error).splitlines()[0]}") from error
        tokenizer = self.tokenizer_source.tokenizer()
        model = self.source.model(model_class, n_head=self.n_head)
        check_ids(model.config, tokenizer, self.model_name_or_path)
        return model.to(device or "cpu").eval(), tokenizer


def check_output_file(path: str | None, suffixes: Sequence[str], overwrite: bool) -> None:
    """Raise a `ValueError` unless a file, if one is wanted, has one of the suffixes and can be written."""
    if path is None:
        return
    if Path(path).suffix not in suffixes:
        raise ValueError(f"--output_file {path}: name a file that ends in {' or '.join(suffixes)}.")
    if Path(path).is_dir():
        raise ValueError(f"--output_file {path} is a folder: name a file.")
    if Path(path).exists() and not overwrite:
        raise ValueError(f"--output_file {path} already exists: name another, or give --overwrite.")


def encode(tokenizer: GPTTokenizer, text: str) -> list[int]:
    """Token ids of a text of any length, without special tokens."""
    return tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]


def check_predicted(ids: Sequence[int], what: str = "A text", fewest: int = 2) -> None:
    """Raise a `ValueError` for a text of fewer than two tokens, in which nothing is predicted (or of fewer still)."""
    if len(ids) < fewest:
        found = "no token" if fewest == 1 else "fewer than two tokens"
        raise ValueError(f"{what} has {found}: there is nothing to look at; write more.")


def check_one_of(**inputs: object) -> None:
    """Raise a `ValueError` unless exactly one of several flags was given."""
    flags = [f"--{name}" for name in inputs]
    given = [f"--{name}" for name, value in inputs.items() if value is not None]
    if len(given) != 1:
        wanted = f"{', '.join(flags[:-1])} or {flags[-1]}"
        raise ValueError(f"Give {wanted}{', not ' + ' and '.join(given) + ' together' if given else ''}.")
