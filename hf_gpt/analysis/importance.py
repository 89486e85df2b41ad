r"""
Which words mattered for the next word, a class, or one choice against the others, by four methods compared.

    python scripts/analyze.py importance --model_name_or_path model_cards/gpt-mini \
        --text "The soup was cold and the bread was very" --next_word hard --output_dir outputs/importance
    python scripts/analyze.py importance --model_name_or_path outputs/stories --text "It rained on Tom." \
        --choices "He was wet." "He was dry." --output_dir outputs/choice

A classifier explains the log-odds of its class, a multiple-choice model those of a choice, a language model the log-
probability of the next word. importance.html and importance.json show the words of each text by each method, as shares
of the largest; details.json all there is. `perturbation` reports how much noise a word bears (Guan et al., 2019), its
sigma, and whether anything was learnt; `gradient` is gradient times input, `integrated` integrated gradients from the
mean embedding, `occlusion` puts the mean embedding in the word's place. The table shows which method is faithful: the
area under the score as words are blanked out (deletion), the most important first, and as they are put back
(insertion), as a mean over texts.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import torch
from tqdm import tqdm

from ..features import word_spans
from ..files import flag, write_json
from ..generation import encode, print_table
from ..model.modeling_gpt import GPTForCausalLM, GPTForMultipleChoice, GPTForSequenceClassification, GPTPreTrainedModel
from ..model.tokenization_gpt import GPTTokenizer
from ..trees.collators import collate_trees
from ..trees.token_tree import TokenTree
from . import AnalysisArguments
from .pages import terminal_text, write_coloured

METHODS = ("perturbation", "gradient", "integrated", "occlusion")
# Flags that only one kind of model has.
_FLAGS = {GPTForMultipleChoice: ("choices", "choice"), GPTForSequenceClassification: ("class_name", "second_text")}
# Inputs that are read at once.
_BATCH = 16
# Where the noise of perturbation begins, as the logit of its share of the largest: well below the embeddings' size.
_QUIET = -4.0
# Share of the last steps over which sigma is averaged, and times the smallest sigma that the largest must be.
_TAIL, _SPREAD = 0.25, 1.1


class Passage(NamedTuple):
    """
    What a model reads, a token tree, and its words in the order of reading: as they were written, and the places of
    their tokens in the tree's row. What several paths share is one word.
    """

    tree: TokenTree
    words: Sequence[str]
    spans: Sequence[Sequence[int]]

    @classmethod
    def read(cls, tokenizer: GPTTokenizer, text: str, others: Sequence[str] = (), is_causal: bool = True) -> "Passage":
        """
        A text alone, or before one or more others (a path each), with the specials of the tokenizer's task template. A
        model that is not causal shares nothing. A `ValueError` if there is no word in a text.
        """
        pairs = [(text, other) for other in others] or [(text,)]
        encoded = [tokenizer(*pair, verbose=False) for pair in pairs]
        tree = TokenTree.from_paths([each["input_ids"] for each in encoded], None if is_causal else 0)
        rows = [tree.path(number) for number in range(len(pairs))]
        words, places = {}, {}
        for number, (pair, each, row) in enumerate(zip(pairs, encoded, rows, strict=True), 1):
            for first, end, sequence, start, stop in word_spans(each.encodings[0]).tolist():
                word = (number * sequence, start, stop)
                words[word] = pair[sequence][start:stop]
                places[word] = places.get(word, set()).union(row[first:end])
        if len({word[0] for word in words}) < 1 + len(others):
            raise ValueError("One of the texts has no word: write some.")
        order = sorted(words)
        return cls(tree, [words[word] for word in order], [sorted(places[word]) for word in order])


class Score:
    """
    A number that a model, which is left as it is, makes of a passage, as a function of the embeddings of its tokens:
    `read(embeds)`, `(batch,)`. A `ValueError` if the model is in training mode, or a path longer than its context.
    """

    def __init__(self, model: GPTPreTrainedModel, passage: Passage, read: Callable[[torch.Tensor], torch.Tensor]):
        longest, config = 1 + max(passage.tree.position_ids), model.config
        if model.training:
            raise ValueError("The model is in training mode, where dropout blurs its scores: call model.eval() first.")
        if longest > config.n_positions:
            raise ValueError(f"The text has {longest} tokens, more than the model's context of {config.n_positions}.")
        self.read, self.words, self.spans = read, passage.words, passage.spans
        table = model.get_input_embeddings().weight.detach()
        special = {*(config.untrained_token_ids or ()), *config.task_token_ids, config.pad_token_id}
        self.usual = table[sorted({*range(config.vocab_size)} - special - {config.mask_token_id})]  # (tokens, n_embd)
        self.embeds = table[list(passage.tree.input_ids)]  # (length, n_embd)
        # The embeddings with each word's the mean of ordinary tokens, and the largest noise of `perturbation`.
        self.baseline = self.embeds.clone()
        self.baseline[[*chain(*self.spans)]] = self.usual.mean(0)
        self.scale = 10 * self.usual.std().item()

    def __call__(self, embeds: torch.Tensor) -> torch.Tensor:
        """Scores, `(batch,)`, of the passage with other embeddings, `(batch, length, n_embd)`, some at once."""
        return torch.cat([self.read(part) for part in embeds.split(_BATCH)])

    @torch.no_grad()
    def variance(self, samples: int = 64, seed: int = 0) -> float:
        """Of the score over passages of the same layout whose words are random tokens: S squared of `perturbation`."""
        places, generator = [*chain(*self.spans)], torch.Generator().manual_seed(seed)
        drawn = torch.randint(len(self.usual), (samples, len(places)), generator=generator)
        embeds = self.embeds.repeat(samples, 1, 1)
        embeds[:, places] = self.usual[drawn.to(embeds.device)]
        return self(embeds).var().item()


def next_ids_score(model: GPTForCausalLM, passage: Passage, next_ids: Sequence[int]) -> Score:
    """The log-probability of the tokens of the next word after a passage of one path, without specials."""
    row, count = [*passage.tree.input_ids, *next_ids], len(next_ids)
    targets = torch.tensor(next_ids, device=model.device)

    def read(embeds: torch.Tensor) -> torch.Tensor:
        logits = model(inputs_embeds=embeds, use_cache=False, logits_to_keep=count + 1).logits[:, :-1].float()
        return logits.log_softmax(-1).gather(-1, targets.expand(len(embeds), -1)[..., None]).sum((1, 2))

    return Score(model, passage._replace(tree=TokenTree.from_paths([row])), read)


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
            logits = model(torch.tensor([passage.tree.input_ids], device=model.device), logits_to_keep=1).logits
        ids = [int(logits[0, -1].argmax())]
    else:
        # After a space, which GPT-2's tokens hold.
        ids = encode(tokenizer, f" {next_word}") if next_word.strip() else []
        if not ids:
            raise ValueError(f"The next word, {next_word!r}, has no token: write one.")
    return next_ids_score(model, passage, ids), f"next: {tokenizer.decode(ids).strip()}"


def class_score(model: GPTPreTrainedModel, passage: Passage, wanted: int | None = None) -> tuple[Score, int]:
    """
    What speaks for a class, or choice, of a passage with the specials of the task template, by default the likeliest
    one; and its number. It is the log-odds against all others, or the logit where there is none or classes do not
    exclude each other. A `ValueError` if there is no such class or choice.
    """
    by_choice = isinstance(model, GPTForMultipleChoice)
    kind, count = ("choices", len(passage.tree.path_ends)) if by_choice else ("classes", model.config.num_labels)
    if wanted is not None and not 0 <= wanted < count:
        raise ValueError(f"There are {count} {kind}, numbered from 0: {wanted} is none of them.")
    batch = collate_trees([passage.tree], 0, model.config.is_causal)
    names = [name for name in ("position_ids", "subtree_end", "classify_index") if name in batch]
    inputs = {name: batch[name].to(model.device) for name in names}

    def logits_of(embeds: torch.Tensor) -> torch.Tensor:
        more = {name: value.expand(len(embeds), -1) for name, value in inputs.items()}
        return model(inputs_embeds=embeds, **more).logits.float()  # (batch, choices) or (batch, num_labels)

    def read(embeds: torch.Tensor) -> torch.Tensor:
        logits = logits_of(embeds)
        return logits[:, wanted] - (logits[:, others].logsumexp(-1) if others else 0)

    score = Score(model, passage, read)
    if wanted is None:
        with torch.no_grad():
            wanted = int(logits_of(score.embeds[None]).argmax())
    exclusive = by_choice or model.config.problem_type not in ("regression", "multi_label_classification")
    others = [index for index in range(count) if index != wanted] if exclusive else []
    return score, wanted


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
) -> dict[str, Any]:
    """
    How much noise each word bears (Guan et al., 2019, equation 7): of each its `sigma` (the smaller, the more it
    matters) and `scores`, `-log(sigma / scale)`, 0 for a word that bears any noise; `losses` of every step; and
    `learnt`, whether the loss fell, and words bear different noise.

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
    scores = -(sigma / scale).log()
    return {"scores": scores.tolist(), "sigma": sigma.tolist(), "losses": losses, "learnt": learnt}


def word_scores(score: Score, method: str, **settings: Any) -> tuple[list[float], dict[str, Any]]:
    """
    Importance of each word by a method (of `perturbation` `settings` are further arguments), and what it reports
    more: of `perturbation` sigma, losses, and whether something was learnt; of `integrated` what the scores should add
    up to.
    """
    from captum.attr import FeatureAblation, InputXGradient, IntegratedGradients

    embeds, baseline, more = score.embeds[None], score.baseline[None], {}
    if method == "perturbation":
        more = perturbation(score, score.embeds, score.spans, score.variance(), score.scale, **settings)
        return more.pop("scores"), more
    if method == "occlusion":
        of_word = torch.zeros_like(embeds, dtype=torch.long)  # of the word's number, from 1, in each of its tokens
        for number, span in enumerate(score.spans, 1):
            of_word[0, span] = number
        with torch.no_grad():
            drops = FeatureAblation(score).attribute(
                embeds, baseline, feature_mask=of_word, perturbations_per_eval=_BATCH
            )
        return [drops[0, span[0], 0].item() for span in score.spans], more
    if method == "gradient":
        found = InputXGradient(score).attribute(embeds.clone().requires_grad_())
    else:
        found = IntegratedGradients(score).attribute(embeds, baseline, internal_batch_size=_BATCH)
        with torch.no_grad():
            more = {"difference": (score(embeds) - score(baseline)).item()}
    by_token = found.detach().sum(-1)[0]
    return [by_token[span].sum().item() for span in score.spans], more


def shares(values: Sequence[float], method: str) -> list[float]:
    """Scores as shares of the largest; noise is compared with that of the word that bears most."""
    values = np.array(values) - (min(values) if method == "perturbation" else 0)
    return (values / (np.abs(values).max() or 1)).tolist()


@torch.no_grad()
def faithfulness(score: Score, scores: dict[str, Sequence[float]], orders: int = 10, seed: int = 0) -> dict[str, Any]:
    """
    Of each method and, for comparison, as the mean of `random` orders: `deletion` and `insertion`, the score `(words +
    1,)` as words become the mean embedding or come back from it, the most important first, and the means under these
    curves (`deletion_area`, `insertion_area`). The lower the first and the higher the second, the more faithful.
    """
    random = np.random.default_rng(seed)
    ranked = {name: [np.argsort(-np.asarray(values), kind="stable")] for name, values in scores.items()}
    ranked["random"] = [random.permutation(len(score.spans)) for _ in range(orders)]
    ways = {"deletion": (score.embeds, score.baseline), "insertion": (score.baseline, score.embeds)}
    found: dict[str, Any] = {name: {} for name in ranked}
    for name, some in ranked.items():
        for way, (begin, end) in ways.items():
            curves = []
            for order in some:
                rows = begin.repeat(len(order) + 1, 1, 1)
                for step, word in enumerate(order, 1):
                    rows[step:, score.spans[word]] = end[score.spans[word]]
                curves.append(score(rows))
            values = torch.stack(curves).mean(0)
            found[name] |= {way: values.tolist(), f"{way}_area": values.mean().item()}
    return found


@dataclass(kw_only=True)
class Arguments(AnalysisArguments):
    """Which model and texts, what is explained, and where the result goes."""

    next_word: str | None = flag(None, "What comes next, of a language model; by default the likeliest token.")
    class_name: str | None = flag(None, "Class; by default the likeliest one.")
    second_text: str | None = flag(None, "Of a pair: the second text, the same for all.")
    choices: list[str] | None = flag(None, "Choices for the one --text.")
    choice: int | None = flag(None, "Which one is explained, from 0; by default the likeliest one.")
    methods: list[str] = flag([*METHODS], "By which methods.", METHODS)
    max_texts: int = flag(4, "Texts that are read at most.")
    steps: int = flag(500, "Of perturbation.")
    perturbation_learning_rate: float = flag(0.03, "Of perturbation's Adam, in the first step; it falls to 0.")
    draws: int = flag(32, "Draws of noise in a step of perturbation.")

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
    settings = {"steps": args.steps, "draws": args.draws, "learning_rate": args.perturbation_learning_rate}
    for score, target in scores:
        print(f"\n{target}")
        found, words = {}, list(score.words)
        for method in args.methods:
            more = settings | {"seed": args.seed} if method == "perturbation" else {}
            values, report = word_scores(score, method, **more)
            found[method] = {"scores": values, **report}
            if not report.get("learnt", True):
                print(f"{method:13}nothing was learnt in {args.steps} steps: not shown; try more --steps.")
                continue
            values = shares(values, method)
            shown.append({"words": words, "values": values, "label": f"{target}, {method}"})
            print(f"{method:13}{terminal_text(words, values)}")
        by_method = {name: each["scores"] for name, each in found.items() if each.get("learnt", True)}
        curves = faithfulness(score, by_method, seed=args.seed)
        records.append({"target": target, "words": words, "methods": found, "curves": curves})
    if shown:
        write_coloured(args.folder / "importance", f"Words that mattered to {args.name}", shown)
    write_json(args.folder / "details.json", records)
    rows = []
    for name in dict.fromkeys(name for record in records for name in record["curves"]):
        own = [record["curves"][name] for record in records if name in record["curves"]]
        areas = [float(np.mean([each[f"{way}_area"] for each in own])) for way in ("deletion", "insertion")]
        rows.append({"area under": name, "deletion (low is good)": areas[0], "insertion (high is good)": areas[1]})
    print()
    print_table(rows)


def _model_class(args: Arguments) -> type[GPTPreTrainedModel]:
    """The head that is explained: the model's own, or the language model."""
    is_language_model = args.source.kind == "tf-release" or args.next_word is not None
    own = None if is_language_model else (args.source.config().architectures or [None])[0]
    heads = {head.__name__: head for head in _FLAGS}
    found = heads.get(own, GPTForCausalLM)
    for head, name in ((head, name) for head, names in _FLAGS.items() for name in names):
        if found is not head and getattr(args, name) is not None:
            raise ValueError(f"--{name} does not go with {args.name}, which is explained as a {found.__name__}.")
    if found is GPTForMultipleChoice and not args.choices:
        raise ValueError(f"{args.name} is a multiple-choice model: give one --text and --choices.")
    return found


def _score(args: Arguments, model: GPTPreTrainedModel, tokenizer: GPTTokenizer, text: str) -> tuple[Score, str]:
    """What is explained of a text, and its name."""
    if isinstance(model, GPTForCausalLM):
        return next_word_score(model, tokenizer, text, args.next_word)
    tokenizer.task_template = True
    others = args.choices or ([] if args.second_text is None else [args.second_text])
    passage = Passage.read(tokenizer, text, others, model.config.is_causal)
    names, wanted = args.choices or list(model.config.id2label.values()), args.choice
    if args.class_name is not None:
        if args.class_name not in names:
            raise ValueError(f"--class_name {args.class_name}: the classes are {', '.join(names)}.")
        wanted = names.index(args.class_name)
    score, wanted = class_score(model, passage, wanted)
    return score, f"for: {names[wanted]}"
