"""
The demonstration as a page of Gradio, which is only imported when a page is built: `pip install -e ".[demo]"`.

    build_app("gpt-mini", classifier="outputs/questions").launch(show_error=True)
"""

import functools
import html
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import HEADS, MOST_BEAMS, Demo

_PROMPT, _SENTENCE = "She opened the door and", "She opened the door and looked at the table."
# Columns and their widths in pixels: the text is what one looks at first.
_COMPARED = {"Strategy": 130, "Text": 280, "New tokens": 90}
_COMPARED |= {"Mean log-probability": 130, "Repeated 4-grams": 110, "Depends on the seed": 110}
_FRAME = '<iframe sandbox="allow-scripts" style="width: 100%; height: 42em; border: 0; background: white" srcdoc="{}"'


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
