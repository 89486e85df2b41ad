r"""
Which of two sentences a language model finds likelier: minimal pairs, by phenomenon, with a control.

    python scripts/analyze.py agreement --model_name_or_path model_cards/gpt-mini --file blimp/data --max_pairs 100 \
        --output_dir outputs/blimp

`--file` is a file of minimal pairs, as for score, or a folder of them, such as BLiMP's, as it is published; without it
sentences are made by a rule: a subject and its verb, with and without nouns of the other number between them, with
sense and without (`hf_gpt.analysis.agreement.agreement_pairs`). A pair is right where the good sentence has the higher
log-probability, as score computes it (--beginning). agreement.png and agreement.json report accuracies with Wilson's
intervals (95%) by phenomenon and set, next to those of the same model with random weights; pairs.json holds every
pair's log-probabilities.
"""

import sys
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from ...analysis import AnalysisArguments, with_random_weights
from ...analysis.agreement import accuracies, agreement_pairs, read_sets, score_pairs
from ...analysis.figures import rows_figure
from ...files import flag, write_json
from ...generation import print_table
from ...generation.scoring import BEGINNINGS


@dataclass(kw_only=True)
class Arguments(AnalysisArguments):
    """Which model, which pairs, and where the result goes."""

    # No flags: a sentence alone says nothing, and pairs have columns of their own.
    text: None = field(default=None, init=False)
    text_column: str = field(default="text", init=False)
    label_column: str = field(default="label", init=False)
    file: str | None = flag(None, "File or folder of minimal pairs, TSV or JSONL; without it, made ones.")
    beginning: str = flag("paragraph", "What stands before a sentence, as for score.", BEGINNINGS)
    max_pairs: int = flag(200, "Pairs of a set at most; the first of a file.")
    control: bool = flag(True, "Measure the model with random weights, too.")
    batch_size: int = flag(128, "Sentences that are read at once.")


def run(args: Arguments) -> None:
    """Score both sentences of each pair, count, draw."""
    if args.file is None:
        pairs = agreement_pairs(args.max_pairs, args.seed)
    else:
        sets = groupby(read_sets(Path(args.file)), key=lambda pair: pair.paradigm)
        pairs = [pair for _, rows in sets for pair in [*rows][: args.max_pairs]]
    model, tokenizer = args.load()
    models = {args.name: model} | ({"random weights": with_random_weights(model, args.seed)} if args.control else {})
    scores = {
        name: score_pairs(each, tokenizer, pairs, args.batch_size, args.beginning) for name, each in models.items()
    }
    found = {name: accuracies(pairs, values) for name, values in scores.items()}
    rows = _rows(found)
    shown = ("name", "of", "pairs", "accuracy", "low", "high")
    print_table([{name: row[name] for name in shown} for row in rows])
    # BLiMP's sets are too many to draw.
    drawn = [row for row in rows if args.file is None or row["name"] in found[args.name]]
    args.save("agreement", rows_figure(drawn, f"Minimal pairs that are right, {args.name}", "accuracy", 0.5), found)
    each = [
        {**vars(pair), **{name: values[number].tolist() for name, values in scores.items()}}
        for number, pair in enumerate(pairs)
    ]
    write_json(args.folder / "pairs.json", each)
    if any(row["ties"] for row in rows):
        print("Ties count as wrong.", file=sys.stderr)


def _rows(found: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Of each phenomenon and, where it has several, each of its sets, the accuracy of every model."""
    rows = []
    for phenomenon, whole in next(iter(found.values())).items():
        rows += [{"name": phenomenon, "of": model, **each[phenomenon]} for model, each in found.items()]
        # Nonce sentences have the conditions of the others.
        _, comma, kind = phenomenon.partition(",")
        for part in whole["paradigms"] if len(whole["paradigms"]) > 1 else ():
            name = f"    {part}{comma}{kind}"
            rows += [{"name": name, "of": of, **each[phenomenon]["paradigms"][part]} for of, each in found.items()]
    return rows
