r"""
What a language model holds for right: minimal pairs by log-probability, by phenomenon, with a control.

    python scripts/analyze.py agreement --model_name_or_path model_cards/gpt-mini --output_dir outputs/agreement
    python scripts/analyze.py agreement --model_name_or_path model_cards/gpt-mini --file blimp/data --max_pairs 100 \
        --output_dir outputs/blimp

`--file` is a file of minimal pairs, as for score, or a folder of them, such as BLiMP's, as it is published; without it
sentences are made by a rule: a subject and its verb, with and without nouns of the other number between them, with
sense and without (`hf_gpt.analysis.agreement.agreement_pairs`). A pair is right where the good sentence has the higher
log-probability; what sentences begin with alike is read once. agreement.png and agreement.json tell accuracies with
Wilson's intervals (95%) by phenomenon and set, beside those of the same model with random weights; pairs.json holds
every pair's log-probabilities.
"""

import sys
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from ...analysis import AnalysisArguments, redrawn
from ...analysis.agreement import accuracies, agreement_pairs, read_sets, score_pairs
from ...analysis.pictures import shares_picture, write_picture
from ...files import flag, write_json


@dataclass(kw_only=True)
class Arguments(AnalysisArguments):
    """Which model, which pairs, and where the result goes."""

    # No flags: a sentence alone says nothing, and pairs have columns of their own.
    text: None = field(default=None, init=False)
    text_column: str = field(default="text", init=False)
    label_column: str = field(default="label", init=False)
    file: str | None = flag(None, "File or folder of minimal pairs, TSV or JSONL; without it, made ones.")
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
    models = {args.name: model} | ({"random weights": redrawn(model, args.seed)} if args.control else {})
    scores = {name: score_pairs(each, tokenizer, pairs, args.batch_size) for name, each in models.items()}
    found = {name: accuracies(pairs, values) for name, values in scores.items()}
    rows = _rows(found)
    print(f"{'':42}{'model':18}{'pairs':>7}{'accuracy':>10}  95% interval")
    for row in rows:
        interval = f"{row['low']:.3f} to {row['high']:.3f}"
        print(f"{row['name'][:41]:42}{row['of'][:17]:18}{row['pairs']:>7,}{row['accuracy']:>10.3f}  {interval}")
    folder = Path(args.output_dir)
    phenomena = [row for row in rows if args.file is None or row["name"] in found[args.name]]
    figure = shares_picture(phenomena, f"Minimal pairs, {args.name}", "share of pairs that are right", chance=0.5)
    write_picture(folder / "agreement.png", figure, found)
    each = [
        {**vars(pair), **{name: values[number].tolist() for name, values in scores.items()}}
        for number, pair in enumerate(pairs)
    ]
    write_json(folder / "pairs.json", each)
    if any(row["ties"] for row in rows):
        print("Ties count as wrong.", file=sys.stderr)


def _rows(found: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Of each phenomenon and, where it has several, each of its sets, what every model makes of it."""
    rows = []
    for phenomenon, whole in next(iter(found.values())).items():
        # Nonce sentences have the conditions of the others.
        _, comma, kind = phenomenon.partition(",")
        parts = (
            [(f"    {name}{comma}{kind}", name) for name in whole["paradigms"]] if len(whole["paradigms"]) > 1 else []
        )
        for shown, part in [(phenomenon, None), *parts]:
            for name, of_model in found.items():
                values = of_model[phenomenon] if part is None else of_model[phenomenon]["paradigms"][part]
                rows.append({"name": shown, "of": name, **values})
    return rows
