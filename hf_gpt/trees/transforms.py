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
from functools import partial
from typing import ClassVar

from .token_tree import TokenTree

Ids = Sequence[int]


def _fit(
    is_half: bool, first: Ids, seconds: Sequence[Ids], tail: Ids, max_length: int
) -> tuple[list[int], list[list[int]]]:
    """
    The sides of the delimiter without their ends: by the release's rule, "half", either gets `max_length // 2 - 2`
    tokens; by "longest_first" the longer side loses what does not fit. The first side, which is the same for all
    choices, then leaves space for the longest of them, up to half the sequence.

    Args:
        first, seconds (`Sequence[int]`, and such sequences): text before the delimiter, and one or several after it.
        tail (`Sequence[int]`): end of the first side that stays whole as long as it fits (the question of an item).
        max_length (`int`): tokens of a sequence with its three special tokens.

    Returns: the first side with its tail, and the second sides.
    """
    space = max_length - 3
    for_second = min(max(map(len, seconds)), max(space // 2, space - len(first) - len(tail)))
    for_first = space - for_second
    if is_half:
        for_first = for_second = max_length // 2 - 2
    tail = list(tail[:for_first])
    return [*first[: for_first - len(tail)], *tail], [list(second[:for_second]) for second in seconds]


TRUNCATION_RULES: dict[str, Callable] = {"longest_first": partial(_fit, False), "half": partial(_fit, True)}
# With the columns of a row's texts.
FAMILIES: dict[str, tuple[str, ...]] = {
    "classification": ("text",),
    "entailment": ("premise", "hypothesis"),
    "similarity": ("premise", "hypothesis"),
    "multiple-choice": ("context", "question", "choices"),
    "tagging": ("words",),
    "question-answering": ("question", "passage"),
}


@dataclass(frozen=True)
class InputTransform:
    """
    A task family's layout with its settings.

    Args:
        family (`str`): a key of `FAMILIES`; a `ValueError` for another.
        special (`tuple[int, int, int]`): ids of `_start_`, `_delimiter_` and `_classify_`.
        max_length (`int`): longest sequence, special tokens included; a `ValueError` if it is below 8.
        rule (`str`, *optional*, defaults to `"longest_first"`): a key of `TRUNCATION_RULES`.
        share_prefix (`bool`, *optional*, defaults to `True`): lay out what sequences have in common once.
    """

    # Columns that stand right behind another text, without a special token between them.
    joined: ClassVar[tuple[str, ...]] = ("question",)
    family: str
    special: tuple[int, int, int]
    max_length: int
    rule: str = "longest_first"
    share_prefix: bool = True

    def __post_init__(self) -> None:
        if self.family not in FAMILIES:
            raise ValueError(f"Unknown task family {self.family!r}; choose one of {', '.join(FAMILIES)}.")
        if self.max_length < 8:
            raise ValueError(f"max_length is {self.max_length}; a pair with its special tokens needs at least 8.")

    def fit(self, row: Mapping[str, Ids]) -> tuple[TokenTree, int]:
        """
        The tree of a row's token ids, by text column, without special tokens; and how many of them truncation takes
        away (of a shared text once). Path ends are the `_classify_` tokens, in tagging the last tokens of the words,
        of which the language-model weights add up to the number, and in question answering the passage's tokens.
        """
        start, delimiter, classify = self.special
        if self.family == "tagging":
            tree, places = self._windows([start], list(itertools.chain(*row["words"])), share_limit=0)
            # A word without tokens is read where the one before it ends.
            ends = [places[end - 1] if end else 0 for end in itertools.accumulate(map(len, row["words"]))]
            weights = tuple(weight * len(row["words"]) for weight in tree.lm_weights)
            return replace(tree, path_ends=tuple(ends), lm_weights=weights), 0
        if self.family == "question-answering":
            # The question gets half a sequence at most, and comes first because GPT reads from left to right: a token
            # of the passage is scored by what stands before it.
            kept = row["question"][: self.max_length // 2 - 2]
            before = [start, *kept, delimiter]
            tree, places = self._windows(before, row["passage"], len(before) if self.share_prefix else 0)
            return replace(tree, path_ends=tuple(places)), len(row["question"]) - len(kept)
        if self.family == "classification":
            kept = row["text"][: self.max_length - 2]
            return TokenTree.from_paths([[start, *kept, classify]]), len(row["text"]) - len(kept)
        if self.family == "multiple-choice":
            sides = [(row["context"], row["choices"], row["question"])]
        else:
            orders = [(row["premise"], [row["hypothesis"]], []), (row["hypothesis"], [row["premise"]], [])]
            sides = orders if self.family == "similarity" else orders[:1]
        fitted = [TRUNCATION_RULES[self.rule](*texts, self.max_length) for texts in sides]
        paths = [[start, *first, delimiter, *second, classify] for first, seconds in fitted for second in seconds]
        (first, seconds, tail), (kept, ends) = sides[0], fitted[0]  # either order loses as many
        lost = sum(map(len, (first, tail, *seconds))) - sum(map(len, (kept, *ends)))
        return TokenTree.from_paths(paths, share_limit=None if self.share_prefix else 0), lost

    def _windows(self, before: Ids, tokens: Ids, share_limit: int) -> tuple[TokenTree, list[int]]:
        """Windows of a text, half a window apart, each behind `before`; and where its tokens are first."""
        space = self.max_length - len(before) - 1
        starts = range(0, max(1, len(tokens) - space + space // 2), space // 2)
        paths = [[*before, *tokens[start : start + space], self.special[2]] for start in starts]
        tree, places = TokenTree.from_paths(paths, share_limit), []
        for number, start in enumerate(starts):
            places += tree.path(number)[len(before) + len(places) - start : -1]
        return tree, places
