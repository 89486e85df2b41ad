"""One row of a task -> the token tree that the model reads (Radford et al., 2018, figure 1).

classification     _start_ text _classify_
entailment         _start_ premise _delimiter_ hypothesis _classify_
similarity         both orders of entailment's sequence
multiple choice    _start_ context question _delimiter_ choice _classify_, one sequence per choice
tagging            classification's sequence, in overlapping windows where it is too long
question answering _start_ question _delimiter_ passage _classify_, the passage in overlapping windows
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from .token_tree import TokenTree

Ids = Sequence[int]


@dataclass(frozen=True)
class SpecialIds:
    """Ids of `_start_`, `_delimiter_` and `_classify_`."""

    start: int
    delimiter: int
    classify: int


def fit_half(first: Ids, seconds: Sequence[Ids], tail: Ids, max_length: int) -> tuple[list[int], list[list[int]]]:
    """
    The release's rule: either side of the delimiter gets `max_length // 2 - 2` tokens, and loses its end beyond that.

    Args:
        first, seconds (`Sequence[int]`, and such sequences): text before the delimiter, and one or several after it.
        tail (`Sequence[int]`): end of the first side that stays whole as long as it fits (the question of an item).
        max_length (`int`): tokens of a sequence with its three special tokens.

    Returns: the first side with its tail, and the second sides.
    """
    half = max_length // 2 - 2
    tail = list(tail[:half])
    return [*first[: half - len(tail)], *tail], [list(second[:half]) for second in seconds]


def fit_longest_first(
    first: Ids, seconds: Sequence[Ids], tail: Ids, max_length: int
) -> tuple[list[int], list[list[int]]]:
    """
    Truncates only what does not fit, from the end of the longer side; see `fit_half` for arguments and result. The
    first side is the same for all choices: it leaves space for the longest of them, up to half the sequence.
    """
    space = max_length - 3
    longest = max(len(second) for second in seconds)
    for_second = min(longest, max(space // 2, space - len(first) - len(tail)))
    for_first = space - for_second
    tail = list(tail[:for_first])
    return [*first[: for_first - len(tail)], *tail], [list(second[:for_second]) for second in seconds]


TRUNCATION_RULES: dict[str, Callable] = {"longest_first": fit_longest_first, "half": fit_half}


def _places(tree: TokenTree, before: int) -> list[int]:
    """Where in a row of windows, each behind `before` tokens, a text's tokens are read: in the first with them."""
    windows = [tree.path(number)[before:-1] for number in range(len(tree.path_ends))]
    step, places = len(windows[0]) // 2, []
    for number, window in enumerate(windows):
        places += window[len(places) - number * step :]
    return places


# With the columns of a row's texts.
FAMILIES: dict[str, tuple[str, ...]] = {
    "classification": ("text",),
    "entailment": ("premise", "hypothesis"),
    "similarity": ("premise", "hypothesis"),
    "multiple-choice": ("context", "question", "choices"),
    "tagging": ("words",),
    "question-answering": ("question", "passage"),
}
# Those of which every word or token of a text is read, not the end of a sequence.
WINDOWED = ("tagging", "question-answering")


@dataclass(frozen=True)
class InputTransform:
    """
    A task family's layout with its settings.

    Args:
        family (`str`): a key of `FAMILIES`.
        special (`SpecialIds`): ids of the special tokens.
        max_length (`int`): longest sequence, special tokens included.
        rule (`str`, *optional*, defaults to `"longest_first"`): a key of `TRUNCATION_RULES`.
        share_prefix (`bool`, *optional*, defaults to `True`): lay out what sequences have in common once.

    Raises:
        ValueError: for an unknown family or rule, or a `max_length` below 8.
    """

    # Columns that stand right behind another text, without a special token between them.
    joined: ClassVar[tuple[str, ...]] = ("question",)
    family: str
    special: SpecialIds
    max_length: int
    rule: str = "longest_first"
    share_prefix: bool = True

    def __post_init__(self) -> None:
        known = {"task family": (self.family, FAMILIES), "truncation rule": (self.rule, TRUNCATION_RULES)}
        for kind, (name, names) in known.items():
            if name not in names:
                raise ValueError(f"Unknown {kind} {name!r}; choose one of {', '.join(names)}.")
        if self.max_length < 8:
            raise ValueError(f"max_length is {self.max_length}; a pair with its special tokens needs at least 8.")

    def __call__(self, row: Mapping[str, Ids]) -> TokenTree:
        """
        The tree of a row's token ids, by text column, without special tokens. Its path ends are the `_classify_`
        tokens, in tagging the last tokens of the words, of which the language-model weights add up to the number, and
        in question answering the tokens of the passage.
        """
        return self.fit(row)[0]

    def fit(self, row: Mapping[str, Ids]) -> tuple[TokenTree, int]:
        """The tree of a row, and how many tokens of its texts truncation takes away (of a shared text once)."""
        paths = self._paths(row)
        if self.family == "tagging":
            tree = TokenTree.from_paths(paths, share_limit=0)
            places = _places(tree, 1)
            # A word without tokens is read where the one before it ends.
            ends = [places[end - 1] if end else 0 for end in itertools.accumulate(map(len, row["words"]))]
            weights = tuple(weight * len(row["words"]) for weight in tree.lm_weights)
            return replace(tree, path_ends=tuple(ends), lm_weights=weights), 0
        if self.family == "question-answering":
            before = paths[0].index(self.special.delimiter) + 1
            tree = TokenTree.from_paths(paths, share_limit=before if self.share_prefix else 0)
            return replace(tree, path_ends=tuple(_places(tree, before))), len(row["question"]) + 2 - before
        return TokenTree.from_paths(paths, share_limit=None if self.share_prefix else 0), self._truncated(row, paths)

    def _paths(self, row: Mapping[str, Ids]) -> list[list[int]]:
        """The sequences of a row, truncated or in windows."""
        start, delimiter, classify = self.special.start, self.special.delimiter, self.special.classify
        if self.family == "classification":
            return [[start, *row["text"][: self.max_length - 2], classify]]
        if self.family == "tagging":
            return self._windows([start], list(itertools.chain(*row["words"])))
        if self.family == "question-answering":
            # The question gets half a sequence at most, and comes first because GPT reads from left to right: a token
            # of the passage is scored by what stands before it.
            return self._windows([start, *row["question"][: self.max_length // 2 - 2], delimiter], row["passage"])
        if self.family == "multiple-choice":
            sides = [(row["context"], row["choices"], row["question"])]
        else:
            orders = [(row["premise"], [row["hypothesis"]], []), (row["hypothesis"], [row["premise"]], [])]
            sides = orders if self.family == "similarity" else orders[:1]
        fitted = [TRUNCATION_RULES[self.rule](*texts, self.max_length) for texts in sides]
        return [[start, *first, delimiter, *second, classify] for first, seconds in fitted for second in seconds]

    def _windows(self, before: Ids, tokens: Ids) -> list[list[int]]:
        """Windows of a text behind what stands before each of them, every one half a window behind the last."""
        space = self.max_length - len(before) - 1
        starts = range(0, max(1, len(tokens) - space + space // 2), space // 2)
        return [[*before, *tokens[start : start + space], self.special.classify] for start in starts]

    def _truncated(self, row: Mapping[str, Ids], paths: Sequence[Ids]) -> int:
        if self.family == "multiple-choice":
            kept = paths[0].index(self.special.delimiter) - 1
            kept += sum(len(path) - path.index(self.special.delimiter) - 2 for path in paths)
            return len(row["context"]) + len(row["question"]) + sum(map(len, row["choices"])) - kept
        # A special token stands before each text, and one behind them.
        return sum(len(row[name]) + 1 for name in FAMILIES[self.family]) + 1 - min(map(len, paths))
