r"""
Measure what `hf-gpt analyze` tells of a model: probes, agreement and BLiMP as tables, and what shared prefixes save.

    python scripts/measure/inside.py --probes outputs/probe --agreement outputs/agreement --blimp outputs/blimp \
        --pairs blimp/data/anaphor_gender_agreement.jsonl blimp/data/wh_island.jsonl --output_file inside.json

The first three are output folders of `scripts/analyze.py`; `--pairs` are files of minimal pairs that are scored with
shared prefixes and without, in turns, in seconds of this process's processor. Without any of them the tables are those
of the results saved before.
"""

import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import torch

from hf_gpt import GPTForCausalLM
from hf_gpt.analysis.agreement import read_sets
from hf_gpt.commands import command, parse_arguments
from hf_gpt.files import write_json
from hf_gpt.generation import encode
from hf_gpt.generation.scoring import score_texts
from hf_gpt.loading import open_source

RESULTS = Path(__file__).parent / "results" / "inside.json"


@dataclass
class InsideArguments:
    """What to put into tables."""

    model: str = field(default="model_cards/gpt-mini", metadata={"help": "That scores --pairs."})
    probes: str | None = field(default=None, metadata={"help": "Folder of analyze probe."})
    agreement: str | None = field(default=None, metadata={"help": "Folder of analyze agreement."})
    blimp: str | None = field(default=None, metadata={"help": "Folder of analyze agreement on BLiMP."})
    pairs: list[str] | None = field(default=None, metadata={"help": "Files of minimal pairs."})
    rounds: int = field(default=3, metadata={"help": "Turns, of which the median counts."})
    output_file: str = field(default=str(RESULTS), metadata={"help": "Where results are kept and added to."})


@command()
def main() -> None:
    """Gather, measure, print."""
    (args,) = parse_arguments((InsideArguments,), description=__doc__)
    path = Path(args.output_file)
    results = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    for name in ("probes", "agreement", "blimp"):
        folder = getattr(args, name)
        if folder is not None:
            file = Path(folder) / ("probes.json" if name == "probes" else "agreement.json")
            results[name] = json.loads(file.read_text(encoding="utf-8"))
    if args.blimp:
        for phenomena in results["blimp"].values():
            for each in phenomena.values():
                each.pop("paradigms", None)
    if args.pairs:
        results["sharing"] = sharing(args.model, args.pairs, args.rounds)
    write_json(path, results)
    print("\n\n".join(tables(results)))


def sharing(name: str, files: list[str], rounds: int) -> dict[str, Any]:
    """Seconds of scoring, without tokenization, with shared prefixes and without, and how the scores differ."""
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
        found[Path(file).stem] = {
            "pairs": len(pairs),
            "alone": median(seconds[False]),
            "shared": median(seconds[True]),
            "difference": max(abs(one - two) for one, two in zip(*scores.values(), strict=True)),
        }
    return found


def tables(results: dict[str, Any]) -> list[str]:
    """One table for each part of the results."""
    made = {"probes": probes_table, "agreement": conditions_table, "blimp": phenomena_table, "sharing": sharing_table}
    return [make(results[name]) for name, make in made.items() if name in results]


def probes_table(found: dict[str, Any]) -> str:
    """By property the best layer of the model, and what it is compared with."""
    lines = [
        "| property | classes | most frequent label | static embeddings | random weights, best layer | best layer "
        "| selectivity there | scalar mix |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, task in found.items():
        ours, random = task["models"].values()
        best, control = (max(each["layers"], key=lambda row: row["accuracy"]) for each in (ours, random))
        cells = [_share(task["majority"]), _share(task["static"]), _share(control)]
        cells += [f"layer {ours['layers'].index(best)}: {_share(best)}", f"{best['selectivity']:+.3f}"]
        lines.append(f"| {name} | {task['classes']} | {' | '.join([*cells, _share(ours['mix'])])} |")
    return "\n".join(lines)


def conditions_table(found: dict[str, Any]) -> str:
    """By condition of agreement, with sense and without."""
    ours, random = found.values()
    lines = ["| agreement | pairs | gpt-mini | random weights |", "|---|---|---|---|"]
    for phenomenon, whole in ours.items():
        for name, each in whole["paradigms"].items():
            other = random[phenomenon]["paradigms"][name]
            kind = ", nonce" if "nonce" in phenomenon else ""
            lines.append(f"| {name}{kind} | {each['pairs']:,} | {_share(each)} | {_share(other)} |")
    return "\n".join(lines)


def phenomena_table(found: dict[str, Any]) -> str:
    """By phenomenon of BLiMP."""
    ours, random = found.values()
    lines = ["| BLiMP | pairs | gpt-mini | random weights |", "|---|---|---|---|"]
    for name, each in sorted(ours.items()):
        lines.append(f"| {name.replace('_', ' ')} | {each['pairs']:,} | {_share(each)} | {_share(random[name])} |")
    return "\n".join(lines)


def sharing_table(found: dict[str, Any]) -> str:
    """Seconds with shared prefixes and without."""
    lines = ["| BLiMP's set | pairs | each alone | shared | times as fast | differs by |", "|---|---|---|---|---|---|"]
    for name, row in found.items():
        times = f"{row['alone']:.1f} s | {row['shared']:.1f} s | {row['alone'] / row['shared']:.2f}"
        lines.append(f"| {name.replace('_', ' ')} | {row['pairs']:,} | {times} | {row['difference']:.0e} |")
    return "\n".join(lines)


def _share(row: dict[str, float]) -> str:
    return f"{row['accuracy']:.3f} ({row['low']:.3f} to {row['high']:.3f})"


if __name__ == "__main__":
    main()
