"""
The release's words: ftfy, clean-up, spaCy's English word splitter and lower case, in that order.

`word_splitter(language)` splits behind a cache; `TextIds` goes on to the ids of the words.
"""

import functools
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
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
# ftfy treats longer lines in pieces of this size.
_FTFY_SEGMENT = 1_000_000

PLAIN_CHARACTERS = str.maketrans(
    {"\u2014": "-", "\u2013": "-", "\u2015": "-", "\u2026": "...", "\u00b4": "'"}  # em dash, en dash, bar, ..., acute
)
# A run of one and the same of these characters becomes a word of its own. The backslash is not among them: the
# release's pattern loses it to string escaping.
PUNCTUATION_RUN = re.compile(r'([-~!";?+,)(/*\[\]}{|_])\1*')
# Unless a special case says otherwise, spaCy takes these apart where the groups say, in English: no prefix or infix
# begins with an ASCII letter alone, the suffixes here are 's and a full stop behind a lower-case letter, and none of
# these is a URL.
_PLAIN_PART = re.compile(r"([A-Za-z]+)('s)?|([A-Za-z]*[a-z])(\.)")
# spaCy looks at all that is left of a chunk for every affix, and all its affixes but runs of full stops are short: of
# a longer chunk, each affix is looked for in so many characters.
_AFFIX_WINDOW = 16
# Longer strings are seldom seen again.
_LONGEST_CACHED = 64


def fix_text(text: str) -> str:
    """
    What `ftfy.fix_text` returns with its defaults, without asking ftfy about lines that it is known not to touch.
    """
    # The first test is of no other text than the second, but several times as quick.
    if (text.isascii() and text.isprintable() and "&" not in text) or _MAY_CHANGE.search(text) is None:
        return text
    if _MAY_CHANGE_BUT_FOR_TYPOGRAPHY.search(text) is None:
        return straighten(text)
    return "".join(fixed for _, fixed in fixed_lines(text))


def fixed_lines(text: str) -> Iterable[tuple[str, str]]:
    """The lines of a text, long ones in pieces, before and behind ftfy."""
    ftfy, _ = libraries()
    unescape_html = "auto"
    for line in re.findall(r"[^\n]*\n|[^\n]+", text):
        for start in range(0, len(line), _FTFY_SEGMENT):
            segment = line[start : start + _FTFY_SEGMENT]
            # ftfy stops unescaping entities for the rest of the text at the first <.
            if "<" in segment:
                unescape_html = False
            straight = straighten(segment)
            # ftfy looks for mojibake again once it has made the marks straight.
            if _MAY_CHANGE_BUT_FOR_TYPOGRAPHY.search(segment) is None or (
                _MAY_CHANGE_BUT_FOR_LATIN_1.search(segment) is None
                and not ftfy.is_bad(segment)
                and not ftfy.is_bad(straight)
            ):
                yield segment, straight
            else:
                yield segment, ftfy.fix_text(segment, unescape_html=unescape_html)


def straighten(text: str) -> str:
    """A text with plain quotation marks."""
    for curly, straight in (("\u2018", "'"), ("\u2019", "'"), ("\u201c", '"'), ("\u201d", '"')):
        text = text.replace(curly, straight)  # much quicker than str.translate
    return text


def clean_line(line: str) -> str:
    """The release's clean-up of a line: plain dashes, dots and apostrophes, and runs of punctuation between spaces."""
    line = line if line.isascii() else line.translate(PLAIN_CHARACTERS)
    # A function, as Python's own template is slower.
    return PUNCTUATION_RUN.sub(lambda run: f" {run[0]} ", line)


@functools.cache
def libraries():
    """ftfy and spaCy."""
    try:
        import ftfy
        import spacy
    except ImportError as error:
        raise ImportError("exact mode needs ftfy and spaCy: pip install ftfy spacy") from error
    return ftfy, spacy


@functools.cache
def word_splitter(language: str) -> "WordSplitter":
    """The process's one `WordSplitter` of a language."""
    return WordSplitter(language=language)


class StringCache(dict):
    """
    A function's results by its argument, a string. It is emptied when it holds `limit` of them and keeps no long
    strings, so that memory stays bounded.
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


def _spacy_tokenizer(language: str):
    _, spacy = libraries()
    try:
        tokenizer = spacy.blank(language).tokenizer
    except (ImportError, ValueError) as error:
        raise ValueError(f"spaCy cannot split words of the language {language!r}: {error}") from error
    if type(tokenizer) is not spacy.tokenizer.Tokenizer:
        raise ValueError(f"spaCy splits {language!r} by no rules for words between spaces, which are needed here.")
    return tokenizer


def _like(tokenizer, **settings):
    """A tokenizer of spaCy with the affixes of another one and, unless `settings` name `rules`, no special cases."""
    names = ("prefix_search", "suffix_search", "infix_finditer", "token_match", "url_match")
    return type(tokenizer)(tokenizer.vocab, **{name: getattr(tokenizer, name) for name in names} | settings)


class WordSplitter:
    """
    Turns text into the release's words, lower-cased, parted by single spaces, newlines as words of their own.

    spaCy treats each chunk between white space by itself, save for special cases that hold affixes (`:)`, `'em.`):
    these it looks up among the words of the whole text at the end, where a longer match across a space can hide a
    shorter one. So the words of a chunk, and of each part that the clean-up makes of it, are cached unless such a
    special case would change them; a line with a chunk of that kind, which hardly any text has, is split as a whole.

    Args:
        max_parts (`int`, *optional*, defaults to 131072): how many parts of chunks to remember before starting anew.
        max_strings (`int`, *optional*, defaults to 262144): how many strings spaCy may store, likewise.
        language (`str`, *optional*, defaults to `"en"`): whose rules spaCy splits by, such as `de`.

    Raises:
        ValueError: if spaCy does not have the language, or splits it by another library.
    """

    def __init__(self, max_parts: int = 1 << 17, max_strings: int = 1 << 18, language: str = "en"):
        self.max_strings, self.language = max_strings, language
        self._parts = StringCache(self._split_part, max_parts)
        self._load_spacy()

    def _load_spacy(self) -> None:
        self.spacy_tokenizer = _spacy_tokenizer(self.language)
        self._chunk_tokenizer = self._without_late_lookup(self.spacy_tokenizer)
        orth = libraries()[1].symbols.ORTH
        rules = self.spacy_tokenizer.rules
        self._special_cases = {case: tuple(part[orth] for part in parts) for case, parts in rules.items()}
        self._longest_special_case = max(map(len, self._special_cases), default=0)
        self._looked_up_late = self._find_late_cases(self.spacy_tokenizer)
        self._late_cases = {words for words, parts in self._looked_up_late.items() if words != parts}
        self._longest_late_case = max(map(len, self._looked_up_late), default=0)

    @staticmethod
    def _without_late_lookup(tokenizer):
        # Special cases are kept for the late look-up only if they show an affix when they are added.
        loaded = False
        copied = _like(
            tokenizer,
            rules=tokenizer.rules,
            prefix_search=lambda string: tokenizer.prefix_search(string) if loaded else None,
            suffix_search=lambda string: tokenizer.suffix_search(string) if loaded else None,
            infix_finditer=lambda string: tokenizer.infix_finditer(string) if loaded else (),
        )
        loaded = True
        return copied

    def _find_late_cases(self, tokenizer) -> dict[tuple[str, ...], tuple[str, ...]]:
        affixes_only = _like(tokenizer)
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

    def _look_up_late(self, parts: Sequence[Sequence[str]]) -> list[str]:
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
        plain = _PLAIN_PART.fullmatch(part) if self.language == "en" else None
        if plain and self._special_cases.keys().isdisjoint((part, plain[1] or plain[3])):
            return " ".join(filter(None, plain.groups())).lower()
        if len(self.spacy_tokenizer.vocab.strings) >= self.max_strings:
            self._load_spacy()
        words = self._words_of(part)
        return None if self._holds_late_case(words) else " ".join(words).lower()

    def split_chunk(self, chunk: str) -> str | None:
        """
        The lower-cased words, parted by spaces, of what stands between white space in a text that ftfy has fixed;
        `None` if they depend on the rest of the line.
        """
        parts = [chunk] if chunk.isalpha() else clean_line(chunk).split()
        if len(parts) == 1:
            return self._parts[parts[0]]
        words = list(map(self._parts.__getitem__, parts))
        return None if None in words else " ".join(words)

    def lines(
        self, text: str, of_chunk: Callable[[str], Any], convert: Callable[[str], Any] = str
    ) -> Iterator[list[Any]]:
        """
        The words of a text, line by line, without lines that have none.

        Args:
            text (`str`): any text.
            of_chunk (`Callable`): what `split_chunk` says of a chunk, converted, or `None` where it says `None`.
            convert (`Callable`, *optional*, defaults to `str`): makes an item from lower-cased words.

        Yields:
            `list`: one item for each chunk, or for the line where words of chunks depend on each other.
        """
        for line in fix_text(text).split("\n"):
            found = list(map(of_chunk, line.split()))
            if None in found:
                found = [convert(self._words_of_line(line))]
            if found:
                yield found

    def _words_of_line(self, line: str) -> str:
        parts = list(map(self._words_of, clean_line(line).split()))
        return " ".join(self._look_up_late(parts)).lower()

    def __call__(self, text: str) -> str:
        """The lower-cased words of any text, parted by single spaces; a newline is the word newline."""
        return " \n ".join(map(" ".join, self.lines(text, self.split_chunk)))


def _affix_length(find: Callable[[str], int], part: str, start: int, end: int, at_end: bool = False) -> int:
    """What `find` says of `part[start:end]`, told by as many of its first, or last, characters as need be."""
    size = _AFFIX_WINDOW
    while True:
        window = part[max(start, end - size) : end] if at_end else part[start : min(end, start + size)]
        length = find(window)
        if length < size // 2 or len(window) == end - start:
            return length
        size *= 2


class TextIds:
    """
    Ids of a text, without special tokens, by a cache of the ids of its chunks: those that the backend gives to the
    words of a text without added tokens, but without the positions that take most of its time. A pickle or copy is
    empty and has no backend, so that what was encoded before is no part of the tokenizer (`datasets` tells tokenizers
    by their pickles).

    Args:
        backend (`tokenizers.Tokenizer`, *optional*): whose BPE makes pieces of words.
        language (`str`, *optional*, defaults to `"en"`): see `WordSplitter`.
    """

    def __init__(self, backend: Any = None, language: str = "en"):
        self.backend, self.language = backend, language
        self.model = None if backend is None else backend.model
        self.words = StringCache(lambda word: tuple(token.id for token in self.model.tokenize(word)))
        self.chunks = StringCache(self._ids_of_chunk)

    def __reduce__(self):
        return TextIds, ()

    def _ids_of_chunk(self, chunk: str) -> tuple[int, ...] | None:
        words = word_splitter(self.language).split_chunk(chunk)
        return None if words is None else self._ids_of_words(words)

    def _ids_of_words(self, words: str) -> tuple[int, ...]:
        known = self.words
        if " " not in words:
            return known[words]
        return tuple(itertools.chain.from_iterable(map(known.__getitem__, words.split(" "))))

    def __call__(self, text: str) -> list[int]:
        ids: list[int] = []
        for parts in word_splitter(self.language).lines(text, self.chunks.__getitem__, self._ids_of_words):
            if ids:
                ids += self.words["\n"]
            ids += itertools.chain.from_iterable(parts)
        return ids
