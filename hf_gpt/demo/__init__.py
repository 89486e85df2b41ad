"""
What the demonstration shows, as functions of text: continuations by several strategies, next words, choices, classes,
labels of words, hidden words, answers, and pages on what was expected, attended to, and mattered.

`hf_gpt.demo.page` puts a page in front of them. Everything that is wrong with a text (empty, longer than the context)
or a model (of another kind) is a `ValueError` that says what to do about it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from datasets import Dataset
from peft import PeftModel
from transformers import BatchEncoding, FillMaskPipeline, PreTrainedModel
from transformers.utils import ModelOutput

from ..adapters.virtual_tokens import virtual_tokens
from ..analysis.attention import attention_of, path_record
from ..analysis.importance import METHODS, next_word_score, shares, word_scores
from ..analysis.pages import render_page
from ..evaluation.zero_shot import ZeroShotScorer, ZeroShotTransform
from ..generation.inspection import NextToken, inspect
from ..generation.inspection import render_page as render_expectation
from ..generation.strategies import Continuation, Strategy, continue_prompts, strategies
from ..loading import open_source
from ..model import modeling_gpt
from ..model.modeling_gpt import GPTForCausalLM, GPTPreTrainedModel
from ..model.tokenization_gpt import GPTTokenizer
from ..tasks.question_answering import best_answers
from ..trees.collators import TokenTreeCollator
from ..trees.token_tree import TokenTree
from ..trees.transforms import InputTransform, SpecialIds

# What a request may ask for: characters for each token of the context, and rows of work side by side.
CHARACTERS_PER_TOKEN = 16
MOST_CHOICES = 20
MOST_BEAMS = 10
MOST_SHOWN = 64


class Demo:
    """A model with its tokenizer, and what is done with texts before the model reads them; base of all kinds."""

    joined = InputTransform.joined

    def __init__(self, model: PreTrainedModel | PeftModel, tokenizer: GPTTokenizer):
        self.model = model.eval()
        self.tokenizer = tokenizer

    def check_length(self, text: str, what: str) -> None:
        """Raise a `ValueError` for a text that cannot fit into the context, before anything is done with it."""
        context = self.model.config.n_positions
        if len(text) > CHARACTERS_PER_TOKEN * context:
            raise ValueError(
                f"The {what} has {len(text):,} characters; for a context of {context} tokens at most "
                f"{CHARACTERS_PER_TOKEN * context:,} are taken: shorten it."
            )

    def _encoded(self, text: str, what: str, **settings: bool) -> BatchEncoding:
        """A text without special tokens, of one token at least."""
        self.check_length(text or "", what)
        encoded = self.tokenizer(text if text and text.strip() else "", add_special_tokens=False, **settings)
        if not encoded["input_ids"]:
            raise ValueError(f"The {what} is empty: write something.")
        return encoded

    def _tokens(self, text: str, what: str) -> list[int]:
        """Token ids without special tokens, at least one."""
        return self._encoded(text, what)["input_ids"]

    def _prompt_tokens(self, prompt: str, new: int = 0) -> list[int]:
        """Token ids of a prompt that has room for `new` more in the context."""
        ids, context = self._tokens(prompt, "prompt"), self.model.config.n_positions
        if len(ids) + new > context:
            more = f" and {new} new ones are asked for" if new else ""
            raise ValueError(
                f"The prompt has {len(ids)} tokens{more}, more than the context of {context}: shorten the prompt"
                f"{' or ask for fewer new tokens' if new else ''}."
            )
        return ids

    def _choice_row(self, context: str, question: str, choices: Sequence[str]) -> dict[str, Any]:
        """The row of an item; of context and question one may be empty."""
        if not 2 <= len(choices) <= MOST_CHOICES:
            raise ValueError(f"Give at least two choices and at most {MOST_CHOICES}, each on a line of its own.")
        self.check_length("".join((context, question, *choices)), "item")
        if not context.strip() and not question.strip():
            raise ValueError("Give a context, a question or both: choices are scored by what stands before them.")
        return {
            "context": self._tokens(context, "context") if context.strip() else [],
            "question": self._tokens(f" {question}", "question") if question.strip() else [],
            "choices": [
                self._tokens(f" {choice}" if "choices" in self.joined else choice, f"choice number {n}")
                for n, choice in enumerate(choices, start=1)
            ],
        }

    def _batch(self, transform: InputTransform | ZeroShotTransform, row: Mapping[str, Any]) -> dict[str, torch.Tensor]:
        """A batch of one row, which is refused where the transform would cut it."""
        tree, cut = transform.fit(row)
        if cut:
            context = self.model.config.n_positions
            raise ValueError(f"The text is too long for the context of {context} tokens: shorten it by {cut}.")
        batch = TokenTreeCollator(self.tokenizer.pad_token_id, self.model.config.is_causal)([vars(tree)])
        device = next(self.model.parameters()).device
        return {name: value.to(device) for name, value in batch.items()}


class LanguageModelDemo(Demo):
    """A language model; its tokenizer is used without special tokens."""

    joined = ZeroShotTransform.joined

    def __init__(self, model: GPTForCausalLM, tokenizer: GPTTokenizer):
        super().__init__(model, tokenizer)
        self.scorer = ZeroShotScorer(model, "choices").eval()

    @classmethod
    def from_pretrained(cls, name: str) -> "LanguageModelDemo":
        """Load a folder or Hub id."""
        source = open_source(name)
        if source.kind == "adapter":
            raise ValueError(f"{name} is an adapter; the language model of the demonstration is a whole model.")
        return cls(source.model(GPTForCausalLM), source.tokenizer())

    def continuations(
        self, prompt: str, new_tokens: int, chosen: Sequence[Strategy] | None = None, seed: int = 0
    ) -> list[Continuation]:
        """
        A prompt continued by each strategy (by default all), side by side; the seed is set before each, so that their
        order does not matter.
        """
        ids = self._prompt_tokens(prompt, new_tokens)
        chosen = strategies() if chosen is None else chosen
        results = continue_prompts(self.model, self.tokenizer, [ids], chosen, new_tokens, seed)
        return [continuation for (continuation,) in results]

    @torch.no_grad()
    def next_tokens(self, prompt: str, count: int = 10) -> list[NextToken]:
        """
        The likeliest tokens behind a prompt, with their probabilities as `generate` has them: tokens that the model's
        generation configuration suppresses (its special tokens) are left out.
        """
        ids = self._prompt_tokens(prompt)
        logits = self.model(torch.tensor([ids], device=self.model.device), logits_to_keep=1).logits[0, -1].float()
        logits[self.model.generation_config.suppress_tokens or []] = float("-inf")
        top = logits.softmax(-1).topk(min(count, len(self.tokenizer)))
        return [
            NextToken.of(self.tokenizer, token_id, probability)
            for token_id, probability in zip(top.indices.tolist(), top.values.tolist(), strict=True)
        ]

    def expectation_page(self, text: str) -> str:
        """What was expected at each position of a text, as a page of its own."""
        ids = self._prompt_tokens(text)
        positions = inspect(self.model, self.tokenizer, ids)
        return render_expectation("the model", NextToken.of(self.tokenizer, ids[0], 1.0), positions)

    def attention_page(self, text: str) -> str:
        """What every head attends to, as a page of its own; of at most `MOST_SHOWN` tokens."""
        ids = self._prompt_tokens(text)
        if len(ids) > MOST_SHOWN:
            raise ValueError(f"The text has {len(ids)} tokens, and at most {MOST_SHOWN} are shown: shorten it.")
        (path,) = attention_of(self.model, TokenTree.from_paths([ids]))
        return render_page("attention", "Attention", {"paths": [path_record(text, path, self.tokenizer)]})

    def importance_page(self, text: str, next_word: str = "") -> str:
        """Which words spoke for the next one (the likeliest, if none is given), as a page of its own."""
        ids = self._prompt_tokens(text, len(self._tokens(next_word, "next word")) if next_word.strip() else 1)
        if len(ids) > MOST_SHOWN:
            raise ValueError(f"The text has {len(ids)} tokens, and at most {MOST_SHOWN} are explained: shorten it.")
        score, target = next_word_score(self.model, self.tokenizer, text, next_word.strip() or None)
        words = [word.text for word in score.passage.words]
        texts = [
            {"words": words, "values": shares(word_scores(score, method)[0], method), "label": f"{target}, {method}"}
            for method in METHODS
            if method != "perturbation"  # which takes a thousand steps
        ]
        return render_page("coloured", "Words that mattered", {"title": "Words that mattered", "texts": texts})

    @torch.no_grad()
    def score_choices(self, context: str, question: str, choices: Sequence[str]) -> list[float]:
        """Mean log-probability of each choice's tokens behind context and question (zero-shot)."""
        transform = ZeroShotTransform("choices", self.model.config.n_positions)
        batch = self._batch(transform, self._choice_row(context, question, choices))
        return self.scorer(**batch)["logits"][0].tolist()


class HeadDemo(Demo):
    """A fine-tuned or masked model; base of these kinds."""

    model_class: type[GPTPreTrainedModel]
    script = "scripts/finetune.py"

    @classmethod
    def from_pretrained(cls, name: str) -> "HeadDemo":
        """Load a folder or Hub id of `scripts/finetune.py`; an adapter is loaded on the base model that it names."""
        source = open_source(name)
        config = source.config()
        if cls.model_class.__name__ not in (config.architectures or ()):
            found = ", ".join(config.architectures or ("no architecture",))
            raise ValueError(f"{name} holds {found}; a {cls.model_class.__name__} of {cls.script} is needed here.")
        model = source.adapted() if source.kind == "adapter" else source.model(cls.model_class)
        return cls(model, source.tokenizer())

    def _logits(self, family: str, row: Mapping[str, Any]) -> torch.Tensor:
        return self._output(family, row).logits[0].float()

    @torch.no_grad()
    def _output(self, family: str, row: Mapping[str, Any]) -> ModelOutput:
        config = self.model.config
        special = SpecialIds(config.start_token_id, config.delimiter_token_id, config.classify_token_id)
        transform = InputTransform(family, special, config.n_positions - virtual_tokens(self.model))
        return self.model(**self._batch(transform, row))


class MultipleChoiceDemo(HeadDemo):
    """A fine-tuned `GPTForMultipleChoice`."""

    model_class = modeling_gpt.GPTForMultipleChoice

    def score_choices(self, context: str, question: str, choices: Sequence[str]) -> list[float]:
        """The head's logit of each choice."""
        return self._logits("multiple-choice", self._choice_row(context, question, choices)).tolist()


class ClassifierDemo(HeadDemo):
    """A fine-tuned `GPTForSequenceClassification`."""

    model_class = modeling_gpt.GPTForSequenceClassification

    @property
    def label_names(self) -> list[str]:
        """The labels, in the order of the logits."""
        return [self.model.config.id2label[index] for index in range(self.model.config.num_labels)]

    def classify(self, text: str, second: str = "", both_orders: bool = False) -> dict[str, float]:
        """
        The probability of every label for a text, or a pair of texts, with `both_orders` one without order
        (similarity); for regression and ordinal tasks, the score under the name `score`.
        """
        first = self._tokens(text, "text")
        if not second.strip():
            if both_orders:
                raise ValueError("Two orders need two texts: give the second one.")
            logits = self._logits("classification", {"text": first})
        else:
            row = {"premise": first, "hypothesis": self._tokens(second, "second text")}
            logits = self._logits("similarity" if both_orders else "entailment", row)
        problem_type = self.model.config.problem_type
        if problem_type == "ordinal":
            return {"score": float(logits.softmax(-1) @ torch.arange(len(logits), dtype=torch.float))}
        if problem_type == "regression" or len(logits) == 1:
            return {"score": logits[0].item()}
        is_multi_label = problem_type == "multi_label_classification"
        probabilities = logits.sigmoid() if is_multi_label else logits.softmax(-1)
        return dict(zip(self.label_names, probabilities.tolist(), strict=True))


class TaggerDemo(HeadDemo):
    """A fine-tuned `GPTForTokenClassification`."""

    model_class = modeling_gpt.GPTForTokenClassification

    @torch.no_grad()
    def tag(self, text: str) -> list[tuple[str, str | None]]:
        """
        The text in parts, each word with its label, read at the word's last token; what is `O` or stands between words
        has none.
        """
        count, room = len(self._tokens(text, "text")), self.model.config.n_positions - virtual_tokens(self.model) - 2
        if count > room:
            raise ValueError(f"The text has {count} tokens, and {room} fit into the context: shorten it.")
        encoded = self.tokenizer(text, return_tensors="pt")
        labels = self.model(encoded["input_ids"].to(self.model.device)).logits[0].argmax(-1).tolist()
        names, parts, end = self.model.config.id2label, [], 0
        # A later token of a word takes the place of those before it.
        last = {word: token for token, word in enumerate(encoded.word_ids()) if word is not None}
        for word, token in last.items():
            start, stop = encoded.word_to_chars(word)
            parts += [(text[end:start], None)] if start > end else []
            parts.append((text[start:stop], None if names[labels[token]] == "O" else names[labels[token]]))
            end = stop
        return [*parts, (text[end:], None)] if text[end:] else parts


class QuestionAnsweringDemo(HeadDemo):
    """A fine-tuned `GPTForQuestionAnswering`."""

    model_class = modeling_gpt.GPTForQuestionAnswering

    def answer(self, question: str, passage: str) -> tuple[str, float]:
        """
        The likeliest span of the passage, which may be longer than the context, and its probability.

        Raises:
            ValueError: if a text is missing or too long.
        """
        ids, found = self._tokens(question, "question"), self._encoded(passage, "passage", return_offsets_mapping=True)
        starts, ends = map(list, zip(*found["offset_mapping"], strict=True))
        output = self._output("question-answering", {"question": ids, "passage": found["input_ids"]})
        logits = torch.stack([output.start_logits, output.end_logits], dim=-1)  # (1, tokens, 2)
        rows = Dataset.from_dict({"passage": [passage], "token_starts": [starts], "token_ends": [ends]})
        return next(best_answers(rows, logits.float().cpu().numpy()))


class FillMaskDemo(HeadDemo):
    """A `GPTForMaskedLM`."""

    model_class = modeling_gpt.GPTForMaskedLM
    script = "scripts/pretrain.py --masked true"

    def guesses(self, text: str, count: int = 10) -> list[dict[str, Any]]:
        """
        The likeliest tokens for the one that the mask hides, as `pipeline("fill-mask")` gives them.
        """
        mask = self.tokenizer.mask_token
        if text.count(mask) != 1:
            raise ValueError(f"Write {mask} once, in the place of the word that is to be guessed.")
        self._prompt_tokens(text)
        return FillMaskPipeline(model=self.model, tokenizer=self.tokenizer)(text, top_k=count)


# The models with heads that a page may show, by the names of their flags.
HEAD_DEMOS: dict[str, type[HeadDemo]] = {
    "classifier": ClassifierDemo,
    "multiple_choice": MultipleChoiceDemo,
    "tagger": TaggerDemo,
    "fill_mask": FillMaskDemo,
    "question_answering": QuestionAnsweringDemo,
}
