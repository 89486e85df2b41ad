r"""
Look at what a language model expects at each position of a text: the likeliest next tokens, and the place of the true.

    hf-gpt inspect-text --model_name_or_path model_cards/gpt-mini --text "She opened the door and ran."
    hf-gpt inspect-text --model_name_or_path model_cards/gpt-mini --file story.txt --output_file outputs/story.html

For every token: its probability, its rank among all tokens, its surprisal in bits (-log2 of the probability), and the
likeliest tokens with their probabilities. The first token is predicted after the end of a paragraph, a full stop and a
newline; with `--beginning none` it is not. What does not end a word ends with an ellipsis. With `--output_file` as
JSON, or as a page that needs nothing else. `hf-gpt inspect` is short for `hf-gpt inspect-text`.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import ClassVar

from ..files import flag
from ..generation import ReadingArguments, encode, print_table
from ..generation.inspection import NextToken, inspect, render_page
from ..generation.scoring import BEGINNINGS, beginning_ids
from ..training.text_files import iter_texts
from . import command, parse_arguments


@dataclass(kw_only=True)
class InspectArguments(ReadingArguments):
    """Which language model, the text to look at, and where the result goes."""

    text: str | None = flag(None, "The text.")
    file: str | None = flag(None, "A text file.")
    beginning: str = flag("paragraph", "What stands before the text: end of a paragraph, or nothing.", BEGINNINGS)
    top_tokens: int = flag(5, "Likeliest tokens to show at each position.")
    stride: int | None = flag(None, "Tokens that the window moves over a long text; by default half the context.")
    output_file: str | None = flag(None, "A .json or .html file, instead of a table here.")

    suffixes: ClassVar[tuple[str, ...]] = (".json", ".html")


@command()
def main() -> None:
    """Parse arguments, look, write."""
    (args,) = parse_arguments((InspectArguments,), description=__doc__)
    texts = [args.text] if args.file is None else [text for _, text in iter_texts(args.file)]
    if len(texts) > 1:
        raise ValueError(f"--file {args.file} holds {len(texts)} texts: name a file with one.")
    model, tokenizer = args.load()
    ids, given = encode(tokenizer, texts[0]), beginning_ids(tokenizer, args.beginning)
    positions = inspect(model, tokenizer, ids, args.top_tokens, args.stride, given)
    first = None if given else NextToken.of(tokenizer, ids[0], 1.0)
    mean = sum(position.surprisal for position in positions) / len(positions)
    if args.output_file is None:
        names = ("#", "token", "probability", "rank", "bits", "likeliest")
        rows = [("1", str(first), None, None, None, "")] if first else []
        for number, each in enumerate(positions, len(rows) + 1):
            likeliest = "  ".join(f"{token} {token.probability:.3f}" for token in each.likeliest)
            cells = (f"{each.token.probability:.4f}", each.rank, f"{each.surprisal:.2f}", likeliest)
            rows.append((str(number), str(each.token), *cells))
        print_table([dict(zip(names, row, strict=True)) for row in rows])
    elif args.output_file.endswith(".html"):
        args.write(render_page(Path(args.model_name_or_path).name, first, positions))
    else:
        record = {"model": args.model_name_or_path, "beginning": args.beginning, "first": first and first.text}
        args.write(record | {"positions": list(map(asdict, positions))})
    print(f"{len(positions):,} predicted tokens, {mean:.2f} bits a token (perplexity {2**mean:.2f})")
