r"""
Surprisal of every word of texts: a table of words with surprisal, entropy and rank, or a page.

    hf-gpt surprisal --model_name_or_path gpt-mini --text "She opened the door and ran."
    hf-gpt surprisal --model_name_or_path gpt-mini --text_files story.txt --output_file outputs/story.tsv

A row for each word, as white space separates them: document, word_number, word, start and end (characters from 0),
tokens, surprisal of all its tokens, entropy of the next token before it, and the rank of its first token. A newline
counts with the word after it. The first word is predicted after a full stop and a newline; with `--beginning none` its
first token has no value. The sum over a text is minus the log-probability of `hf-gpt score` and `perplexity` (there
natural, so `--unit nats`). An .html file is a page with the likeliest tokens before each word.
"""

from dataclasses import dataclass
from pathlib import Path

from ..files import atomic, flag
from ..generation import ReadingArguments
from ..generation.scoring import BEGINNINGS
from ..generation.surprisal import UNITS, render_page, word_surprisals
from ..training.text_files import iter_texts
from . import command


@dataclass(kw_only=True)
class SurprisalArguments(ReadingArguments):
    """Which language model, the texts, and where the result goes."""

    text_files: list[str] | None = flag(None, "Text, JSONL or Parquet files, and folders of them.")
    text_column: str = flag("text", "Column of the text in JSONL and Parquet files.")
    beginning: str = flag("paragraph", "What stands before each text: end of a paragraph, or nothing.", BEGINNINGS)
    context: int | None = flag(None, "Tokens before each token of a long text, at least; by default half the context.")
    context_words: int | None = flag(None, "Read each word after so many words alone, as for a fixed window.")
    unit: str = flag("bits", "Unit of surprisal and entropy.", UNITS)
    end_of_word: bool = flag(False, "Charge a word's end to it, not to the next (GPT's tokens mark it already).")
    batch_size: int = flag(8, "Rows of text that are read at once.")
    output_file: str | None = flag(None, "A .tsv, .csv, .parquet, .json or .html file, instead of a table here.")

    suffixes, inputs = (".tsv", ".csv", ".parquet", ".json", ".html"), ("text", "text_files")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.context is not None and self.context_words is not None:
            raise ValueError("Give one of --context, --context_words.")


@command(__doc__, SurprisalArguments)
def main(args: SurprisalArguments) -> None:
    """Read, print or write."""
    import pandas as pd

    texts = [(f"text {number}", text) for number, text in enumerate(args.text or [], 1)]
    texts += iter_texts(args.text_files or [], args.text_column)
    model, tokenizer = args.load()
    path = Path(args.output_file or "")
    names = ("beginning", "context", "context_words", "unit", "end_of_word", "batch_size")
    settings = {name: getattr(args, name) for name in names}
    rows = word_surprisals(model, tokenizer, texts, **settings, likeliest=5 if path.suffix == ".html" else 0)
    table = pd.DataFrame(rows).astype({"rank": "Int64"})
    separated = table.to_csv(sep="," if path.suffix == ".csv" else "\t", index=False, lineterminator="\n")
    if args.output_file is None:
        print(separated, end="")
        return
    if path.suffix == ".parquet":
        with atomic(path) as temporary:
            table.to_parquet(temporary, index=False)
    elif path.suffix == ".html":
        args.write(render_page(Path(args.model_name_or_path).name, texts, rows, args.unit))
    elif path.suffix == ".json":
        args.write({"model": args.model_name_or_path, "pack": args.pack, **settings, "words": rows})
    else:
        args.write(separated)
    total, mean = table["surprisal"].sum(), table["surprisal"].mean()
    print(f"{len(rows):,} words, {total:.2f} {args.unit}, {mean:.2f} a word")
