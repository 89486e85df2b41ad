"""Hidden states as features: of any layers, per text, word or token."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from ..model.modeling_gpt import GPTModel, GPTPreTrainedModel
from ..model.tokenization_gpt import GPTTokenizer
from ..trees.collators import length_sorted_batches

POOLINGS = ("none", "last", "mean", "classify")
UNITS = ("token", "word")
WORD_POOLINGS = ("mean", "last")
# Next to the states of words: the text of a pair that each is in, and its characters there.
WORD_COLUMNS = ("sequence", "word_start", "word_end")


@dataclass
class TextFeatures:
    """
    Features of texts. A unit is a text with pooling, else a token or a word.

        states (`dict[int, torch.Tensor]`): by layer, `(units, n_embd)`; NaN for a pooled text without any token.
        offsets (`np.ndarray` of shape `(texts + 1,)`): the units of text i are `offsets[i]` to `offsets[i + 1]`.
        tokens, cut_tokens (`np.ndarray` of shape `(texts,)`): how many were read, and how many truncated before.
        columns (`dict[str, np.ndarray]`): arrays of shape `(units,)`. Per token `input_ids`. Per word `sequence` (0,
            or 1 for the second text of a pair), `word_start` and `word_end` (its characters in the text as given),
            `word_tokens` (how many it has), and the `word` itself.
    """

    states: dict[int, torch.Tensor]
    offsets: np.ndarray
    tokens: np.ndarray
    cut_tokens: np.ndarray
    columns: dict[str, np.ndarray]


def resolve_layers(layers: Sequence[int | str] | str, n_layer: int) -> list[int]:
    """
    Layer indices, ascending, from 0 (the embedding) to `n_layer` (the last block), of indices, negative ones from the
    end, or `all`; a `ValueError` for one that the model does not have.
    """
    every = range(n_layer + 1)
    if layers == "all" or list(layers) == ["all"]:
        return list(every)
    try:
        return sorted({every[int(layer)] for layer in layers})
    except (ValueError, IndexError) as error:
        has = f"the model has 0 (output of the embedding) to {n_layer}, or all"
        raise ValueError(f"layers: there is no {' '.join(map(str, layers))}; {has}.") from error


class FeatureExtractor:
    """
    Hidden states of texts: those of `model(**tokenizer(text), output_hidden_states=True)`, computed in batches of
    texts of like length.

    Args:
        model (`GPTPreTrainedModel`): in evaluation mode; of a model with a head its transformer is used.
        tokenizer (`GPTTokenizer`): with its task template on or off.
        layers: see `resolve_layers`.
        pooling: `"mean"` over all tokens (special tokens are some), `"last"` or `"classify"` token, or `"none"`.
        unit: with pooling none, states per `"token"` or per `"word"` (the release's; special tokens belong to none).
        word_pooling: `"mean"` over a word's tokens, or their `"last"`.
        max_length: longer texts are truncated; by default the model's context.
        context_words: with unit word, each word is read after so many words of its text alone, as encoding models of
            the brain do; texts are not truncated then.
        tokens_per_batch: with padding, by default 512 on a CPU and 8192 elsewhere.

    Raises:
        ValueError: if an argument is unknown, contradicts another, or does not fit the model; or in training mode.
    """

    def __init__(
        self,
        model: GPTPreTrainedModel,
        tokenizer: GPTTokenizer,
        layers: Sequence[int | str] | str = (-1,),
        pooling: str = "mean",
        unit: str = "token",
        word_pooling: str = "mean",
        max_length: int | None = None,
        tokens_per_batch: int | None = None,
        context_words: int | None = None,
    ):
        for value, known in ((pooling, POOLINGS), (unit, UNITS), (word_pooling, WORD_POOLINGS)):
            if value not in known:
                raise ValueError(f"{value} is unknown; choose one of {', '.join(known)}.")
        if unit == "word" and pooling != "none":
            raise ValueError(f"unit word gives a state per word, pooling {pooling} one per text: choose pooling none.")
        if context_words is not None and (unit != "word" or context_words < 0):
            raise ValueError(f"context_words {context_words}: it is of unit word, and at least 0.")
        if model.training:
            raise ValueError("The model is in training mode, where dropout blurs features: call model.eval() first.")
        if pooling == "classify" and not tokenizer.task_template:
            raise ValueError("Pooling classify needs its token: set tokenizer.task_template = True.")
        context = model.config.n_positions
        if max_length is not None and not 8 <= max_length <= context:
            raise ValueError(f"max_length {max_length}: give 8 to the model's context of {context}.")
        self.model: GPTModel = model.base_model
        self.tokenizer = tokenizer
        self.layers = resolve_layers(layers, len(self.model.h))
        self.pooling, self.word_pooling, self.by_word = pooling, word_pooling, unit == "word"
        self.max_length, self.context_words = max_length or context, context_words
        self.tokens_per_batch = tokens_per_batch or (512 if self.model.device.type == "cpu" else 8192)

    def __call__(self, texts: Sequence[str], pairs: Sequence[str] | None = None) -> TextFeatures:
        """Features of texts, or of pairs of them, in their order."""
        inputs = (list(texts), None if pairs is None else list(pairs))
        encodings = self.tokenizer(*inputs, verbose=False).encodings
        whole = np.array([*map(len, encodings)], dtype=np.int64)
        if self.context_words is None and (whole > self.max_length).any():
            encodings = self.tokenizer(*inputs, truncation=True, max_length=self.max_length).encodings
        lengths = np.array([*map(len, encodings)], dtype=np.int64)
        input_ids = [encoding.ids for encoding in encodings]
        spans, columns = self._spans(input_ids, encodings)
        del encodings  # many times as large as the ids
        offsets = starts = np.concatenate([[0], np.cumsum([len(span) for span in spans], dtype=np.int64)])
        read = lengths
        if self.context_words is not None:
            input_ids, spans = self._windows(input_ids, spans)
            read, starts = np.array([*map(len, input_ids)], dtype=np.int64), np.arange(len(spans) + 1)
        if self.by_word:
            if self.word_pooling == "last":
                spans = [np.stack([span[:, 1] - 1, span[:, 1]], 1) for span in spans]
            rows = np.repeat(np.arange(len(texts)), np.diff(offsets))
            places = zip(rows, *(columns[name] for name in WORD_COLUMNS), strict=True)
            words = [inputs[side][row][start:end] for row, side, start, end in places]
            columns["word"] = np.array(words, dtype=object)
        shape = (int(offsets[-1]), self.model.config.n_embd)
        states = {layer: torch.full(shape, float("nan"), dtype=self.model.dtype) for layer in self.layers}
        for rows in length_sorted_batches(read, self.tokens_per_batch):
            units = np.concatenate([np.arange(starts[row], starts[row + 1]) for row in rows])
            flat_spans = np.concatenate([spans[row] + place * read[rows[0]] for place, row in enumerate(rows)])
            for layer, values in self._pooled_states([input_ids[row] for row in rows], flat_spans).items():
                states[layer][units] = values
        return TextFeatures(states, offsets, lengths, whole - lengths, columns)

    def _spans(self, input_ids: list[list[int]], encodings: Any) -> tuple[list[np.ndarray], dict[str, np.ndarray]]:
        """For each text the tokens of its units, `(units, 2)` starts and ends; and the columns of the units."""
        if self.by_word:
            words = [word_spans(encoding) for encoding in encodings]
            table = np.concatenate([np.empty((0, 5), dtype=np.int64), *words])
            columns = dict(zip(WORD_COLUMNS, np.ascontiguousarray(table[:, 2:].T), strict=True))
            return [word[:, :2] for word in words], columns | {"word_tokens": table[:, 1] - table[:, 0]}
        if self.pooling == "none":
            flat = np.fromiter((token for ids in input_ids for token in ids), dtype=np.int64)
            return [np.arange(len(ids))[:, None] + [0, 1] for ids in input_ids], {"input_ids": flat}
        ends = [len(ids) for ids in input_ids]
        if self.pooling == "classify":
            ends = [ids.index(self.tokenizer.cls_token_id) + 1 for ids in input_ids]
        return [np.array([[0 if self.pooling == "mean" else max(0, end - 1), end]]) for end in ends], {}

    def _windows(self, texts: list[list[int]], spans: list[np.ndarray]) -> tuple[list[list[int]], list[np.ndarray]]:
        """For each word of all texts the ids of the words before it with its own, and where its own stand."""
        windows, places = [], []
        for ids, words in zip(texts, spans, strict=True):
            for number, (first, end) in enumerate(words):
                start = max(words[max(0, number - self.context_words), 0], end - self.max_length)
                windows.append(ids[start:end])
                places.append(np.array([[max(first - start, 0), end - start]]))
        return windows, places

    @torch.inference_mode()
    def _pooled_states(self, rows: list[list[int]], spans: np.ndarray) -> dict[int, torch.Tensor]:
        """States of a batch's units, on the CPU. The first row is the longest; spans count through padded rows."""
        config, device, top = self.model.config, self.model.device, len(self.model.h)
        tokens = [torch.tensor(row, device=device) for row in rows]
        batch = nn.utils.rnn.pad_sequence(tokens, True, padding_value=config.pad_token_id or 0)
        # A causal model does not see the padding on the right.
        mask = None if config.is_causal else nn.utils.rnn.pad_sequence([*map(torch.ones_like, tokens)], True)
        kept = [layer for layer in self.layers if layer < top]
        outputs = self.model(batch, attention_mask=mask, use_cache=False, output_hidden_states=kept)
        sizes = spans[:, 1] - spans[:, 0]
        bags = np.cumsum(sizes) - sizes
        index = np.repeat(spans[:, 0] - bags, sizes) + np.arange(sizes.sum())
        index, starts = (torch.from_numpy(each).to(device) for each in (index, bags))
        pooled = {}
        for layer in self.layers:
            states = (outputs.last_hidden_state if layer == top else outputs.hidden_states[layer]).flatten(0, 1)
            # The mean of rows of a matrix, picked by index: an embedding bag.
            means = nn.functional.embedding_bag(index, states.float(), starts, mode="mean")
            pooled[layer] = means.to(states.dtype).cpu()
        return pooled


def word_spans(encoding: Any) -> np.ndarray:
    """Words of a text or pair, `(words, 5)`: first token, end of the tokens, sequence, first character, their end."""
    words, previous = [], None
    pieces = zip(encoding.sequence_ids, encoding.word_ids, encoding.offsets, strict=True)
    for index, (sequence, word, (start, end)) in enumerate(pieces):
        if word is not None and (sequence, word) == previous:
            words[-1][1], words[-1][4] = index + 1, end
        elif word is not None:
            words.append([index, index + 1, sequence, start, end])
        previous = None if word is None else (sequence, word)
    return np.array(words, dtype=np.int64).reshape(-1, 5)
