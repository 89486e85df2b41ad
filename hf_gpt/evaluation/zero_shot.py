"""
Tasks answered by a language model without any training (Radford et al., 2018, section 5, "zero-shot behaviors"): the
choice whose tokens have the highest mean log-probability, or behind a prompt the likeliest of a word per class. No
special token is used: the language model has never seen any.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import nn

from ..model.modeling_gpt import GPTForCausalLM
from ..model.tokenization_gpt import GPTTokenizer
from ..tasks.spec import SINGLE_LABEL, TaskSpec
from ..trees.token_tree import TokenTree
from ..trees.transforms import TRUNCATION_RULES

# Vocabulary logits of so many tokens are held at a time.
_CHUNK = 512


@dataclass(frozen=True)
class ZeroShotRule:
    """How a language model answers a task: by its choices, or behind a prompt by a word per class."""

    kind: str
    prompt: str = ""
    words: tuple[str, ...] = ()


RULES = dict.fromkeys(("sst2", "imdb"), ZeroShotRule("words", "very", ("negative", "positive")))


def zero_shot_rule(spec: TaskSpec, prompt: str | None = None, words: Sequence[str] | None = None) -> ZeroShotRule:
    """The rule of a task, with this prompt and words in the order of its labels; a `ValueError` if there is none."""
    if spec.family == "multiple-choice":
        if prompt is not None or words is not None:
            raise ValueError(f"{spec.name} is answered by its choices: leave out --zero_shot_prompt and _words.")
        return ZeroShotRule("choices")
    if spec.family != "classification" or spec.problem_type != SINGLE_LABEL:
        raise ValueError(f"There is no zero-shot rule for {spec.name}: only texts with one class each have one.")
    rule = RULES.get(spec.name, ZeroShotRule("words"))
    rule = replace(rule, prompt=rule.prompt if prompt is None else prompt, words=tuple(words or rule.words))
    if len(rule.words) != len(spec.label_names):
        names = ", ".join(spec.label_names)
        raise ValueError(f"{spec.name}: name one word for each of its classes, {names}, with --zero_shot_words.")
    return rule


@dataclass(frozen=True)
class ZeroShotTransform:
    """
    Token ids of one row's text columns -> the token tree of its candidate texts, a path each, with `lm_weights` of 1
    for tokens that count. What is too long loses its end; of choices by a rule of `TRUNCATION_RULES`.
    """

    joined: ClassVar[tuple[str, ...]] = ("question", "choices")
    kind: str
    max_length: int
    rule: str = "longest_first"
    prompt: tuple[int, ...] = ()
    words: tuple[tuple[int, ...], ...] = ()
    share_prefix: bool = True

    def fit(self, row: Mapping[str, Any]) -> tuple[TokenTree, int]:
        """The tree of a row, one path per candidate, and how many tokens of its texts truncation takes away."""
        if self.kind == "choices":
            texts = (row["context"], row["question"], *row["choices"])
            length = self.max_length + 3  # the rules leave three positions to special tokens, of which there are none
            start, ends = TRUNCATION_RULES[self.rule](row["context"], row["choices"], row["question"], length)
            kept = sum(map(len, (start, *ends)))
        else:
            taken = len(self.prompt) + max(map(len, self.words))
            texts, text = (row["text"],), row["text"][: self.max_length - taken]
            start, ends, kept = [*text, *self.prompt], self.words, len(text)
        tree = TokenTree.from_paths([[*start, *end] for end in ends], share_limit=None if self.share_prefix else 0)
        # The first token of a text has nothing before it to be predicted from.
        weights = tuple(float(position >= max(1, len(start))) for position in tree.position_ids)
        return replace(tree, lm_weights=weights), sum(map(len, texts)) - kept


def zero_shot_transform(
    rule: ZeroShotRule, tokenizer: GPTTokenizer, max_length: int, truncation: str, share_prefix: bool
) -> ZeroShotTransform:
    """The layout of a rule for a tokenizer; a `ValueError` if prompt and words leave no position to a text."""
    # Behind a space, which GPT-2's tokens hold.
    texts = [f" {text}" if text else "" for text in (rule.prompt, *rule.words)]
    prompt, *words = (tuple(tokenizer(text, add_special_tokens=False)["input_ids"]) for text in texts)
    if not all(words):
        raise ValueError(f"A word of --zero_shot_words has no token: {', '.join(map(repr, rule.words))}.")
    if len(prompt) + max(map(len, words), default=0) >= max_length:
        raise ValueError(f"--zero_shot_prompt {rule.prompt!r} fills the context of {max_length} tokens: shorten it.")
    return ZeroShotTransform(rule.kind, max_length, truncation, prompt, tuple(words), share_prefix)


class ZeroShotScorer(nn.Module):
    """
    A language model with one logit per candidate text, for the Trainer's evaluation loop: of words the sum of its
    tokens' log-probabilities, so that the softmax is the model's own distribution; else their mean.
    """

    def __init__(self, model: GPTForCausalLM, kind: str):
        super().__init__()
        self.model = model
        self.is_mean = kind != "words"

    def forward(
        self,
        input_ids: torch.Tensor,
        position_ids: torch.Tensor,
        lm_weights: torch.Tensor,
        classify_index: torch.Tensor,
        subtree_end: torch.Tensor | None = None,
        parent_index: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
    ) -> dict[str, torch.Tensor]:
        """
        `logits`, `(batch, paths)`, -inf without a candidate; with labels a `loss` of 0, which the Trainer wants then.
        `lm_weights`, `(batch, length)`, are 1 for tokens that count, `classify_index`, `(batch, paths)`, is the last
        token of each candidate, -1 for none; for the rest see `GPTModel`.
        """
        settings = {"position_ids": position_ids, "subtree_end": subtree_end, "use_cache": False}
        states = self.model.transformer(input_ids, **settings).last_hidden_state
        log_probs = torch.zeros_like(lm_weights)
        for part in lm_weights.nonzero().split(_CHUNK):
            row, column = part.T  # of tokens that count, (counted,)
            parent = column - 1 if parent_index is None else parent_index[row, column]
            logits = self.model.token_logits(states[row, parent]).float()
            targets = input_ids[row, column].unsqueeze(1)
            log_probs[row, column] = logits.log_softmax(-1).gather(1, targets).squeeze(1)
        end = classify_index.clamp(min=0).unsqueeze(-1)  # (batch, paths, 1)
        on_path = torch.arange(input_ids.shape[1], device=input_ids.device) <= end  # (batch, paths, length)
        if subtree_end is not None:
            on_path = on_path & (end < subtree_end.unsqueeze(1))
        counted = on_path * lm_weights.unsqueeze(1)
        scores = (counted * log_probs.unsqueeze(1)).sum(-1)
        if self.is_mean:
            scores = scores / counted.sum(-1).clamp(min=1)
        loss = {} if labels is None else {"loss": scores.new_zeros(())}
        return {**loss, "logits": scores.masked_fill(classify_index < 0, float("-inf"))}
