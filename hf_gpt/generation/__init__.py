"""A language model read as one: texts scored and read word by word, prompts continued, also next to human text."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pandas as pd
import torch

from ..conversion.tokenizers import check_ids
from ..files import flag, write_json, write_text
from ..files.weights import generation_settings
from ..loading import NamesModel
from ..model.modeling_gpt import GPTForCausalLM, GPTPreTrainedModel
from ..model.tokenization_gpt import GPTTokenizer
from ..performance import PACKED_DTYPES, pack_for_inference


@dataclass
class LanguageModelArguments(NamesModel):
    """Which language model."""

    model_name_or_path: str = flag(help="Folder or Hub id of a language model or an adapter, or OpenAI's release.")
    device: str | None = flag(None, "Such as cpu or cuda:1; by default the accelerator, if there is one.")

    def load(self, model_class: type[GPTPreTrainedModel] = GPTForCausalLM) -> tuple[GPTPreTrainedModel, GPTTokenizer]:
        """The model on its device, and its tokenizer; a `ValueError` or `OSError` for what cannot be loaded."""
        try:
            device = torch.device(self.device) if self.device else torch.accelerator.current_accelerator()
            torch.empty(0, device=device)
        except (RuntimeError, AssertionError) as error:
            raise ValueError(f"--device {self.device} cannot be used: {str(error).splitlines()[0]}") from error
        generation_settings(self.source.folder)  # which from_pretrained would ignore where they are damaged
        tokenizer = self.tokenizer_source.tokenizer()
        model = self.source.model(model_class, n_head=self.n_head)
        check_ids(model.config, tokenizer, self.model_name_or_path)
        return model.to(device or "cpu").eval(), tokenizer


@dataclass(kw_only=True)
class ReadingArguments(LanguageModelArguments):
    """Which language model, what it reads, and where the result goes."""

    text: list[str] | None = flag(None, "Texts.")
    pack: str = flag("float32", "Packed weights on a CPU; int8 and bfloat16 round.", (*PACKED_DTYPES, "none"))
    output_file: str | None = flag(None, "A .json file for all results.")
    overwrite: bool = flag(False, "Replace an existing output file.")

    # What the name of the output file may end in, and flags of which exactly one is needed.
    suffixes: ClassVar[tuple[str, ...]] = (".json",)
    inputs: ClassVar[tuple[str, ...]] = ("text", "file")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_one_of(**{name: getattr(self, name) for name in self.inputs})
        if self.output_file is None:
            return
        path = Path(self.output_file)
        if path.suffix not in self.suffixes or path.is_dir():
            raise ValueError(f"--output_file {path}: name a file that ends in {' or '.join(self.suffixes)}.")
        if path.exists() and not self.overwrite:
            raise ValueError(f"--output_file {path} already exists: name another, or give --overwrite.")

    def load(self, model_class: type[GPTPreTrainedModel] = GPTForCausalLM) -> tuple[GPTPreTrainedModel, GPTTokenizer]:
        """As above, with the weights packed for inference as `--pack` says."""
        model, tokenizer = super().load(model_class)
        can_pack = model.device.type == "cpu" and torch.backends.mkldnn.is_available()
        # In float32 it is the default, which must work everywhere; what was asked for is refused where it cannot be.
        if self.pack in ("bfloat16", "int8") or (self.pack == "float32" and can_pack):
            pack_for_inference(model, self.pack)
        return model, tokenizer

    def write(self, result: str | dict[str, Any]) -> None:
        """Write a text, or what is to be JSON, into the output file."""
        (write_text if isinstance(result, str) else write_json)(Path(self.output_file), result)
        print(f"The result is in {self.output_file}.")


def encode(tokenizer: GPTTokenizer, text: str) -> list[int]:
    """Token ids of a text of any length, without special tokens."""
    return tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]


def token_text(tokenizer: GPTTokenizer, token_id: int) -> str:
    """A token as a reader sees it, on one line; what does not end a word ends with an ellipsis."""
    text, ends_word = tokenizer.piece(token_id)
    return text.replace("\n", "⏎") + ("…" if ends_word is False else "")


def check_one_of(**inputs: object) -> None:
    """A `ValueError` unless exactly one of several flags was given."""
    if sum(value is not None for value in inputs.values()) != 1:
        raise ValueError(f"Give one of {', '.join(f'--{name}' for name in inputs)}.")


def print_table(rows: Sequence[Mapping[str, Any]] | Mapping[str, Sequence]) -> None:
    """Print rows with the same names, or columns: fractions with three digits, a missing number as -."""
    print(pd.DataFrame(rows).to_string(index=False, float_format="{:.3f}".format, na_rep="-"))
