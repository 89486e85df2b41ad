"""
The release's words: ftfy, clean-up, spaCy's English word splitter and lower case, in that order.

`word_splitter()` is the quick way behind a cache, `split_words` the plain one; `ChunkIds` goes on to the ids of the
words, and `align` tells where each character of the words comes from.
"""

import difflib
import functools
import itertools
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

# ftfy returns ASCII text without these characters as it is: every fixer of it concerns other characters, HTML entities
# (&), control characters, or carriage returns.
_MAY_CHANGE = re.compile(r"[^\t\n\x0c\x20-\x25\x27-\x7e]")
# The same holds for text that has typographer's quotation marks, dashes and the ellipsis besides, once the marks are
# made straight: none of them next to each other or to ASCII counts as mojibake for ftfy.
_MAY_CHANGE_BUT_FOR_TYPOGRAPHY = re.compile("[^\t\n\x0c\x20-\x25\x27-\x7e\u2013\u2014\u2018\u2019\u201c\u201d\u2026]")
# Nor does ftfy touch Latin-1's letters and signs besides, where it sees no mojibake (`ftfy.is_bad`).
_MAY_CHANGE_BUT_FOR_LATIN_1 = re.compile(
    "[^\t\n\x0c\x20-\x25\x27-\x7e\xa1-\xff\u2013\u2014\u2018\u2019\u201c\u201d\u2026]"
)
# difflib's time may grow with the cube of a length, so longer texts are aligned by their places alone.
_MOST_COMPARED = 256
# ftfy treats longer lines in pieces of this size.
_FTFY_SEGMENT = 1_000_000

_PLAIN_CHARACTERS = str.maketrans(
    {"\u2014": "-", "\u2013": "-", "\u2015": "-", "\u2026": "...", "\u00b4": "'"}  # em dash, en dash, bar, ..., acute
)
# A run of one and the same of these characters becomes a word of its own. The backslash is not among them: the
# release's pattern loses it to string escaping.
_PUNCTUATION_RUN = re.compile(r'([-~!";?+,)(/*\[\]}{|_])\1*')
# Unless a special case says otherwise, spaCy takes these apart where the groups say: no prefix or infix begins with an
# ASCII letter alone, the suffixes here are 's and a full stop behind a lower-case letter, and none of these is a URL.
_PLAIN_PART = re.compile(r"([A-Za-z]+)('s)?|([A-Za-z]*[a-z])(\.)")
# spaCy looks at all that is left of a chunk for every affix, and all its affixes but runs of full stops are short: of
# a longer chunk, each affix is looked for in so many characters.
_AFFIX_WINDOW = 16
# Longer strings are seldom seen again.
_LONGEST_CACHED = 64


def fix_text(text: str) -> str:
    """
    What `ftfy.fix_text` returns with its defaults, without asking ftfy about lines that it is known not to touch.

    Args:
        text (`str`): any text.

    Returns:
        `str`: the same as `ftfy.fix_text(text)`.
    """
    # The first test is of no other text than the second, but several times as quick.
    if (text.isascii() and text.isprintable() and "&" not in text) or _MAY_CHANGE.search(text) is None:
        return text
    if _MAY_CHANGE_BUT_FOR_TYPOGRAPHY.search(text) is None:
        return _straighten(text)
    return "".join(fixed for _, fixed in _fixed_lines(text))


def _fixed_lines(text: str) -> Iterable[tuple[str, str]]:
    ftfy, _ = _libraries()
    unescape_html = "auto"
    for line in re.findall(r"[^\n]*\n|[^\n]+", text):
        for start in range(0, len(line), _FTFY_SEGMENT):
            segment = line[start : start + _FTFY_SEGMENT]
            # ftfy stops unescaping entities for the rest of the text at the first <.
            if "<" in segment:
                unescape_html = False
            straight = _straighten(segment)
            # ftfy looks for mojibake again once it has made the marks straight.
            if _MAY_CHANGE_BUT_FOR_TYPOGRAPHY.search(segment) is None or (
                _MAY_CHANGE_BUT_FOR_LATIN_1.search(segment) is None
                and not ftfy.is_bad(segment)
                and not ftfy.is_bad(straight)
            ):
                yield segment, straight
            else:
                yield segment, ftfy.fix_text(segment, unescape_html=unescape_html)


def _straighten(text: str) -> str:
    for curly, straight in (("\u2018", "'"), ("\u2019", "'"), ("\u201c", '"'), ("\u201d", '"')):
        text = text.replace(curly, straight)  # much quicker than str.translate
    return text


def standardize_text(text: str) -> str:
    """
    ftfy and the release's clean-up: plain dashes, dots and apostrophes; a space on both sides of each run of
    punctuation; white space around newlines made space, newline, space, and every other run of it one space.

    Args:
        text (`str`): any text.

    Returns:
        `str`: the text as spaCy gets it.
    """
    lines = (" ".join(_clean_line(line).split()) for line in fix_text(text).split("\n"))
    return " \n ".join(line for line in lines if line)


def _clean_line(line: str) -> str:
    line = line if line.isascii() else line.translate(_PLAIN_CHARACTERS)
    # A function, as Python's own template is slower.
    return _PUNCTUATION_RUN.sub(lambda run: f" {run[0]} ", line)


def split_words(text: str) -> list[str]:
    """
    The words of a text as the release splits them, before lower-casing. This is the plain way, one pass of spaCy over
    the standardised text; the tokenizer itself gets the same words from `WordSplitter`.

    Args:
        text (`str`): any text.

    Returns:
        `list[str]`: the words; a newline is the word newline and space.
    """
    return [token.text for token in word_splitter().spacy_tokenizer(standardize_text(text))]


@functools.cache
def _libraries():
    try:
        import ftfy
        import spacy
    except ImportError as error:
        raise ImportError("exact mode needs ftfy and spaCy: pip install ftfy spacy") from error
    return ftfy, spacy


@functools.cache
def word_splitter() -> "WordSplitter":
    """The process's one `WordSplitter`."""
    return WordSplitter()


class StringCache(dict):
    """
    A function's results by its argument, a string. It is emptied when full and keeps no long strings, so that memory
    stays bounded.

    Args:
        function (`Callable`): what is called on new strings.
        limit (`int`, *optional*, defaults to 131072): how many results to keep.
    """

    def __init__(self, function: Callable[[str], Any], limit: int = 1 << 17):
        super().__init__()
        self.function = function
        self.limit = limit

    def __missing__(self, key: str) -> Any:
        result = self.function(key)
        if len(key) <= _LONGEST_CACHED:
            if len(self) >= self.limit:
                self.clear()
            self[key] = result
        return result


class WordSplitter:
    """
    Turns text into the release's words, lower-cased, parted by single spaces, newlines as words of their own.

    spaCy treats each chunk between white space by itself, save for special cases that hold affixes (`:)`, `'em.`):
    these it looks up among the words of the whole text at the end, where a longer match across a space can hide a
    shorter one. So the words of a chunk, and of each part that the clean-up makes of it, are cached unless such a
    special case would change them; a chunk of that kind goes through spaCy with those beside it. The caches and
    spaCy's store of strings are emptied at a limit, so that memory stays bounded.

    Args:
        max_chunks (`int`, *optional*, defaults to 131072): how many chunks, and parts of chunks, to remember.
        max_strings (`int`, *optional*, defaults to 262144): how many strings spaCy may store.
    """

    def __init__(self, max_chunks: int = 1 << 17, max_strings: int = 1 << 18):
        self.max_strings = max_strings
        self._chunks = StringCache(self.split_chunk, max_chunks)
        self._parts = StringCache(self._split_part, max_chunks)
        self._load_spacy()

    def _load_spacy(self) -> None:
        self.spacy_tokenizer = _libraries()[1].blank("en").tokenizer
        self._chunk_tokenizer = self._without_late_lookup(self.spacy_tokenizer)
        orth = _libraries()[1].symbols.ORTH
        rules = self.spacy_tokenizer.rules
        self._special_cases = {case: tuple(part[orth] for part in parts) for case, parts in rules.items()}
        self._longest_special_case = max(map(len, self._special_cases))
        self._looked_up_late = self._find_late_cases(self.spacy_tokenizer)
        self._late_words = {word.lower() for words in self._looked_up_late for word in words}
        self._late_cases = {words for words, parts in self._looked_up_late.items() if words != parts}
        self._longest_late_case = max(map(len, self._looked_up_late))
        self._may_hold_late_case = re.compile("|".join(re.escape("".join(words)) for words in self._late_cases)).search

    @staticmethod
    def _without_late_lookup(tokenizer):
        # Special cases are kept for the late look-up only if they show an affix when they are added.
        loaded = False
        copied = type(tokenizer)(
            tokenizer.vocab,
            rules=tokenizer.rules,
            prefix_search=lambda string: tokenizer.prefix_search(string) if loaded else None,
            suffix_search=lambda string: tokenizer.suffix_search(string) if loaded else None,
            infix_finditer=lambda string: tokenizer.infix_finditer(string) if loaded else (),
            token_match=tokenizer.token_match,
            url_match=tokenizer.url_match,
        )
        loaded = True
        return copied

    def _find_late_cases(self, tokenizer) -> dict[tuple[str, ...], tuple[str, ...]]:
        affixes_only = type(tokenizer)(
            tokenizer.vocab,
            prefix_search=tokenizer.prefix_search,
            suffix_search=tokenizer.suffix_search,
            infix_finditer=tokenizer.infix_finditer,
            token_match=tokenizer.token_match,
            url_match=tokenizer.url_match,
        )
        return {
            tuple(token.text for token in affixes_only(case)): parts
            for case, parts in self._special_cases.items()
            if tokenizer.find_prefix(case) or tokenizer.find_infix(case) or tokenizer.find_suffix(case)
        }

    def _spans(self, words: Sequence[str]) -> Iterable[tuple[int, int]]:
        # All that may be a late case, by start and end.
        for start in range(len(words)):
            for end in range(start + 1, min(start + self._longest_late_case, len(words)) + 1):
                yield start, end

    def _holds_late_case(self, words: Sequence[str]) -> bool:
        return any(tuple(words[start:end]) in self._late_cases for start, end in self._spans(words))

    def _look_up_late(self, parts: Iterable[Sequence[str]]) -> list[str]:
        # What spaCy makes of the words of several parts at the end: of matches that overlap the longest counts, of
        # those the first, though it may change nothing, as one across a space never does.
        words = [word for part in parts for word in part]
        spaces = set(itertools.accumulate(map(len, parts)))
        matches = [
            (start, end) for start, end in self._spans(words) if tuple(words[start:end]) in self._looked_up_late
        ]
        taken: set[int] = set()
        ends = {}
        for start, end in sorted(matches, key=lambda match: (match[0] - match[1], match[0])):
            if start not in taken and end - 1 not in taken:
                ends[start] = end
            taken.update(range(start, end))
        changed, position = [], 0
        while position < len(words):
            end = ends.get(position, position + 1)
            found = words[position:end]
            if position in ends and spaces.isdisjoint(range(position + 1, end)):
                found = self._special_cases.get("".join(found), found)
            changed += found
            position = end
        return changed

    def _is_special_case(self, part: str, start: int, end: int) -> bool:
        return end - start <= self._longest_special_case and part[start:end] in self._special_cases

    def _words_of(self, part: str) -> list[str]:
        # spaCy's own loop over affixes (`Tokenizer._split_affixes`), in a time that is linear in their number, until
        # what is left is short; but for the late look-up.
        prefixes, suffixes = [], []
        start, end = 0, len(part)
        while end - start > 8 * _AFFIX_WINDOW:
            after_prefix = start + _affix_length(self.spacy_tokenizer.find_prefix, part, start, end)
            if after_prefix > start:
                prefixes.append(part[start:after_prefix])
                if self._is_special_case(part, after_prefix, end):
                    start = after_prefix
                    break
            before_suffix = end - _affix_length(self.spacy_tokenizer.find_suffix, part, after_prefix, end, at_end=True)
            if before_suffix < end:
                suffixes.append(part[before_suffix:end])
            if (after_prefix, before_suffix) == (start, end):
                break
            start, end = after_prefix, before_suffix
        middle = [token.text for token in self._chunk_tokenizer(part[start:end])]
        return [*prefixes, *middle, *reversed(suffixes)]

    def _split_part(self, part: str) -> str | None:
        plain = _PLAIN_PART.fullmatch(part)
        if plain and self._special_cases.keys().isdisjoint((part, plain[1] or plain[3])):
            return " ".join(filter(None, plain.groups())).lower()
        if len(self.spacy_tokenizer.vocab.strings) >= self.max_strings:
            self._load_spacy()
        words = self._words_of(part)
        held = self._may_hold_late_case(part) is not None and self._holds_late_case(words)
        return None if held else " ".join(words).lower()

    def split_chunk(self, chunk: str) -> str | None:
        """
        Args:
            chunk (`str`): what stands between white space in a text that ftfy has fixed.

        Returns:
            `str`, *optional*: its lower-cased words parted by spaces; `None` if they depend on the rest of the line.
        """
        parts = [chunk] if chunk.isalpha() else _clean_line(chunk).split()
        if len(parts) == 1:
            return self._parts[parts[0]]
        words = list(map(self._parts.__getitem__, parts))
        return None if None in words else " ".join(words)

    def split_line(self, chunks: Sequence[str]) -> str:
        """
        Args:
            chunks (`Sequence[str]`): the chunks of a line that ftfy has fixed.

        Returns:
            `str`: its lower-cased words parted by spaces.
        """
        words = list(map(self._chunks.__getitem__, chunks))
        if None in words:
            self.fill_gaps(words, chunks)
        return " ".join(words)

    def fill_gaps(self, found: list, chunks: Sequence[str], convert: Callable[[str], Any] = str) -> None:
        """
        Puts in what `split_chunk` cannot tell.

        Args:
            found (`list`): what was found for each chunk of a line, or `None`; where the words of several chunks
                depend on each other, the list gets one item for all of them.
            chunks (`Sequence[str]`): the chunks.
            convert (`Callable`, *optional*, defaults to `str`): makes the item from lower-cased words.
        """
        runs, end = [], 0
        for index in [index for index, item in enumerate(found) if item is None]:
            if index < end:
                continue
            start, end = index, index + 1
            while start > 0 and self._may_join_late_case(chunks[start - 1]):
                start -= 1
            while end < len(chunks) and self._may_join_late_case(chunks[end]):
                end += 1
            runs.append(slice(start, end))
        for run in reversed(runs):
            parts = list(map(self._words_of, _clean_line(" ".join(chunks[run])).split()))
            found[run] = [convert(" ".join(self._look_up_late(parts)).lower())]

    def _may_join_late_case(self, chunk: str) -> bool:
        # No match of the late look-up holds a word that no late case has, so neither does any that overlaps it.
        words = self._chunks[chunk]
        return words is None or not self._late_words.isdisjoint(words.split(" "))

    def __call__(self, text: str) -> str:
        """
        Args:
            text (`str`): any text.

        Returns:
            `str`: lower-cased words parted by single spaces; a newline is the word newline.
        """
        lines = (line.split() for line in fix_text(text).split("\n"))
        return " \n ".join(self.split_line(chunks) for chunks in lines if chunks)


def _affix_length(find: Callable[[str], int], part: str, start: int, end: int, at_end: bool = False) -> int:
    """What `find` says of `part[start:end]`, told by as many of its first, or last, characters as need be."""
    size = _AFFIX_WINDOW
    while True:
        window = part[max(start, end - size) : end] if at_end else part[start : min(end, start + size)]
        length = find(window)
        if length < size // 2 or len(window) == end - start:
            return length
        size *= 2


class ChunkIds:
    """
    Ids of a text by a cache of the ids of its chunks: those that the backend gives to the words of a text without
    added tokens, but without the positions that take most of its time. A pickle or copy is empty and has no backend,
    so that what was encoded before is no part of the tokenizer (`datasets` tells tokenizers by their pickles).

    Args:
        backend (`tokenizers.Tokenizer`, *optional*): whose BPE makes pieces of words.
    """

    def __init__(self, backend: Any = None):
        self.backend = backend
        self.model = None if backend is None else backend.model
        self.words = StringCache(lambda word: tuple(token.id for token in self.model.tokenize(word)))
        self.chunks = StringCache(self._ids_of_chunk)

    def __reduce__(self):
        return ChunkIds, ()

    def _ids_of_chunk(self, chunk: str) -> tuple[int, ...] | None:
        words = word_splitter().split_chunk(chunk)
        return None if words is None else self._ids_of_words(words)

    def _ids_of_words(self, words: str) -> tuple[int, ...]:
        known = self.words
        if " " not in words:
            return known[words]
        return tuple(itertools.chain.from_iterable(map(known.__getitem__, words.split(" "))))

    def __call__(self, text: str) -> list[int]:
        """
        Args:
            text (`str`): any text.

        Returns:
            `list[int]`: the ids of its words, without special tokens.
        """
        known = self.chunks
        ids = []
        for line in fix_text(text).split("\n"):
            chunks = line.split()
            parts = list(map(known.__getitem__, chunks))
            if None in parts:
                word_splitter().fill_gaps(parts, chunks, self._ids_of_words)
            if parts and ids:
                ids += self.words["\n"]
            ids += itertools.chain.from_iterable(parts)
        return ids


def align(text: str) -> tuple[list[int], list[int]]:
    """
    Where the characters of `WordSplitter()(text)` come from.

    Args:
        text (`str`): any text.

    Returns:
        `tuple[list[int], list[int]]`: for each character of the words the start and the end of its origin in `text`;
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
            visible.extend([(start, end)] * len(character.translate(_PLAIN_CHARACTERS).lower()))
    words = word_splitter()(text)
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
    if _MAY_CHANGE.search(text) is None:
        yield from ((character, index, index + 1) for index, character in enumerate(text))
        return
    base = 0
    for before, after in _fixed_lines(text):
        if before == after or _straighten(before) == after:
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
