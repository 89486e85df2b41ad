r"""
Which words mattered for the next word, a class, or one choice against the others, by four methods compared.

    hf-gpt analyze importance --model_name_or_path gpt-mini \
        --text "The soup was cold and the bread was very" --next_word hard --output_dir outputs/importance
    hf-gpt analyze importance --model_name_or_path outputs/stories --text "It rained on Tom." \
        --choices "He was wet." "He was dry." --output_dir outputs/choice

A classifier explains the log-odds of its class, a multiple-choice model those of a choice, a language model the log-
probability of the next word. importance.html and importance.json show the words of each text by each method, as shares
of the largest; details.json all there is. `perturbation` reports how much noise a word bears (Guan et al., 2019) and
whether anything was learnt; `gradient` is gradient times input, `integrated` integrated gradients from the mean
embedding, `occlusion` puts the mean embedding in the word's place. The table shows which is faithful: the mean area
under the score as words are blanked out (deletion), the most important first, and as they are put back (insertion).
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
from .figures import terminal_text, write_page

METHODS = ("perturbation", "gradient", "integrated", "occlusion")
# The heads that are explained in addition to the language model's, and flags that only some have.
_HEADS = (GPTForMultipleChoice, GPTForSequenceClassification)
_FLAGS = {"choices": _HEADS[:1], "second_text": _HEADS[1:], "class_name": _HEADS}
# Inputs that are read at once.
_BATCH = 16
# Of perturbation: what large noise is worth, and where it begins, as the logit of its share of the largest: well below
# the embeddings' size.
_RATE, _QUIET = 0.1, -4.0
# Share of the last steps over which sigma is averaged, and times the smallest sigma that the largest must be.
_TAIL, _SPREAD = 0.25, 1.1


class Passage(NamedTuple):
    """A token tree, and the words of its paths in order: as they were written, and their tokens' places in its row."""

    tree: TokenTree
    words: Sequence[str]
    spans: Sequence[Sequence[int]]

    @classmethod
    def read(cls, tokenizer: GPTTokenizer, text: str, others: Sequence[str] = (), is_causal: bool = True) -> "Passage":
        """A text alone, or before others (a path each), with the tokenizer's specials; each must have some word."""
        pairs = [(text, other) for other in others] or [(text,)]
        encoded = [tokenizer(*pair, verbose=False) for pair in pairs]
        tree = TokenTree.from_paths([each["input_ids"] for each in encoded], None if is_causal else 0)
        places = {}
        for number, (pair, each) in enumerate(zip(pairs, encoded, strict=True)):
            path = tree.path(number)
            for first, end, sequence, start, stop in word_spans(each.encodings[0]).tolist():
                # The first text, which all share, is number 0.
                word = (sequence * (number + 1), start, stop, pair[sequence][start:stop])
                places.setdefault(word, set()).update(path[first:end])
        if len({word[0] for word in places}) < 1 + len(others):
            raise ValueError("One of the texts has no word: write some.")
        ordered = sorted(places)
        return cls(tree, [word[-1] for word in ordered], [sorted(places[word]) for word in ordered])


class Score:
    """A number, `read(embeds)`, `(batch,)`, of a passage's embeddings; a `ValueError` for one that is too long."""

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
    def variance(self, samples: int = 64) -> float:
        """Of the score over passages of the same layout whose words are random tokens: S squared of `perturbation`."""
        places = [*chain(*self.spans)]
        drawn = torch.randint(len(self.usual), (samples, len(places)), generator=torch.Generator().manual_seed(0))
        embeds = self.embeds.repeat(samples, 1, 1)
        embeds[:, places] = self.usual[drawn.to(embeds.device)]
        return self(embeds).var().item()


def next_ids_score(model: GPTForCausalLM, passage: Passage, next_ids: Sequence[int]) -> Score:
    """The log-probability of the tokens of the next word after a passage of one path, without specials."""
    tree = TokenTree.from_paths([[*passage.tree.input_ids, *next_ids]])
    targets = torch.tensor(next_ids, device=model.device)

    def read(embeds: torch.Tensor) -> torch.Tensor:
        logits = model(inputs_embeds=embeds, use_cache=False, logits_to_keep=len(targets) + 1).logits[:, :-1].float()
        return logits.log_softmax(-1).gather(-1, targets.expand(len(embeds), -1)[..., None]).sum((1, 2))

    return Score(model, passage._replace(tree=tree), read)


def next_word_score(
    model: GPTForCausalLM, tokenizer: GPTTokenizer, text: str, next_word: str | None = None
) -> tuple[Score, str]:
    """What speaks for the next word of a text, by default the likeliest token; and the name of that score."""
    tokenizer.task_template = False
    passage = Passage.read(tokenizer, text)
    if next_word is None:
        embeds = next_ids_score(model, passage, []).embeds  # which fit into the context
        with torch.no_grad():
            ids = [int(model(inputs_embeds=embeds[None], logits_to_keep=1).logits.argmax())]
    else:
        # After a space, which GPT-2's tokens hold.
        ids = encode(tokenizer, f" {next_word}") if next_word.strip() else []
        if not ids:
            raise ValueError(f"The next word, {next_word!r}, has no token: write one.")
    return next_ids_score(model, passage, ids), f"next: {tokenizer.decode(ids).strip()}"


def class_score(model: GPTPreTrainedModel, passage: Passage, wanted: int | None = None) -> tuple[Score, int]:
    """The log-odds of a class or choice, by default the likeliest (the logit if not exclusive); and its number."""
    by_choice = isinstance(model, GPTForMultipleChoice)
    count = len(passage.tree.path_ends) if by_choice else model.config.num_labels
    batch = collate_trees([passage.tree], 0, model.config.is_causal)
    names = [name for name in ("position_ids", "subtree_end", "classify_index") if name in batch]

    def logits_of(embeds: torch.Tensor) -> torch.Tensor:
        inputs = {name: batch[name].to(embeds.device).expand(len(embeds), -1) for name in names}
        return model(inputs_embeds=embeds, **inputs).logits.float()  # (batch, choices) or (batch, num_labels)

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
    score: Score, variance: float, steps: int = 500, learning_rate: float = 0.03, draws: int = 32, seed: int = 0
) -> dict[str, Any]:
    """
    How much noise each word bears (Guan et al., 2019, equation 7): of each its `sigma` and `scores`,
    `-log(sigma / scale)`; `losses` of every step; and `learnt`, whether the loss fell, and words bear different noise.

    The tokens of word i get noise N(0, sigma_i^2 I), sigma_i = scale * sigmoid(r_i), and Adam minimises `E ||score(x +
    noise) - score(x)||^2 / variance - rate * sum_i log sigma_i` at a learning rate that falls to 0.
    """
    if not variance > 0:
        raise ValueError("The score is the same for all sampled inputs: no word can matter for it.")
    generator = torch.Generator().manual_seed(seed)
    embeds, count = score.embeds, len(score.spans)
    of_word = torch.zeros(count, len(embeds), device=embeds.device)  # (words, length)
    for word, span in enumerate(score.spans):
        of_word[word, span] = 1
    with torch.no_grad():
        clean = score(embeds[None])
    raw = torch.full((count,), _QUIET, device=embeds.device, requires_grad=True)
    optimizer = torch.optim.Adam([raw], learning_rate)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1, 1 / steps, steps)
    losses, path = [], []
    for _ in tqdm(range(steps), desc="perturbation", leave=False):
        sigma = score.scale * raw.sigmoid()
        path.append(sigma.detach())
        noise = torch.randn((draws, *embeds.shape), generator=generator).to(embeds)
        change = score(embeds + (sigma @ of_word).unsqueeze(-1) * noise) - clean  # (draws, ...)
        loss = change.reshape(draws, -1).pow(2).sum(-1).mean() / variance - _RATE * sigma.log().sum()
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward(inputs=[raw])
        optimizer.step()
        schedule.step()
    tail = max(1, round(_TAIL * steps))
    sigma = torch.stack(path[-tail:]).mean(0)
    fell = np.mean(losses[-tail:]) < np.mean(losses[:tail])
    learnt = bool(fell and (count == 1 or sigma.max() >= _SPREAD * sigma.min()))
    scores = -(sigma / score.scale).log()
    return {"scores": scores.tolist(), "sigma": sigma.tolist(), "losses": losses, "learnt": learnt}


def word_scores(score: Score, method: str, **settings: Any) -> tuple[list[float], dict[str, Any]]:
    """Importance of each word by a method (`settings` are those of `perturbation`), and what else it reports."""
    from captum.attr import InputXGradient, IntegratedGradients

    if method == "perturbation":
        more = perturbation(score, score.variance(), **settings)
        return more.pop("scores"), more
    embeds, baseline, more = score.embeds[None], score.baseline[None], {}
    if method == "occlusion":
        blanked = embeds.repeat(len(score.spans), 1, 1)
        for row, span in zip(blanked, score.spans, strict=True):
            row[span] = score.baseline[span]
        with torch.no_grad():
            return (score(embeds) - score(blanked)).tolist(), more
    if method == "gradient":
        found = InputXGradient(score).attribute(embeds.clone().requires_grad_())
    else:
        found = IntegratedGradients(score).attribute(embeds, baseline, internal_batch_size=_BATCH)
        with torch.no_grad():
            more = {"difference": (score(embeds) - score(baseline)).item()}  # what the scores should add up to
    by_token = found.detach().sum(-1)[0]
    return [by_token[span].sum().item() for span in score.spans], more


def shares(values: Sequence[float], method: str) -> list[float]:
    """Scores as shares of the largest; noise is compared with that of the word that bears most."""
    values = np.array(values) - (min(values) if method == "perturbation" else 0)
    return (values / (np.abs(values).max() or 1)).tolist()


@torch.no_grad()
def faithfulness(score: Score, scores: dict[str, Sequence[float]], orders: int = 10, seed: int = 0) -> dict[str, Any]:
    """
    Of each method and, as a mean, of `random` orders: the score, `(words + 1,)`, as words become the mean embedding,
    the most important first (`deletion`), or come back from it (`insertion`), and the means (`..._area`).
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
    next_word: str | None = flag(None, "What comes next, of a language model; by default the likeliest token.")
    class_name: str | None = flag(None, "Class, or choice, that is explained; by default the likeliest one.")
    second_text: str | None = flag(None, "Of a pair: the second text, the same for all.")
    choices: list[str] | None = flag(None, "Choices for the one --text.")
    methods: list[str] = flag([*METHODS], "By which methods.", METHODS)
    max_texts: int = flag(4, "Texts that are read at most.")
    steps: int = flag(500, "Of perturbation.")


def run(args: Arguments) -> None:
    """Score the words of each text by each method, compare, draw."""
    if args.choices and (len(args.text or ()) != 1 or len(args.choices) < 2):
        raise ValueError("--choices takes two or more, and one --text.")
    model, tokenizer = args.load(_model_class(args))
    if len(args.examples) > args.max_texts:
        print(f"Of {len(args.examples)} texts the first {args.max_texts} are read (--max_texts).")
    # All of them are read before the first is explained: a text that is too long shows at once.
    scores = [_score(args, model, tokenizer, example.text) for example in args.examples[: args.max_texts]]
    records, shown, areas = [], [], {}
    for score, target in scores:
        print(f"\n{target}")
        found, faithful = {}, {}
        for method in args.methods:
            values, report = word_scores(score, method, steps=args.steps, seed=args.seed)
            found[method] = {"scores": values, **report}
            if not report.get("learnt", True):
                print(f"{method:13}nothing was learnt in {args.steps} steps: not shown; try more --steps.")
                continue
            faithful[method], values = values, shares(values, method)
            shown.append({"words": score.words, "values": values, "label": f"{target}, {method}"})
            print(f"{method:13}{terminal_text(score.words, values)}")
        curves = faithfulness(score, faithful, seed=args.seed)
        for name, each in curves.items():
            areas.setdefault(name, []).append([each["deletion_area"], each["insertion_area"]])
        records.append({"target": target, "words": score.words, "methods": found, "curves": curves})
    if shown:
        title = f"Words that mattered to {args.name}"
        write_page(args.folder / "importance.html", title, {"texts": shown}, "coloured")
    write_json(args.folder / "details.json", records)
    deletion, insertion = zip(*(np.mean(each, 0) for each in areas.values()), strict=True)
    print()
    print_table({"area under": [*areas], "deletion (low is good)": deletion, "insertion (high is good)": insertion})


def _model_class(args: Arguments) -> type[GPTPreTrainedModel]:
    """The head that is explained: the model's own, or the language model."""
    is_language_model = args.source.kind == "tf-release" or args.next_word is not None
    own = None if is_language_model else (args.source.config().architectures or [None])[0]
    found = next((head for head in _HEADS if head.__name__ == own), GPTForCausalLM)
    for name, heads in _FLAGS.items():
        if found not in heads and getattr(args, name) is not None:
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
    names, name = args.choices or list(model.config.id2label.values()), args.class_name
    if name not in (None, *names):
        raise ValueError(f"--class_name {name}: there are {', '.join(names)}.")
    score, wanted = class_score(model, passage, None if name is None else names.index(name))
    return score, f"for: {names[wanted]}"
