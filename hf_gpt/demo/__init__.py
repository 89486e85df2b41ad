"""
What the demonstration shows, as functions of text, and a page of Gradio in front of them, which is imported then.
Whatever is wrong with a text (empty, longer than the context) or a model (of another kind) is a `ValueError`.

    build_app("gpt-mini", classifier="outputs/questions").launch(show_error=True)
"""

import functools
import html
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import FillMaskPipeline

from ..adapters import load_adapter
from ..analysis.attention import attention_of, page_record
from ..analysis.figures import render_page
from ..analysis.importance import METHODS, next_word_score, shares, word_scores
from ..generation import encode, token_text
from ..generation.scoring import score_texts
from ..generation.strategies import continue_prompts, strategies
from ..generation.surprisal import render_page as render_surprisals
from ..generation.surprisal import word_surprisals
from ..loading import open_source
from ..model import modeling_gpt
from ..model.modeling_gpt import GPTPreTrainedModel
from ..tasks.encode import LONGEST_ANSWER

# What a request may ask for: characters for each token of the context, rows of work at once, and tokens on a page.
CHARACTERS_PER_TOKEN, MOST_CHOICES, MOST_BEAMS, MOST_SHOWN = 16, 20, 10, 64
# The models with heads that a page may show, by the names of their flags.
HEADS: dict[str, type[GPTPreTrainedModel]] = {
    "classifier": modeling_gpt.GPTForSequenceClassification,
    "multiple_choice": modeling_gpt.GPTForMultipleChoice,
    "tagger": modeling_gpt.GPTForTokenClassification,
    "fill_mask": modeling_gpt.GPTForMaskedLM,
    "question_answering": modeling_gpt.GPTForQuestionAnswering,
}
_PROMPT, _SENTENCE = "She opened the door and", "She opened the door and looked at the table."
# Columns and their widths in pixels: the text is what one looks at first.
_COMPARED = {"Strategy": 130, "Text": 280, "New tokens": 90}
_COMPARED |= {"Mean log-probability": 130, "Repeated 4-grams": 110, "Depends on the seed": 110}
_FRAME = '<iframe sandbox="allow-scripts" style="width: 100%; height: 42em; border: 0; background: white" srcdoc="{}"'


class Demo:
    """
    The model of a folder or Hub id (an adapter on its base model) with its tokenizer, and what it answers: for each
    tab a method, whose docstring the page shows, for models of one class. Numbers of sliders are floats.
    """

    def __init__(self, name: str, model_class: type[GPTPreTrainedModel] = modeling_gpt.GPTForCausalLM):
        source, self.model_class = open_source(name), model_class
        is_language_model = model_class is modeling_gpt.GPTForCausalLM
        found = source.config().architectures or ("no architecture",)
        if model_class.__name__ not in found and not is_language_model:
            raise ValueError(f"{name} holds {', '.join(found)}; a {model_class.__name__} is needed here.")
        is_adapter = source.kind == "adapter" and not is_language_model
        self.model = (load_adapter(source.folder) if is_adapter else source.model(model_class)).eval()
        self.tokenizer = source.tokenizer()

    def encoded(self, new: int = 0, most: int | None = None, **texts: str) -> list[list[int]]:
        """Ids of each text; a `ValueError` if one is empty, or all and `new` tokens more than `most` (the context)."""
        names, most = " and ".join(texts), most or self.model.config.n_positions
        length = sum(map(len, texts.values()))
        if length > CHARACTERS_PER_TOKEN * most:
            raise ValueError(f"Too long, {length:,} characters of {names} for {most} tokens: shorten it.")
        for name, text in texts.items():
            if not text.strip():
                raise ValueError(f"The {name} is empty: write something.")
        found = [encode(self.tokenizer, text) for text in texts.values()]
        count = sum(map(len, found)) + new
        if count > most:
            raise ValueError(f"Too long, {count} tokens with {names}; at most {most} are taken: shorten it.")
        return found

    @torch.no_grad()
    def output(self, *texts: str | list[str], unsqueeze: bool = False) -> Any:
        """The model's output for a text, a pair, or lists of these; `unsqueeze` makes all of them one item."""
        inputs = self.tokenizer(*texts, padding=True, return_tensors="pt")
        device = next(self.model.parameters()).device
        return self.model(**{name: (ids[None] if unsqueeze else ids).to(device) for name, ids in inputs.items()})

    def generate(
        self, prompt: str, new_tokens: float, num_beams: float, seed: float | None, top_k: float, *settings: float
    ) -> list[list[Any]]:
        """
        Decoding strategies side by side: of each the text, how many tokens are new, their mean log-probability,
        repeated 4-grams, and whether the seed matters. (`settings` are the last ones of `strategies`.)
        """
        prompts = self.encoded(int(new_tokens), prompt=prompt)
        if num_beams > MOST_BEAMS:
            raise ValueError(f"{int(num_beams)} beams: at most {MOST_BEAMS} are searched here.")
        chosen = strategies(int(num_beams), int(top_k), *map(float, settings))
        counts = (int(new_tokens), int(seed or 0))
        rows = []
        for (found,) in continue_prompts(self.model, self.tokenizer, prompts, chosen, *counts):
            figures = [found.new_tokens, f"{found.mean_log_probability:.2f}", f"{found.repetition:.0%}"]
            is_random = found.strategy.settings["do_sample"]
            rows.append([str(found.strategy), found.text, *figures, "yes" if is_random else "no"])
        return rows

    @torch.no_grad()
    def next_tokens(self, prompt: str, count: int = 10) -> list[list[str]]:
        """The likeliest tokens behind a prompt, but those that `generate` suppresses; … continues within the word."""
        row = torch.tensor(self.encoded(prompt=prompt), device=self.model.device)
        logits = self.model(row).logits[0, -1].float()
        logits[self.model.generation_config.suppress_tokens or []] = float("-inf")
        top = logits.softmax(-1).topk(min(count, len(self.tokenizer)))
        found = zip(top.indices.tolist(), top.values.tolist(), strict=True)
        return [[token_text(self.tokenizer, token), f"{share:.2%}"] for token, share in found]

    def expectation_page(self, text: str) -> str:
        """How much each word of a text surprised the model, and what was expected, as a page of its own."""
        self.encoded(text=text)
        rows = word_surprisals(self.model, self.tokenizer, [("", text)], "none", likeliest=5)
        return render_surprisals("the model", [("", text)], rows, "bits")

    def attention_page(self, text: str) -> str:
        """What every head of every block attends to in a short text, as a page of its own."""
        (ids,) = self.encoded(most=MOST_SHOWN, text=text)
        return render_page("attention", "Attention", page_record(self.tokenizer, ids, attention_of(self.model, ids)))

    def importance_page(self, text: str, next_word: str = "") -> str:
        """Which words spoke for the next one, by three methods, as a page of its own: red for it, blue against."""
        self.encoded(most=MOST_SHOWN, **{"text": text, **({"next word": next_word} if next_word.strip() else {})})
        score, target = next_word_score(self.model, self.tokenizer, text, next_word.strip() or None)
        texts = []
        for method in METHODS[1:]:  # but perturbation, which takes hundreds of steps
            values = shares(word_scores(score, method)[0], method)
            texts.append({"words": score.words, "values": values, "label": f"{target}, {method}"})
        return render_page("coloured", "Words that mattered", {"title": "Words that mattered", "texts": texts})

    @torch.no_grad()
    def score_choices(self, context: str, choices: str) -> list[list[str]]:
        """The logit of a fine-tuned head for each choice, or the mean log-probability of its tokens (zero-shot)."""
        texts = [line.strip() for line in choices.splitlines() if line.strip()]
        if not 2 <= len(texts) <= MOST_CHOICES:
            raise ValueError(f"Give at least two choices and at most {MOST_CHOICES}, each on a line of its own.")
        context = context.strip()
        given, ids = zip(*(self.encoded(context=context, choice=choice) for choice in texts), strict=True)
        if self.model_class is modeling_gpt.GPTForMultipleChoice:
            values = self.output([context] * len(texts), texts, unsqueeze=True).logits[0].tolist()
        else:
            scores = score_texts(self.model, ids, given=given)
            values = [score.log_probability / max(1, score.tokens) for score in scores]
        return [[text, f"{value:.3f}"] for value, text in sorted(zip(values, texts, strict=True), reverse=True)]

    def classify(self, text: str, second: str = "", both_orders: bool = False) -> dict[str, float] | str:
        """Probabilities of labels, or the score, of a text or a pair, which may be one without order."""
        texts = {"text": text, **({"second text": second} if second.strip() or both_orders else {})}
        self.encoded(len(texts) + 1, **texts)
        pair = [*texts.values()]
        output = self.output(pair, pair[::-1], unsqueeze=True) if both_orders else self.output(*pair)
        logits, config = output.logits[0].float(), self.model.config
        if config.problem_type == "ordinal":
            return f"{logits.softmax(-1) @ torch.arange(len(logits), dtype=torch.float):.3f}"
        if config.problem_type == "regression" or len(logits) == 1:
            return f"{logits[0]:.3f}"
        is_multi_label = config.problem_type == "multi_label_classification"
        probabilities = logits.sigmoid() if is_multi_label else logits.softmax(-1)
        return {config.id2label[index]: value for index, value in enumerate(probabilities.tolist())}

    def tag(self, text: str) -> list[tuple[str, str | None]]:
        """The words with their labels, each read at the last token, before the words behind it; `O` is none."""
        self.encoded(2, text=text)
        encoded, names = self.tokenizer(text), self.model.config.id2label
        labels = self.output(text).logits[0].argmax(-1).tolist()
        parts, end = [], 0
        # Of a word the last token has seen all that is before it.
        last = {word: token for token, word in enumerate(encoded.word_ids()) if word is not None}
        for word, token in last.items():
            start, stop = encoded.word_to_chars(word)
            name = names[labels[token]]
            parts += [(text[end:start], None), (text[start:stop], None if name == "O" else name)]
            end = stop
        return [part for part in [*parts, (text[end:], None)] if part[0]]

    def answer(self, question: str, passage: str) -> tuple[str, str]:
        """The words of the passage that answer the question, read from left to right behind it; their probability."""
        self.encoded(3, question=question, passage=passage)
        encoded, output = self.tokenizer(question, passage), self.output(question, passage)
        tokens = [index for index, sequence in enumerate(encoded.sequence_ids()) if sequence == 1]  # of the passage
        starts, ends = (side[0, tokens].softmax(-1) for side in (output.start_logits, output.end_logits))
        spans = (starts[:, None] * ends).triu().tril(LONGEST_ANSWER - 1)  # (first token, last token)
        first, last = divmod(int(spans.argmax()), len(tokens))
        start, stop = (encoded.token_to_chars(tokens[place]) for place in (first, last))
        return passage[start.start : stop.end].strip(), f"{spans.max():.1%}"

    def guesses(self, text: str) -> list[list[str]]:
        """The ten likeliest words in the place of `<mask>`, by a model that reads from both sides."""
        mask = self.tokenizer.mask_token
        if text.count(mask) != 1:
            raise ValueError(f"Write {mask} once, in the place of the word that is to be guessed.")
        self.encoded(text=text)
        found = FillMaskPipeline(model=self.model, tokenizer=self.tokenizer)(text, top_k=10)
        return [[guess["token_str"], f"{guess['score']:.2%}"] for guess in found]


def build_app(model_name_or_path: str | None = None, **heads: str | None) -> Any:
    """
    The page (`gradio.Blocks`), with a tab for all that a language model and, by the names of `HEADS`, other models or
    adapters can do, folders or Hub ids. A `ValueError` without any, for other models, or if gradio is not installed.
    """
    try:
        import gradio as gr
    except ImportError as error:
        raise ValueError('The demonstration needs gradio: pip install -e ".[demo]"') from error
    names = [name for name in (model_name_or_path, *heads.values()) if name]
    if not names:
        raise ValueError(f"Name a model: --model_name_or_path, or {', '.join(f'--{kind}' for kind in HEADS)}.")
    demos = {kind: Demo(name, HEADS[kind]) for kind, name in heads.items() if name}
    if model_name_or_path:
        demos["language_model"] = model = Demo(model_name_or_path)
        demos.setdefault("multiple_choice", model)
    pages = {}
    for title, (kind, method, inputs, output) in _tabs(gr).items():
        if kind in demos:
            function = getattr(demos[kind], method)
            function = _framed(function, title) if isinstance(output, gr.HTML) else function
            settings = {"description": inspect.getdoc(function), "api_name": method, "flagging_mode": "never"}
            pages[title] = gr.Interface(function, inputs, output, **settings)
    title = f"The original GPT: {Path(names[0]).name}"
    # Whoever comes when so many wait gets a message, instead of waiting behind them.
    return gr.TabbedInterface([*pages.values()], [*pages], title=title, analytics_enabled=False).queue(max_size=32)


def _tabs(gr: Any) -> dict[str, tuple[str, str, list[Any], Any]]:
    """Of each tab the kind of its model, the method of `Demo`, and the components of both sides."""

    def text(value: str, label: str = "Text") -> Any:
        return gr.Textbox(value, label=label, lines=2)

    def slider(label: str, lowest: float, highest: float, value: float) -> Any:
        return gr.Slider(lowest, highest, value, step=min(lowest, 1), label=label)

    def table(*names: str, widths: list[int] | None = None) -> Any:
        return gr.Dataframe(headers=[*names], column_widths=widths, interactive=False, wrap=True, show_label=False)

    settings = [text(_PROMPT, "Prompt"), slider("New tokens", 1, 200, 40), slider("Beams", 2, MOST_BEAMS, 4)]
    settings += [gr.Number(0, precision=0, label="Seed"), slider("Top-k", 1, 200, 40)]
    settings += [slider("Top-p (nucleus)", 0.05, 1, 0.9), slider("Typical probability", 0.05, 1, 0.95)]
    settings += [slider("Temperature", 0.1, 2, 1.0)]
    choices = [text("The rain fell all night. In the morning the streets were", "Context")]
    choices += [text("wet.\nmade of cheese.", "Choices, one a line")]
    pair = [text("Who wrote the first novel?"), text("", "Second text, for models of pairs")]
    pair += [gr.Checkbox(False, label="The order does not matter (similarity)")]
    passage = [text("Where does Mary live?", "Question")]
    passage += [text("Mary lives in the old house. John lives in the garden.", "Passage")]
    answer = [gr.Textbox(label="Answer"), gr.Textbox(label="Probability")]
    masked, next_word = "She opened the <mask> and looked out.", "Next word (by default the likeliest)"
    model = "language_model"
    return {
        "Generation": (model, "generate", settings, table(*_COMPARED, widths=[*_COMPARED.values()])),
        "Next token": (model, "next_tokens", [text(_PROMPT)], table("Token", "Probability")),
        "Each position": (model, "expectation_page", [text(_SENTENCE)], gr.HTML()),
        "Attention": (model, "attention_page", [text(_SENTENCE)], gr.HTML()),
        "Importance": (model, "importance_page", [text(_PROMPT), text("", next_word)], gr.HTML()),
        "Multiple choice": ("multiple_choice", "score_choices", choices, table("Choice", "Score")),
        "Classification": ("classifier", "classify", pair, gr.Label(label="Probabilities")),
        "Tagging": ("tagger", "tag", [text(_SENTENCE)], gr.HighlightedText(show_legend=True)),
        "Masked word": ("fill_mask", "guesses", [text(masked)], table("Token", "Probability")),
        "Questions": ("question_answering", "answer", passage, answer),
    }


def _framed(page: Callable[..., str], title: str) -> Callable[..., str]:
    """A page of its own, whose style and script stay within a frame."""

    @functools.wraps(page)
    def framed(*values: str) -> str:
        return f'{_FRAME.format(html.escape(page(*values)))} title="{title}"></iframe>'

    return framed
