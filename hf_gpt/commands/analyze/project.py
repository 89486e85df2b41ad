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
are taken less their mean.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from typing import Any

from ...analysis import AnalysisArguments, projection
from ...analysis.figures import points_figure
from ...analysis.pages import write_page
from ...files import flag, write_json
from ...model.modeling_gpt import GPTModel, GPTPreTrainedModel
from ...model.tokenization_gpt import GPTTokenizer

# Occurrences of a word whose neighbours are printed.
_OCCURRENCES = 5
_PLACES = {None: "part of a word", False: "part of a word", True: "end of a word"}


@dataclass(kw_only=True)
class Arguments(AnalysisArguments):
    """Which model and texts, which vectors, and where the result goes."""

    unit: str = flag("sentence", "What a point is.", projection.UNITS)
    method: str = flag("pca", "How vectors become points.", projection.METHODS)
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
        vectors, pieces = projection.token_vectors(model, tokenizer, tokens), map(tokenizer.piece, tokens)
        # GPT-2's tokens say where a word begins, by a space, GPT-1's where it ends.
        labels = ["beginning of a word" if text.startswith(" ") else _PLACES[ends] for text, ends in pieces]
    else:
        texts = [example.text for example in examples]
        vectors = projection.text_vectors(model, tokenizer, texts, args.layers, by_word=args.unit == "word")
        labels = [examples[number].label or "" for number in vectors.texts]
    words = {word.lower() for word in args.words or ()}
    labels = [name.lower() for name in vectors.names] if words else labels
    kept = [row for row, label in enumerate(labels) if not words or label in words][: args.max_units]
    if len(kept) < len(labels):
        print(f"{len(kept):,} of {len(labels):,} {args.unit}s are shown.")
    names, labels, contexts = ([column[row] for row in kept] for column in (vectors.names, labels, vectors.contexts))
    points = {
        layer: projection.projected(values[kept], args.method, args.seed).tolist()
        for layer, values in vectors.layers.items()
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

    static, found = projection.token_vectors(model, tokenizer), {}
    table = static.layers[0]
    if args.analogy:
        rows = [projection.token_row(tokenizer, static, word) for word in args.analogy]
        name = "{} : {} = {} : ?".format(*args.analogy)
        found[name] = rows_of(name, static.names, projection.analogy(table, *rows, args.count))
    if args.nearest:
        texts = [example.text for example in args.examples]
        context = projection.text_vectors(model, tokenizer, texts, args.layers, by_word=True)
        layer, values = list(context.layers.items())[-1]
    for word in args.nearest or ():
        row = projection.token_row(tokenizer, static, word)
        near = projection.nearest(table, table[row], args.count, [row])
        found[word] = {"static": rows_of(f"{word}, static", static.names, near), "in context": []}
        for place in [row for row, name in enumerate(context.names) if name.lower() == word.lower()][:_OCCURRENCES]:
            near, title = projection.nearest(values, values[place], args.count, [place]), context.contexts[place]
            rows = rows_of(f"{title}, layer {layer}", context.contexts, near)
            found[word]["in context"].append({"context": title, "layer": layer, "nearest": rows})
    return found
