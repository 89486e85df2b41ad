"""
A language model read as one: texts measured (`scoring`), looked at position by position (`inspection`), continued by
several strategies side by side (`strategies`), and what was generated compared with human text (`comparison`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch

from ..conversion.sources import generation_settings
from ..conversion.tokenizers import check_ids
from ..files import flag, write_json, write_text
from ..files.ranges import check_ranges
from ..loading import NamesModel
from ..model.modeling_gpt import GPTForCausalLM, GPTPreTrainedModel
from ..model.tokenization_gpt import GPTTokenizer


@dataclass
class LanguageModelArguments(NamesModel):
    """Which language model."""

    model_name_or_path: str = flag(
        help="Folder or Hub id of a language model: hf_gpt, OpenAI's release, a stock one, or an adapter (merged)."
    )
    device: str | None = flag(None, "Such as cpu or cuda:1; by default the accelerator, if there is one.")

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
        generation_settings(self.source.folder)  # which from_pretrained would pass over where they are damaged
        tokenizer = self.tokenizer_source.tokenizer()
        model = self.source.model(model_class, n_head=self.n_head)
        check_ids(model.config, tokenizer, self.model_name_or_path)
        return model.to(device or "cpu").eval(), tokenizer


@dataclass(kw_only=True)
class ReadingArguments(LanguageModelArguments):
    """Which language model, what it reads, and where the result goes: base of the commands that read texts."""

    text: list[str] | None = flag(None, "Texts.")
    file: str | None = flag(None, "File of texts, one a line.")
    output_file: str | None = flag(None, "A .json file for all that was found.")
    overwrite: bool = flag(False, "Replace an output file that is there.")

    # What the name of the output file may end in.
    suffixes: ClassVar[tuple[str, ...]] = (".json",)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_inputs()
        if self.output_file is None:
            return
        path = Path(self.output_file)
        if path.suffix not in self.suffixes:
            raise ValueError(f"--output_file {path}: name a file that ends in {' or '.join(self.suffixes)}.")
        if path.is_dir():
            raise ValueError(f"--output_file {path} is a folder: name a file.")
        if path.exists() and not self.overwrite:
            raise ValueError(f"--output_file {path} already exists: name another, or give --overwrite.")

    def check_inputs(self) -> None:
        """Raise a `ValueError` unless it is clear what to read."""
        check_one_of(text=self.text, file=self.file)

    def write(self, result: str | dict[str, Any]) -> None:
        """Write a text, or what is to be JSON, into the output file, and say so."""
        (write_text if isinstance(result, str) else write_json)(Path(self.output_file), result)
        print(f"The result is in {self.output_file}.")


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
    given = [f"--{name}" for name, value in inputs.items() if value is not None]
    if len(given) != 1:
        *first, last = (f"--{name}" for name in inputs)
        together = f", not {' and '.join(given)} together" if given else ""
        raise ValueError(f"Give {', '.join(first)} or {last}{together}.")


def print_table(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print rows with the same names as columns: numbers to the right, fractions with three digits, `None` as -."""
    cells = [
        [
            "-" if value is None else f"{value:.3f}" if isinstance(value, float) else str(value)
            for value in row.values()
        ]
        for row in rows
    ]
    widths = [max(map(len, column)) for column in zip(rows[0], *cells, strict=True)]
    left = [isinstance(value, str) for value in rows[0].values()]
    for line in ([*rows[0]], *cells):
        parts = zip(line, widths, left, strict=True)
        print("  ".join(f"{cell:{'<' if is_left else '>'}{width}}" for cell, width, is_left in parts).rstrip())
