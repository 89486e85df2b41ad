"""Tokens, words and character positions of what the tokenizer encoded, in the text as it was given."""

import difflib
import functools
import itertools
import re
from collections.abc import Callable, Iterable, Sequence

from transformers import BatchEncoding

from .word_splitting import PLAIN_CHARACTERS, fix_text, fixed_lines, straighten, word_splitter

# difflib's time may grow with the cube of a length, so longer texts are aligned by their places alone.
_MOST_COMPARED = 256


class AlignedEncoding:
    """
    An `Encoding` of the `tokenizers` library, of the words of one or two sequences (texts, or lists of words), whose
    character positions are those of the text as given. They are computed when first asked for; everything else is the
    wrapped encoding's.
    """

    def __init__(self, encoding, sequences: Sequence[str | Sequence[str]], language: str = "en"):
        self._encoding = encoding
        self._sequences = sequences
        self._language = language
        self._offsets = None

    def __getattr__(self, name: str):
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._encoding, name)

    def __len__(self) -> int:
        return len(self._encoding)

    def __repr__(self) -> str:
        return repr(self._encoding)

    @property
    def overflowing(self) -> list["AlignedEncoding"]:
        return [AlignedEncoding(encoding, self._sequences, self._language) for encoding in self._encoding.overflowing]

    @property
    def offsets(self) -> list[tuple[int, int]]:
        if self._offsets is None:
            self._offsets = self._compute_offsets()
        return self._offsets

    def _compute_offsets(self) -> list[tuple[int, int]]:
        aligned = functools.cache(self._align)
        encoding = self._encoding
        offsets = []
        for sequence, word, (start, end) in zip(
            encoding.sequence_ids, encoding.word_ids, encoding.offsets, strict=True
        ):
            if sequence is None:
                offsets.append((0, 0))
            else:
                starts, ends = aligned(sequence, None if isinstance(self._sequences[sequence], str) else word)
                offsets.append((starts[start], ends[end - 1]))
        return offsets

    def _align(self, sequence: int, word: int | None) -> tuple[list[int], list[int]]:
        source = self._sequences[sequence]
        return align(source, self._language) if word is None else _align_given_word(source[word], self._language)

    def token_to_chars(self, token_index: int) -> tuple[int, int] | None:
        return None if self._encoding.token_to_sequence(token_index) is None else self.offsets[token_index]

    def char_to_token(self, char_pos: int, sequence_index: int = 0) -> int | None:
        for index, (sequence, (start, end)) in enumerate(zip(self._encoding.sequence_ids, self.offsets, strict=True)):
            if sequence == sequence_index and start <= char_pos < end:
                return index
        return None

    def word_to_chars(self, word_index: int, sequence_index: int = 0) -> tuple[int, int] | None:
        tokens = self._encoding.word_to_tokens(word_index, sequence_index)
        return None if tokens is None else (self.offsets[tokens[0]][0], self.offsets[tokens[1] - 1][1])

    def char_to_word(self, char_pos: int, sequence_index: int = 0) -> int | None:
        token = self.char_to_token(char_pos, sequence_index)
        return None if token is None else self._encoding.word_ids[token]


class GivenWordsEncoding(AlignedEncoding):
    """
    An `Encoding` of GPT-2's tokenizer for words that were given: those behind the first had a space put before them.
    """

    def __init__(self, encoding):
        super().__init__(encoding, ())

    @property
    def overflowing(self) -> list[AlignedEncoding]:
        return [GivenWordsEncoding(encoding) for encoding in self._encoding.overflowing]

    def _compute_offsets(self) -> list[tuple[int, int]]:
        rows = zip(self._encoding.word_ids, self._encoding.offsets, strict=True)
        return [(max(start - 1, 0), end - 1) if word else (start, end) for word, (start, end) in rows]


class LazyBatchEncoding(BatchEncoding):
    """A `BatchEncoding` that makes its `encodings` (tokens, words, positions) when they are first asked for."""

    _make_encodings: Callable[[], list[AlignedEncoding]] | None = None
    _made_encodings: list[AlignedEncoding] | None = None

    @property
    def _encodings(self) -> list[AlignedEncoding] | None:
        if self._make_encodings is not None:
            self._made_encodings, self._make_encodings = self._make_encodings(), None
        return self._made_encodings

    @_encodings.setter
    def _encodings(self, encodings: list[AlignedEncoding] | None) -> None:
        self._made_encodings, self._make_encodings = encodings, None

    @property
    def is_fast(self) -> bool:
        return self._make_encodings is not None or self._made_encodings is not None


def sequences_of(text, text_pair, is_split_into_words: bool) -> Sequence:
    """The one or two sequences of an input, as `AlignedEncoding` takes them."""
    if text_pair is not None:
        return [text, text_pair]
    if is_split_into_words:
        return text if text and isinstance(text[0], (list, tuple)) else [text]
    return [text] if isinstance(text, str) else text


def is_newline_word(word: str) -> bool:
    """Whether a word that was given stands for a newline."""
    return "\n" in word and word.isspace()


def _align_given_word(word: str, language: str) -> tuple[list[int], list[int]]:
    return ([word.index("\n")], [word.rindex("\n") + 1]) if is_newline_word(word) else align(word, language)


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
