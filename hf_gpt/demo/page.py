"""
The demonstration as a page of Gradio (`build_app`) and as the folder of a Space (`export_space`).

    build_app(Demos.from_pretrained("model_cards/gpt-mini")).launch()

gradio is only imported when a page is built: `pip install -e ".[demo]"`.
"""

import functools
import html
import importlib
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import requires, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.requirements import Requirement
from packaging.version import Version
from scipy.special import softmax

from ..files import check_empty, write_text
from ..files.templates import render_template
from ..generation.strategies import strategies
from ..hub.downloads import is_hub_id
from . import (
    HEAD_DEMOS,
    MOST_BEAMS,
    ClassifierDemo,
    FillMaskDemo,
    LanguageModelDemo,
    MultipleChoiceDemo,
    QuestionAnsweringDemo,
    TaggerDemo,
)

if TYPE_CHECKING:
    from gradio import Blocks

_BAR = 20
_SENTENCE = "She opened the door and looked at the table."
_FRAME = "width: 100%; height: 42em; border: 0; background: white;"
_LONGEST_QUEUE = 32
_EIGHTHS = ("", *"▏▎▍▌▋▊▉")
_PACKAGE = Path(__file__).resolve().parents[1]

_HOW_TO_GET_A_CLASSIFIER = """This page was started without a classifier. Fine-tune one and name its folder:

```bash
python scripts/finetune.py --config scripts/configs/questions.yaml --output_dir outputs/questions
python scripts/demo.py --model_name_or_path {model} --classifier outputs/questions
```"""


@dataclass(frozen=True)
class Demos:
    """
    The models of a page: the language model, with its folder or Hub id as `name`, is for all tabs but classification;
    `multiple_choice` scores choices instead of it, and `tagger`, `fill_mask` and `question_answering` have tabs of
    their own.
    """

    name: str
    language_model: LanguageModelDemo
    classifier: ClassifierDemo | None = None
    multiple_choice: MultipleChoiceDemo | None = None
    tagger: TaggerDemo | None = None
    fill_mask: FillMaskDemo | None = None
    question_answering: QuestionAnsweringDemo | None = None

    @classmethod
    def from_pretrained(cls, model_name_or_path: str, **heads: str | None) -> "Demos":
        """
        The models of a page, from folders or Hub ids: of a language model, and by the names of `HEAD_DEMOS` of
        fine-tuned (of `fill_mask`, of masked language) models or their adapters.
        """
        language_model = LanguageModelDemo.from_pretrained(model_name_or_path)
        found = {kind: HEAD_DEMOS[kind].from_pretrained(name) for kind, name in heads.items() if name}
        return cls(model_name_or_path, language_model, **found)

    def generate(
        self,
        prompt: str,
        new_tokens: float,
        num_beams: float,
        seed: float,
        top_k: float,
        top_p: float,
        typical_p: float,
        temperature: float,
    ) -> list[Any]:
        """The text of each strategy, then the rows of the table that compares them."""
        if num_beams > MOST_BEAMS:
            raise ValueError(f"{int(num_beams)} beams: at most {MOST_BEAMS} are searched here.")
        chosen = strategies(int(num_beams), int(top_k), float(top_p), float(typical_p), float(temperature))
        results = self.language_model.continuations(prompt, int(new_tokens), chosen, int(seed or 0))
        table = [
            [
                str(result.strategy),
                result.new_tokens,
                f"{result.mean_log_probability:.2f}",
                f"{result.repetition:.0%}",
                "yes" if result.strategy.is_random else "no",
            ]
            for result in results
        ]
        return [*(result.text for result in results), table]

    def next_tokens(self, prompt: str) -> list[list[Any]]:
        """Rows of rank, token, probability, running sum, and a bar that is full for the first."""
        rows, total = [], 0.0
        tokens = self.language_model.next_tokens(prompt)
        for rank, token in enumerate(tokens, start=1):
            total += token.probability
            bar = _bar(token.probability / tokens[0].probability)
            rows.append([rank, str(token), f"{token.probability:.2%}", f"{total:.2%}", bar])
        return rows

    def score_choices(self, context: str, question: str, choices: str) -> tuple[str, list[list[Any]]]:
        """The best choice, and rows of choice, score, share and bar; `choices` has one on each line."""
        self.language_model.check_length(choices, "text of the choices")
        texts = [line.strip() for line in choices.splitlines() if line.strip()]
        scorer = self.multiple_choice or self.language_model
        scores = scorer.score_choices(context, question, texts)
        rows = [
            [text, f"{score:.3f}", f"{share:.1%}", _bar(share)]
            for text, score, share in zip(texts, scores, softmax(scores).tolist(), strict=True)
        ]
        return texts[scores.index(max(scores))], rows

    def classify(self, text: str, second: str, both_orders: bool) -> dict[str, float] | str:
        """Probabilities by label, or the number of a regression."""
        result = self.classifier.classify(text, second, both_orders)
        return f"{result['score']:.3f}" if list(result) == ["score"] else result

    def guesses(self, text: str) -> list[list[Any]]:
        """Rows of rank, token, probability and a bar that is full for the first."""
        found = self.fill_mask.guesses(text)
        largest = found[0]["score"]
        return [
            [rank, guess["token_str"], f"{guess['score']:.2%}", _bar(guess["score"] / largest)]
            for rank, guess in enumerate(found, start=1)
        ]

    def answer(self, question: str, passage: str) -> tuple[str, str]:
        """The answer, and its probability."""
        text, probability = self.question_answering.answer(question, passage)
        return text, f"{probability:.1%}"


def build_app(demos: Demos) -> "Blocks":
    """The page, with a tab for everything that the models can do; a `ValueError` if gradio is not installed."""
    gr = import_gradio()
    language_model = demos.language_model
    config = language_model.model.config
    with gr.Blocks(title="hf_gpt", analytics_enabled=False) as app:
        gr.Markdown(
            f"# The original GPT\n`{Path(demos.name).name}`: {config.n_layer} blocks of width {config.n_embd}, a "
            f"context of {config.n_positions} tokens. It reads and writes lower case."
        )
        tabs: dict[str, Callable] = {"Generation": _generation_tab, "Next token": _next_token_tab}
        for name, (about, function, inputs) in _pages(language_model).items():
            tabs[name] = functools.partial(_page_tab, about=about, function=function, inputs=inputs)
        tabs |= {"Multiple choice": _choices_tab, "Classification": _classification_tab}
        tabs |= {"Tagging": _tagging_tab} if demos.tagger else {}
        tabs |= {"Masked word": _mask_tab} if demos.fill_mask else {}
        tabs |= {"Questions": _questions_tab} if demos.question_answering else {}
        for name, tab in tabs.items():
            with gr.Tab(name):
                tab(gr, demos)
    # Who comes when so many wait is told so, instead of waiting behind them.
    return app.queue(max_size=_LONGEST_QUEUE)


def _generation_tab(gr: Any, demos: Demos) -> None:
    longest = min(200, demos.language_model.model.config.n_positions - 1)
    prompt = gr.Textbox("She opened the door and", label="Prompt", lines=2)
    with gr.Row():
        settings = [
            gr.Slider(1, longest, min(40, longest), step=1, label="New tokens"),
            gr.Slider(2, MOST_BEAMS, 4, step=1, label="Beams"),
            gr.Number(0, precision=0, label="Seed"),
        ]
    with gr.Row():
        settings += [
            gr.Slider(1, 200, 40, step=1, label="Top-k"),
            gr.Slider(0.05, 1, 0.9, step=0.05, label="Top-p (nucleus)"),
            gr.Slider(0.05, 1, 0.95, step=0.05, label="Typical probability"),
            gr.Slider(0.1, 2, 1.0, step=0.1, label="Temperature"),
        ]
    button = gr.Button("Generate", variant="primary")
    names = [strategy.name for strategy in strategies()]
    texts = []
    for pair in zip(names[::2], names[1::2], strict=True):
        with gr.Row(equal_height=True):
            texts += [gr.Textbox(label=name, lines=5, max_lines=12, interactive=False) for name in pair]
    columns = {"New tokens": 15, "Mean log-probability": 15, "Repeated 4-grams": 15, "Depends on the seed": 15}
    table = _table(gr, "Compared", {"Strategy": 40} | columns)
    inputs = [prompt, *settings]
    triggers = [button.click, prompt.submit]
    gr.on(triggers, _shown(gr, demos.generate), inputs, [*texts, table], api_name="generate")


def _next_token_tab(gr: Any, demos: Demos) -> None:
    prompt = gr.Textbox("She opened the door and", label="Prompt", lines=2)
    button = gr.Button("Show the next token", variant="primary")
    columns = {"Rank": 10, "Token": 25, "Probability": 15, "Together": 15, "": 35}
    table = _table(gr, "The ten likeliest tokens (… goes on within the word)", columns)
    gr.on([button.click, prompt.submit], _shown(gr, demos.next_tokens), prompt, table, api_name="next_tokens")


def _pages(model: LanguageModelDemo) -> dict[str, tuple[str, Callable[..., str], dict[str, str]]]:
    """Of each tab that shows a page of its own: what it says, what makes it, and labels and values of the inputs."""
    mattered = "Which words spoke for the next one, by four methods: red speaks for it, blue against."
    next_word = {"Text": "She opened the door and", "Next word (by default the likeliest)": ""}
    return {
        "Each position": ("What was expected at each position.", model.expectation_page, {"Text": _SENTENCE}),
        "Attention": ("What every head of every block attends to.", model.attention_page, {"Text": _SENTENCE}),
        "Importance": (mattered, model.importance_page, next_word),
    }


def _page_tab(gr: Any, demos: Demos, about: str, function: Callable[..., str], inputs: dict[str, str]) -> None:
    gr.Markdown(about)
    texts = [gr.Textbox(value, label=label, lines=1 + bool(value)) for label, value in inputs.items()]
    button = gr.Button("Show", variant="primary")
    page = gr.HTML()

    @functools.wraps(function)
    def framed(*values: str) -> str:
        # Its style and script stay within the frame.
        document = html.escape(function(*values))
        return f'<iframe sandbox="allow-scripts" title="{about}" style="{_FRAME}" srcdoc="{document}"></iframe>'

    triggers = [button.click, *(text.submit for text in texts)]
    gr.on(triggers, _shown(gr, framed), texts, page, api_name=function.__name__)


def _choices_tab(gr: Any, demos: Demos) -> None:
    tuned = demos.multiple_choice is not None
    gr.Markdown(
        "A fine-tuned head scores the choices; the share is the softmax of its logits."
        if tuned
        else "Zero-shot: the score of a choice is the mean log-probability of its tokens behind context and question; "
        "the share is a softmax over the scores. `--multiple_choice FOLDER` puts a fine-tuned model here."
    )
    context = gr.Textbox("The rain fell all night. In the morning the streets were", label="Context", lines=3)
    question = gr.Textbox("", label="Question (may stay empty)")
    choices = gr.Textbox("wet.\nmade of cheese.", label="Choices, one a line", lines=4)
    button = gr.Button("Score", variant="primary")
    best = gr.Textbox(label="Best choice", interactive=False)
    columns = {"Choice": 40, "Logit" if tuned else "Mean log-probability": 20, "Share": 10, "": 30}
    table = _table(gr, "Choices", columns)
    inputs = [context, question, choices]
    button.click(_shown(gr, demos.score_choices), inputs, [best, table], api_name="score_choices")


def _classification_tab(gr: Any, demos: Demos) -> None:
    if demos.classifier is None:
        gr.Markdown(_HOW_TO_GET_A_CLASSIFIER.format(model=demos.name))
        return
    gr.Markdown(f"Labels: {', '.join(demos.classifier.label_names)}.")
    text = gr.Textbox("Who wrote the first novel?", label="Text", lines=3)
    with gr.Accordion("For models of pairs", open=False):
        second = gr.Textbox("", label="Second text (hypothesis)", lines=2)
        both_orders = gr.Checkbox(False, label="The order does not matter (similarity)")
    button = gr.Button("Classify", variant="primary")
    result = gr.Label(label="Probabilities, or the score")
    inputs = [text, second, both_orders]
    button.click(_shown(gr, demos.classify), inputs, result, api_name="classify")


def _tagging_tab(gr: Any, demos: Demos) -> None:
    gr.Markdown("Every word has the colour of its label, which is read before the words behind it.")
    text = gr.Textbox(_SENTENCE, label="Text", lines=3)
    button = gr.Button("Tag", variant="primary")
    result = gr.HighlightedText(label="Words with their labels", show_legend=True)
    gr.on([button.click, text.submit], _shown(gr, demos.tagger.tag), text, result, api_name="tag")


def _mask_tab(gr: Any, demos: Demos) -> None:
    mask = demos.fill_mask.tokenizer.mask_token
    gr.Markdown(f"The likeliest words in the place of `{mask}`, by a model that reads from both sides.")
    text = gr.Textbox(f"She opened the {mask} and looked out.", label="Text", lines=2)
    button = gr.Button("Guess", variant="primary")
    table = _table(gr, "The ten likeliest tokens", {"Rank": 10, "Token": 30, "Probability": 20, "": 40})
    gr.on([button.click, text.submit], _shown(gr, demos.guesses), text, table, api_name="guesses")


def _questions_tab(gr: Any, demos: Demos) -> None:
    gr.Markdown("The words of the passage that answer the question, read from left to right behind it.")
    passage = gr.Textbox("Mary lives in the old house. John lives in the garden.", label="Passage", lines=5)
    question = gr.Textbox("Where does Mary live?", label="Question")
    button = gr.Button("Answer", variant="primary")
    answer = gr.Textbox(label="Answer", interactive=False)
    probability = gr.Textbox(label="Probability", interactive=False)
    triggers = [button.click, question.submit]
    gr.on(triggers, _shown(gr, demos.answer), [question, passage], [answer, probability], api_name="answer")


def _table(gr: Any, label: str, columns: dict[str, int]) -> Any:
    """A table whose columns have these names and widths in percent."""
    widths = [f"{width}%" for width in columns.values()]
    return gr.Dataframe(headers=[*columns], label=label, interactive=False, wrap=True, column_widths=widths)


def _shown(gr: Any, function: Callable) -> Callable:
    """A function whose `ValueError`s the page shows as messages."""

    @functools.wraps(function)
    def shown(*inputs: Any) -> Any:
        try:
            return function(*inputs)
        except ValueError as error:
            raise gr.Error(str(error), print_exception=False) from error

    return shown


def import_gradio() -> Any:
    """The package gradio; a `ValueError` with the command that installs it."""
    try:
        return importlib.import_module("gradio")
    except ImportError as error:
        raise ValueError('The demonstration needs gradio: pip install -e ".[demo]"') from error


def _bar(share: float) -> str:
    """A bar of at most `_BAR` characters, in steps of an eighth of one."""
    full, eighths = divmod(round(share * _BAR * 8), 8)
    return "█" * full + _EIGHTHS[eighths]


def export_space(folder: str | Path, model_name_or_path: str, **heads: str | None) -> list[Path]:
    """
    Write the folder of a Space, empty or not there before: `app.py`, `requirements.txt`, `README.md` with the Space's
    metadata, and a copy of hf_gpt; the paths of what was written. Nothing is downloaded or sent (`hf upload USER/SPACE
    FOLDER --repo-type space` does). A `ValueError` for a model that is not named by its Hub id (see
    `Demos.from_pretrained`), a folder that is not empty, or gradio not installed, which tells the version.
    """
    folder = Path(folder)
    check_empty(folder, remedy="Name an empty folder, or one that does not exist.")
    names = {"model_name_or_path": model_name_or_path}
    names |= {argument: name for argument, name in heads.items() if name is not None}
    for argument, name in names.items():
        if "/" not in name or not is_hub_id(name):
            raise ValueError(
                f"--{argument} {name}: a Space loads its models from the Hub, so name one as USER/NAME "
                "(scripts/push_to_hub.py puts it there)."
            )
    facts = {"title": model_name_or_path.split("/")[-1], "names": names, "gradio": import_gradio().__version__}
    # What hf_gpt depends on, at the versions that are installed here; the Space installs gradio by itself.
    needed = [name for name in map(Requirement, requires("hf-gpt") or ()) if "extra" not in str(name.marker)]
    facts["packages"] = sorted(f"{package.name}=={Version(version(package.name)).public}" for package in needed)
    shutil.copytree(_PACKAGE, folder / "hf_gpt", ignore=shutil.ignore_patterns("__pycache__"))
    for template in (_PACKAGE / "demo" / "templates").iterdir():
        write_text(folder / template.stem, render_template(template, **facts))
    return sorted(path for path in folder.rglob("*") if path.is_file())
