r"""
Tokens, words in context and sentences as points in a plane, layer by layer; which are near, and analogies.

    python scripts/analyze.py project --model_name_or_path model_cards/gpt-mini --unit word --words light play \
        --file sentences.txt --method tsne --output_dir outputs/words
    python scripts/analyze.py project --model_name_or_path model_cards/gpt-mini --nearest night \
        --analogy he his she --output_dir outputs/nearest

Sentences have the colour of their label in the file, words that of the text, or with `--words` one of their own.
projection.html is a map for each layer with a search, projection.png shows all layers, projection.json holds the
points. `--nearest` prints the nearest static embeddings of a word and, where the texts hold it, the words in context
that are nearest to each of its occurrences; `--analogy a b c` what is to c as b is to a (nearest.json). All vectors
are taken less their mean, as those of a layer have a large part in common (Ethayarajh, 2019).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from sklearn.decomposition import PCA
from sklearn.manifold import TSNE
from sklearn.metrics.pairwise import cosine_similarity
from sklearn.preprocessing import normalize

from ..files import flag, write_json
from ..generation import encode
from ..model.modeling_gpt import GPTModel, GPTPreTrainedModel
from ..model.tokenization_gpt import GPTTokenizer
from . import AnalysisArguments, text_states, words_of
from .figures import points_figure
from .pages import write_page

# Occurrences of a word whose neighbours are printed.
_OCCURRENCES = 5
_PLACES = {None: "part of a word", False: "part of a word", True: "end of a word"}
METHODS, UNITS = ("pca", "tsne"), ("sentence", "word", "token")


class Vectors(NamedTuple):
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
    fewer units). A `ValueError` if there are fewer than three vectors.
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


@dataclass(kw_only=True)
class Arguments(AnalysisArguments):
    """Which model and texts, which vectors, and where the result goes."""

    unit: str = flag("sentence", "What a point is.", UNITS)
    method: str = flag("pca", "How vectors become points.", METHODS)
    layers: list[str] = flag(["all"], "Layers, 0 the embeddings, -1 the last one; or all.")
    words: list[str] | None = flag(None, "With --unit word: only these, each a label.")
    nearest: list[str] | None = flag(None, "Words whose neighbours are printed.")
    analogy: list[str] | None = flag(None, "Three words a b c: what is to c as b is to a?")
    count: int = flag(10, "Neighbours of each.")
    max_units: int = flag(1000, "Points at most, the first ones.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.words and self.unit != "word":
            raise ValueError("--words are words in context: add --unit word.")
        if self.analogy is not None and len(self.analogy) != 3:
            raise ValueError(f"--analogy takes three words, not {len(self.analogy)}.")


def run(args: Arguments) -> None:
    """Read the vectors, project, find neighbours."""
    model, tokenizer = args.load(GPTModel)
    ids, examples = args.token_ids(tokenizer, model.config.n_positions, fewest=1), args.examples
    if args.unit == "token":
        tokens = list(dict.fromkeys(chain(*ids)))
        vectors, pieces = token_vectors(model, tokenizer, tokens), map(tokenizer.piece, tokens)
        # GPT-2's tokens say where a word begins, by a space, GPT-1's where it ends.
        labels = ["beginning of a word" if text.startswith(" ") else _PLACES[ends] for text, ends in pieces]
    else:
        texts = [example.text for example in examples]
        vectors = text_vectors(model, tokenizer, texts, args.layers, by_word=args.unit == "word")
        labels = [examples[number].label or "" for number in vectors.texts]
    words = {word.lower() for word in args.words or ()}
    labels = [name.lower() for name in vectors.names] if words else labels
    kept = [row for row, label in enumerate(labels) if not words or label in words][: args.max_units]
    if len(kept) < len(labels):
        print(f"{len(kept):,} of {len(labels):,} {args.unit}s are shown.")
    names, labels, contexts = ([column[row] for row in kept] for column in (vectors.names, labels, vectors.contexts))
    points = {
        layer: projected(values[kept], args.method, args.seed).tolist() for layer, values in vectors.layers.items()
    }
    title = f"{args.unit.capitalize()}s of {args.name}, {args.method}"
    data = {"unit": args.unit, "layers": points, "names": names, "labels": labels}
    write_page(args.folder / "projection.html", title, {**data, "contexts": contexts})
    args.save("projection", points_figure(points, labels, title), data)
    if args.nearest or args.analogy:
        write_json(args.folder / "nearest.json", _neighbours(args, model, tokenizer))


def _neighbours(args: Arguments, model: GPTPreTrainedModel, tokenizer: GPTTokenizer) -> dict[str, Any]:
    """What is near to words, and analogies; printed, too."""

    def rows_of(title: str, names: list[str], near: Iterable[tuple[int, float]]) -> list[dict[str, Any]]:
        rows = [{"name": names[row], "cosine": cosine} for row, cosine in near]
        print(f"{title}\n" + "\n".join(f"  {row['cosine']:.3f}  {row['name']}" for row in rows))
        return rows

    static, found = token_vectors(model, tokenizer), {}
    table = static.layers[0]
    if args.analogy:
        rows = [token_row(tokenizer, static, word) for word in args.analogy]
        name = "{} : {} = {} : ?".format(*args.analogy)
        found[name] = rows_of(name, static.names, analogy(table, *rows, args.count))
    if args.nearest:
        texts = [example.text for example in args.examples]
        context = text_vectors(model, tokenizer, texts, args.layers, by_word=True)
        layer, values = list(context.layers.items())[-1]
    for word in args.nearest or ():
        row = token_row(tokenizer, static, word)
        near = nearest(table, table[row], args.count, [row])
        found[word] = {"static": rows_of(f"{word}, static", static.names, near), "in context": []}
        for place in [row for row, name in enumerate(context.names) if name.lower() == word.lower()][:_OCCURRENCES]:
            near, title = nearest(values, values[place], args.count, [place]), context.contexts[place]
            rows = rows_of(f"{title}, layer {layer}", context.contexts, near)
            found[word]["in context"].append({"context": title, "layer": layer, "nearest": rows})
    return found
