r"""
What every head of every block attends to, and where the heads look on average.

    python scripts/analyze.py attention --model_name_or_path model_cards/gpt-mini \
        --text "She opened the door and ran." --output_dir outputs/attention
    python scripts/analyze.py attention --model_name_or_path outputs/stories --text "It rained on Tom." \
        --choices "He was wet." "He was dry." --output_dir outputs/item
    python scripts/analyze.py attention --model_name_or_path model_cards/gpt-mini --file sentences.txt \
        --output_dir outputs/heads

attention.html shows every head of the first text, or of each choice of an item, to be chosen by mouse or keyboard;
attention.png the same heads as a grid. statistics.png and statistics.json tell of every head, as a mean over all texts
with a bootstrap interval (95%): entropy in bits, distance in tokens, and the shares of its attention on the first
token, the token before, and `_delimiter_`. The first token of a text, which sees itself alone, does not count.
"""

from dataclasses import dataclass
from pathlib import Path

from ...analysis import AnalysisArguments, interval_record, words_of
from ...analysis.attention import STATISTICS, attention_of, path_record, statistics_over
from ...analysis.pages import write_page
from ...analysis.pictures import heads_picture, statistics_picture, write_picture
from ...files import flag
from ...generation import encode
from ...model.tokenization_gpt import GPTTokenizer
from ...trees.token_tree import TokenTree

_LABELS = ("entropy, bits", "distance, tokens", "share: first", "share: previous", "share: delimiter")


@dataclass(kw_only=True)
class Arguments(AnalysisArguments):
    """Which model, which texts or choices, and where the result goes."""

    choices: list[str] | None = flag(None, "Choices of an item behind the one --text, read as in fine-tuning.")
    task_template: bool = flag(False, "Read each text as in fine-tuning: between _start_ and _classify_.")
    max_tokens: int = flag(64, "Tokens of a text that are read and shown at most.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.choices and (self.text is None or len(self.text) != 1):
            raise ValueError("--choices stand behind one --text: give one.")
        if not all(map(str.strip, self.choices or ())):
            raise ValueError("One of the --choices is empty: write something.")


def run(args: Arguments) -> None:
    """Read, count, draw."""
    trees, cut = [], 0
    model, tokenizer = args.load()
    limit = min(args.max_tokens, model.config.n_positions)
    for paths in _paths(args, tokenizer):
        cut += any(len(path) > limit for path in paths)
        trees.append(TokenTree.from_paths([path[:limit] for path in paths]))
    if cut:
        print(f"Of {cut} of {len(trees)} texts only the first {limit} tokens are read (--max_tokens).")
    read = [attention_of(model, tree) for tree in trees]
    folder, first = Path(args.output_dir), read[0]
    names = args.choices or [args.examples[0].text]
    title = f"Attention of {args.name}"
    paths = [path_record(name, path, tokenizer) for name, path in zip(names, first, strict=True)]
    write_page(folder / "attention.html", title, {"paths": paths})
    shown = {"tokens": words_of(tokenizer, first[0].ids), "weights": first[0].weights.tolist()}
    write_picture(folder / "attention.png", heads_picture(first[0].weights.numpy(), title), shown)
    values = statistics_over([path for paths in read for path in paths], tokenizer.sep_token_id, args.seed)
    record = {name: interval_record(each) for name, each in zip(STATISTICS, values, strict=True)}
    write_picture(folder / "statistics.png", statistics_picture(values, _LABELS, title, "heads, by layer"), record)
    for name, (mean, low, high) in zip(STATISTICS, values, strict=True):
        if name in ("first", "previous"):
            layer, head = divmod(int(mean.argmax()), mean.shape[1])
            interval = f"{low[layer, head]:.2f} to {high[layer, head]:.2f}"
            print(f"most on the {name} token: layer {layer}, head {head}: {mean[layer, head]:.2f} ({interval})")


def _paths(args: Arguments, tokenizer: GPTTokenizer) -> list[list[list[int]]]:
    """Token ids of each text, or of each choice behind the one text."""
    start, delimiter, classify = tokenizer.bos_token_id, tokenizer.sep_token_id, tokenizer.cls_token_id
    texts = args.token_ids(tokenizer, fewest=1 if args.choices or args.task_template else 2)
    if args.choices:
        begin = [start, *texts[0], delimiter]
        return [[[*begin, *encode(tokenizer, choice), classify] for choice in args.choices]]
    return [[[start, *ids, classify] if args.task_template else ids] for ids in texts]
