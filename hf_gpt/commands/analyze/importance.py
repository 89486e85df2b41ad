r"""
Which words mattered for the next word, a class, or one choice against the others, by five methods compared.

    python scripts/analyze.py importance --model_name_or_path model_cards/gpt-mini \
        --text "The soup was cold and the bread was very" --next_word hard --output_dir outputs/importance
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

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from ...analysis import AnalysisArguments, importance
from ...analysis.figures import curves_figure
from ...analysis.importance import METHODS, Passage, Score
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

    next_word: str | None = flag(None, "What comes next, of a language model; by default the likeliest token.")
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
        unknown = {*self.methods} - {*METHODS}
        if unknown or not self.methods:
            raise ValueError(f"--methods {' '.join(sorted(unknown))}: choose from {', '.join(METHODS)}.")
        if self.choices and (self.text is None or len(self.text) != 1 or len(self.choices) < 2):
            raise ValueError("--choices takes two or more, and one --text.")


def run(args: Arguments) -> None:
    """Score the words of each text by each method, compare, draw."""
    model, tokenizer = args.load(_model_class(args))
    examples = args.examples
    if len(examples) > args.max_texts:
        print(f"Of {len(examples)} texts the first {args.max_texts} are read (--max_texts).")
    # All of them are read before the first is explained: a text that is too long shows at once.
    scores = [_score(args, model, tokenizer, example.text) for example in examples[: args.max_texts]]
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
    settings = {name: getattr(args, name) for name in ("steps", "draws", "path_steps", "phrase_words")}
    settings |= {"rate": args.perturbation_rate, "learning_rate": args.perturbation_learning_rate}
    settings["seeds"] = range(args.seed, args.seed + args.seeds)
    print(f"\n{target}")
    for method in args.methods:
        values, more = importance.word_scores(score, method, **settings)
        methods[method] = {"scores": values, **more}
        if method == "perturbation":
            sigma = more["sigma"]
            print(f"{'sigma':13}{' '.join(f'{word}({each:.3f})' for word, each in zip(words, sigma, strict=True))}")
            if not more["learnt"]:
                span = f"sigma is {min(sigma):.3f} to {max(sigma):.3f}"
                print(f"{method:13}nothing was learnt in {args.steps} steps ({span}): not shown; try more --steps.")
                continue
        values = importance.shares(values, method)
        shown.append({"words": words, "values": values, "label": f"{target}, {method}"})
        print(f"{method:13}{terminal_text(words, values)}")
    by_method = {name: each["scores"] for name, each in methods.items() if each.get("learnt", True)}
    record = {"target": target, "methods": methods, "words": words, "agreement": importance.agreement_of(by_method)}
    return record | {"curves": importance.faithfulness(score, by_method, seed=args.seed)}, shown


def _model_class(args: Arguments) -> type[GPTPreTrainedModel]:
    """The head that is explained: the model's own, or the language model."""
    is_language_model = args.source.kind == "tf-release" or args.next_word is not None
    own = None if is_language_model else (args.source.config().architectures or [None])[0]
    heads = {head.__name__: head for head in (GPTForSequenceClassification, GPTForMultipleChoice)}
    found = heads.get(own, GPTForCausalLM)
    of_head = {GPTForMultipleChoice: ("choices", "choice", "against")}
    of_head[GPTForSequenceClassification] = ("class_name", "second_text", "both_orders")
    for name in ("choices", "choice", "against", "class_name", "second_text", "both_orders"):
        if getattr(args, name) not in (None, False) and name not in of_head.get(found, ()):
            raise ValueError(f"--{name} does not go with {args.name}, which is explained as a {found.__name__}.")
    if found is GPTForMultipleChoice and not args.choices:
        raise ValueError(f"{args.name} is a multiple-choice model: give one --text and --choices.")
    if args.both_orders and args.second_text is None:
        raise ValueError("--both_orders are those of a pair: give --second_text.")
    return found


def _score(args: Arguments, model: GPTPreTrainedModel, tokenizer: GPTTokenizer, text: str) -> tuple[Score, str]:
    """What is explained of a text, and its name."""
    if isinstance(model, GPTForCausalLM):
        return importance.next_word_score(model, tokenizer, text, args.next_word)
    tokenizer.task_template = True
    others = args.choices or ([] if args.second_text is None else [args.second_text])
    passage = Passage.read(tokenizer, text, others, args.both_orders, model.config.is_causal)
    names, wanted = args.choices, args.choice
    if not names:
        names, wanted = list(model.config.id2label.values()), None
        if args.class_name is not None and args.class_name not in names:
            raise ValueError(f"--class_name {args.class_name}: the classes are {', '.join(names)}.")
        wanted = None if args.class_name is None else names.index(args.class_name)
    if wanted is None:
        alone = [importance.class_score(model, passage, index, []).of([passage.paths]) for index in range(len(names))]
        wanted = int(np.argmax(alone))
    against = None if args.against is None else [args.against]
    return importance.class_score(model, passage, wanted, against), f"for: {names[wanted]}"


def _compare(args: Arguments, records: list[dict[str, Any]]) -> None:
    """Curves as means over texts, their areas as a table, agreement, and how the perturbation converged."""
    methods = list(dict.fromkeys(method for record in records for method in record["curves"]))
    rows = [{"area under the curves": name} for name in methods]
    for way, words, good in (("deletion", "blanked out", "low"), ("insertion", "put back", "high")):
        means = {}
        for name, row in zip(methods, rows, strict=True):
            own = [record["curves"][name] for record in records if name in record["curves"]]
            curves = [np.interp(_SHARES, np.linspace(0, 1, len(each[way])), each[way]) for each in own]
            means[name] = np.mean(curves, 0).tolist()
            row[f"{way} ({good} is good)"] = float(np.mean([each[f"{way}_area"] for each in own]))
        title = f"Score as words are {words}, most important first"
        figure = curves_figure({"": means}, title, "share of words", _SHARES)
        args.save(way, figure, {"shares": _SHARES.tolist(), "curves": means})
    print()
    print_table(rows)
    for one, two in pairwise(name for name in methods if name != "random"):
        values = [record["agreement"].get(one, {}).get(two, np.nan) for record in records]
        if not np.isnan(values).all():
            print(f"rank correlation of {one} and {two}: {np.nanmean(values):.2f}")
    if noise := records[0]["methods"].get("perturbation"):
        losses = {f"run {number}": losses for number, losses in enumerate(noise["losses"])}
        args.save("convergence", curves_figure({"": losses}, "Perturbation: loss, first text", "step"), losses)
