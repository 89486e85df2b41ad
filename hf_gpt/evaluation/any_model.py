"""Zero-shot answers of causal language models that are not ours, their texts tokenized as lm-evaluation-harness does."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from transformers import CONFIG_MAPPING, AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import ADAPTER_CONFIG_NAME, CONFIG_NAME

from ..conversion.sources import KINDS
from ..files import read_json, reading
from ..files.weights import load_weights
from ..hub.checks import check_config, stock_type
from ..trees.any_model import check_model
from ..trees.token_tree import TokenTree
from ..training.arguments import ModelArguments
from .zero_shot import ZeroShotRule, ZeroShotTransform


def is_other_model(folder: Path) -> bool:
    """Whether a folder holds a model that transformers has a class for, and hf_gpt none."""
    if (folder / ADAPTER_CONFIG_NAME).is_file() or not (folder / CONFIG_NAME).is_file():
        return False
    config = read_json(folder / CONFIG_NAME)
    return config.get("model_type") in CONFIG_MAPPING and (stock_type(config) or config["model_type"]) not in KINDS


def load_other_model(args: ModelArguments) -> tuple[PreTrainedTokenizerBase, PreTrainedModel]:
    """
    Tokenizer and causal language model of a name, in float32, of safetensors and without code from their folders. A
    `ValueError` in one line if they are not there, do not fit, or the model cannot hold token trees.
    """
    source, settings = args.source, {"trust_remote_code": False}
    check_config(read_json(source.folder / CONFIG_NAME), source.name)
    with reading(source.name):
        config = AutoConfig.from_pretrained(source.folder, **settings)
        tokenizer = AutoTokenizer.from_pretrained(args.tokenizer_source.folder, **settings)
        settings |= {"use_safetensors": True, "attn_implementation": args.attn_implementation, "dtype": "float32"}
        model = load_weights(AutoModelForCausalLM, source.folder, config, check_numbers=False, **settings)
    check_model(model, 1)
    rows = model.get_input_embeddings().num_embeddings
    if len(tokenizer) > rows:
        raise ValueError(f"The tokenizer has {len(tokenizer)} tokens and {source.name} {rows} rows: name its own.")
    return tokenizer, model.eval()


def leave_texts(texts: Sequence[str], **settings: Any) -> dict[str, Sequence[str]]:
    """What stands for the tokenizer of columns that `JointTransform` tokenizes together."""
    return {"input_ids": texts}


@dataclass(frozen=True)
class JointTransform:
    """
    Texts of one row -> the token tree of its candidates, as `ZeroShotTransform`. A candidate is tokenized with its
    context, and its tokens are those behind as many as the context has alone; an empty context is the token that
    begins a text, or else ends one.
    """

    joined: ClassVar[tuple[str, ...]] = ("question", "choices")
    tokenizer: PreTrainedTokenizerBase
    rule: ZeroShotRule
    layout: ZeroShotTransform

    @classmethod
    def of(cls, rule: ZeroShotRule, tokenizer: PreTrainedTokenizerBase, *layout: Any) -> "JointTransform":
        """For a rule; `layout` is longest sequence, truncation rule and whether candidates share their beginning."""
        longest, truncation, share_prefix = layout
        return cls(tokenizer, rule, ZeroShotTransform("choices", longest, truncation, share_prefix=share_prefix))

    def fit(self, row: Mapping[str, Any]) -> tuple[TokenTree, int]:
        """The tree of a row's texts, one path per candidate, and how many of their tokens truncation takes away."""
        prompt, *words = (f" {text}" if text else "" for text in (self.rule.prompt, *self.rule.words))
        context, question = row.get("context", row.get("text")), row.get("question", prompt)
        start, choices = context + question, row.get("choices", words)
        if start:
            ids = self.ids(start.rstrip())
            ends = [self.ids(start + choice)[len(ids) :] for choice in choices]
        else:
            first = (self.tokenizer.bos_token_id, self.tokenizer.eos_token_id)
            ids = [token for token in first if token is not None][:1]
            ends = [self.ids(choice, add_special_tokens=False) for choice in choices]
        place = len(self.ids(context.rstrip())) if question and context else len(ids)
        return self.layout.fit({"context": ids[:place], "question": ids[place:], "choices": ends})

    def ids(self, text: str, **settings: bool) -> list[int]:
        """Token ids of a text, with the special tokens that the tokenizer gives every text."""
        return self.tokenizer(text, verbose=False, **settings)["input_ids"]
