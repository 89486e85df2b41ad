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
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.utils import CONFIG_NAME

from ..adapters import is_adapter
from ..conversion.sources import KINDS
from ..conversion.tokenizers import check_ids
from ..files import read_json, reading
from ..files.weights import load_weights
from ..hub.repositories import check_config
from ..model.modeling_gpt import GPTForCausalLM
from ..model.tokenization_gpt import GPTTokenizer
from ..tasks.spec import SINGLE_LABEL, TaskSpec
from ..training.arguments import ModelArguments
from ..trees.any_model import check_model, choice_log_probs, read_trees
from ..trees.token_tree import TokenTree
from ..trees.transforms import TRUNCATION_RULES


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


def load_language_model(args: ModelArguments) -> tuple[PreTrainedTokenizerBase, PreTrainedModel]:
    """
    Tokenizer and causal language model of a name, ours or any other of transformers: that in float32, of safetensors
    and without code from its folder. A `ValueError` in one line if they are not there, do not fit, or the model cannot
    hold token trees.
    """
    source, settings = args.source, {"attn_implementation": args.attn_implementation}
    if is_adapter(source.folder):
        raise ValueError(f"{source.name} is an adapter of a task head: --zero_shot wants a language model.")
    config = read_json(source.folder / CONFIG_NAME) if (source.folder / CONFIG_NAME).is_file() else {}
    if config.get("model_type") not in CONFIG_MAPPING.keys() - KINDS.keys():
        tokenizer = args.tokenizer_source.tokenizer(task_template=True)
        model = source.model(GPTForCausalLM, n_head=args.n_head, **settings)
        check_ids(model.config, tokenizer, source.name)
        return tokenizer, model
    check_config(config, source.name)
    with reading(source.name):
        config = AutoConfig.from_pretrained(source.folder, trust_remote_code=False)
        tokenizer = AutoTokenizer.from_pretrained(args.tokenizer_source.folder, trust_remote_code=False)
        settings |= {"trust_remote_code": False, "use_safetensors": True, "dtype": "float32"}
        model = load_weights(AutoModelForCausalLM, source.folder, config, check_numbers=False, **settings)
    check_model(model, 1)
    rows = model.get_input_embeddings().num_embeddings
    if len(tokenizer) > rows:
        raise ValueError(f"The tokenizer has {len(tokenizer)} tokens and {source.name} {rows} rows: name its own.")
    return tokenizer, model.eval()


@dataclass(frozen=True)
class ZeroShotTransform:
    """
    One row's text columns -> the token tree of its candidate texts, a path each, with `lm_weights` of 1 for tokens
    that count. What is too long loses its end, by a rule of `TRUNCATION_RULES`. Columns, prompt and words are token
    ids, or with a `tokenizer` texts, which are tokenized together (`joint_ids`).
    """

    joined: ClassVar[tuple[str, ...]] = ("question", "choices")
    max_length: int
    rule: str = "longest_first"
    prompt: Sequence[int] | str = ()
    words: Sequence[Sequence[int] | str] = ()
    share_prefix: bool = True
    tokenizer: PreTrainedTokenizerBase | None = None

    def fit(self, row: Mapping[str, Any]) -> tuple[TokenTree, int]:
        """The tree of a row, one path per candidate, and how many tokens of its texts truncation takes away."""
        context, question = row.get("context", row.get("text")), row.get("question", self.prompt)
        choices = row.get("choices", self.words)
        if self.tokenizer is not None:
            context, question, choices = joint_ids(self.tokenizer, context, question, choices)
        length = self.max_length + 3  # the rules leave three positions to special tokens, of which there are none
        start, ends = TRUNCATION_RULES[self.rule](context, choices, question, length)
        tree = TokenTree.from_paths([[*start, *end] for end in ends], share_limit=None if self.share_prefix else 0)
        # The first token of a text has nothing before it to be predicted from.
        weights = tuple(float(position >= max(1, len(start))) for position in tree.position_ids)
        given, kept = (sum(map(len, texts)) for texts in ((context, question, *choices), (start, *ends)))
        return replace(tree, lm_weights=weights), given - kept


def joint_ids(
    tokenizer: PreTrainedTokenizerBase, context: str, question: str, choices: Sequence[str]
) -> tuple[list[int], list[int], list[list[int]]]:
    """
    Token ids of texts that stand behind each other, as lm-evaluation-harness has them: a choice has the tokens of the
    whole that are behind as many as its beginning has alone, without a space at its end. An empty beginning is the
    token that begins a text, or else ends one.
    """

    def ids(text: str, **settings: bool) -> list[int]:
        return tokenizer(text, verbose=False, **settings)["input_ids"]

    if not context + question:
        start = [token for token in (tokenizer.bos_token_id, tokenizer.eos_token_id) if token is not None][:1]
        return start, [], [ids(choice, add_special_tokens=False) for choice in choices]
    start = ids((context + question).rstrip())
    place = len(ids(context.rstrip())) if context and question else len(start)
    return start[:place], start[place:], [ids(context + question + choice)[len(start) :] for choice in choices]


def zero_shot_transform(
    rule: ZeroShotRule, tokenizer: PreTrainedTokenizerBase, max_length: int, truncation: str, share_prefix: bool
) -> ZeroShotTransform:
    """
    The layout of a rule for a tokenizer, for others than ours of texts; a `ValueError` if prompt and words leave no
    position to a text.
    """
    # Behind a space, which GPT-2's tokens hold.
    prompt, *words = (f" {text}" if text else "" for text in (rule.prompt, *rule.words))
    if not isinstance(tokenizer, GPTTokenizer):
        return ZeroShotTransform(max_length, truncation, prompt, tuple(words), share_prefix, tokenizer)
    prompt, *words = (tuple(tokenizer(text, add_special_tokens=False)["input_ids"]) for text in (prompt, *words))
    if not all(words):
        raise ValueError(f"A word of --zero_shot_words has no token: {', '.join(map(repr, rule.words))}.")
    if len(prompt) + max(map(len, words), default=0) >= max_length:
        raise ValueError(f"--zero_shot_prompt {rule.prompt!r} fills the context of {max_length} tokens: shorten it.")
    return ZeroShotTransform(max_length, truncation, prompt, tuple(words), share_prefix)


class ZeroShotScorer(nn.Module):
    """
    A language model with one logit per candidate text, for the Trainer's evaluation loop: the sum of its tokens'
    log-probabilities, so that the softmax is the model's own distribution, or their `mean`.
    """

    def __init__(self, model: PreTrainedModel, mean: bool):
        super().__init__()
        self.model, self.mean = model, mean

    def forward(self, labels: torch.Tensor | None = None, **batch: torch.Tensor) -> dict[str, torch.Tensor]:
        """
        `logits`, `(batch, paths)`, -inf without a candidate, of a batch of `TokenTreeCollator` with `lm_weights` of 1
        for tokens that count; with labels a `loss` of 0, which the Trainer wants then.
        """
        counted = batch["lm_weights"].gt(0)
        scores = choice_log_probs(batch, read_trees(self.model, batch, counted)[0], counted, self.mean)
        return {"logits": scores} | ({} if labels is None else {"loss": scores.new_zeros(())})
