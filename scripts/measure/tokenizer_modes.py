r"""
Measures how far the tokenizer's mode `fast` agrees with mode `exact`, and how quick each way is.

    python scripts/measure/tokenizer_modes.py --vocab_dir gpt_bpe --texts books/ more.tar.xz \
        --golden tokenizer.jsonl --output_dir outputs/tokenizer_modes

Prints Markdown tables and writes them to `results.md`, and the numbers to `results.json`. `--golden` names a JSON
Lines file with the release's own results (`text`, `source`, `ids`).

Each way is timed on three stretches of sentences drawn from all texts, in this order: the first text, with empty
caches; as much new text, where caches fill as they go; and that new text once more.
"""

import copy
import difflib
import json
import os
import random
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path

import ftfy
import spacy
from tokenizers import pre_tokenizers
from tqdm import tqdm
from transformers import OpenAIGPTTokenizer, PreTrainedTokenizerFast

from hf_gpt.commands import command, parse_arguments
from hf_gpt.conversion.fast_tokenizer import fast_tokenizer
from hf_gpt.conversion.tokenizers import release_tokenizer
from hf_gpt.files import flag, write_json, write_text
from hf_gpt.model.tokenization_gpt import GPTTokenizer
from hf_gpt.model.word_splitting import WordSplitter, fix_text, word_splitter
from hf_gpt.training.text_files import iter_texts, unwrap_paragraphs

SENTENCE_END = re.compile(r"(?<=[.!?])[\"'”’)]*\s+")
BATCH = 1000


@dataclass
class CompareArguments:
    """What to compare."""

    vocab_dir: str = flag(help="The release's vocabulary and merges, or others of the same format.")
    texts: list[str] = flag([], "Text files, directories and archives of .txt.")
    golden: str | None = flag(None, "JSON Lines with text, source and ids.")
    sentences: int = flag(200_000, "How many sentences of the texts to compare.")
    timed_sentences: int = flag(20_000, "How many sentences a timed stretch has.")
    examples: int = flag(15, "How many kinds of difference to print.")
    seed: int = flag(0, "Which sentences are drawn.")
    output_dir: str | None = flag(None, "Where to write results.json and results.md.")


def read_sentences(paths: list[str], count: int, seed: int) -> list[str]:
    """Draws sentences evenly from all texts, each kept with equal chance."""
    chosen, seen, generator = [], 0, random.Random(seed)
    for _, text in tqdm(iter_texts(paths), desc="reading", unit=" texts"):
        for paragraph in unwrap_paragraphs(text).split("\n"):
            for sentence in SENTENCE_END.split(paragraph):
                if not sentence.strip():
                    continue
                seen += 1
                if len(chosen) < count:
                    chosen.append(sentence)
                elif (place := generator.randrange(seen)) < count:
                    chosen[place] = sentence
    generator.shuffle(chosen)
    return chosen


def read_golden(path: str) -> list[dict]:
    if not Path(path).is_file():
        raise ValueError(f"--golden {path}: no such file")
    rows = []
    for number, line in enumerate(Path(path).read_text(encoding="utf-8").split("\n"), start=1):
        if not line:
            continue
        try:
            row = json.loads(line)
            rows.append({key: row[key] for key in ("text", "source", "ids")})
        except (json.JSONDecodeError, KeyError, TypeError) as error:
            raise ValueError(f"{path}, line {number}: expected an object with text, source and ids") from error
    return rows


def encode(tokenizer, texts: list[str], description: str) -> list[list[int]]:
    ids = []
    for start in tqdm(range(0, len(texts), BATCH), desc=description, unit=" batches"):
        ids.extend(tokenizer(texts[start : start + BATCH], add_special_tokens=False)["input_ids"])
    return ids


def count_differences(pairs: Iterable[tuple[list[str], list[str]]]) -> Counter:
    kinds = Counter()
    for expected, found in pairs:
        for tag, e_start, e_end, f_start, f_end in difflib.SequenceMatcher(
            None, expected, found, autojunk=False
        ).get_opcodes():
            if tag != "equal":
                kinds[" ".join(expected[e_start:e_end]), " ".join(found[f_start:f_end])] += 1
    return kinds


def table(title: str, head: list[str], rows: Iterable[list]) -> str:
    lines = [f"## {title}\n", "| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for row in rows:
        lines.append("| " + " | ".join(str(cell).replace("|", "\\|").replace("\n", "\\n") for cell in row) + " |")
    return "\n".join([*lines, ""])


def compare(named: dict[str, tuple[list[str], list[list[int]]]], fast: PreTrainedTokenizerFast, examples: int) -> dict:
    agreement, different = {}, []
    for name, (texts, expected) in named.items():
        found = encode(fast, texts, f"fast, {name}")
        wrong = [(a, b) for a, b in zip(expected, found, strict=True) if a != b]
        different.extend(wrong)
        same = len(texts) - len(wrong)
        agreement[name] = {"number": len(texts), "same": same, "share": same / max(1, len(texts))}
    words = ([fast.decode(ids).split(" ") for ids in pair] for pair in different)
    kinds = count_differences(words).most_common(examples)
    return {
        "agreement": agreement,
        "differences": [{"times": times, "exact": a, "fast": b} for (a, b), times in kinds],
    }


class PlainLoop:
    """ftfy, clean-up, spaCy and BPE as one would first write them; a cache of words, as in the release."""

    def __init__(self, tokenizer: GPTTokenizer):
        model = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
        self.vocab = model["vocab"]
        self.ranks = {tuple(pair): rank for rank, pair in enumerate(model["merges"])}
        self.split = spacy.blank("en").tokenizer
        self.cache = {}

    def clean(self, text: str) -> str:
        text = ftfy.fix_text(text)
        for character, plain in (("—", "-"), ("–", "-"), ("―", "-"), ("…", "..."), ("´", "'")):
            text = text.replace(character, plain)
        text = re.sub(r'(-+|~+|!+|"+|;+|\?+|\++|,+|\)+|\(+|/+|\*+|\[+|\]+|}+|{+|\|+|_+)', r" \1 ", text)
        text = re.sub(r"\s*\n\s*", " \n ", text)
        return re.sub(r"[^\S\n]+", " ", text).strip()

    def merge(self, word: str) -> list[str]:
        pieces = [*word[:-1], word[-1] + "</w>"]
        while len(pieces) > 1:
            best = min(pairwise(pieces), key=lambda pair: self.ranks.get(pair, len(self.ranks)))
            if best not in self.ranks:
                break
            merged, place = [], 0
            while place < len(pieces):
                width = 2 if tuple(pieces[place : place + 2]) == best else 1
                merged.append("".join(pieces[place : place + width]))
                place += width
            pieces = merged
        return pieces

    def encode_word(self, word: str) -> list[int]:
        if word not in self.cache:
            pieces = ["\n</w>"] if word.isspace() else self.merge(word)
            self.cache[word] = [self.vocab.get(piece, 0) for piece in pieces]
        return self.cache[word]

    def __call__(self, texts: list[str]) -> list[list[int]]:
        return [
            [index for token in self.split(self.clean(text)) for index in self.encode_word(token.text.lower())]
            for text in texts
        ]


@contextmanager
def threads(parallel: bool) -> Iterator[None]:
    """The library reads the variable at every call."""
    before = os.environ.get("TOKENIZERS_PARALLELISM")
    os.environ["TOKENIZERS_PARALLELISM"] = str(parallel).lower()
    try:
        yield
    finally:
        del os.environ["TOKENIZERS_PARALLELISM"]
        if before is not None:
            os.environ["TOKENIZERS_PARALLELISM"] = before


def seconds(function: Callable, batches: Iterable) -> dict[str, float]:
    start, used = time.perf_counter(), time.process_time()
    for batch in batches:
        function(batch)
    return {"wall": time.perf_counter() - start, "processor": time.process_time() - used}


def time_ways(exact: GPTTokenizer, fast: PreTrainedTokenizerFast, first: list[str], new: list[str]) -> dict:
    model = json.loads(exact.backend_tokenizer.to_str())["model"]
    stock = OpenAIGPTTokenizer(vocab=model["vocab"], merges=[tuple(pair) for pair in model["merges"]])
    for tokenizer in (exact, fast, stock):
        tokenizer("to load all libraries")
    ways: dict[str, tuple[Callable, bool]] = {
        "exact": (exact, False),
        "fast": (fast, False),
        "fast, all threads": (fast, True),
        "stock openai-gpt": (stock, False),
        "stock openai-gpt, all threads": (stock, True),
        "plain loop": (PlainLoop(exact), False),
    }
    stretches = {"first text": first, "new text": new, "seen text": new}
    speed = {}
    for name, (way, parallel) in tqdm(ways.items(), desc="timing", unit=" ways"):
        with threads(parallel):
            speed[name] = {}
            for stretch, texts in stretches.items():
                batches = [texts[start : start + BATCH] for start in range(0, len(texts), BATCH)]
                words = sum(len(text.split()) for text in texts)
                taken = seconds(way, batches)
                speed[name][stretch] = {f"words per {kind} second": words / used for kind, used in taken.items()}
    return speed


def profile(exact: GPTTokenizer, fast: PreTrainedTokenizerFast, texts: list[str]) -> dict[str, dict[str, float]]:
    """Microseconds of processor time for a word, by part, of texts seen for the first time."""
    splitter = WordSplitter()
    exact_backend, fast_backend = exact.backend_tokenizer, fast.backend_tokenizer
    copied = GPTTokenizer(tokenizer_object=exact_backend)
    chunks = sorted({chunk for text in texts for chunk in fix_text(text).split()})
    pieces = {word for chunk in chunks for word in (splitter.split_chunk(chunk) or "").split(" ")}
    normalized = [fast_backend.normalizer.normalize_str(text) for text in texts]
    bare = copy.deepcopy(exact_backend)
    bare.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    words = sum(len(text.split()) for text in texts)

    def micros(function: Callable, items: Iterable) -> float:
        return 1e6 * seconds(function, items)["processor"] / words

    with threads(False):
        exact_parts = {
            "ftfy or the tests that stand for it": micros(fix_text, texts),
            "white space": micros(str.split, texts),
            "clean-up and spaCy on new chunks": micros(WordSplitter().split_chunk, chunks),
            "BPE of new words": micros(copy.deepcopy(exact_backend).model.tokenize, pieces),
        }
        word_splitter.cache_clear()
        word_splitter("en")
        whole = micros(copied, [texts])
        exact_parts["look-ups, lists and the rest"] = whole - sum(exact_parts.values())
        fast_parts = {
            "normalizer (clean-up, words)": micros(fast_backend.normalizer.normalize_str, texts),
            "BPE on ready words, cheapest pre-tokenizer": micros(bare.encode_batch, [normalized]),
        }
        whole = micros(fast, [texts])
        fast_parts["pre-tokenizer and the rest"] = whole - sum(fast_parts.values())
    return {"exact": exact_parts, "fast": fast_parts}


def tables(results: dict) -> str:
    parts = []
    if "speed" in results:
        stretches = ["first text", "new text", "seen text"]
        for kind in ("processor", "wall"):
            rows = [
                [way, *(f"{timed[stretch][f'words per {kind} second'] / 1000:,.0f}" for stretch in stretches)]
                for way, timed in results["speed"].items()
            ]
            size = f"stretches of {results['timed_sentences']:,} sentences"
            parts.append(table(f"Thousand words per second, {kind} time, {size}", ["way", *stretches], rows))
        rows = [
            [way, part, f"{micros:.2f}", f"{micros / sum(shares.values()):.0%}"]
            for way, shares in results["profile"].items()
            for part, micros in shares.items()
        ]
        head = ["way", "part", "microseconds a word", "share"]
        parts.append(table("Where the time goes on text seen for the first time", head, rows))
    rows = [
        [name, found["number"], found["same"], f"{found['share']:.3%}"] for name, found in results["agreement"].items()
    ]
    parts.append(table("Agreement of fast with exact", ["texts", "number", "same ids", "share"], rows))
    rows = [[kind["times"], f"`{kind['exact']}`", f"`{kind['fast']}`"] for kind in results["differences"]]
    if rows:
        parts.append(table("The most frequent differences", ["times", "exact", "fast"], rows))
    return "\n".join(parts)


@command()
def main() -> None:
    """Compare, time, print and write."""
    (args,) = parse_arguments((CompareArguments,), description=__doc__)
    if not args.texts and args.golden is None:
        raise ValueError("nothing to compare: name texts with --texts or recorded results with --golden")
    golden = [] if args.golden is None else read_golden(args.golden)
    exact = release_tokenizer(args.vocab_dir)
    fast = fast_tokenizer(exact)
    wanted = max(args.sentences, 2 * args.timed_sentences)
    sentences = read_sentences(args.texts, wanted, args.seed) if args.texts else []
    named, results = {}, {}
    for name, corrupted in (("golden, as written", False), ("golden, corrupted", True)):
        rows = [row for row in golden if row["source"].startswith("corrupted_") is corrupted]
        if rows:
            named[name] = [row["text"] for row in rows], [row["ids"] for row in rows]
    if sentences:
        size = min(args.timed_sentences, len(sentences) // 2)
        first, new = sentences[:size], sentences[size : 2 * size]
        results = {
            "versions": {name: version(name) for name in ("tokenizers", "transformers", "spacy", "ftfy")},
            "timed_sentences": size,
            "speed": time_ways(exact, fast, first, new),
            "profile": profile(exact, fast, first),
        }
        compared = sentences[: args.sentences]
        named["sentences"] = compared, encode(exact, compared, "exact, sentences")
    results.update(compare(named, fast, args.examples))
    text = tables(results)
    print(text)
    if args.output_dir is not None:
        output = Path(args.output_dir)
        write_json(output / "results.json", results)
        write_text(output / "results.md", text)


if __name__ == "__main__":
    main()
