r"""
Score sentences with a language model: log-probability and perplexity of each; or the accuracy of minimal pairs.

    python scripts/score.py --model_name_or_path model_cards/gpt-mini --text "The door was open." "The door were open."
    python scripts/score.py --model_name_or_path model_cards/gpt-mini --file sentences.txt \
        --output_file outputs/scores.tsv
    python scripts/score.py --model_name_or_path model_cards/gpt-mini --pairs blimp/data/anaphor_number_agreement.jsonl

The log-probability is natural, and that of all tokens of the sentence; the first one is predicted after the end of a
paragraph, a full stop and a newline, as GPT has no token that begins a text. With `--beginning none` nothing stands
before a sentence, and its first token does not count. The perplexity is per predicted token. A file of pairs has a
good sentence, a tab and a bad one on each line, or is JSONL with `sentence_good` and `sentence_bad`, as BLiMP is
published. A pair is right where the good sentence has the higher log-probability, so a tie is wrong; ties are counted.
"""

import csv
import io
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from ..files import flag
from ..generation import ReadingArguments, check_one_of, encode
from ..generation.scoring import BEGINNINGS, TextScore, beginning_ids, read_lines, read_pairs, score_texts
from . import command, parse_arguments


@dataclass(kw_only=True)
class ScoreArguments(ReadingArguments):
    """Which language model, what it is to score, and where the result goes."""

    pairs: list[str] | None = flag(None, "Files of minimal pairs, TSV or JSONL.")
    beginning: str = flag(
        "paragraph", "What stands before a sentence: the end of a paragraph, or nothing.", BEGINNINGS
    )
    batch_size: int = flag(32, "Sentences of like length that are read at once.")
    output_file: str | None = flag(None, "A .jsonl or .tsv file, a row for each sentence.")

    suffixes: ClassVar[tuple[str, ...]] = (".jsonl", ".tsv")

    def check_inputs(self) -> None:
        """See `ReadingArguments`."""
        check_one_of(text=self.text, file=self.file, pairs=self.pairs)


@command()
def main() -> None:
    """Parse arguments, score, write."""
    (args,) = parse_arguments((ScoreArguments,), description=__doc__)
    rows = _score_pairs(args) if args.pairs else _score_sentences(args)
    if args.pairs:
        _print_accuracies(rows)
    if args.output_file:
        as_table = args.output_file.endswith(".tsv")
        args.write(_tsv(rows) if as_table else "".join(f"{json.dumps(row)}\n" for row in rows))
    elif not args.pairs:
        sys.stdout.write(_tsv(rows))


def _score(args: ScoreArguments, texts: list[str]) -> list[TextScore]:
    model, tokenizer = args.load()
    ids = [encode(tokenizer, text) for text in texts]
    given = [beginning_ids(tokenizer, args.beginning)] * len(ids)
    return score_texts(model, ids, batch_size=args.batch_size, given=given)


def _score_sentences(args: ScoreArguments) -> list[dict[str, Any]]:
    texts = read_lines(Path(args.file)) if args.file else args.text
    if not all(map(str.strip, texts)):
        raise ValueError("One --text is empty: write something.")
    names = ("tokens", "log_probability", "perplexity")
    return [
        {"text": text} | {name: getattr(score, name) for name in names}
        for text, score in zip(texts, _score(args, texts), strict=True)
    ]


def _score_pairs(args: ScoreArguments) -> list[dict[str, Any]]:
    pairs = [(name, *pair) for name in args.pairs for pair in read_pairs(Path(name))]
    scores = [score.log_probability for score in _score(args, [text for _, *pair in pairs for text in pair])]
    names = ("file", "good", "bad", "good_log_probability", "bad_log_probability", "correct")
    return [
        dict(zip(names, (*pair, first, second, first > second), strict=True))
        for pair, first, second in zip(pairs, scores[::2], scores[1::2], strict=True)
    ]


def _print_accuracies(rows: list[dict[str, Any]]) -> None:
    """Of each file, and of all pairs where there are several files."""
    names = list(dict.fromkeys(row["file"] for row in rows))
    for name in [*names, None][: len(names) + (len(names) > 1)]:
        part = [row for row in rows if name in (None, row["file"])]
        ties = sum(row["good_log_probability"] == row["bad_log_probability"] for row in part)
        accuracy = sum(row["correct"] for row in part) / len(part)
        more = f", {ties:,} ties" if ties else ""
        print(f"accuracy: {accuracy:.4f} ({len(part):,} pairs{more}, {name or 'all files'})")


def _tsv(rows: list[dict[str, Any]]) -> str:
    table = io.StringIO()
    writer = csv.DictWriter(table, rows[0].keys(), delimiter="\t", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return table.getvalue()
