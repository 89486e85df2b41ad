"""
The demonstration as a page of Gradio, which is only imported when a page is built: `pip install -e ".[demo]"`.

    build_app("gpt-mini", classifier="outputs/questions").launch(show_error=True)
"""

import functools
import html
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import HEADS, MOST_BEAMS, Demo

_PROMPT, _SENTENCE = "She opened the door and", "She opened the door and looked at the table."
# Columns and their widths in pixels: the text is what one looks at first.
_COMPARED = {"Strategy": 130, "Text": 280, "New tokens": 90}
_COMPARED |= {"Mean log-probability": 130, "Repeated 4-grams": 110, "Depends on the seed": 110}
_FRAME = '<iframe sandbox="allow-scripts" style="width: 100%; height: 42em; border: 0; background: white" srcdoc="{}"'
# Of a tab: its description, the function, and the components of its inputs and outputs.
_Tab = tuple[str, Callable[..., Any], list[Any], list[Any]]


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
    model = Demo(model_name_or_path) if model_name_or_path else None
    demos = {kind: Demo(name, HEADS[kind]) for kind, name in heads.items() if name}
    tabs = _language_model_tabs(gr, model) if model else {}
    tabs |= _choice_tab(gr, demos.get("multiple_choice", model)) | _head_tabs(gr, demos)
    pages = [
        gr.Interface(function, inputs, outputs, description=about, api_name=function.__name__, flagging_mode="never")
        for about, function, inputs, outputs in tabs.values()
    ]
    title = f"The original GPT: {Path(names[0]).name}"
    # Whoever comes when so many wait gets a message, instead of waiting behind them.
    return gr.TabbedInterface(pages, [*tabs], title=title, analytics_enabled=False).queue(max_size=32)


def _language_model_tabs(gr: Any, model: Demo) -> dict[str, _Tab]:
    longest = min(200, model.model.config.n_positions - 1)
    settings = [
        gr.Textbox(_PROMPT, label="Prompt", lines=2),
        gr.Slider(1, longest, min(40, longest), step=1, label="New tokens"),
        gr.Slider(2, MOST_BEAMS, 4, step=1, label="Beams"),
        gr.Number(0, precision=0, label="Seed"),
        gr.Slider(1, 200, 40, step=1, label="Top-k"),
        gr.Slider(0.05, 1, 0.9, step=0.05, label="Top-p (nucleus)"),
        gr.Slider(0.05, 1, 0.95, step=0.05, label="Typical probability"),
        gr.Slider(0.1, 2, 1.0, step=0.1, label="Temperature"),
    ]
    likeliest = "The ten likeliest tokens behind the prompt; … continues within the word."
    mattered = "Which words spoke for the next one, by three methods: red speaks for it, blue against."
    next_word = [_text(gr, _PROMPT), gr.Textbox("", label="Next word (by default the likeliest)")]
    return {
        "Generation": ("Decoding strategies side by side.", model.generate, settings, _table(gr, **_COMPARED)),
        "Next token": (likeliest, model.next_tokens, [_text(gr, _PROMPT)], _table(gr, "Token", "Probability")),
        "Each position": _page(gr, "What was expected at each position.", model.expectation_page, [_text(gr)]),
        "Attention": _page(gr, "What every head of every block attends to.", model.attention_page, [_text(gr)]),
        "Importance": _page(gr, mattered, model.importance_page, next_word),
    }


def _choice_tab(gr: Any, model: Demo | None) -> dict[str, _Tab]:
    """Choices by a fine-tuned head, or else by a language model."""
    if model is None:
        return {}
    choices = [
        gr.Textbox("The rain fell all night. In the morning the streets were", label="Context", lines=3),
        gr.Textbox("wet.\nmade of cheese.", label="Choices, one a line", lines=4),
    ]
    zero_shot = "mean log-probability of its tokens behind the context (zero-shot)"
    is_head = model.model_class is HEADS["multiple_choice"]
    scored = f"Score: {'logit of a fine-tuned head' if is_head else zero_shot}."
    return {"Multiple choice": (scored, model.score_choices, choices, _table(gr, "Choice", "Score"))}


def _head_tabs(gr: Any, demos: dict[str, Demo]) -> dict[str, _Tab]:
    tabs: dict[str, _Tab] = {}
    if demo := demos.get("classifier"):
        texts = [_text(gr, "Who wrote the first novel?"), gr.Textbox("", label="Second text, for models of pairs")]
        texts += [gr.Checkbox(False, label="The order does not matter (similarity)")]
        about = f"Labels: {', '.join(demo.model.config.id2label.values())}."
        tabs["Classification"] = (about, demo.classify, texts, [gr.Label(label="Probabilities, or the score")])
    if demo := demos.get("tagger"):
        parts = gr.HighlightedText(label="Words with their labels", show_legend=True)
        about = "Every word has the colour of its label, which is read before the words behind it."
        tabs["Tagging"] = (about, demo.tag, [_text(gr)], [parts])
    if demo := demos.get("fill_mask"):
        mask = demo.tokenizer.mask_token
        about = f"The likeliest words in the place of `{mask}`, by a model that reads from both sides."
        text = _text(gr, f"She opened the {mask} and looked out.")
        tabs["Masked word"] = (about, demo.guesses, [text], _table(gr, "Token", "Probability"))
    if demo := demos.get("question_answering"):
        texts = [gr.Textbox("Where does Mary live?", label="Question")]
        texts += [gr.Textbox("Mary lives in the old house. John lives in the garden.", label="Passage", lines=5)]
        about = "The words of the passage that answer the question, read from left to right behind it."
        shown = [gr.Textbox(label="Answer"), gr.Textbox(label="Probability")]
        tabs["Questions"] = (about, demo.answer, texts, shown)
    return tabs


def _text(gr: Any, text: str = _SENTENCE) -> Any:
    return gr.Textbox(text, label="Text", lines=2)


def _table(gr: Any, *headers: str, **widths: int) -> list[Any]:
    """A table of columns, or of columns that are so many pixels wide."""
    columns, pixels = [*headers, *widths], [*widths.values()] or None
    return [gr.Dataframe(headers=columns, column_widths=pixels, interactive=False, wrap=True, show_label=False)]


def _page(gr: Any, about: str, function: Callable[..., str], inputs: list[Any]) -> _Tab:
    """A tab that shows a page of its own, whose style and script stay within a frame."""

    @functools.wraps(function)
    def framed(*values: str) -> str:
        return f'{_FRAME.format(html.escape(function(*values)))} title="{about}"></iframe>'

    return about, framed, inputs, [gr.HTML()]
