"""Token trees: sequences that share beginnings, laid out in one row."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True)
class TokenTree:
    """
    Sequences that share beginnings, as a trie in preorder: each path from a root to its end is one sequence that
    the model would otherwise have read alone. A token sees itself and its ancestors: token i sees token j exactly when
    `j <= i < subtree_end[j]`. Unrelated sequences are several roots in one row.

    Args:
        input_ids (`tuple[int, ...]` of length `length`): the tokens in preorder.
        position_ids (`tuple[int, ...]` of length `length`): depth of each token in its own tree, from 0.
        subtree_end (`tuple[int, ...]` of length `length`): index one past the last descendant of each token.
        parent_index (`tuple[int, ...]` of length `length`): index of the token before, a root's own index.
        lm_weights (`tuple[float, ...]` of length `length`): weight of each token in the language-model loss.
        path_ends (`tuple[int, ...]` of length `paths`): index of each sequence's last token, -1 for an empty one.
    """

    input_ids: tuple[int, ...]
    position_ids: tuple[int, ...]
    subtree_end: tuple[int, ...]
    parent_index: tuple[int, ...]
    lm_weights: tuple[float, ...]
    path_ends: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.input_ids)

    @classmethod
    def from_paths(cls, paths: Sequence[Sequence[int]], share_limit: int | None = None) -> "TokenTree":
        """
        Lay out sequences in one row.

        The language-model weight of a token is the sum, over the sequences that go through it, of
        `1 / (sequences * (len(sequence) - 1))`: the weighted losses of a row add up to the mean over sequences of the
        mean over their predicted tokens, as in the release.

        Args:
            paths (`Sequence[Sequence[int]]`): token ids of each sequence; an empty one only has its place in
                `path_ends` (-1).
            share_limit (`int`, *optional*): how many leading tokens sequences may share; by default as many as they
                have in common. 0 puts the sequences one after the other.
        """
        present = [number for number, path in enumerate(paths) if len(path)]
        steps = [1 / (len(present) * (len(path) - 1)) if len(path) > 1 else 0.0 for path in paths]
        tokens, positions, parents, weights, ends = [], [], [], [], [-1] * len(paths)
        limit = max(map(len, paths), default=0) if share_limit is None else share_limit

        def branches(numbers: Iterable[int], depth: int, parent: int) -> Iterator[tuple[list[int], int, int]]:
            groups: dict[tuple[int, int], list[int]] = {}
            for number in numbers:
                # Below the limit of sharing a token belongs to its own sequence alone.
                groups.setdefault((paths[number][depth], number if depth >= limit else 0), []).append(number)
            return ((group, depth, parent) for group in reversed(groups.values()))

        # In preorder, a stretch that the same sequences go through at a time.
        waiting = [*branches(present, 0, -1)]
        while waiting:
            numbers, depth, parent = waiting.pop()
            first, *others = (paths[number] for number in numbers)
            end, most = depth + 1, min(limit, *map(len, others)) if others else len(first)
            while end < min(most, len(first)) and all(first[end] == other[end] for other in others):
                end += 1
            start, last = len(tokens), len(tokens) + end - depth - 1
            weight = sum(steps[number] for number in numbers)
            tokens += map(int, first[depth:end])
            positions += range(depth, end)
            parents += [parent if depth else start, *range(start, last)]
            weights += [weight if depth else 0.0, *[weight] * (last - start)]
            for number in numbers:
                if len(paths[number]) == end:
                    ends[number] = last
            waiting += branches((number for number in numbers if len(paths[number]) > end), end, last)
        subtree_end = list(range(1, len(tokens) + 1))
        for index, above in reversed([*enumerate(parents)]):
            subtree_end[above] = max(subtree_end[above], subtree_end[index])
        return cls(*map(tuple, (tokens, positions, subtree_end, parents, weights, ends)))

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> "TokenTree":
        """The tree in a row of a data set, whose other columns are left alone."""
        return cls(**{field.name: row[field.name] for field in fields(cls)})

    def path(self, number: int) -> tuple[int, ...]:
        """Row indices of the tokens of a sequence, from its root to its end."""
        end = self.path_ends[number]
        return tuple(index for index in range(end + 1) if end < self.subtree_end[index])
