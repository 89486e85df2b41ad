r"""
Measure a language model on texts of any length: perplexity per token and per word, bits per character and byte.

    hf-gpt perplexity --model_name_or_path gpt-mini --file books/ more.txt.xz
    hf-gpt perplexity --model_name_or_path gpt-mini --file lambada.jsonl --last_word true

Per token it is exp(total / predicted tokens), per word exp(total / words), where the total is the negative
log-probability of all tokens but the first of each text (with `--beginning paragraph` of all, the first one after a
full stop and a newline), and words are what white space separates in the text as it is given, so that models with
different tokenizers can be compared. A text longer than the context is read in windows that move by --stride tokens.

With --last_word each row of JSONL or Parquet, or each line of any other file, is a passage, of which the last word is
to be guessed (LAMBADA): how often all its tokens are the likeliest, and exp(mean negative log-probability of words).
"""

import math
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm

from ..files import flag
from ..generation import ReadingArguments, encode, scoring
from ..training.text_files import ROWS, iter_texts
from . import command


@dataclass(kw_only=True)
class PerplexityArguments(ReadingArguments):
    """Which language model, what to measure it on, and where the result goes."""

    file: list[str] | None = flag(None, "Text, JSONL or Parquet files, and folders of them.")
    text_column: str = flag("text", "Column of the text in JSONL and Parquet files.")
    stride: int | None = flag(None, "Tokens by which the window moves over a long text; by default half the context.")
    beginning: str = flag("none", "What stands before each text: nothing, or end of a paragraph.", scoring.BEGINNINGS)
    last_word: bool = flag(False, "Evaluate the last word of each passage alone (LAMBADA).")
    batch_size: int = flag(8, "Rows of text that are read at once.")


@command(__doc__, PerplexityArguments)
def main(args: PerplexityArguments) -> None:
    """Measure, print, write."""
    record = measure(args)
    for name, value in record.items():
        if name not in ("model", "pack", "texts"):
            print(f"{name.replace('_', ' ')}: {f'{value:.4f}' if isinstance(value, float) else value}")
    if args.output_file:
        args.write(record)


def measure(args: PerplexityArguments) -> dict:
    """What the output file holds."""
    texts = [(f"text {n}", text) for n, text in enumerate(args.text or [], 1)]
    # Read first: a file that cannot be read shows before the model is loaded.
    for file in map(Path, args.file or []):
        if args.last_word and not file.name.lower().endswith(ROWS):
            texts += [(f"{file}, line {number}", line) for number, line in enumerate(scoring.read_lines(file), 1)]
        else:
            texts += iter_texts(file, args.text_column)
    model, tokenizer = args.load()
    if args.last_word:
        found = scoring.score_last_words(model, tokenizer, texts, args.batch_size)
        accuracy = sum(each["is_likeliest"] for each in found) / len(found)
        word = scoring.perplexity(sum(each["log_probability"] for each in found), len(found))
        record = {"model": args.model_name_or_path, "passages": len(found), "accuracy": accuracy}
        return record | {"perplexity_per_word": word, "texts": found}
    context = model.config.n_positions
    stride = args.stride or context // 2
    rows = [encode(tokenizer, text) for _, text in tqdm(texts, desc="tokenizing", unit="text")]
    given = [scoring.beginning_ids(tokenizer, args.beginning)] * len(rows)
    scores = scoring.score_texts(model, rows, stride, args.batch_size, given=given)
    predicted = sum(len(score.log_probs) for score in scores)
    if not predicted:
        raise ValueError("The texts have fewer than two tokens each: nothing is predicted in them; give longer ones.")
    records = []
    for (name, text), score in zip(texts, scores, strict=True):
        counts = (len(score.log_probs), len(text.split()), len(text), len(text.encode()))
        records.append({"name": name, "tokens": score.tokens} | _values(score.log_probability, *counts))
    names = ("log_probability", "words", "characters", "bytes")
    total, *sizes = (sum(record[name] for record in records) for name in names)
    settings = {"model": args.model_name_or_path, "pack": args.pack, "context": context, "stride": stride}
    settings |= {"beginning": args.beginning, "predicted_tokens": predicted}
    return settings | _values(total, predicted, *sizes) | {"texts": records}


def _values(total: float, predicted: int, words: int, characters: int, size: int) -> dict:
    counts = {"words": words, "characters": characters, "bytes": size, "log_probability": total}
    perplexities = {"token": scoring.perplexity(total, predicted), "word": scoring.perplexity(total, words)}
    counts |= {f"perplexity_per_{unit}": value for unit, value in perplexities.items()}
    bits = -total / math.log(2)
    return counts | {"bits_per_character": bits / max(characters, 1), "bits_per_byte": bits / max(size, 1)}
