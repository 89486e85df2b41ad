"""
What the demonstration shows, as functions of text: continuations by several strategies, next tokens, choices, classes,
labels of words, masked words, answers, and pages on surprisal, attention and attribution.

`hf_gpt.demo.page` puts a page in front of them. Everything that is wrong with a text (empty, longer than the context)
or a model (of another kind) is a `ValueError` with a hint.
"""

from collections.abc import Sequence
from typing import Any

import torch
from peft import PeftModel
from transformers import FillMaskPipeline, PreTrainedModel

from ..analysis.attention import attention_of, path_record
from ..analysis.importance import METHODS, next_word_score, shares, word_scores
from ..analysis.pages import render_page
from ..generation.inspection import NextToken, inspect
from ..generation.inspection import render_page as render_expectation
from ..generation.strategies import Continuation, Strategy, continue_prompts, mean_log_probability, strategies
from ..loading import open_source
from ..model import modeling_gpt
from ..model.modeling_gpt import GPTPreTrainedModel
from ..model.tokenization_gpt import GPTTokenizer
from ..tasks.encode import LONGEST_ANSWER
from ..trees.token_tree import TokenTree

# What a request may ask for: characters for each token of the context, and rows of work in one batch.
CHARACTERS_PER_TOKEN = 16
MOST_CHOICES = 20
MOST_BEAMS = 10
MOST_SHOWN = 64


class Demo:
    """A model with its tokenizer; base of all kinds."""

    model_class: type[GPTPreTrainedModel]
    script = "scripts/finetune.py"

    def __init__(self, model: PreTrainedModel | PeftModel, tokenizer: GPTTokenizer):
        self.model = model.eval()
        self.tokenizer = tokenizer

    @classmethod
    def from_pretrained(cls, name: str) -> "Demo":
        """Load a folder or Hub id of `script`; an adapter is loaded on the base model that it names."""
        source, wanted = open_source(name), cls.model_class.__name__
        if cls is LanguageModelDemo:
            return cls(source.model(cls.model_class), source.tokenizer())
        found = source.config().architectures or ("no architecture",)
        if wanted not in found:
            raise ValueError(f"{name} holds {', '.join(found)}; a {wanted} of {cls.script} is needed here.")
        return cls(source.adapted() if source.kind == "adapter" else source.model(cls.model_class), source.tokenizer())

    def ids(self, text: str) -> list[int]:
        """Token ids of a text, without special tokens."""
        return self.tokenizer(text, add_special_tokens=False)["input_ids"]

    def check(self, new: int = 0, **texts: str) -> None:
        """A `ValueError` for a text that is empty, and for texts too long for one context with `new` more tokens."""
        context, names = self.model.config.n_positions, " and ".join(texts).replace("_", " ")
        length, most = sum(map(len, texts.values())), CHARACTERS_PER_TOKEN * context
        if length > most:
            raise ValueError(f"Too long, {length:,} characters of {names}; at most {most:,} are taken: shorten it.")
        for what, text in texts.items():
            if not text.strip():
                raise ValueError(f"The {what.replace('_', ' ')} is empty: write something.")
        count, more = sum(len(self.ids(text)) for text in texts.values()), f" and {new} more are needed" if new else ""
        if count + new > context:
            raise ValueError(f"Too long, {count} tokens of {names}{more}, for a context of {context}: shorten it.")

    def given(self, context: str, question: str, choices: Sequence[str]) -> str:
        """What stands before each choice; a `ValueError` for too few or too many choices, or ones without it."""
        given = " ".join(filter(None, (context.strip(), question.strip())))
        if not 2 <= len(choices) <= MOST_CHOICES:
            raise ValueError(f"Give at least two choices and at most {MOST_CHOICES}, each on a line of its own.")
        if not given:
            raise ValueError("Give a context, a question or both: choices are scored by what stands before them.")
        for number, choice in enumerate(choices, start=1):
            self.check(context=given, **{f"choice_{number}": choice})
        return given

    @torch.no_grad()
    def output(self, *texts: str | list[str], unsqueeze: bool = False) -> Any:
        """The model's output for a text, a pair, or lists of these; `unsqueeze` makes all of them one item."""
        inputs = self.tokenizer(*texts, padding=True, return_tensors="pt")
        device = next(self.model.parameters()).device
        return self.model(**{name: (ids[None] if unsqueeze else ids).to(device) for name, ids in inputs.items()})


class LanguageModelDemo(Demo):
    """A language model; its tokenizer is used without special tokens."""

    model_class = modeling_gpt.GPTForCausalLM

    def continuations(
        self, prompt: str, new_tokens: int, chosen: Sequence[Strategy] | None = None, seed: int = 0
    ) -> list[Continuation]:
        """A prompt continued by each strategy (by default all); the seed is set before each."""
        self.check(new_tokens, prompt=prompt)
        chosen = strategies() if chosen is None else chosen
        results = continue_prompts(self.model, self.tokenizer, [self.ids(prompt)], chosen, new_tokens, seed)
        return [continuation for (continuation,) in results]

    @torch.no_grad()
    def next_tokens(self, prompt: str, count: int = 10) -> list[NextToken]:
        """
        The likeliest tokens behind a prompt, with their probabilities as `generate` has them: tokens that the model's
        generation configuration suppresses (its special tokens) are left out.
        """
        self.check(prompt=prompt)
        logits = self.model(torch.tensor([self.ids(prompt)], device=self.model.device)).logits[0, -1].float()
        logits[self.model.generation_config.suppress_tokens or []] = float("-inf")
        top = logits.softmax(-1).topk(min(count, len(self.tokenizer)))
        found = zip(top.indices.tolist(), top.values.tolist(), strict=True)
        return [NextToken.of(self.tokenizer, token_id, probability) for token_id, probability in found]

    def expectation_page(self, text: str) -> str:
        """What was expected at each position of a text, as a page of its own."""
        self.check(text=text)
        ids = self.ids(text)
        first = NextToken.of(self.tokenizer, ids[0], 1.0)
        return render_expectation("the model", first, inspect(self.model, self.tokenizer, ids))

    def attention_page(self, text: str) -> str:
        """What every head attends to, as a page of its own; of at most `MOST_SHOWN` tokens."""
        self._check_shown(text)
        (path,) = attention_of(self.model, TokenTree.from_paths([self.ids(text)]))
        return render_page("attention", "Attention", {"paths": [path_record(text, path, self.tokenizer)]})

    def importance_page(self, text: str, next_word: str = "") -> str:
        """Which words spoke for the next one (the likeliest, if none is given), as a page of its own."""
        self._check_shown(text, next_word)
        score, target = next_word_score(self.model, self.tokenizer, text, next_word.strip() or None)
        words = [word.text for word in score.passage.words]
        texts = [
            {"words": words, "values": shares(word_scores(score, method)[0], method), "label": f"{target}, {method}"}
            for method in METHODS
            if method != "perturbation"  # which takes a thousand steps
        ]
        return render_page("coloured", "Words that mattered", {"title": "Words that mattered", "texts": texts})

    def _check_shown(self, text: str, next_word: str = "") -> None:
        self.check(len(self.ids(next_word[:1000])), text=text)
        if len(self.ids(text)) > MOST_SHOWN:
            raise ValueError(f"The text has {len(self.ids(text))} tokens, and at most {MOST_SHOWN} are shown.")

    def score_choices(self, context: str, question: str, choices: Sequence[str]) -> list[float]:
        """Mean log-probability of each choice's tokens behind context and question (zero-shot)."""
        before = self.ids(self.given(context, question, choices))
        return [mean_log_probability(self.model, before, self.ids(choice)) for choice in choices]


class MultipleChoiceDemo(Demo):
    """A fine-tuned `GPTForMultipleChoice`."""

    model_class = modeling_gpt.GPTForMultipleChoice

    def score_choices(self, context: str, question: str, choices: Sequence[str]) -> list[float]:
        """The head's logit of each choice."""
        given = self.given(context, question, choices)
        return self.output([given] * len(choices), [*choices], unsqueeze=True).logits[0].tolist()


class ClassifierDemo(Demo):
    """A fine-tuned `GPTForSequenceClassification`."""

    model_class = modeling_gpt.GPTForSequenceClassification

    def classify(self, text: str, second: str = "", both_orders: bool = False) -> dict[str, float]:
        """
        The probability of every label for a text, or a pair of texts, with `both_orders` one without order
        (similarity); for regression and ordinal tasks, the score under the name `score`.
        """
        texts = [text, *([second] if second.strip() else [])]
        if both_orders and len(texts) < 2:
            raise ValueError("Two orders need two texts: give the second one.")
        self.check(len(texts) + 1, **dict(zip(("text", "second_text"), texts, strict=False)))
        output = self.output(texts, texts[::-1], unsqueeze=True) if both_orders else self.output(*texts)
        logits, config = output.logits[0].float(), self.model.config
        if config.problem_type == "ordinal":
            return {"score": float(logits.softmax(-1) @ torch.arange(len(logits), dtype=torch.float))}
        if config.problem_type == "regression" or len(logits) == 1:
            return {"score": logits[0].item()}
        is_multi_label = config.problem_type == "multi_label_classification"
        probabilities = logits.sigmoid() if is_multi_label else logits.softmax(-1)
        return {config.id2label[index]: value for index, value in enumerate(probabilities.tolist())}


class TaggerDemo(Demo):
    """A fine-tuned `GPTForTokenClassification`."""

    model_class = modeling_gpt.GPTForTokenClassification

    def tag(self, text: str) -> list[tuple[str, str | None]]:
        """The text in parts, each word with its label, read at its last token; `O` and the space between have none."""
        self.check(2, text=text)
        encoded = self.tokenizer(text)
        labels = self.output(text).logits[0].argmax(-1).tolist()
        names, parts, end = self.model.config.id2label, [], 0
        # A later token of a word takes the place of those before it.
        last = {word: token for token, word in enumerate(encoded.word_ids()) if word is not None}
        for word, token in last.items():
            start, stop = encoded.word_to_chars(word)
            parts += [(text[end:start], None)] if start > end else []
            parts.append((text[start:stop], None if names[labels[token]] == "O" else names[labels[token]]))
            end = stop
        return [*parts, (text[end:], None)] if text[end:] else parts


class QuestionAnsweringDemo(Demo):
    """A fine-tuned `GPTForQuestionAnswering`."""

    model_class = modeling_gpt.GPTForQuestionAnswering

    def answer(self, question: str, passage: str) -> tuple[str, float]:
        """The likeliest span of a passage that fits into the context behind the question, and its probability."""
        self.check(3, question=question, passage=passage)
        encoded, output = self.tokenizer(question, passage), self.output(question, passage)
        tokens = [index for index, sequence in enumerate(encoded.sequence_ids()) if sequence == 1]  # of the passage
        starts, ends = (side[0, tokens].softmax(-1) for side in (output.start_logits, output.end_logits))
        spans = (starts[:, None] * ends).triu().tril(LONGEST_ANSWER - 1)  # (first token, last token)
        first, last = divmod(int(spans.argmax()), len(tokens))
        start, stop = (encoded.token_to_chars(tokens[place]) for place in (first, last))
        return passage[start.start : stop.end].strip(), spans.max().item()


class FillMaskDemo(Demo):
    """A `GPTForMaskedLM`."""

    model_class = modeling_gpt.GPTForMaskedLM
    script = "scripts/pretrain.py --masked true"

    def guesses(self, text: str, count: int = 10) -> list[dict[str, Any]]:
        """The likeliest tokens for the one that the mask hides, as `pipeline("fill-mask")` gives them."""
        mask = self.tokenizer.mask_token
        if text.count(mask) != 1:
            raise ValueError(f"Write {mask} once, in the place of the word that is to be guessed.")
        self.check(text=text)
        return FillMaskPipeline(model=self.model, tokenizer=self.tokenizer)(text, top_k=count)


# The models with heads that a page may show, by the names of their flags.
HEAD_DEMOS: dict[str, type[Demo]] = {
    "classifier": ClassifierDemo,
    "multiple_choice": MultipleChoiceDemo,
    "tagger": TaggerDemo,
    "fill_mask": FillMaskDemo,
    "question_answering": QuestionAnsweringDemo,
}
