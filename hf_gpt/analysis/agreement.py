r"""
Which of two sentences a language model finds likelier: minimal pairs, by phenomenon, with a control.

    hf-gpt analyze agreement --model_name_or_path gpt-mini --file blimp/data --output_dir outputs/blimp

`--file` is a file of minimal pairs, as for score, or a folder of them, such as that of BLiMP (Warstadt et al., 2020);
without it sentences are made by a rule: a subject and its verb, with and without nouns of the other number between
them (attractors, Linzen et al., 2016), with sense and without (Gulordava et al., 2018). A pair is right where the good
sentence has the higher log-probability, as score computes it. agreement.png and agreement.json report accuracies with
Wilson's intervals (95%) by phenomenon, of BLiMP the twelve of its paper, next to those of the same model with random
weights; the mean over phenomena is printed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import binomtest

from ..files import flag
from ..generation import encode, print_table
from ..generation.scoring import BEGINNINGS, MinimalPair, beginning_ids, read_pairs, score_texts
from ..model.modeling_gpt import GPTForCausalLM
from ..model.tokenization_gpt import GPTTokenizer
from . import AnalysisArguments, with_random_weights
from .figures import curves_figure, write_figure

_PEOPLE = "author baker boy captain doctor driver farmer girl guard king lawyer nurse pilot sailor singer teacher"
_THINGS = "apple boat book bottle chair cloud door house key lamp letter mountain picture river stone table"
_ACTS = "cry dance laugh listen read run sing sit sleep smile speak talk think wait walk work"
_PLACES = "behind beside by near"
_CLAUSES = "know see hear like"
# Draws at most for each pair that is wanted, as of some conditions there are few; rows that are read at once.
_DRAWS, _BATCH = 20, 16
# Its paper counts verbs and their arguments as one of twelve phenomena; the files have thirteen names.
_BLIMP = {"s-selection": "argument structure"}
CONDITIONS = ("simple", "attractor of the same number", "attractor", "two attractors", "relative clause")


def read_sets(path: Path, most: int | None = None) -> list[MinimalPair]:
    """The first minimal pairs (see `read_pairs`) of a file, or of each JSONL file of a folder or its folder `data`."""
    files = sorted([*path.glob("*.jsonl"), *path.glob("data/*.jsonl")]) if path.is_dir() else [path]
    if not files:
        raise ValueError(f"{path}: no .jsonl file is in the folder, nor in its folder data: name BLiMP's folder.")
    pairs = (pair for file in files for pair in read_pairs(file)[:most])
    return [pair._replace(phenomenon=_BLIMP.get(pair.phenomenon, pair.phenomenon)) for pair in pairs]


def agreement_pairs(count: int = 200, seed: int = 0) -> list[MinimalPair]:
    """
    Subject-verb agreement: for each of `CONDITIONS` so many different pairs (if there are) that make sense, and nonce
    ones, where things do what people do. The rule: `the SUBJECT VERB .`, with `PLACE the NOUN` or `that the NOUN
    CLAUSE` after the subject; attractors have the other number. The last verb of the bad sentence has the wrong one.
    """
    random = np.random.default_rng(seed)
    pairs = []
    for nouns, kind in ((_PEOPLE, ""), (_THINGS, ", nonce")):
        for condition in CONDITIONS:
            made: dict[MinimalPair, None] = {}
            for _ in range(_DRAWS * count):
                made[MinimalPair(*_pair(random, nouns.split(), condition), f"{condition}{kind}")] = None
                if len(made) == count:
                    break
            pairs += made
    return pairs


def _pair(random: np.random.Generator, nouns: list[str], condition: str) -> list[str]:
    plural = bool(random.integers(2))
    subject, *others = random.choice(nouns, 3, replace=False).tolist()
    other = plural if "same" in condition else not plural
    first, second = (f"the {noun}{'s' * other}" for noun in others)
    places = random.choice(_PLACES.split(), 2, replace=False).tolist()
    between = {
        "simple": "",
        "two attractors": f" {places[0]} {first} {places[1]} {second}",
        "relative clause": f" that {first} {_verb(str(random.choice(_CLAUSES.split())), other)}",
    }.get(condition, f" {places[0]} {first}")
    act = str(random.choice(_ACTS.split()))
    return [f"The {subject}{'s' * plural}{between} {_verb(act, number)}." for number in (plural, not plural)]


def _verb(verb: str, plural: bool) -> str:
    return verb if plural else "cries" if verb == "cry" else f"{verb}s"


def score_pairs(
    model: GPTForCausalLM, tokenizer: GPTTokenizer, pairs: Sequence[MinimalPair], beginning: str = "paragraph"
) -> np.ndarray:
    """Log-probabilities, `(pairs, 2)`, of the good sentences and the bad ones; see `score_texts`, `beginning_ids`."""
    texts = [encode(tokenizer, text) for pair in pairs for text in (pair.good, pair.bad)]
    scores = score_texts(model, texts, batch_size=_BATCH, given=[beginning_ids(tokenizer, beginning)] * len(texts))
    return np.array([score.log_probability for score in scores]).reshape(-1, 2)


def proportion(right: int, count: int) -> dict[str, float]:
    """A share with Wilson's interval (95%): `accuracy`, `low` and `high`."""
    interval = binomtest(right, count).proportion_ci(method="wilson")
    return {"accuracy": right / count, "low": float(interval.low), "high": float(interval.high)}


def accuracies(pairs: Sequence[MinimalPair], scores: Mapping[str, np.ndarray]) -> list[dict[str, Any]]:
    """A row for each phenomenon and model of `scores`, `(pairs, 2)`: how often the good sentence is likelier."""
    names, rows = np.array([pair.phenomenon for pair in pairs]), []
    for name in dict.fromkeys(names.tolist()):
        for of, values in scores.items():
            good, bad = values[names == name].T
            counts = {"pairs": len(good), "ties": int((good == bad).sum())}
            rows.append({"name": name, "of": of, **counts, **proportion(int((good > bad).sum()), len(good))})
    return rows


@dataclass(kw_only=True)
class Arguments(AnalysisArguments):
    # No flags: a sentence alone says nothing, and pairs have columns of their own.
    text: None = field(default=None, init=False)
    text_column: str = field(default="text", init=False)
    label_column: str = field(default="label", init=False)
    file: str | None = flag(None, "JSONL file or folder of minimal pairs; without it, made ones.")
    beginning: str = flag("paragraph", "What stands before a sentence, as for score.", BEGINNINGS)
    max_pairs: int = flag(200, "Pairs of a condition, or the first of a file, at most.")


def run(args: Arguments) -> None:
    """Score both sentences of each pair, count, draw."""
    made = args.file is None
    pairs = agreement_pairs(args.max_pairs, args.seed) if made else read_sets(Path(args.file), args.max_pairs)
    model, tokenizer = args.load()
    models = {args.name: model, "random weights": with_random_weights(model, args.seed)}
    scores = {name: score_pairs(each, tokenizer, pairs, args.beginning) for name, each in models.items()}
    rows = accuracies(pairs, scores)
    print_table(rows)
    curves = {}
    for name in models:
        own = [row for row in rows if row["of"] == name]
        print(f"mean of {len(own)} phenomena, {name}: {np.mean([row['accuracy'] for row in own]):.3f}")
        curves[name] = [[row[end] for row in own] for end in ("accuracy", "low", "high")]
    names = [row["name"] for row in own]
    figure = curves_figure({"accuracy": curves}, f"Minimal pairs that are right, {args.name}", names=names)
    write_figure(args.folder / "agreement.png", figure, rows)
