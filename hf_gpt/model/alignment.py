"""Tokens, words and character positions of what the tokenizer encoded, in the text as it was given."""

import difflib
import functools
import itertools
import json
import re
from collections.abc import Callable, Iterable, Sequence

from tokenizers import Encoding
from transformers import BatchEncoding

from .word_splitting import PLAIN_CHARACTERS, StringCache, fix_text, fixed_lines, straighten, word_splitter

# difflib's time may grow with the cube of a length, so longer texts are aligned by their places alone.
_MOST_COMPARED = 256


def realigned(encoding: Encoding, offsets_of: Callable[[Encoding], list[tuple[int, int]]]) -> Encoding:
    """An encoding of the `tokenizers` library, and what overflowed from it, with other character positions."""
    state = json.loads(encoding.__getstate__())
    state["offsets"] = offsets_of(encoding)
    state["overflowing"] = [json.loads(realigned(part, offsets_of).__getstate__()) for part in encoding.overflowing]
    found = Encoding()
    found.__setstate__(json.dumps(state).encode())
    return found


def offsets_in(sequences: Sequence[str | Sequence[str]], language: str, encoding: Encoding) -> list[tuple[int, int]]:
    """Positions in the text as given, or in a given word, of an encoding of words; see `align`."""
    texts = {number: align(source, language) for number, source in enumerate(sequences) if isinstance(source, str)}
    given_words, offsets = _given_words(language), []
    for sequence, word, (start, end) in zip(encoding.sequence_ids, encoding.word_ids, encoding.offsets, strict=True):
        if sequence is None:
            offsets.append((0, 0))
            continue
        starts, ends = texts[sequence] if sequence in texts else given_words[sequences[sequence][word]]
        offsets.append((starts[start], ends[end - 1]))
    return offsets


def offsets_in_spaced_words(encoding: Encoding) -> list[tuple[int, int]]:
    """Positions in the words that GPT-2's tokenizer was given: those behind the first had a space put before them."""
    rows = zip(encoding.word_ids, encoding.offsets, strict=True)
    return [(max(start - 1, 0), end - 1) if word else (start, end) for word, (start, end) in rows]


class LazyBatchEncoding(BatchEncoding):
    """A `BatchEncoding` that makes its `encodings` (tokens, words, positions) when they are first asked for."""

    _make_encodings: Callable[[], list[Encoding]] | None = None
    _made_encodings: list[Encoding] | None = None

    @property
    def _encodings(self) -> list[Encoding] | None:
        if self._make_encodings is not None:
            self._made_encodings, self._make_encodings = self._make_encodings(), None
        return self._made_encodings

    @_encodings.setter
    def _encodings(self, encodings: list[Encoding] | None) -> None:
        self._made_encodings, self._make_encodings = encodings, None

    @property
    def is_fast(self) -> bool:
        return self._make_encodings is not None or self._made_encodings is not None


def sequences_of(text, text_pair, is_split_into_words: bool) -> Sequence:
    """The one or two sequences of an input, as `offsets_in` takes them."""
    if text_pair is not None:
        return [text, text_pair]
    if is_split_into_words:
        return text if text and isinstance(text[0], (list, tuple)) else [text]
    return [text] if isinstance(text, str) else text


def is_newline_word(word: str) -> bool:
    """Whether a word that was given stands for a newline."""
    return "\n" in word and word.isspace()


@functools.cache
def _given_words(language: str) -> StringCache:
    """What `align` says of words that were given, of those that stand for a newline where that is."""
    return StringCache(
        lambda word: ([word.index("\n")], [word.rindex("\n") + 1]) if is_newline_word(word) else align(word, language)
    )


def align(text: str, language: str = "en") -> tuple[list[int], list[int]]:
    """
    Where the characters of `WordSplitter()(text)` come from: of each the start and the end of its origin in `text`;
    the spaces between words have an empty one.
    """
    visible, newlines = [], []
    newline = None
    for character, start, end in _fixed_characters(text):
        if character == "\n":
            newline = (newline[0] if newline else start, end)
        elif not character.isspace():
            if newline and visible:
                newlines.append(newline)
            newline = None
            visible.extend([(start, end)] * len(character.translate(PLAIN_CHARACTERS).lower()))
    words = word_splitter(language)(text)
    visible, newlines = iter(visible), iter(newlines)
    starts, ends = [], []
    for character in words:
        if character == " ":
            start = end = ends[-1]  # never asked for: no piece begins or ends with a space
        else:
            start, end = next(newlines if character == "\n" else visible)
        starts.append(start)
        ends.append(end)
    return starts, ends


def _fixed_characters(text: str) -> Iterable[tuple[str, int, int]]:
    if fix_text(text) == text:
        yield from ((character, index, index + 1) for index, character in enumerate(text))
        return
    base = 0
    for before, after in fixed_lines(text):
        if before == after or straighten(before) == after:
            yield from ((character, base + index, base + index + 1) for index, character in enumerate(after))
        else:
            for character, (start, end) in zip(after, _spans_in(before, after), strict=True):
                yield character, base + start, base + end
        base += len(before)


def _spans_in(before: str, after: str) -> list[tuple[int, int]]:
    # First whole words, then the characters of the words that differ: fast on long lines.
    spans = []
    words_before, words_after = (re.findall(r"\s*\S+|\s+$", side) for side in (before, after))
    starts_before, starts_after = ([0, *itertools.accumulate(map(len, side))] for side in (words_before, words_after))
    for tag, b_start, b_end, a_start, a_end in _differences(words_before, words_after):
        start, end = starts_before[b_start], starts_before[b_end]
        changed = after[starts_after[a_start] : starts_after[a_end]]
        if tag == "equal":
            spans.extend((index, index + 1) for index in range(start, end))
            continue
        for _, b_from, b_to, a_from, a_to in _differences(before[start:end], changed):
            if b_to - b_from == a_to - a_from:
                spans.extend((start + index, start + index + 1) for index in range(b_from, b_to))
            else:
                spans.extend([(start + b_from, start + b_to)] * (a_to - a_from))
    return spans


def _differences(before: Sequence[str], after: Sequence[str]) -> list[tuple[str, int, int, int, int]]:
    if max(len(before), len(after)) > _MOST_COMPARED:
        return _rough_differences(before, after)
    return difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes()


def _rough_differences(before: Sequence[str], after: Sequence[str]) -> list[tuple[str, int, int, int, int]]:
    if len(before) == len(after):
        pairs = enumerate(zip(before, after, strict=True))
        return [("equal" if old == new else "replace", i, i + 1, i, i + 1) for i, (old, new) in pairs]
    shorter = min(len(before), len(after))
    same = next((i for i in range(shorter) if before[i] != after[i]), shorter)
    return [("equal", 0, same, 0, same), ("replace", same, len(before), same, len(after))]
