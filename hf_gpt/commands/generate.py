r"""
Continue prompts by several decoding strategies side by side, and compare what they write with human text.

    hf-gpt generate --model_name_or_path gpt-mini --text "She opened the door and"
    hf-gpt generate --model_name_or_path gpt-mini --compare human.txt --max_new_tokens 60

The new tokens' mean log-probability under the model, and the share of new 4-grams that stood there before, come with
each. Where the context is full, its last half becomes the prompt.

With `--compare`, measures of all texts of a strategy next to those of passages of the human text, as many and as long,
after as many tokens of their own: perplexity, distinct-1 and -2, self-BLEU-4, Zipf's coefficient, and the share of
texts that end in a loop (Holtzman et al., 2020), all over tokens. Without prompts, each passage begins with its own.
"""

import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

from ..files import flag
from ..generation import ReadingArguments, encode, print_table
from ..generation.scoring import perplexity, read_lines, score_texts
from ..generation.strategies import Continuation, compare, continue_prompts, passages, strategies
from ..training.text_files import iter_texts
from . import command

_WIDTH = 110
# What the output file holds of a continuation.
_WRITTEN = ("text", "generated", "new_tokens", "mean_log_probability", "repetition")


@dataclass(kw_only=True)
class GenerateArguments(ReadingArguments):
    """Which language model, its prompts (texts), and where the result goes."""

    file: str | None = flag(None, "File of texts, one a line.")
    max_new_tokens: int = flag(40, "Tokens after each prompt.")
    strategy: str | None = flag(None, "One strategy alone; by default all.", [each.flag for each in strategies()])
    num_samples: int = flag(1, "Continuations of each prompt by strategies that draw.")
    seed: int = flag(0, "Of all that is drawn.")
    num_beams: int = flag(4, "Continuations that beam search keeps.")
    top_k: int = flag(40, "Likeliest tokens that top-k sampling draws from.")
    top_p: float = flag(0.9, "Probability that nucleus sampling draws from.")
    typical_p: float = flag(0.95, "Probability that typical sampling draws from.")
    temperature: float = flag(1.0, "What logits are divided by before drawing.")
    batch_size: int = flag(16, "Prompts that are continued at once, if equally long.")
    compare: str | None = flag(None, "Human text to compare with: a file or a folder.")
    text_column: str = flag("text", "With --compare: column of the text in JSONL and Parquet files.")
    passages: int = flag(50, "With --compare and without prompts: passages to continue.")
    prompt_tokens: int = flag(20, "With --compare and without prompts: a prompt's length.")

    def __post_init__(self) -> None:
        if self.compare and not (self.text or self.file):
            self.inputs = ("compare",)  # whose passages are the prompts
        super().__post_init__()
        chosen = strategies(self.num_beams, self.top_k, self.top_p, self.typical_p, self.temperature)
        self.chosen = [each for each in chosen if self.strategy in (None, each.flag)]


@command(__doc__, GenerateArguments)
def main(args: GenerateArguments) -> None:
    """Generate, compare, print, write."""
    texts = read_lines(Path(args.file)) if args.file else args.text or []
    human_texts = [text for _, text in iter_texts(args.compare, args.text_column)] if args.compare else []
    model, tokenizer = args.load()
    longest = max(model.config.n_positions - args.max_new_tokens, model.config.n_positions // 2)
    prompts, human = [], []
    for text in texts:
        ids = encode(tokenizer, text)
        if not ids:
            raise ValueError(f"The prompt {text!r} has no token: write something.")
        if len(ids) > longest:
            start = f"the prompt {textwrap.shorten(text, 40, placeholder='...')!r} has {len(ids):,} tokens"
            print(f"WARNING: {start}; the model reads its last {longest:,}.", file=sys.stderr)
        prompts.append(ids[-longest:])
    if args.compare:
        # As many as each strategy that draws writes texts, and after as many tokens as the longest prompt has.
        count = len(prompts) * args.num_samples or args.passages
        given = max(map(len, prompts), default=args.prompt_tokens)
        ids = [token for text in human_texts for token in encode(tokenizer, text)]
        human = passages(ids, count, given, args.max_new_tokens)
        prompts = prompts or [given[-longest:] for given, _ in human]
    counts = (args.max_new_tokens, args.seed, args.num_samples, args.batch_size)
    found = continue_prompts(model, tokenizer, prompts, args.chosen, *counts)
    results = dict(zip(map(str, args.chosen), found, strict=True))
    record = {"model": args.model_name_or_path, "seed": args.seed}
    if texts:
        _print_side_by_side([tokenizer.decode(prompt) for prompt in prompts], results)
    if args.compare:
        scores = score_texts(model, [new for _, new in human], given=[given for given, _ in human])
        totals = {"Human text": ([new for _, new in human], sum(score.log_probability for score in scores))}
        for name, own in results.items():
            total = sum(each.mean_log_probability * each.new_tokens for each in own)
            totals[name] = ([each.ids for each in own], total)
        record["comparison"] = [
            {"of": name, "texts": len(ids), "perplexity": perplexity(total, sum(map(len, ids))), **compare(ids)}
            for name, (ids, total) in totals.items()
        ]
        print_table(record["comparison"])
    if args.output_file:
        record["strategies"] = [
            {"strategy": name, "continuations": [{key: getattr(each, key) for key in _WRITTEN} for each in own]}
            for name, own in results.items()
        ]
        args.write(record)


def _print_side_by_side(prompts: list[str], results: dict[str, list[Continuation]]) -> None:
    for number, prompt in enumerate(prompts):
        print(f"{textwrap.fill(f'Prompt: {prompt}', _WIDTH)}\n")
        for name, found in results.items():
            copies = len(found) // len(prompts)
            print(name)
            for each in found[number * copies :][:copies]:
                lines = [textwrap.fill(line, _WIDTH - 4) for line in each.generated.splitlines()]
                score = f"mean log-probability {each.mean_log_probability:.2f}, repeated 4-grams {each.repetition:.0%}"
                print(textwrap.indent("\n".join([*lines, f"[{each.new_tokens} tokens, {score}]"]), "    "))
        print()
