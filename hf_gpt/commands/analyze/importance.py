r"""
Which words mattered for the next word, a class, or one choice against the others, by five methods compared.

    python scripts/analyze.py importance --model_name_or_path model_cards/gpt-mini \
        --text "The soup was cold and the bread was very" --next_word hard --output_dir outputs/importance
    python scripts/analyze.py importance --model_name_or_path outputs/sst2 --text "a dull and lifeless film" \
        --class_name negative --output_dir outputs/sentiment
    python scripts/analyze.py importance --model_name_or_path outputs/stories --text "It rained on Tom." \
        --choices "He was wet." "He was dry." --output_dir outputs/choice

A classifier explains the log-odds of its class, a multiple-choice model those of a choice, a language model the log-
probability of the next word. importance.html and importance.png show the words of each text by each method,
importance.json their numbers as shares of the largest, details.json all there is. `perturbation` reports how much
noise a word bears (Guan et al., 2019; convergence.png), its sigma, and whether anything was learnt; `gradient` is
gradient times input, `integrated` integrated gradients from the mean embedding, `occlusion` puts the mean embedding in
the word's place, `phrases` takes the word and phrases around it out of the text. deletion.png and insertion.png show
which method is faithful: how the score falls as words are blanked out, the most important first, and rises as they are
put back, as a mean over texts.
"""

import sys
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from ...analysis import AnalysisArguments, Example
from ...analysis.figures import curves_figure
from ...analysis.importance import (
    METHODS,
    ClassScore,
    Passage,
    Score,
    agreement_of,
    faithfulness,
    next_word_score,
    shares,
    word_scores,
)
from ...analysis.pages import terminal_text, write_coloured
from ...files import flag, write_json
from ...generation import print_table
from ...model.modeling_gpt import (
    GPTForCausalLM,
    GPTForMultipleChoice,
    GPTForSequenceClassification,
    GPTPreTrainedModel,
)
from ...model.tokenization_gpt import GPTTokenizer

# Curves of texts of different lengths are averaged at these shares of their words.
_SHARES = np.linspace(0, 1, 21)


@dataclass(kw_only=True)
class Arguments(AnalysisArguments):
    """Which model and texts, what is explained, and where the result goes."""

    next_word: str | None = flag(
        None, "What comes next; by default the likeliest token. Of a classifier: its language model."
    )
    class_name: str | None = flag(None, "Class; by default the likeliest one.")
    second_text: str | None = flag(None, "Of a pair: the second text, the same for all.")
    both_orders: bool = flag(False, "Read a pair in both orders, as for similarity.")
    choices: list[str] | None = flag(None, "Choices for the one --text.")
    choice: int | None = flag(None, "Which one is explained, from 0; by default the likeliest one.")
    against: int | None = flag(None, "Against which other choice; by default all.")
    methods: list[str] = flag([*METHODS], f"Some of {', '.join(METHODS)}.")
    max_texts: int = flag(4, "Texts that are read at most.")
    steps: int = flag(500, "Of perturbation.")
    perturbation_rate: float = flag(0.1, "Weight of the noise's entropy.")
    perturbation_learning_rate: float = flag(0.03, "Of perturbation's Adam, in the first step; it falls to 0.")
    draws: int = flag(32, "Draws of noise in a step of perturbation.")
    seeds: int = flag(1, "Runs of perturbation, of which the mean is taken.")
    path_steps: int = flag(50, "Points on the path of integrated gradients.")
    phrase_words: int = flag(3, "Words of a phrase that is taken out, at most.")

    def __post_init__(self) -> None:
        super().__post_init__()
        unknown = [name for name in self.methods if name not in METHODS]
        if unknown or not self.methods:
            raise ValueError(f"--methods {' '.join(unknown)}: choose from {', '.join(METHODS)}.")
        if self.choices and (self.text is None or len(self.text) != 1 or len(self.choices) < 2):
            raise ValueError("--choices takes two or more, and one --text.")

    @property
    def settings(self) -> dict[str, Any]:
        """`dict`: of `word_scores`."""
        names = ("steps", "draws", "path_steps", "phrase_words")
        return {name: getattr(self, name) for name in names} | {
            "rate": self.perturbation_rate,
            "learning_rate": self.perturbation_learning_rate,
            "seeds": range(self.seed, self.seed + self.seeds),
        }


def run(args: Arguments) -> None:
    """Score the words of each text by each method, compare, draw."""
    model, tokenizer = args.load(_model_class(args))
    examples = args.examples
    if len(examples) > args.max_texts:
        print(f"Of {len(examples)} texts the first {args.max_texts} are read (--max_texts).")
    # All of them are read before the first is explained: a text that is too long shows at once.
    scores = [_score(args, model, tokenizer, example) for example in examples[: args.max_texts]]
    records, shown = [], []
    for score, target in scores:
        record, texts = _explain(args, score, target)
        records.append(record)
        shown += texts
    if shown:
        write_coloured(args.folder / "importance", f"Words that mattered to {args.name}", shown)
    write_json(args.folder / "details.json", records)
    _compare(args, records)


def _explain(args: Arguments, score: Score, target: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """All there is to report of a text; and its words with their shares, by each method that found something."""
    words, methods, shown = [word.text for word in score.passage.words], {}, []
    print(f"\n{target}")
    for method in args.methods:
        values, more = word_scores(score, method, **args.settings)
        methods[method] = {"scores": values, **more}
        if method == "perturbation":
            sigma = more["sigma"]
            print(f"{'sigma':13}{' '.join(f'{word}({each:.3f})' for word, each in zip(words, sigma, strict=True))}")
            if not more["learnt"]:
                span = f"sigma is {min(sigma):.3f} to {max(sigma):.3f}"
                print(f"{method:13}nothing was learnt in {args.steps} steps ({span}): not shown; try more --steps.")
                continue
        shown.append({"words": words, "values": shares(values, method), "label": f"{target}, {method}"})
        print(f"{method:13}{terminal_text(words, shown[-1]['values'], sys.stdout.isatty())}")
    by_method = {name: each["scores"] for name, each in methods.items() if each.get("learnt", True)}
    curves = faithfulness(score, by_method, seed=args.seed)
    record = {"target": target, "methods": methods, "words": words, "agreement": agreement_of(by_method)}
    return {**record, "curves": curves}, shown


def _model_class(args: Arguments) -> type[GPTPreTrainedModel]:
    """The head that is explained: the model's own, or the language model."""
    if args.source.kind == "tf-release" or args.next_word is not None:
        own = GPTForCausalLM.__name__
    else:
        own = (args.source.config().architectures or [""])[0]
    heads = {head.__name__: head for head in (GPTForSequenceClassification, GPTForMultipleChoice)}
    found = heads.get(own, GPTForCausalLM)
    needs = {
        "choices": args.choices is not None or args.choice is not None or args.against is not None,
        "class_name": args.class_name is not None,
        "second_text": args.second_text is not None or args.both_orders,
    }
    reads = {GPTForMultipleChoice: ["choices"], GPTForSequenceClassification: ["class_name", "second_text"]}
    for name, given in needs.items():
        if given and name not in reads.get(found, []):
            raise ValueError(f"--{name} does not go with {args.name}, which is explained as a {found.__name__}.")
    if found is GPTForMultipleChoice and not args.choices:
        raise ValueError(f"{args.name} is a multiple-choice model: give one --text and --choices.")
    if args.both_orders and args.second_text is None:
        raise ValueError("--both_orders are those of a pair: give --second_text.")
    return found


def _score(args: Arguments, model: GPTPreTrainedModel, tokenizer: GPTTokenizer, example: Example) -> tuple[Score, str]:
    """What is explained of a text, and its name."""
    if isinstance(model, GPTForCausalLM):
        return next_word_score(model, tokenizer, example.text, args.next_word)
    tokenizer.task_template = True
    if isinstance(model, GPTForMultipleChoice):
        passage = Passage.read(tokenizer, example.text, args.choices, share_prefix=model.config.is_causal)
        names, wanted = args.choices, args.choice
    else:
        others = [] if args.second_text is None else [args.second_text]
        passage = Passage.read(tokenizer, example.text, others, args.both_orders, model.config.is_causal)
        names = [model.config.id2label[index] for index in range(model.config.num_labels)]
        if args.class_name is not None and args.class_name not in names:
            raise ValueError(f"--class_name {args.class_name}: the classes are {', '.join(names)}.")
        wanted = None if args.class_name is None else names.index(args.class_name)
    if wanted is None:
        alone = [ClassScore(model, passage, index, []).of([passage]).item() for index in range(len(names))]
        wanted = int(np.argmax(alone))
    score = ClassScore(model, passage, wanted, None if args.against is None else [args.against])
    return score, f"for: {names[wanted]}"


def _compare(args: Arguments, records: list[dict[str, Any]]) -> None:
    """Curves as means over texts, their areas as a table, agreement, and how the perturbation converged."""
    methods = list(dict.fromkeys(method for record in records for method in record["curves"]))
    rows = [{"area under the curves": name} for name in methods]
    for way, words, good in (("deletion", "blanked out", "low"), ("insertion", "put back", "high")):
        means = {}
        for name, row in zip(methods, rows, strict=True):
            own = [record["curves"][name] for record in records if name in record["curves"]]
            means[name] = np.mean([_at_shares(each[way]) for each in own], 0).tolist()
            row[f"{way} ({good} is good)"] = float(np.mean([each[f"{way}_area"] for each in own]))
        title = f"Score as words are {words}, most important first"
        figure = curves_figure(means, title, "share of words", "score", at=_SHARES.tolist())
        args.save(way, figure, {"shares": _SHARES.tolist(), "curves": means})
    print()
    print_table(rows)
    for one, two in pairwise(name for name in methods if name != "random"):
        values = [record["agreement"].get(one, {}).get(two, np.nan) for record in records]
        if not np.isnan(values).all():
            print(f"rank correlation of {one} and {two}: {np.nanmean(values):.2f}")
    if noise := records[0]["methods"].get("perturbation"):
        curves = {f"run {number}": losses for number, losses in enumerate(noise["losses"])}
        figure = curves_figure(curves, "Perturbation: loss of each step, first text", "step", "loss")
        args.save("convergence", figure, curves)


def _at_shares(curve: list[float]) -> np.ndarray:
    return np.interp(_SHARES, np.linspace(0, 1, len(curve)), curve)
