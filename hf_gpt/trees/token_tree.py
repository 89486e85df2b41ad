"""Token trees: sequences that share beginnings, laid out in one row."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True)
class TokenTree:
    """
    Sequences that share beginnings, as a trie in preorder: each path from a root to its end is one sequence that
    the model would otherwise have read alone.

    A token sees itself and its ancestors: token i sees token j exactly when `j <= i < subtree_end[j]`. A plain
    sequence is a tree without branches; several unrelated sequences are several roots in one row.

    Args:
        input_ids (`tuple[int, ...]` of length `length`): the tokens in preorder.
        position_ids (`tuple[int, ...]` of length `length`): depth of each token in its own tree, from 0.
        subtree_end (`tuple[int, ...]` of length `length`): index one past the last descendant of each token.
        parent_index (`tuple[int, ...]` of length `length`): index of the token before, a root's own index.
        lm_weights (`tuple[float, ...]` of length `length`): weight of each token in the language-model loss.
        path_ends (`tuple[int, ...]` of length `paths`): index of the last token of each sequence, in the order in
            which the sequences were given; -1 for an empty sequence.
    """

    input_ids: tuple[int, ...]
    position_ids: tuple[int, ...]
    subtree_end: tuple[int, ...]
    parent_index: tuple[int, ...]
    lm_weights: tuple[float, ...]
    path_ends: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.input_ids)

    @property
    def is_chain(self) -> bool:
        """Whether the row is one plain sequence, for which causal attention is the whole mask."""
        return all(end == len(self.input_ids) for end in self.subtree_end)

    @classmethod
    def from_paths(cls, paths: Sequence[Sequence[int]], share_limit: int | None = None) -> "TokenTree":
        """
        Lay out sequences in one row.

        The language-model weight of a token is the sum, over the sequences that go through it, of
        `1 / (sequences * (len(sequence) - 1))`, so that the weighted losses of a row add up to the mean over
        sequences of the mean over their predicted tokens (what the release computes).

        Args:
            paths (`Sequence[Sequence[int]]`): token ids of each sequence. Empty sequences keep their place in
                `path_ends` (as -1) and count for nothing else.
            share_limit (`int`, *optional*): how many leading tokens sequences may share; by default as many as
                they have in common. 0 puts the sequences one after the other.
        """
        present = sum(1 for path in paths if len(path))
        children: list[dict] = [{}]  # node 0 is above the roots
        token, parent, weight = [-1], [-1], [0.0]
        ends = []
        for number, path in enumerate(paths):
            node = 0
            step = 1 / (present * (len(path) - 1)) if len(path) > 1 else 0.0
            for depth, token_id in enumerate(path):
                # Below the limit of sharing a token belongs to its own sequence alone.
                key = token_id if share_limit is None or depth < share_limit else (token_id, number)
                child = children[node].get(key)
                if child is None:
                    child = len(token)
                    children[node][key] = child
                    children.append({})
                    token.append(int(token_id))
                    parent.append(node)
                    weight.append(0.0)
                if depth:
                    weight[child] += step
                node = child
            ends.append(node)
        return cls._in_preorder(children, token, parent, weight, ends)

    @classmethod
    def _in_preorder(cls, children, token, parent, weight, ends) -> "TokenTree":
        """Number the nodes of a trie in preorder, children in the order in which they were added."""
        row, order, stack = {0: -1}, [], [*reversed(children[0].values())]
        while stack:
            node = stack.pop()
            row[node] = len(order)
            order.append(node)
            stack.extend(reversed(children[node].values()))
        positions, parents = [], []
        for index, node in enumerate(order):
            is_root = parent[node] == 0
            parents.append(index if is_root else row[parent[node]])
            positions.append(0 if is_root else positions[parents[-1]] + 1)
        subtree_end = list(range(1, len(order) + 1))
        for index in range(len(order) - 1, -1, -1):
            above = parents[index]
            subtree_end[above] = max(subtree_end[above], subtree_end[index])
        return cls(
            input_ids=tuple(token[node] for node in order),
            position_ids=tuple(positions),
            subtree_end=tuple(subtree_end),
            parent_index=tuple(parents),
            lm_weights=tuple(weight[node] for node in order),
            path_ends=tuple(row[end] for end in ends),
        )

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> "TokenTree":
        """The tree in a row of a data set, whose other columns are left alone."""
        return cls(**{field.name: row[field.name] for field in fields(cls)})

    def path(self, number: int) -> tuple[int, ...]:
        """Row indices of the tokens of a sequence, from its root to its end."""
        index = self.path_ends[number]
        if index < 0:
            return ()
        indices = [index]
        while self.parent_index[index] != index:
            index = self.parent_index[index]
            indices.append(index)
        return tuple(reversed(indices))
