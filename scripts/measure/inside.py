r"""
Measure what `hf-gpt analyze` tells of a model: tables of its output folders, and what shared prefixes save.

    python scripts/measure/inside.py --probes outputs/probe --agreement outputs/agreement --blimp outputs/blimp \
        --heads outputs/heads_before outputs/heads_after outputs/heads_task --importance outputs/sentiment \
        --pairs blimp/data/anaphor_gender_agreement.jsonl blimp/data/wh_island.jsonl --output_file inside.json

All but the last are output folders of `scripts/analyze.py`; `--pairs` are files of minimal pairs that are scored with
shared prefixes and without, in turns, in seconds of this process's processor. Without any of them the tables are those
of the results saved before.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch
from scipy.stats import spearmanr

from hf_gpt import GPTForCausalLM
from hf_gpt.analysis import interval_record, mean_intervals
from hf_gpt.analysis.agreement import read_sets
from hf_gpt.commands import command, parse_arguments
from hf_gpt.files import flag, read_json, write_json
from hf_gpt.generation import encode
from hf_gpt.generation.scoring import score_texts
from hf_gpt.loading import open_source

RESULTS = Path(__file__).parent / "results" / "inside.json"
# Output folders, and the file that tells all in each.
_FILES = {"probes": "probes.json", "agreement": "agreement.json", "blimp": "agreement.json"}


@dataclass
class InsideArguments:
    """What to put into tables."""

    model: str = flag("model_cards/gpt-mini", "That scores --pairs.")
    probes: str | None = flag(None, "Folder of analyze probe.")
    agreement: str | None = flag(None, "Folder of analyze agreement.")
    blimp: str | None = flag(None, "Folder of analyze agreement on BLiMP.")
    heads: list[str] | None = flag(
        None,
        "Folders of analyze ablate: a model, the same fine-tuned, and this by --metric loss, on the same texts.",
    )
    importance: str | None = flag(None, "Folder of analyze importance.")
    pairs: list[str] | None = flag(None, "Files of minimal pairs.")
    rounds: int = flag(3, "Turns, of which the median counts.")
    output_file: str = flag(str(RESULTS), "Where results are kept and added to.")


@command()
def main() -> None:
    """Gather, measure, print."""
    (args,) = parse_arguments((InsideArguments,), description=__doc__)
    path = Path(args.output_file)
    results = read_json(path) if path.is_file() else {}
    results |= {name: read_json(Path(folder) / file) for name, file in _FILES.items() if (folder := vars(args)[name])}
    if args.blimp:
        for each in (each for phenomena in results["blimp"].values() for each in phenomena.values()):
            each.pop("paradigms", None)
    if args.heads:
        results["heads"] = [read_json(Path(folder) / "effects.json")["parts"] for folder in args.heads]
    if args.importance:
        results["importance"] = areas(read_json(Path(args.importance) / "details.json", list))
    if args.pairs:
        results["sharing"] = sharing(args.model, args.pairs, args.rounds)
    write_json(path, results)
    print("\n\n".join(tables(results)))


def areas(texts: list[dict[str, Any]]) -> dict[str, Any]:
    """By method the mean areas under the deletion and insertion curves of texts, with bootstrap intervals."""
    return {
        method: {
            way: interval_record(mean_intervals([text["curves"][method][f"{way}_area"] for text in texts]))
            for way in ("deletion", "insertion")
        }
        for method in texts[0]["curves"]
    }


def sharing(name: str, files: list[str], rounds: int) -> dict[str, Any]:
    """
    Seconds of scoring, without tokenization, with shared prefixes and without, and how the scores differ; and how many
    tokens there are, and how many different beginnings, which is all that has to be read.
    """
    torch.set_num_threads(1)
    source, found = open_source(name), {}
    tokenizer, model = source.tokenizer(), source.model(GPTForCausalLM)
    for file in files:
        pairs = read_sets(Path(file))
        texts = [encode(tokenizer, text) for pair in pairs for text in (pair.good, pair.bad)]
        seconds: dict[bool, list[float]] = {True: [], False: []}
        scores = {}
        for _ in range(rounds):
            for share in seconds:
                begin = time.process_time()
                found_scores = score_texts(model, texts, batch_size=128, share_prefix=share)
                seconds[share].append(time.process_time() - begin)
                scores[share] = [score.log_probability for score in found_scores]
        # Nothing is predicted from the last token of a text.
        beginnings = {tuple(ids[:end]) for ids in texts for end in range(1, len(ids))}
        found[Path(file).stem] = {
            "pairs": len(pairs),
            "tokens": sum(len(ids) - 1 for ids in texts),
            "beginnings": len(beginnings),
            "alone": median(seconds[False]),
            "shared": median(seconds[True]),
            "difference": max(abs(one - two) for one, two in zip(*scores.values(), strict=True)),
        }
    return found


def tables(results: dict[str, Any]) -> list[str]:
    """One table for each part of the results."""
    made = {"probes": probes_table, "agreement": conditions_table, "blimp": phenomena_table, "sharing": sharing_table}
    made |= {"heads": heads_table, "importance": importance_table}
    return [make(results[name]) for name, make in made.items() if name in results]


def _table(header: str, rows: Iterable[Iterable[str]]) -> str:
    lines = [header, "|".join(["", *["---"] * header.count(" | "), "---", ""])]
    return "\n".join([*lines, *(f"| {' | '.join(cells)} |" for cells in rows)])


def probes_table(found: dict[str, Any]) -> str:
    """By property the best layer of the model, and what it is compared with."""
    rows = []
    for name, task in found.items():
        ours, random = task["models"].values()
        best, control = (max(each["layers"], key=lambda row: row["accuracy"]) for each in (ours, random))
        layer = f"layer {ours['layers'].index(best)}: {_share(best)}"
        before = map(_share, (task["majority"], task["static"], control))
        after = layer, f"{best['selectivity']:+.3f}", _share(ours["mix"])
        rows.append([name, str(task["classes"]), *before, *after])
    header = "| property | classes | most frequent label | static embeddings | random weights, best layer "
    return _table(f"{header}| best layer | selectivity there | scalar mix |", rows)


def conditions_table(found: dict[str, Any]) -> str:
    """By condition of agreement, with sense and without."""
    ours, random = found.values()
    rows = [
        [
            name + ", nonce" * ("nonce" in phenomenon),
            f"{each['pairs']:,}",
            *map(_share, (each, random[phenomenon]["paradigms"][name])),
        ]
        for phenomenon, whole in ours.items()
        for name, each in whole["paradigms"].items()
    ]
    return _table("| agreement | pairs | gpt-mini | random weights |", rows)


def phenomena_table(found: dict[str, Any]) -> str:
    """By phenomenon of BLiMP."""
    ours, random = found.values()
    rows = [
        [name.replace("_", " "), f"{each['pairs']:,}", *map(_share, (each, random[name]))]
        for name, each in sorted(ours.items())
    ]
    return _table("| BLiMP | pairs | gpt-mini | random weights |", rows)


def sharing_table(found: dict[str, Any]) -> str:
    """Seconds with shared prefixes and without."""
    rows = [
        [
            name.replace("_", " "),
            *(f"{row[count]:,}" for count in ("pairs", "tokens", "beginnings")),
            *(f"{row[way]:.1f} s" for way in ("alone", "shared")),
            f"{row['alone'] / row['shared']:.2f}, of {row['tokens'] / row['beginnings']:.2f}",
            f"{row['difference']:.0e}",
        ]
        for name, row in found.items()
    ]
    header = "| BLiMP's set | pairs | tokens | different beginnings | each alone | shared "
    return _table(f"{header}| times as fast | differs by |", rows)


def heads_table(found: list[list[dict[str, Any]]]) -> str:
    """Rank and change of each head by each measure, in the order of the first, and the ranks' correlation with it."""
    ranked = [{row["name"]: (rank, row) for rank, row in enumerate(rows, 1)} for rows in found]
    names = list(ranked[0])
    rows = [
        [name, *(f"{rank}: {row['change']:+.3f} ({row['low']:+.3f} to {row['high']:+.3f})" for rank, row in own)]
        for name in names
        for own in [[each[name] for each in ranked]]
    ]
    orders = [[each[name][0] for name in names] for each in ranked]
    alike = (spearmanr(orders[0], order).statistic for order in orders)
    rows.append(["rank correlation with the first", *(f"{each:.2f}" for each in alike)])
    titles = ("gpt-mini", "fine-tuned", "fine-tuned, loss of the task")
    return _table(f"| head | {' | '.join(titles[: len(found)])} |", rows)


def importance_table(found: dict[str, Any]) -> str:
    """How faithful each method is."""
    rows = [
        [name, *(f"{each[way]['mean']:.2f} ({each[way]['low']:.2f} to {each[way]['high']:.2f})" for way in each)]
        for name, each in found.items()
    ]
    return _table("| method | area under the deletion curve (low is good) | insertion (high is good) |", rows)


def _share(row: dict[str, float]) -> str:
    return f"{row['accuracy']:.3f} ({row['low']:.3f} to {row['high']:.3f})"


if __name__ == "__main__":
    main()
