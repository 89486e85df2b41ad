r"""
Score sentences with a language model: log-probability and perplexity of each; or the accuracy of minimal pairs.

    hf-gpt score --model_name_or_path gpt-mini --text "The door was open." "The door were open."
    hf-gpt score --model_name_or_path gpt-mini --pairs blimp/data/anaphor_number_agreement.jsonl

The log-probability is natural, and that of all tokens; the first one is predicted after a full stop and a newline, as
GPT has no token that begins a text, or with `--beginning none` does not count. The perplexity is per predicted token.
A file of pairs is JSONL with `sentence_good` and `sentence_bad`, as BLiMP is published. A pair is right where the good
sentence has the higher log-probability, so a tie is wrong; ties are counted.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from ..files import flag
from ..generation import ReadingArguments, encode
from ..generation.scoring import BEGINNINGS, beginning_ids, perplexity, read_lines, read_pairs, score_texts
from . import command


@dataclass(kw_only=True)
class ScoreArguments(ReadingArguments):
    """Which language model, what it is to score, and where the result goes."""

    file: str | None = flag(None, "File of texts, one a line.")
    pairs: list[str] | None = flag(None, "JSONL files of minimal pairs.")
    beginning: str = flag("paragraph", "What stands before a sentence: end of a paragraph, or nothing.", BEGINNINGS)
    batch_size: int = flag(32, "Rows of text that are read at once.")
    output_file: str | None = flag(None, "A .jsonl file, a row for each sentence or pair.")

    suffixes, inputs = (".jsonl",), ("text", "file", "pairs")


@command(__doc__, ScoreArguments)
def main(args: ScoreArguments) -> None:
    """Read, score, print, write."""
    import pandas as pd

    pairs = [(name, pair.good, pair.bad) for name in args.pairs or [] for pair in read_pairs(Path(name))]
    texts = [text for _, *pair in pairs for text in pair] or (read_lines(Path(args.file)) if args.file else args.text)
    model, tokenizer = args.load()
    ids = [encode(tokenizer, text) for text in texts]
    given = [beginning_ids(tokenizer, args.beginning)] * len(ids)
    scores = score_texts(model, ids, batch_size=args.batch_size, given=given)
    if pairs:
        table = pd.DataFrame(pairs, columns=["file", "good", "bad"])
        table["good_log_probability"] = good = pd.Series([score.log_probability for score in scores[::2]])
        table["bad_log_probability"] = bad = pd.Series([score.log_probability for score in scores[1::2]])
        table["correct"] = good > bad
        files = list(table.groupby("file", sort=False))
        for file, own in files if len(files) == 1 else [*files, ("all files", table)]:
            ties = (good == bad)[own.index].sum()
            more = f", {ties:,} ties" if ties else ""
            print(f"accuracy: {own['correct'].mean():.4f} ({len(own):,} pairs{more}, {file})")
        rows = table.to_dict("records")
    else:
        rows = [{"text": text, "tokens": score.tokens} for text, score in zip(texts, scores, strict=True)]
        for row, score in zip(rows, scores, strict=True):
            total = score.log_probability
            row |= {"log_probability": total, "perplexity": perplexity(total, len(score.log_probs))}
    if args.output_file:
        args.write("".join(f"{json.dumps(row)}\n" for row in rows))
    elif not pairs:
        print(pd.DataFrame(rows).to_csv(sep="\t", index=False, lineterminator="\n"), end="")
