r"""
Learn a BPE vocabulary behind the release's word splitting and write it in the release's format.

    hf-gpt train-tokenizer --text_files books/ more_books.txt.xz --vocab_size 8000 --output_dir outputs/my_tokenizer

The output folder holds `encoder_bpe_8000.json` and `vocab_8000.bpe`, as the release's files are, and next to them
what `AutoTokenizer.from_pretrained` loads.
"""

import json
import os
import string
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from tqdm import tqdm

from ..conversion.tokenizers import release_tokenizer
from ..conversion.word_rules import word_rules
from ..files import check_empty, flag
from ..model.tokenization_gpt import END_OF_WORD, english_rules, show_rules, word_splitter
from ..training.text_files import iter_texts, unwrap_paragraphs
from . import command

UNKNOWN, NEWLINE = "<unk>", "\n" + END_OF_WORD
ASCII = {chr(code) for code in range(0x21, 0x7F)} - set(string.ascii_uppercase)


@dataclass
class TrainTokenizerArguments:
    """What to read and to write."""

    text_files: list[str] = flag(help="Text, JSONL or Parquet files, folders, and .xz, .gz, tar or zip files of .txt.")
    output_dir: str = flag(help="Where to write the vocabulary and the tokenizer.")
    text_column: str = flag("text", "Column of the text in JSONL and Parquet files.")
    language: str = flag("en", "Whose words, such as de: spaCy's rules are saved with the tokenizer.")
    vocab_size: int = flag(8000, "Rows of the vocabulary, without the special tokens.")
    min_character_count: int = flag(100, "Characters outside ASCII seen less often become unknown.")
    min_texts: int = flag(1, "Learn merges only from words seen in so many texts; 5 keeps one book's names out.")
    unwrap: bool = flag(True, "Join the lines of hard-wrapped paragraphs first.")
    overwrite_output_dir: bool = flag(False, "Write into a folder that is not empty.")


def learn_vocab(
    word_counts: dict[str, int], vocab_size: int, min_character_count: int
) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """
    Vocabulary and merges, laid out as the release does: the unknown token, the characters, these with the end mark,
    the merges in order, the newline. Characters outside ASCII that are seen less often than `min_character_count` are
    left out, with their words. A `ValueError` where the size leaves no merges, or the words do not yield enough.
    """
    seen = Counter(dict.fromkeys(ASCII, 0))
    for word, count in word_counts.items():
        seen.update({character: count * word.count(character) for character in word})
    ranked = sorted(seen, key=lambda character: (-seen[character], character))
    characters = [character for character in ranked if character in ASCII or seen[character] >= min_character_count]
    known = set(characters)
    base = [UNKNOWN, *characters, *(character + END_OF_WORD for character in characters)]
    if vocab_size <= len(base) + 1:
        needed = f"{len(characters)} characters and the newline need {len(base) + 1} rows"
        hint = f"raise it, or raise --min_character_count above {min_character_count}"
        raise ValueError(f"--vocab_size {vocab_size} is too small for merges: {needed}; {hint}")
    repeated = (  # the trainer counts words itself and takes no counts
        " ".join([word] * min(10_000, count - start))
        for word, count in tqdm(word_counts.items(), desc="feeding the trainer", unit=" words")
        for start in range(0, count if known >= set(word) else 0, 10_000)
    )
    learner = Tokenizer(models.BPE(unk_token=UNKNOWN, end_of_word_suffix=END_OF_WORD))
    learner.pre_tokenizer = pre_tokenizers.Split(" ", behavior="removed")
    # Given as special tokens, the characters get the first ids, and equal counts are settled the same way in each run.
    settings = {"special_tokens": base, "end_of_word_suffix": END_OF_WORD, "show_progress": sys.stderr.isatty()}
    learner.train_from_iterator(repeated, trainers.BpeTrainer(vocab_size=vocab_size - 1, **settings))
    model = json.loads(learner.to_str())["model"]
    vocab = dict(sorted(model["vocab"].items(), key=lambda item: item[1]))
    if len(vocab) < vocab_size - 1:
        hint = f"give more text or lower --vocab_size {vocab_size}"
        raise ValueError(f"the texts yield at most {len(vocab) + 1} rows; {hint}")
    return vocab | {NEWLINE: len(vocab)}, [tuple(merge) for merge in model["merges"]]


def train(args: TrainTokenizerArguments) -> None:
    """Count words, learn merges, and write the release's two files and the tokenizer, all of them or none."""
    output_dir = Path(args.output_dir)
    check_empty(output_dir, args.overwrite_output_dir)
    words = None if args.language == "en" else word_rules(args.language)
    split = word_splitter(show_rules(words) if words else english_rules())
    counts, seen_in = Counter(), Counter()
    for _, text in tqdm(iter_texts(args.text_files, args.text_column), desc="counting words", unit=" texts"):
        found = Counter(split(unwrap_paragraphs(text) if args.unwrap else text).split(" "))
        counts.update(found)
        seen_in.update(found.keys())
    kept = {word: n for word, n in counts.items() if word not in ("", "\n") and seen_in[word] >= args.min_texts}
    if not kept:
        raise ValueError(f"no words seen in {args.min_texts} or more texts of {', '.join(args.text_files)}")
    vocab, merges = learn_vocab(kept, args.vocab_size, args.min_character_count)
    output_dir.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{output_dir.name}.", dir=output_dir.parent) as folder:
        lines = ["#version: 0.2", *(" ".join(merge) for merge in merges), ""]
        Path(folder, f"vocab_{len(vocab)}.bpe").write_text("\n".join(lines), encoding="utf-8", newline="\n")
        Path(folder, f"encoder_bpe_{len(vocab)}.json").write_text(json.dumps(vocab), encoding="utf-8")
        release_tokenizer(Path(folder), words=words).save_pretrained(folder)
        output_dir.mkdir(exist_ok=True)
        for stale in (*output_dir.glob("encoder_bpe_*.json"), *output_dir.glob("vocab_*.bpe")):
            stale.unlink()
        for path in sorted(Path(folder).iterdir()):
            os.replace(path, output_dir / path.name)
    print(f"{sum(kept.values()):,} words, {len(kept):,} distinct -> {len(merges)} merges in {output_dir}")


main = command(__doc__, TrainTokenizerArguments)(train)
