"""
What is inside a model, as functions over tensors and tokens: a module for each question, `figures` for the answers.
Layer 0 is the embeddings, layer k what is after block k; heads and neurons of block k are those of layer k.
"""

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from scipy import stats

from ..features import FeatureExtractor
from ..files import check_empty, flag
from ..generation import LanguageModelArguments, check_one_of, encode, token_text
from ..generation.scoring import read_lines
from ..model.modeling_gpt import GPTPreTrainedModel
from ..model.tokenization_gpt import GPTTokenizer
from ..tasks.formats import READERS_BY_SUFFIX, read_by_suffix
from .figures import check_libraries

SENTENCES = Path(__file__).parent / "data" / "sentences.jsonl"


class Example(NamedTuple):
    """A text and, where its file has one, its label."""

    text: str
    label: str | None = None


@dataclass(kw_only=True)
class AnalysisArguments(LanguageModelArguments):
    """The flags of all analyses, to which most add some."""

    heading: ClassVar[str] = "Which model and texts, what is asked, and where the result goes"

    text: list[str] | None = flag(None, "Texts; without text and file, bundled sentences.")
    file: str | None = flag(None, "File of texts: one a line, or rows of CSV, TSV, JSONL or Parquet.")
    text_column: str = flag("text", "Column of the texts in a file of rows.")
    label_column: str = flag("label", "Column of their labels, if there is one.")
    output_dir: str = flag(help="Folder for figures, pages and JSON.")
    overwrite: bool = flag(False, "Replace what is in the folder.")
    seed: int = flag(0, "Of everything that is drawn.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.text is not None and self.file is not None:
            check_one_of(text=self.text, file=self.file)
        check_libraries()
        self.name, self.folder = Path(self.model_name_or_path).name, Path(self.output_dir)
        check_empty(self.folder, self.overwrite, "Name another --output_dir, or give --overwrite.")

    @cached_property
    def examples(self) -> list[Example]:
        """`list[Example]`: the texts, with their labels where there are some; see `read_examples`."""
        if self.text is not None:
            return [Example(text) for text in self.text]
        return read_examples(Path(self.file or SENTENCES), self.text_column, self.label_column)

    def token_ids(self, tokenizer: GPTTokenizer, limit: int, fewest: int = 2) -> list[list[int]]:
        """The first token ids of the texts; a `ValueError` names the text that has fewer than `fewest`."""
        found = [encode(tokenizer, example.text) for example in self.examples]
        for ids, example in zip(found, self.examples, strict=True):
            if len(ids) < fewest:
                raise ValueError(f"The text {example.text!r} has {len(ids)} tokens, not {fewest} or more: write more.")
        if longer := sum(len(ids) > limit for ids in found):
            print(f"Of {longer:,} of {len(found):,} texts only the first {limit:,} tokens are read.")
        return [ids[:limit] for ids in found]


def read_examples(path: Path, text_column: str = "text", label_column: str = "label") -> list[Example]:
    """Texts of a file: lines, or rows of CSV, TSV, JSONL or Parquet; a `ValueError` names the row without one."""
    if not {suffix.lower() for suffix in path.suffixes} & READERS_BY_SUFFIX.keys():
        return [Example(line) for line in read_lines(path)]
    examples = []
    for where, fields in read_by_suffix(path):
        text, label = fields.get(text_column), fields.get(label_column)
        if not isinstance(text, str) or not text.strip():
            raise ValueError(f"{where}: no text in the column {text_column!r} of {', '.join(fields)}.")
        examples.append(Example(text, None if label is None else str(label)))
    if not examples:
        raise ValueError(f"{path}: the file has no rows: write one text a row.")
    return examples


def words_of(tokenizer: GPTTokenizer, ids: Sequence[int]) -> list[str]:
    """Each token as a reader sees it; what does not end a word ends with an ellipsis."""
    special = {*tokenizer.all_special_ids}
    return [tokenizer.piece(each)[0] if each in special else token_text(tokenizer, each) for each in ids]


def text_states(
    model: GPTPreTrainedModel,
    tokenizer: GPTTokenizer,
    texts: Sequence[str],
    layers: Sequence[int | str] | str = "all",
    by_word: bool = False,
) -> tuple[dict[int, np.ndarray], list[tuple[int, int, int]]]:
    """States, `(units, n_embd)` by layer, of texts (means) or words (last tokens); of each its text, start and end."""
    unit = {"pooling": "none", "unit": "word", "word_pooling": "last"} if by_word else {"pooling": "mean"}
    found = FeatureExtractor(model, tokenizer, layers=layers, **unit)(list(texts))
    states = {layer: values.float().numpy() for layer, values in found.states.items()}
    if not by_word:
        return states, [(number, 0, len(text)) for number, text in enumerate(texts)]
    numbers = np.repeat(np.arange(len(texts)), np.diff(found.offsets)).tolist()
    columns = (found.columns[name].tolist() for name in ("word_start", "word_end"))
    return states, list(zip(numbers, *columns, strict=True))


def with_random_weights(model: GPTPreTrainedModel, seed: int = 0) -> GPTPreTrainedModel:
    """A model like this one with random weights, the control of what training has taught; in evaluation mode."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return type(model)(copy.deepcopy(model.config)).to(model.device).eval()


def mean_intervals(values: npt.ArrayLike, seed: int = 0) -> dict[str, np.ndarray]:
    """Of examples, `(examples, ...)`, `mean`, `low` and `high`: percentiles (95%) of 1,000 bootstrap draws."""
    mean = np.mean(values, 0, dtype=np.float64)
    if len(values) < 2:
        return dict.fromkeys(("mean", "low", "high"), mean)
    settings = {"n_resamples": 1000, "batch": 50, "vectorized": True, "method": "percentile", "rng": seed}
    found = stats.bootstrap((np.asarray(values, np.float64),), np.mean, **settings).confidence_interval
    return {"mean": mean, "low": found.low, "high": found.high}


def interval_text(values: Iterable[float], form: str = ".3f") -> str:
    """A number with its interval, of the number, low and high."""
    return "{} ({} to {})".format(*(f"{value:{form}}" for value in values))
