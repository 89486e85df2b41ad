r"""
A language model next to figures of the literature: perplexity per word of corpora, LAMBADA, BLiMP.

    python scripts/measure/literature.py --model_name_or_path gpt-mini --wikitext2 wiki.valid.tokens \
        --blimp blimp/data --output_file outputs/literature.json

Perplexities are per word that white space separates, so that models with other vocabularies can be compared; those of
the literature are per token of the data set. GPT-2's figures are zero-shot, on the test parts (Radford et al., 2019,
table 3), those of BLiMP are by Warstadt et al. (2020, table 3). Without a file a column stays empty.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from harness import markdown

from hf_gpt.analysis import agreement
from hf_gpt.commands import command, parse_arguments, perplexity
from hf_gpt.files import flag, write_json

COLUMNS = ("WikiText-2", "PTB", "LAMBADA, perplexity", "LAMBADA, accuracy", "BLiMP, mean of 12 phenomena")
REPORTED = {
    "best before GPT-2": (39.14, 46.54, 99.8, 59.23, None),
    "GPT-2, 117 million parameters": (29.41, 65.85, 35.13, 45.99, None),
    "GPT-2, 1,542 million parameters": (18.34, 35.76, 8.63, 63.24, None),
    "5-grams": (None, None, None, None, 61.2),
    "LSTM": (None, None, None, None, 69.8),
    "Transformer-XL": (None, None, None, None, 69.6),
    "GPT-2 (BLiMP's authors)": (None, None, None, None, 81.5),
    "humans": (None, None, None, None, 88.6),
}


@dataclass
class LiteratureArguments:
    """Which language model, and which files."""

    model_name_or_path: str = flag(help="Folder or Hub id of a language model, or gpt-mini.")
    wikitext2: str | None = flag(None, "WikiText-2's text.")
    ptb: str | None = flag(None, "The Penn Treebank's text.")
    lambada: str | None = flag(None, "LAMBADA's passages: JSONL with a column text, or a passage a line.")
    blimp: str | None = flag(None, "BLiMP's folder.")
    max_pairs: int = flag(1000, "The first pairs of each of BLiMP's sets.")
    output_file: str | None = flag(None, "A .json file for the result.")

    def __post_init__(self) -> None:
        if not (self.wikitext2 or self.ptb or self.lambada or self.blimp):
            raise ValueError("Name a file: --wikitext2, --ptb, --lambada or --blimp.")


def measure(args: LiteratureArguments) -> tuple[float | None, ...]:
    """The model's row of the table."""

    def of(file: str) -> perplexity.PerplexityArguments:
        return perplexity.PerplexityArguments(model_name_or_path=args.model_name_or_path, file=[file])

    texts = (args.wikitext2, args.ptb)
    row = [perplexity.measure(of(file))["perplexity_per_word"] if file else None for file in texts]
    words = perplexity.measure_last_words(of(args.lambada)) if args.lambada else None
    row += [words["perplexity_per_word"], 100 * words["accuracy"]] if words else [None, None]
    if not args.blimp:
        return (*row, None)
    pairs = agreement.read_sets(Path(args.blimp), args.max_pairs)
    found = agreement.accuracies(pairs, {"model": agreement.score_pairs(*of(args.blimp).load(), pairs)})
    return (*row, 100 * float(np.mean([each["accuracy"] for each in found])))


@command()
def main() -> None:
    """Measure, print the table and write it."""
    (args,) = parse_arguments((LiteratureArguments,), description=__doc__)
    rows = {Path(args.model_name_or_path).name: measure(args)} | REPORTED
    cells = [[name, *("-" if value is None else f"{value:,.2f}" for value in row)] for name, row in rows.items()]
    table, (row, *_) = markdown(["model", *COLUMNS], cells), rows.values()
    if args.output_file:
        found = {"row": dict(zip(COLUMNS, row, strict=True)), "tables": [table]}
        write_json(Path(args.output_file), vars(args) | found)
    print(table)


if __name__ == "__main__":
    main()
