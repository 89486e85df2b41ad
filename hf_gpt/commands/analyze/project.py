r"""
Tokens, words in context and sentences as points in a plane, layer by layer; which are near, and analogies.

    python scripts/analyze.py project --model_name_or_path model_cards/gpt-mini --output_dir outputs/sentences
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

from ...analysis import AnalysisArguments
from ...analysis.figures import points_figure
from ...analysis.pages import write_page
from ...analysis.projection import (
    METHODS,
    UNITS,
    Vectors,
    analogy,
    nearest,
    projected,
    text_vectors,
    token_row,
    token_vectors,
)
from ...files import flag, write_json
from ...model.modeling_gpt import GPTModel, GPTPreTrainedModel
from ...model.tokenization_gpt import GPTTokenizer

# Occurrences of a word whose neighbours are printed.
_OCCURRENCES = 5


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
    vectors, labels = _units(args, model, tokenizer)
    points = {layer: projected(values, args.method, args.seed).tolist() for layer, values in vectors.layers.items()}
    title = f"{args.unit.capitalize()}s of {args.name}, {args.method}"
    data = {"unit": args.unit, "layers": points, "names": vectors.names, "labels": labels}
    write_page(args.folder / "projection.html", title, {**data, "contexts": vectors.contexts})
    args.save("projection", points_figure(points, labels, title), data)
    if args.nearest or args.analogy:
        write_json(args.folder / "nearest.json", _neighbours(args, model, tokenizer))


def _units(args: Arguments, model: GPTPreTrainedModel, tokenizer: GPTTokenizer) -> tuple[Vectors, list[str]]:
    """The vectors that become points, and their labels."""
    examples = args.examples
    ids = args.token_ids(tokenizer, model.config.n_positions, fewest=1)
    if args.unit == "token":
        tokens = list(dict.fromkeys(chain(*ids)))[: args.max_units]
        return token_vectors(model, tokenizer, tokens), [_place(*tokenizer.piece(token)) for token in tokens]
    texts = [example.text for example in examples]
    vectors = text_vectors(model, tokenizer, texts, args.layers, by_word=args.unit == "word")
    wanted = {word.lower() for word in args.words or ()}
    kept = [row for row, name in enumerate(vectors.names) if not wanted or name.lower() in wanted][: args.max_units]
    if len(kept) < len(vectors.names):
        print(f"{len(kept):,} of {len(vectors.names):,} {args.unit}s are shown.")
    vectors = vectors.of(kept)
    if wanted:
        return vectors, [name.lower() for name in vectors.names]
    return vectors, [examples[number].label or "" for number in vectors.texts]


def _place(text: str, ends_word: bool | None) -> str:
    """Where in a word a token stands, as far as it says."""
    if ends_word is None:
        return "beginning of a word" if text.startswith(" ") else "part of a word"
    return "end of a word" if ends_word else "part of a word"


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
    texts = [example.text for example in args.examples]
    context = text_vectors(model, tokenizer, texts, args.layers, by_word=True) if args.nearest else None
    for word in args.nearest or ():
        row = token_row(tokenizer, static, word)
        near = rows_of(f"{word}, static", static.names, nearest(table, table[row], args.count, [row]))
        found[word] = {"static": near, "in context": []}
        layer, values = list(context.layers.items())[-1]
        own = [row for row, name in enumerate(context.names) if name.lower() == word.lower()][:_OCCURRENCES]
        for place in own:
            title, near = context.contexts[place], nearest(values, values[place], args.count, [place])
            rows = rows_of(f"{title}, layer {layer}", context.contexts, near)
            found[word]["in context"].append({"context": title, "layer": layer, "nearest": rows})
    return found
