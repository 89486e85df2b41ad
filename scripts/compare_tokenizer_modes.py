"""
Measures how far the tokenizer's mode `fast` agrees with mode `exact`, and how quick each way is.

    python scripts/compare_tokenizer_modes.py --vocab_dir gpt_bpe --texts books/ more.tar.xz --golden tokenizer.jsonl

Prints Markdown tables. `--golden` names a JSON Lines file with the release's own results (`text`, `source`, `ids`).
"""

import difflib
import json
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import ftfy
import spacy
from tqdm import tqdm
from transformers import HfArgumentParser, OpenAIGPTTokenizer

from hf_gpt.text_files import iter_texts, unwrap_paragraphs
from hf_gpt.tokenization_gpt import GPTTokenizer
from hf_gpt.word_splitting import word_splitter

SENTENCE_END = re.compile(r"(?<=[.!?])[\"'”’)]*\s+")
BATCH = 1000


@dataclass
class CompareArguments:
    vocab_dir: str = field(metadata={"help": "The release's vocabulary and merges, or others of the same format."})
    texts: list[str] = field(default_factory=list, metadata={"help": "Text files, directories and archives of .txt."})
    golden: str | None = field(default=None, metadata={"help": "JSON Lines with text, source and ids."})
    sentences: int = field(default=200_000, metadata={"help": "How many sentences of the texts to compare."})
    timed_sentences: int = field(default=20_000, metadata={"help": "How many sentences to time each way on."})
    examples: int = field(default=15, metadata={"help": "How many kinds of difference to print."})
    seed: int = field(default=0, metadata={"help": "Which sentences are drawn."})


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


def print_table(head: list[str], rows: Iterable[list]) -> None:
    print("| " + " | ".join(head) + " |")
    print("|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join(str(cell).replace("|", "\\|").replace("\n", "\\n") for cell in row) + " |")
    print()


def compare(named: dict[str, tuple[list[str], list[list[int]]]], fast: GPTTokenizer, examples: int) -> None:
    rows, different = [], []
    for name, (texts, expected) in named.items():
        found = encode(fast, texts, f"fast, {name}")
        wrong = [(a, b) for a, b in zip(expected, found, strict=True) if a != b]
        different.extend(wrong)
        rows.append([name, len(texts), len(texts) - len(wrong), f"{1 - len(wrong) / max(1, len(texts)):.3%}"])
    print("## Agreement of fast with exact\n")
    print_table(["texts", "number", "same ids", "share"], rows)
    words = ([fast.decode(ids).split(" ") for ids in pair] for pair in different)
    kinds = count_differences(words).most_common(examples)
    if kinds:
        print("## The most frequent differences\n")
        print_table(["times", "exact", "fast"], [[times, f"`{a}`", f"`{b}`"] for (a, b), times in kinds])


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


def time_ways(exact: GPTTokenizer, fast: GPTTokenizer, texts: list[str]) -> None:
    words = sum(len(text.split()) for text in texts)
    model = json.loads(exact.backend_tokenizer.to_str())["model"]
    stock = OpenAIGPTTokenizer(vocab=model["vocab"], merges=[tuple(pair) for pair in model["merges"]])
    exact("to load ftfy and spaCy")
    word_splitter()._chunks.clear()
    plain = PlainLoop(exact)
    ways: dict[str, Callable] = {
        "exact, cold": exact,
        "exact, warm": exact,
        "fast": fast,
        "stock OpenAIGPTTokenizer": stock,
        "plain loop, cold": plain,
        "plain loop, warm": plain,
    }
    rows = []
    for name, way in tqdm(ways.items(), desc="timing", unit=" ways"):
        start, used = time.perf_counter(), time.process_time()
        way(texts)
        seconds, used = time.perf_counter() - start, time.process_time() - used
        rows.append([name, f"{words / seconds:,.0f}", f"{words / used:,.0f}"])
    print(f"## Speed on {len(texts):,} sentences ({words:,} words between spaces)\n")
    print_table(["way", "words/s", "words per second of processor time"], rows)


def main(arguments: list[str] | None = None) -> None:
    args = HfArgumentParser(CompareArguments).parse_args_into_dataclasses(arguments)[0]
    if not args.texts and args.golden is None:
        raise ValueError("nothing to compare: name texts with --texts or recorded results with --golden")
    golden = [] if args.golden is None else read_golden(args.golden)
    exact, fast = (GPTTokenizer.from_release(args.vocab_dir, mode=mode) for mode in ("exact", "fast"))
    sentences = read_sentences(args.texts, args.sentences, args.seed) if args.texts else []
    named = {}
    for name, corrupted in (("golden, as written", False), ("golden, corrupted", True)):
        rows = [row for row in golden if row["source"].startswith("corrupted_") is corrupted]
        if rows:
            named[name] = [row["text"] for row in rows], [row["ids"] for row in rows]
    if sentences:
        time_ways(exact, fast, sentences[: args.timed_sentences])
        named["sentences"] = sentences, encode(exact, sentences, "exact, sentences")
    compare(named, fast, args.examples)


if __name__ == "__main__":
    try:
        main()
    except ValueError as error:
        sys.exit(f"error: {error}")
