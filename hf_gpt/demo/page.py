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
    for title, (kind, method, about, inputs, output) in _tabs(gr).items():
        if kind in demos:
            function = getattr(demos[kind], method)
            function = _framed(function, about) if isinstance(output, gr.HTML) else function
            settings = {"description": about, "api_name": method, "flagging_mode": "never"}
            pages[title] = gr.Interface(function, inputs, output, **settings)
    title = f"The original GPT: {Path(names[0]).name}"
    # Whoever comes when so many wait gets a message, instead of waiting behind them.
    return gr.TabbedInterface([*pages.values()], [*pages], title=title, analytics_enabled=False).queue(max_size=32)


def _tabs(gr: Any) -> dict[str, tuple[str, str, str, list[Any], Any]]:
    """Of each tab the kind of its model, the method of `Demo`, its description, and the components of both sides."""
    text = functools.partial(gr.Textbox, label="Text", lines=2)

    def table(columns: dict[str, int | None]) -> Any:
        widths = [*columns.values()] if any(columns.values()) else None
        return gr.Dataframe(headers=[*columns], column_widths=widths, interactive=False, wrap=True, show_label=False)

    settings = [
        gr.Textbox(_PROMPT, label="Prompt", lines=2),
        gr.Slider(1, 200, 40, step=1, label="New tokens"),
        gr.Slider(2, MOST_BEAMS, 4, step=1, label="Beams"),
        gr.Number(0, precision=0, label="Seed"),
        gr.Slider(1, 200, 40, step=1, label="Top-k"),
        gr.Slider(0.05, 1, 0.9, step=0.05, label="Top-p (nucleus)"),
        gr.Slider(0.05, 1, 0.95, step=0.05, label="Typical probability"),
        gr.Slider(0.1, 2, 1.0, step=0.1, label="Temperature"),
    ]
    choices = [
        gr.Textbox("The rain fell all night. In the morning the streets were", label="Context", lines=3),
        gr.Textbox("wet.\nmade of cheese.", label="Choices, one a line", lines=4),
    ]
    pair = [text("Who wrote the first novel?"), gr.Textbox("", label="Second text, for models of pairs")]
    pair += [gr.Checkbox(False, label="The order does not matter (similarity)")]
    passage = [gr.Textbox("Where does Mary live?", label="Question")]
    passage += [text("Mary lives in the old house. John lives in the garden.", label="Passage", lines=5)]
    masked = [text("She opened the <mask> and looked out.")]
    answer = [gr.Textbox(label="Answer"), gr.Textbox(label="Probability")]
    ranking = table({"Choice": None, "Score": None})
    next_word = gr.Textbox("", label="Next word (by default the likeliest)")
    scored = "The logit of a fine-tuned head, or the mean log-probability of the choice's tokens (zero-shot)."
    expected = "The ten likeliest tokens behind the prompt; … continues within the word."
    mattered = "Which words spoke for the next one, by three methods: red speaks for it, blue against."
    tagged = "Every word has the colour of its label, which is read before the words behind it."
    guessed = "The likeliest words in the place of `<mask>`, by a model that reads from both sides."
    answered = "The words of the passage that answer the question, read from left to right behind it."
    shown, attended = "What was expected at each position.", "What every head of every block attends to."
    model = "language_model"
    return {
        "Generation": (model, "generate", "Decoding strategies side by side.", settings, table(_COMPARED)),
        "Next token": (model, "next_tokens", expected, [text(_PROMPT)], table({"Token": None, "Probability": None})),
        "Each position": (model, "expectation_page", shown, [text(_SENTENCE)], gr.HTML()),
        "Attention": (model, "attention_page", attended, [text(_SENTENCE)], gr.HTML()),
        "Importance": (model, "importance_page", mattered, [text(_PROMPT), next_word], gr.HTML()),
        "Multiple choice": ("multiple_choice", "score_choices", scored, choices, ranking),
        "Classification": ("classifier", "classify", "Labels, or the score.", pair, gr.Label(label="Probabilities")),
        "Tagging": ("tagger", "tag", tagged, [text(_SENTENCE)], gr.HighlightedText(show_legend=True)),
        "Masked word": ("fill_mask", "guesses", guessed, masked, table({"Token": None, "Probability": None})),
        "Questions": ("question_answering", "answer", answered, passage, answer),
    }


def _framed(page: Callable[..., str], about: str) -> Callable[..., str]:
    """A page of its own, whose style and script stay within a frame."""

    @functools.wraps(page)
    def framed(*values: str) -> str:
        return f'{_FRAME.format(html.escape(page(*values)))} title="{about}"></iframe>'

    return framed
