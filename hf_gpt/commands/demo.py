"""
Look at models in the browser: generation, next tokens, each position, attention, importance, choices, classes, tags.

    hf-gpt demo --model_name_or_path gpt-mini
    hf-gpt demo --classifier outputs/questions --port 7861

It needs gradio (`pip install -e ".[demo]"`), answers on this machine alone, and sends nothing anywhere.
"""

from dataclasses import dataclass

from ..demo import HEADS, build_app
from ..files import flag
from . import command


@dataclass
class DemoArguments:
    """What to show, and where."""

    model_name_or_path: str | None = flag(None, "Folder or Hub id of a language model.")
    classifier: str | None = flag(None, "Folder or Hub id of a fine-tuned classifier, or of an adapter.")
    multiple_choice: str | None = flag(None, "Folder or Hub id of a model fine-tuned for it, or of an adapter.")
    tagger: str | None = flag(None, "Folder or Hub id of a model fine-tuned on labels of words.")
    fill_mask: str | None = flag(None, "Folder or Hub id of a masked language model.")
    question_answering: str | None = flag(None, "Folder or Hub id of a model fine-tuned on questions of passages.")
    port: int | None = flag(None, "By default the first free one from 7860.")


@command(__doc__, DemoArguments)
def main(args: DemoArguments) -> None:
    """Load the models and serve the page."""
    heads = {name: getattr(args, name) for name in HEADS}
    build_app(args.model_name_or_path, **heads).launch(server_port=args.port, show_error=True)
