r"""
Sentences and words in context as points in a plane, layer by layer; which tokens are near, and analogies.

    hf-gpt analyze project --model_name_or_path gpt-mini --unit word --words light play \
        --file sentences.txt --method tsne --output_dir outputs/words

Sentences have the colour of their label in the file, words that of the text, or with `--words` one of their own.
projection.html is a map for each layer with a search, projection.json holds the points. `--nearest` prints the nearest
static embeddings of a word, `--analogy a b c` what is to c as b is to a (nearest.json). All vectors are taken less
their mean, as those of a layer have a large part in common (Ethayarajh, 2019).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from sklearn.decomposition import PCA
from sklearn.manifold import TSNE
from sklearn.preprocessing import normalize

from ..files import flag, write_json
from ..generation import encode
from ..model.modeling_gpt import GPTModel
from ..model.tokenization_gpt import GPTTokenizer
from . import AnalysisArguments, text_states, words_of
from .figures import write_page


def nearest(vectors: np.ndarray, rows: Sequence[int], count: int = 10) -> list[tuple[int, float]]:
    """Rows of `(units, n_embd)` near one, or near `b - a + c` of three (Mikolov et al., 2013), with their cosines."""
    vectors = normalize(vectors - vectors.mean(0))
    query = vectors[rows[-1]] + (vectors[rows[1]] - vectors[rows[0]] if rows[1:] else 0)
    cosines = vectors @ query / np.linalg.norm(query)
    order = [row for row in np.argsort(-cosines, kind="stable").tolist() if row not in rows]
    return [(row, cosines[row].item()) for row in order[:count]]


def token_id(tokenizer: GPTTokenizer, word: str) -> int:
    """The id of a word; a `ValueError` if it is not one ordinary token."""
    # After a space, which GPT-2's tokens hold.
    ids = encode(tokenizer, f" {word}")
    if len(ids) != 1 or ids[0] in tokenizer.all_special_ids:
        pieces = " ".join(words_of(tokenizer, ids))
        raise ValueError(f"{word!r} is not one token ({pieces}), so it has no embedding: name another word.")
    return ids[0]


@dataclass(kw_only=True)
class Arguments(AnalysisArguments):
    unit: str = flag("sentence", "What a point is.", ["sentence", "word"])
    method: str = flag("pca", "How vectors become points.", ["pca", "tsne"])
    layers: list[str] = flag(["all"], "Layers, 0 the embeddings, -1 the last one; or all.")
    words: list[str] | None = flag(None, "With --unit word: only these, each a label.")
    nearest: list[str] | None = flag(None, "Words whose neighbours are printed.")
    analogy: list[str] | None = flag(None, "Three words a b c: what is to c as b is to a?")
    count: int = flag(10, "Neighbours of each.")
    max_units: int = flag(1000, "Points at most, the first ones.")


def run(args: Arguments) -> None:
    """Read the vectors, project, find neighbours."""
    if args.words and args.unit != "word":
        raise ValueError("--words are words in context: add --unit word.")
    if args.analogy is not None and len(args.analogy) != 3:
        raise ValueError(f"--analogy takes three words, not {len(args.analogy)}.")
    model, tokenizer = args.load(GPTModel)
    args.token_ids(tokenizer, model.config.n_positions, fewest=1)
    texts = [example.text for example in args.examples]
    states, places = text_states(model, tokenizer, texts, args.layers, by_word=args.unit == "word")
    kept, names, labels, contexts = [], [], [], []
    words = {word.lower() for word in args.words or ()}
    for row, (number, start, end) in enumerate(places):
        text, name = texts[number], texts[number][start:end]
        if len(kept) < args.max_units and (not words or name.lower() in words):
            kept.append(row)
            names.append(name)
            labels.append(name.lower() if words else args.examples[number].label or "")
            around = f"{text[max(0, start - 40) : start]}[{name}]{text[end : end + 40]}"
            contexts.append(around if args.unit == "word" else name)
    if len(kept) < len(places):
        print(f"{len(kept):,} of {len(places):,} {args.unit}s are shown.")
    if len(kept) < 3:
        raise ValueError(f"{len(kept)} vectors make no map: give at least three texts or words.")
    perplexity = min(30, (len(kept) - 1) / 3)
    methods = {"pca": PCA(2), "tsne": TSNE(2, perplexity=perplexity, init="pca")}
    method = methods[args.method].set_params(random_state=args.seed)
    points = {layer: method.fit_transform(values[kept]) for layer, values in states.items()}
    data = {"unit": args.unit, "layers": points, "names": names, "labels": labels, "contexts": contexts}
    write_page(args.folder / "projection.html", f"{args.unit.capitalize()}s of {args.name}, {args.method}", data)
    ordinary = sorted({*range(len(tokenizer))} - {*tokenizer.all_special_ids})
    table = model.get_input_embeddings().weight.detach().float().cpu().numpy()[ordinary]
    asked, record = {word: [word] for word in args.nearest or ()}, {}
    if args.analogy:
        asked["{} : {} = {} : ?".format(*args.analogy)] = args.analogy
    for title, terms in asked.items():
        rows = [ordinary.index(token_id(tokenizer, word)) for word in terms]
        found = nearest(table, rows, args.count)
        names = words_of(tokenizer, [ordinary[row] for row, _ in found])
        record[title] = [{"name": name, "cosine": cosine} for name, (_, cosine) in zip(names, found, strict=True)]
        print("\n".join([title, *(f"  {row['cosine']:.3f}  {row['name']}" for row in record[title])]))
    if record:
        write_json(args.folder / "nearest.json", record)
