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

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.stats import spearmanr
from tqdm import tqdm

from ..features import word_spans
from ..files import flag, write_json
from ..generation import encode, print_table
from ..model.modeling_gpt import GPTForCausalLM, GPTForMultipleChoice, GPTForSequenceClassification, GPTPreTrainedModel
from ..model.tokenization_gpt import GPTTokenizer
from ..trees.collators import collate_trees
from ..trees.token_tree import TokenTree
from . import AnalysisArguments
from .figures import curves_figure
from .pages import terminal_text, write_coloured

METHODS = ("perturbation", "gradient", "integrated", "occlusion", "phrases")
# Inputs that are read at once.
_BATCH = 16
# Where the noise of perturbation begins, as the logit of its share of the largest: well below the embeddings' size.
_QUIET = -4.0
# Share of the last steps over which sigma is averaged, and times the smallest sigma that the largest must be.
_TAIL, _SPREAD = 0.25, 1.1

Paths = Sequence[Sequence[int]]


class Word(NamedTuple):
    """
    A word of a passage as it was written, the number of its text (0, 1 for the second one or the first choice, and so
    on), and its tokens: number of a path, and place on it.
    """

    text: str
    part: int
    places: frozenset[tuple[int, int]]


class Passage(NamedTuple):
    """
    What a model reads: paths of a token tree, and the words on them in the order of reading; a word on several paths
    is one.
    """

    paths: Paths
    words: Sequence[Word]

    @classmethod
    def read(
        cls, tokenizer: GPTTokenizer, text: str, others: Sequence[str] = (), both_orders: bool = False
    ) -> "Passage":
        """
        A text alone, after it one or more others (a path each), or a pair in both orders; specials are those of the
        tokenizer's task template. A `ValueError` if there is no word in a text.
        """
        pairs = [((text, 0), (other, number)) for number, other in enumerate(others, 1)] or [((text, 0),)]
        pairs += [pair[::-1] for pair in pairs] if both_orders else []
        paths, texts, places = [], {}, {}
        for number, pair in enumerate(pairs):
            encoded = tokenizer(*(part for part, _ in pair), verbose=False)
            paths.append(encoded["input_ids"])
            for first, end, sequence, start, stop in word_spans(encoded.encodings[0]).tolist():
                part, index = pair[sequence]
                texts[index, start, stop] = part[start:stop]
                places.setdefault((index, start, stop), set()).update((number, place) for place in range(first, end))
        if len({index for index, _, _ in texts}) < 1 + len(others):
            raise ValueError("One of the texts has no word: write some.")
        words = [Word(texts[key], key[0], frozenset(places[key])) for key in sorted(texts)]
        return cls(paths, words)

    def without(self, words: Iterable[int]) -> Paths:
        """The paths without some of the words."""
        gone = set().union(*(self.words[word].places for word in words))
        return [
            [token for place, token in enumerate(path) if (number, place) not in gone]
            for number, path in enumerate(self.paths)
        ]


class Score:
    """
    A number that a model, which is left as it is, makes of a passage, as a function of the embeddings of its tokens:
    that of `read(**inputs)`, `(batch,)`, for inputs of the model with `classify_index`. A `ValueError` if the
    model is in training mode, or a path longer than its context.
    """

    def __init__(self, model: GPTPreTrainedModel, passage: Passage, read: Callable[..., torch.Tensor]):
        longest, config = max(map(len, passage.paths)), model.config
        if model.training:
            raise ValueError("The model is in training mode, where dropout blurs its scores: call model.eval() first.")
        if longest > config.n_positions:
            raise ValueError(f"The text has {longest} tokens, more than the model's context of {config.n_positions}.")
        self.model, self.passage, self._read = model, passage, read
        tree = self._tree(passage.paths)
        rows = [tree.path(number) for number in range(len(passage.paths))]
        # Of each word the indices of its tokens in the tree's row.
        self.spans = [sorted({rows[number][place] for number, place in word.places}) for word in passage.words]
        self._places = [*chain.from_iterable(self.spans)]
        self._table: torch.Tensor = model.get_input_embeddings().weight.detach()
        special = {*(config.untrained_token_ids or ()), *config.task_token_ids, config.pad_token_id}
        ordinary = sorted({*range(config.vocab_size)} - special - {config.mask_token_id})
        self._ordinary = torch.tensor(ordinary, device=self._table.device)
        self.embeds = self._table[list(tree.input_ids)]  # (length, n_embd)
        # The embeddings with each word's the mean of ordinary tokens, and the largest noise of `perturbation`.
        self.baseline, usual = self.embeds.clone(), self._table[self._ordinary]
        self.baseline[self._places] = usual.mean(0)
        self.scale = 10 * usual.std().item()

    def _tree(self, paths: Paths) -> TokenTree:
        """What paths begin with is read once, as a causal model can."""
        return TokenTree.from_paths(paths, share_limit=None if self.model.config.is_causal else 0)

    @torch.no_grad()
    def of(self, passages: Sequence[Paths]) -> torch.Tensor:
        """Scores, `(passages,)`, of other paths, such as those of `Passage.without`."""
        parts = [passages[start : start + _BATCH] for start in range(0, len(passages), _BATCH)]
        return torch.cat([self._read(**self._inputs(part)) for part in parts])

    def __call__(self, embeds: torch.Tensor) -> torch.Tensor:
        """Scores, `(batch,)`, of the passage with other embeddings, `(batch, length, n_embd)`."""
        inputs = {name: value.expand(len(embeds), -1) for name, value in self._inputs([self.passage.paths]).items()}
        del inputs["input_ids"]
        return self._read(inputs_embeds=embeds, **inputs)

    def _inputs(self, passages: Sequence[Paths]) -> dict[str, torch.Tensor]:
        trees, config = [*map(self._tree, passages)], self.model.config
        batch = collate_trees(trees, config.pad_token_id or 0, config.is_causal)
        wanted = ("input_ids", "position_ids", "subtree_end", "classify_index")
        return {name: batch[name].to(self.model.device) for name in wanted if name in batch}

    @torch.no_grad()
    def variance(self, samples: int = 64, seed: int = 0) -> float:
        """Of the score over passages of the same layout whose words are random tokens: S squared of `perturbation`."""
        generator = torch.Generator().manual_seed(seed)
        drawn = torch.randint(len(self._ordinary), (samples, len(self._places)), generator=generator)
        embeds = self.embeds.repeat(samples, 1, 1)
        embeds[:, self._places] = self._table[self._ordinary[drawn.to(embeds.device)]]
        return torch.cat([self(part) for part in embeds.split(_BATCH)]).var().item()


def next_ids_score(model: GPTForCausalLM, passage: Passage, next_ids: Sequence[int]) -> Score:
    """
    The log-probability of the tokens of the next word after a passage of one path, without specials; of a passage
    without words 0 stands for the unknown probability of a text's first token.
    """
    targets, count = torch.tensor(next_ids, device=model.device), len(next_ids)

    def read(classify_index: torch.Tensor, **inputs: torch.Tensor) -> torch.Tensor:
        before = classify_index - torch.arange(count, 0, -1, device=classify_index.device)  # (batch, count)
        states = model.transformer(**inputs, use_cache=False).last_hidden_state
        index = before.clamp(min=0).unsqueeze(-1).expand(-1, -1, states.shape[-1])  # (batch, count, n_embd)
        log_probs = model.token_logits(states.gather(1, index)).float().log_softmax(-1)
        own = log_probs.gather(-1, targets.expand(len(before), -1).unsqueeze(-1)).squeeze(-1)  # (batch, count)
        return own.masked_fill(before < 0, 0).sum(-1)

    (path,) = passage.paths
    return Score(model, Passage([[*path, *next_ids]], passage.words), read)


def next_word_score(
    model: GPTForCausalLM, tokenizer: GPTTokenizer, text: str, next_word: str | None = None
) -> tuple[Score, str]:
    """
    What speaks for the next word of a text, by default the likeliest token; and the name of that score. A `ValueError`
    if text or word are empty, or too long.
    """
    tokenizer.task_template = False
    passage = Passage.read(tokenizer, text)
    if next_word is None:
        next_ids_score(model, passage, [])  # which fits into the context
        with torch.no_grad():
            logits = model(torch.tensor(passage.paths, device=model.device), logits_to_keep=1).logits
        ids = [int(logits[0, -1].argmax())]
    else:
        # After a space, which GPT-2's tokens hold.
        ids = encode(tokenizer, f" {next_word}") if next_word.strip() else []
        if not ids:
            raise ValueError(f"The next word, {next_word!r}, has no token: write one.")
    return next_ids_score(model, passage, ids), f"next: {tokenizer.decode(ids).strip()}"


def class_score(
    model: GPTPreTrainedModel, passage: Passage, wanted: int, against: Sequence[int] | None = None
) -> Score:
    """
    What speaks for the `wanted` class, or choice, of a passage with the specials of the task template: its log-odds
    against others, by default all, so against one other the margin of their logits; where there is none (or classes do
    not exclude each other), its logit alone. A `ValueError` if there is no such class or choice, or it is to be
    compared with itself.
    """
    by_choice = isinstance(model, GPTForMultipleChoice)
    kind, count = ("choices", len(passage.paths)) if by_choice else ("classes", model.config.num_labels)
    if not all(0 <= index < count for index in (wanted, *(against or ()))) or wanted in (against or ()):
        raise ValueError(f"There are {count} {kind}, numbered from 0; one is explained against others.")
    if against is None:
        exclusive = by_choice or model.config.problem_type not in ("regression", "multi_label_classification")
        against = [index for index in range(count) if index != wanted] if exclusive else []

    def read(**inputs: torch.Tensor) -> torch.Tensor:
        logits = model(**inputs).logits.float()  # (batch, choices) or (batch, num_labels)
        return logits[:, wanted] - (logits[:, list(against)].logsumexp(-1) if against else 0)

    return Score(model, passage, read)


class Perturbation(NamedTuple):
    """
    What the words of a passage bear, `(words,)`: the noise of each (the smaller, the more it matters), as a score
    `-log(sigma / scale)`, 0 for a word that bears any noise; the loss of every step; and whether anything was learnt:
    the loss fell, and words bear different noise.
    """

    sigma: torch.Tensor
    scores: torch.Tensor
    losses: list[float]
    learnt: bool


def perturbation(
    phi: Callable[[torch.Tensor], torch.Tensor],
    embeds: torch.Tensor,
    spans: Sequence[Sequence[int]],
    variance: float,
    scale: float,
    rate: float = 0.1,
    steps: int = 500,
    learning_rate: float = 0.03,
    draws: int = 32,
    seed: int = 0,
) -> Perturbation:
    """
    How much noise each word bears (Guan et al., 2019, equation 7).

    The tokens of word i, `spans[i]`, get noise N(0, sigma_i^2 I), sigma_i = scale * sigmoid(r_i), of which there are
    some `draws` in a step, and Adam minimises `E ||phi(x + noise) - phi(x)||^2 / variance - rate * sum_i log sigma_i`,
    at a learning rate that falls to 0. Phi goes from embeddings `(batch, length, width)` to `(batch, ...)`, x is
    `embeds` `(length, width)`; a `ValueError` if phi's variance over sampled inputs is 0. The noise begins small:
    where it begins larger than the embeddings, all words are lost from the start, and which come back is a matter of
    the draws. The sigma that counts is the mean over the last quarter of the steps.
    """
    if not variance > 0:
        raise ValueError("The score is the same for all sampled inputs: no word can matter for it.")
    generator = torch.Generator().manual_seed(seed)
    of_word = torch.zeros(len(spans), len(embeds), device=embeds.device)  # (words, length)
    for word, span in enumerate(spans):
        of_word[word, list(span)] = 1
    embeds = embeds.detach()
    with torch.no_grad():
        clean = phi(embeds[None])
    raw = torch.full((len(spans),), _QUIET, device=embeds.device, requires_grad=True)
    optimizer = torch.optim.Adam([raw], learning_rate)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1, 1 / steps, steps)
    losses, path = [], []
    for _ in tqdm(range(steps), desc="perturbation", leave=False):
        sigma = scale * raw.sigmoid()
        path.append(sigma.detach())
        noise = torch.randn((draws, *embeds.shape), generator=generator).to(embeds)
        change = phi(embeds + (sigma @ of_word).unsqueeze(-1) * noise) - clean  # (draws, ...)
        loss = change.reshape(draws, -1).pow(2).sum(-1).mean() / variance - rate * sigma.log().sum()
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward(inputs=[raw])
        optimizer.step()
        schedule.step()
    tail = max(1, round(_TAIL * steps))
    sigma = torch.stack(path[-tail:]).mean(0)
    fell = np.mean(losses[-tail:]) < np.mean(losses[:tail])
    learnt = bool(fell and (len(spans) == 1 or sigma.max() >= _SPREAD * sigma.min()))
    return Perturbation(sigma, -(sigma / scale).log(), losses, learnt)


def phrase_drops(score: Score, longest: int = 3) -> dict[tuple[int, ...], float]:
    """What the score loses without each phrase: each run of at most `longest` words of one text."""
    passage, count = score.passage, len(score.spans)
    runs = (range(start, end) for start in range(count) for end in range(start + 1, min(start + longest, count) + 1))
    phrases = [tuple(run) for run in runs if passage.words[run[0]].part == passage.words[run[-1]].part]
    found = score.of([passage.paths, *map(passage.without, phrases)])
    return dict(zip(phrases, (found[0] - found[1:]).tolist(), strict=True))


def word_scores(
    score: Score,
    method: str,
    seeds: Sequence[int] = (0,),
    path_steps: int = 50,
    phrase_words: int = 3,
    **settings: Any,
) -> tuple[list[float], dict[str, Any]]:
    """
    Importance of each word by a method (of `perturbation`, for which further `settings` are, the mean of runs with
    several seeds), and what the method reports more: of `perturbation` sigma, losses, whether something was learnt,
    and the scores' standard deviation over seeds; of `integrated`, with `path_steps` points on its path, what the
    scores should add up to; of `phrases` of at most `phrase_words` words all phrases.
    """
    from captum.attr import FeatureAblation, InputXGradient, IntegratedGradients

    spans, embeds, baseline = score.spans, score.embeds[None], score.baseline[None]
    if method == "perturbation":
        options = {"variance": score.variance(), "scale": score.scale, **settings}
        runs = [perturbation(score, score.embeds, spans, seed=seed, **options) for seed in seeds]
        scores = torch.stack([run.scores for run in runs])  # (seeds, words)
        more = {"sigma": torch.stack([run.sigma for run in runs]).mean(0).tolist(), "scale": options["scale"]}
        more |= {"learnt": all(run.learnt for run in runs), "losses": [run.losses for run in runs]}
        return scores.mean(0).tolist(), more | ({"deviation": scores.std(0).tolist()} if len(runs) > 1 else {})
    if method == "phrases":
        drops = phrase_drops(score, phrase_words)
        holding = [
            [drop / len(phrase) for phrase, drop in drops.items() if word in phrase] for word in range(len(spans))
        ]
        phrases = [{"words": list(phrase), "drop": drop} for phrase, drop in drops.items()]
        return [sum(values) / len(values) for values in holding], {"phrases": phrases}
    if method == "occlusion":
        of_word = torch.zeros_like(embeds, dtype=torch.long)  # of the word's number, from 1, in each of its tokens
        for number, span in enumerate(spans, 1):
            of_word[0, span] = number
        options = {"feature_mask": of_word, "perturbations_per_eval": _BATCH}
        with torch.no_grad():
            drops = FeatureAblation(score).attribute(embeds, baseline, **options)
        return [drops[0, span[0], 0].item() for span in spans], {}
    if method == "gradient":
        found, more = InputXGradient(score).attribute(embeds.clone().requires_grad_()), {}
    else:
        settings = {"n_steps": path_steps, "internal_batch_size": _BATCH}
        found = IntegratedGradients(score).attribute(embeds, baseline, **settings)
        with torch.no_grad():
            more = {"difference": (score(embeds) - score(baseline)).item()}
    by_token = found.detach().sum(-1)[0]
    return [by_token[span].sum().item() for span in spans], more


def shares(values: Sequence[float], method: str) -> list[float]:
    """Scores as shares of the largest; noise is compared with that of the word that bears most."""
    values = np.array(values) - (min(values) if method == "perturbation" else 0)
    return (values / (np.abs(values).max() or 1)).tolist()


@torch.no_grad()
def _curve(score: Score, begin: torch.Tensor, end: torch.Tensor, order: Sequence[int]) -> torch.Tensor:
    """The score, `(words + 1,)`, as words of one row of embeddings become those of another, one after the other."""
    rows = [begin]
    for word in order:
        row = rows[-1].clone()
        row[score.spans[word]] = end[score.spans[word]]
        rows.append(row)
    return torch.cat([score(part) for part in torch.stack(rows).split(_BATCH)])


def faithfulness(score: Score, scores: dict[str, Sequence[float]], orders: int = 10, seed: int = 0) -> dict[str, Any]:
    """
    Deletion and insertion curves of each method and, for comparison, the mean of random orders. A method is the more
    faithful, the lower the area (mean) under its deletion curve and the higher that under its insertion curve.
    """
    random = np.random.default_rng(seed)
    ranked = {name: [np.argsort(-np.asarray(values), kind="stable")] for name, values in scores.items()}
    ranked["random"] = [random.permutation(len(score.spans)) for _ in range(orders)]
    ways = {"deletion": (score.embeds, score.baseline), "insertion": (score.baseline, score.embeds)}
    found: dict[str, Any] = {name: {} for name in ranked}
    for name, some in ranked.items():
        for way, ends in ways.items():
            values = torch.stack([_curve(score, *ends, order.tolist()) for order in some]).mean(0)
            found[name] |= {way: values.tolist(), f"{way}_area": values.mean().item()}
    return found


def agreement_of(scores: dict[str, Sequence[float]]) -> dict[str, dict[str, float]]:
    """Spearman's rank correlation of the scores' sizes between each two methods; NaN where all words are alike."""
    sizes = {name: np.abs(values) for name, values in scores.items()}

    def correlation(one: np.ndarray, two: np.ndarray) -> float:
        return float(spearmanr(one, two).statistic) if np.ptp(one) and np.ptp(two) else float("nan")

    return {name: {other: correlation(sizes[name], sizes[other]) for other in sizes} for name in sizes}


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
    methods: list[str] = flag([*METHODS], "By which methods.", METHODS)
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
        values, more = word_scores(score, method, **settings)
        methods[method] = {"scores": values, **more}
        if method == "perturbation":
            sigma = more["sigma"]
            print(f"{'sigma':13}{' '.join(f'{word}({each:.3f})' for word, each in zip(words, sigma, strict=True))}")
            if not more["learnt"]:
                span = f"sigma is {min(sigma):.3f} to {max(sigma):.3f}"
                print(f"{method:13}nothing was learnt in {args.steps} steps ({span}): not shown; try more --steps.")
                continue
        values = shares(values, method)
        shown.append({"words": words, "values": values, "label": f"{target}, {method}"})
        print(f"{method:13}{terminal_text(words, values)}")
    by_method = {name: each["scores"] for name, each in methods.items() if each.get("learnt", True)}
    record = {"target": target, "methods": methods, "words": words, "agreement": agreement_of(by_method)}
    return record | {"curves": faithfulness(score, by_method, seed=args.seed)}, shown


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
        return next_word_score(model, tokenizer, text, args.next_word)
    tokenizer.task_template = True
    others = args.choices or ([] if args.second_text is None else [args.second_text])
    passage = Passage.read(tokenizer, text, others, args.both_orders)
    names, wanted = args.choices, args.choice
    if not names:
        names = list(model.config.id2label.values())
        if args.class_name is not None and args.class_name not in names:
            raise ValueError(f"--class_name {args.class_name}: the classes are {', '.join(names)}.")
        wanted = None if args.class_name is None else names.index(args.class_name)
    if wanted is None:
        alone = [class_score(model, passage, index, []).of([passage.paths]) for index in range(len(names))]
        wanted = int(np.argmax(alone))
    against = None if args.against is None else [args.against]
    return class_score(model, passage, wanted, against), f"for: {names[wanted]}"


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
