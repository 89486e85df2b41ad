"""
Vectors of tokens, of words in their context and of sentences: as points in a plane, layer by layer, and by which
others are near. Cosines are between vectors less their mean, as all vectors of a layer have a large part in common
(Ethayarajh, 2019).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from sklearn.decomposition import PCA
from sklearn.manifold import TSNE
from sklearn.metrics.pairwise import cosine_similarity
from sklearn.preprocessing import normalize

from ..generation import encode
from ..model.modeling_gpt import GPTPreTrainedModel
from ..model.tokenization_gpt import GPTTokenizer
from . import text_states, words_of

METHODS, UNITS = ("pca", "tsne"), ("sentence", "word", "token")


@dataclass(frozen=True)
class Vectors:
    """
    Vectors of units by layer, `(units, n_embd)` (tokens have the static embedding alone, as 0); what each unit is, the
    number of its text (-1 for a token), and the text around a word, with the word in brackets (of others their name).
    """

    layers: dict[int, np.ndarray]
    names: list[str]
    texts: list[int]
    contexts: list[str]


def text_vectors(
    model: GPTPreTrainedModel,
    tokenizer: GPTTokenizer,
    texts: Sequence[str],
    layers: Sequence[int | str] | str = "all",
    by_word: bool = False,
) -> Vectors:
    """The states of texts or of their words, and what these are; see `hf_gpt.analysis.text_states`."""
    states, places = text_states(model, tokenizer, texts, layers, by_word)
    names, around = [], []
    for number, start, end in places:
        text = texts[number]
        names.append(text[start:end])
        around.append(f"{text[max(0, start - 40) : start]}[{text[start:end]}]{text[end : end + 40]}")
    return Vectors(states, names, [number for number, _, _ in places], around if by_word else names)


def token_vectors(model: GPTPreTrainedModel, tokenizer: GPTTokenizer, ids: Sequence[int] | None = None) -> Vectors:
    """Static embeddings of some tokens, by default of all but specials; their names are those of `words_of`."""
    if ids is None:
        ids = sorted({*range(len(tokenizer))} - {*tokenizer.all_special_ids})
    table = model.get_input_embeddings().weight.detach().float().cpu().numpy()
    names = words_of(tokenizer, ids)
    return Vectors({0: table[list(ids)]}, names, [-1] * len(names), names)


def projected(vectors: np.ndarray, method: str = "pca", seed: int = 0) -> np.ndarray:
    """
    Points in a plane, `(units, 2)`, by scikit-learn's `pca` or `tsne` (begun from PCA; perplexity 30, or a third of
    fewer units). A `ValueError` says if there are fewer than three vectors.
    """
    if len(vectors) < 3:
        raise ValueError(f"{len(vectors)} vectors make no map: give at least three texts or words.")
    if method == "pca":
        return PCA(2, random_state=seed).fit_transform(vectors)
    return TSNE(2, perplexity=min(30, (len(vectors) - 1) / 3), init="pca", random_state=seed).fit_transform(vectors)


def nearest(
    vectors: np.ndarray, query: np.ndarray, count: int = 10, without: Sequence[int] = ()
) -> list[tuple[int, float]]:
    """
    Rows of the vectors `(units, n_embd)`, but those `without`, that are nearest to a query `(n_embd,)`, with their
    cosines, the nearest first; the vectors' mean is taken away from both.
    """
    mean = vectors.mean(0)
    cosines = cosine_similarity((query - mean)[None], vectors - mean)[0]
    rows = [row for row in np.argsort(-cosines, kind="stable").tolist() if row not in without]
    return [(row, float(cosines[row])) for row in rows[:count]]


def analogy(vectors: np.ndarray, first: int, second: int, third: int, count: int = 10) -> list[tuple[int, float]]:
    """
    What is to the third row as the second is to the first (Mikolov et al., 2013): rows near `second - first + third`,
    all of length 1, but these three.
    """
    mean, rows = vectors.mean(0), [first, second, third]
    one, two, three = normalize(vectors[rows] - mean)
    return nearest(vectors, mean + two - one + three, count, rows)


def token_row(tokenizer: GPTTokenizer, vectors: Vectors, word: str) -> int:
    """The row of a word among `token_vectors`; a `ValueError` if it is not one token."""
    # After a space, which GPT-2's tokens hold.
    names = words_of(tokenizer, encode(tokenizer, f" {word}"))
    if len(names) != 1 or names[0] not in vectors.names:
        raise ValueError(f"{word!r} is not one token ({' '.join(names)}), so it has no embedding: name another word.")
    return vectors.names.index(names[0])
