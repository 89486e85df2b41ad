r"""
A language model next to figures of the literature: perplexity per word of corpora, LAMBADA, BLiMP.

    python scripts/measure/literature.py --model_name_or_path gpt-mini --wikitext2 wiki.valid.tokens \
        --blimp blimp/data --output_file outputs/literature.json

Perplexities are per word that white space separates, so that models with other vocabularies can be compared; those of
the literature (`published.yaml`) are per token of the data set. Without a file a column stays empty.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from harness import markdown, shown

from hf_gpt.analysis import agreement
from hf_gpt.commands import command, parse_arguments, perplexity
from hf_gpt.files import flag, read_yaml, write_json

PUBLISHED = read_yaml(Path(__file__).with_name("published.yaml"))


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


def measure(args: LiteratureArguments) -> list[float | None]:
    """The model's row of the table."""

    def of(file: str, **settings: bool) -> perplexity.PerplexityArguments:
        return perplexity.PerplexityArguments(model_name_or_path=args.model_name_or_path, file=[file], **settings)

    texts = (args.wikitext2, args.ptb)
    row = [perplexity.measure(of(file))["perplexity_per_word"] if file else None for file in texts]
    words = perplexity.measure(of(args.lambada, last_word=True)) if args.lambada else None
    row += [words["perplexity_per_word"], 100 * words["accuracy"]] if words else [None, None]
    if not args.blimp:
        return [*row, None]
    pairs = agreement.read_sets(Path(args.blimp), args.max_pairs)
    found = agreement.accuracies(pairs, {"model": agreement.score_pairs(*of(args.blimp).load(), pairs)})
    return [*row, 100 * float(np.mean([each["accuracy"] for each in found]))]


@command()
def main() -> None:
    """Measure, print the table and write it."""
    (args,) = parse_arguments((LiteratureArguments,), doc=__doc__)
    found, columns = measure(args), PUBLISHED["columns"]
    rows = {Path(args.model_name_or_path).name: found} | PUBLISHED["literature"]
    cells = [[name, *(shown(value, "{:,.2f}") for value in row)] for name, row in rows.items()]
    table = markdown(["model", *columns], cells)
    if args.output_file:
        row = dict(zip(columns, found, strict=True))
        write_json(Path(args.output_file), vars(args) | {"row": row, "tables": [table]})
    print(table)


if __name__ == "__main__":
    main()
