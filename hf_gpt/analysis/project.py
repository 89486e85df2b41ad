r"""
Sentences and words in context as points in a plane, layer by layer.

    hf-gpt analyze project --model_name_or_path gpt-mini --unit word --words light play \
        --file sentences.txt --method tsne --output_dir outputs/words

Sentences have the colour of their label in the file, words that of the text, or with `--words` one of their own.
projection.html is a map for each layer with a search, projection.json holds the points.
"""

from dataclasses import dataclass

import numpy as np
from sklearn.decomposition import PCA
from sklearn.manifold import TSNE

from ..files import flag, write_json
from ..model.modeling_gpt import GPTModel
from . import AnalysisArguments, text_states
from .figures import write_page

# Points at most, the first ones.
_MOST = 1000


def projected(vectors: np.ndarray, method: str = "pca", seed: int = 0) -> np.ndarray:
    """Points in a plane, `(units, 2)`, by `pca` or `tsne`; a `ValueError` if there are fewer than three vectors."""
    if len(vectors) < 3:
        raise ValueError(f"{len(vectors)} vectors make no map: give at least three texts or words.")
    if method == "pca":
        return PCA(2, random_state=seed).fit_transform(vectors)
    return TSNE(2, perplexity=min(30, (len(vectors) - 1) / 3), init="pca", random_state=seed).fit_transform(vectors)


@dataclass(kw_only=True)
class Arguments(AnalysisArguments):
    """Which model and texts, which vectors, and where the result goes."""

    unit: str = flag("sentence", "What a point is.", ["sentence", "word"])
    method: str = flag("pca", "How vectors become points.", ["pca", "tsne"])
    words: list[str] | None = flag(None, "With --unit word: only these, each a label.")


def run(args: Arguments) -> None:
    """Read the vectors, project."""
    if args.words and args.unit != "word":
        raise ValueError("--words are words in context: add --unit word.")
    model, tokenizer = args.load(GPTModel)
    args.token_ids(tokenizer, model.config.n_positions, fewest=1)
    texts = [example.text for example in args.examples]
    states, places = text_states(model, tokenizer, texts, by_word=args.unit == "word")
    kept, names, labels, contexts = [], [], [], []
    words = {word.lower() for word in args.words or ()}
    for row, (number, start, end) in enumerate(places):
        text = texts[number]
        name = text[start:end]
        if len(kept) < _MOST and (not words or name.lower() in words):
            kept.append(row)
            names.append(name)
            labels.append(name.lower() if words else args.examples[number].label or "")
            around = f"{text[max(0, start - 40) : start]}[{name}]{text[end : end + 40]}"
            contexts.append(around if args.unit == "word" else name)
    if len(kept) < len(places):
        print(f"{len(kept):,} of {len(places):,} {args.unit}s are shown.")
    points = {layer: projected(values[kept], args.method, args.seed).tolist() for layer, values in states.items()}
    data = {"unit": args.unit, "layers": points, "names": names, "labels": labels, "contexts": contexts}
    write_page(args.folder / "projection.html", f"{args.unit.capitalize()}s of {args.name}, {args.method}", data)
    write_json(args.folder / "projection.json", data)
