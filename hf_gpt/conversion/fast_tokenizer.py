"""
The tokenizer as a plain `PreTrainedTokenizerFast`, for places without custom code and ftfy: how `GPTTokenizer` splits
text, as a normalizer that ends up in `tokenizer.json`. It agrees with `GPTTokenizer` on nearly all texts.

The regular expressions are made from the rules of `words_en.json`, and the map of characters from the installed ftfy,
when a tokenizer is exported; using or loading one needs neither. Each step puts spaces where words part, so that
lower case comes last, as in the release, and the words are what stands between spaces.
"""

import functools
import html.entities
import json
import re
import struct
import unicodedata
from collections.abc import Iterable, Mapping, Sequence

import ftfy
from tokenizers import Regex, Tokenizer, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from ..model.tokenization_gpt import (
    PLAIN_CHARACTERS,
    PUNCTUATION_RUN,
    GPTTokenizer,
    clean_up,
    english_rules,
    fix_text,
    word_splitter,
)

_END = r"(?!\S)"
_START = r"(?<!\S)"
# The commonest punctuation that was read as Windows-1252 but is UTF-8.
_MOJIBAKE = {"'": "â€[™˜]", '"': "â€[œ\u009d]", "-": "â€[”“]", "...": "â€¦"}
# The library gives up with a panic on a search that backtracks too long: bounds keep any text far from that.
_MOST_SUFFIXES = 20
_LONGEST_CHUNK = 300
_NAMED_CHARACTERS = {
    "&": ("amp", "AMP"),
    '"': ("quot", "QUOT", "ldquo", "rdquo"),
    "'": ("apos", "lsquo", "rsquo"),
    "-": ("ndash", "mdash"),
    "...": ("hellip",),
    " ": ("nbsp",),
    # The last: an angle bracket stops the others.
    ">": ("gt", "GT"),
    "<": ("lt", "LT"),
}


def standardize_text(text: str) -> str:
    """
    A text as spaCy gets it, behind ftfy and the release's clean-up: plain dashes, dots and apostrophes; a space on
    both sides of each run of punctuation; white space around newlines made space, newline, space, and every other run
    of it one space.
    """
    lines = (" ".join(clean_up(line).split()) for line in fix_text(text).split("\n"))
    return " \n ".join(line for line in lines if line)


def fast_tokenizer(tokenizer: GPTTokenizer) -> PreTrainedTokenizerFast:
    """
    Export a tokenizer: with the same ids on nearly all texts (see `disagreement`), slower, and saved as a
    `tokenizer.json` that needs transformers alone. Its special tokens, template and limits are kept. The bare
    `tokenizers.Tokenizer` loads it as well, but takes the names of special tokens in a text for these tokens unless
    its `encode_special_tokens` is set. Offsets are the library's: the newline token has the first newline only.

    Raises:
        ValueError: for words of another language than English, whose rules it is made of.
    """
    if tokenizer.language != "en":
        raise ValueError(f"The export follows English rules, and the tokenizer those of {tokenizer.language!r}.")
    backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    backend.no_truncation()
    backend.no_padding()
    if not tokenizer.byte_level:
        backend.normalizer = build_normalizer()
        backend.pre_tokenizer = build_pre_tokenizer()
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        split_special_tokens=True,
        model_max_length=tokenizer.model_max_length,
        padding_side=tokenizer.padding_side,
        truncation_side=tokenizer.truncation_side,
        model_input_names=tokenizer.model_input_names,
        **{name: token for name, token in tokenizer.special_tokens_map.items() if isinstance(token, str)},
    )


def disagreement(exact: GPTTokenizer, fast: PreTrainedTokenizerFast, texts: Sequence[str]) -> int:
    """How many of the texts get other ids from an export than from the tokenizer it was made of."""
    ids = (tokenizer(texts, verbose=False)["input_ids"] for tokenizer in (exact, fast))
    return sum(ours != theirs for ours, theirs in zip(*ids, strict=True))


@functools.cache
def build_normalizer() -> normalizers.Normalizer:
    """The normalizer of an export, which makes any text lower-cased words separated by spaces or newlines."""
    rules = _SpacyRules()
    removed = [character for character in _irregular_characters() if _standardized(character) == ""]
    steps = [
        *((pattern, text) for text, pattern in _entity_patterns()),
        (rf"\x1b\[[0-9;]*[a-zA-Z]|[{_ranges(removed)}]", ""),
        normalizers.Precompiled(build_charsmap(_character_map())),
        normalizers.Strip(),
        (r"\n\s*\n", "\n"),
        (_punctuation_pattern(), " "),
        (rules.prefix_boundary(), " "),
        (rules.suffix_boundary(), " "),
        (rules.special_case_boundary(), " "),
        (rules.infix_boundary(), " "),
        normalizers.Lowercase(),
    ]
    return normalizers.Sequence(
        [normalizers.Replace(Regex(step[0]), step[1]) if isinstance(step, tuple) else step for step in steps]
    )


def build_pre_tokenizer() -> pre_tokenizers.PreTokenizer:
    """What takes the normalized text apart: the words and the newlines between spaces."""
    return pre_tokenizers.Sequence(
        [pre_tokenizers.Split(" ", behavior="removed"), pre_tokenizers.Split("\n", behavior="isolated")]
    )


def _entity_patterns() -> Iterable[tuple[str, str]]:
    # ftfy unescapes up to the first line that holds an angle bracket.
    before, after = r"(?<!<(?m:.*))", r"(?![^<\n]*<)"
    for text, names in _NAMED_CHARACTERS.items():
        codes = sorted({ord(html.entities.html5[f"{name};"]) for name in names})
        numbers = [rf"\#0*{code}|\#[xX]0*(?i:{code:x})" for code in codes]
        entity = f"&(?:{'|'.join((*names, *numbers))});{before}{after}"
        if text == "&":
            entity = entity.replace(");", ");)+", 1).replace("&(?:", "&(?:(?:", 1)
        yield text, f"{entity}|{_MOJIBAKE[text]}" if text in _MOJIBAKE else entity


@functools.cache
def _standardized(character: str) -> str:
    if character in "\r\u2028\u2029":
        return "\n"
    standard = fix_text(character)
    if standard.isspace():
        return " "
    return standardize_text(character)


@functools.cache
def _irregular_characters() -> list[str]:
    # Those that ftfy or the clean-up may change, or that are white space.
    chardata = ftfy.chardata
    codes = {*range(0x20), *range(0x7F, 0xA0), *chardata.LIGATURES, *chardata.WIDTH_MAP, *chardata.CONTROL_CHARS}
    codes.update(PLAIN_CHARACTERS, range(0x2000, 0x2070), map(ord, "\u02bc\ufeff"))
    for code in range(0xA0, 0x30000):
        if chr(code).isspace() or not unicodedata.is_normalized("NFC", chr(code)):
            codes.add(code)
    return [chr(code) for code in sorted(codes) if code != ord("\n") and not 0xD800 <= code < 0xE000]


def _character_map() -> dict[str, str]:
    mapping = {character: _standardized(character) for character in _irregular_characters()}
    mapping = {character: standard for character, standard in mapping.items() if standard not in ("", character)}
    for code in range(0xC0, 0x2000):
        parts = unicodedata.normalize("NFD", chr(code))
        if len(parts) == 2 and len(parts.encode()) < 6 and unicodedata.normalize("NFC", parts) == chr(code):
            mapping[parts] = chr(code)
    return mapping


def _ranges(characters: Iterable[str]) -> str:
    codes = set(map(ord, characters))
    starts = sorted(code for code in codes if code - 1 not in codes)
    ends = sorted(code for code in codes if code + 1 not in codes)
    return "".join(
        rf"\x{{{start:x}}}" + (rf"-\x{{{end:x}}}" if end > start else "")
        for start, end in zip(starts, ends, strict=True)
    )


def build_charsmap(mapping: Mapping[str, str]) -> bytes:
    """
    The argument of `tokenizers.normalizers.Precompiled`: what becomes of characters, or of short clusters of them, in
    SentencePiece's precompiled form, a double-array trie of UTF-8 bytes, and the texts.
    """
    texts, positions = bytearray(), {}
    for text in sorted(set(mapping.values())):
        positions[text] = len(texts)
        texts += text.encode() + b"\0"
    trie = {}
    for key, text in sorted(mapping.items()):
        node = trie
        for byte in key.encode():
            node = node.setdefault(byte, {})
        node[0] = positions[text]
    units = _double_array(trie)
    array = struct.pack(f"<{len(units)}I", *units)
    return struct.pack("<I", len(array)) + array + bytes(texts)


def _double_array(trie: dict) -> list[int]:
    # The layout of darts-clone: a unit holds its label, whether a value follows, and the distance to its children.
    units, bases, pending, first_free = {0: 0}, set(), [(0, trie, 0)], 1
    while pending:
        position, node, label = pending.pop()
        while first_free in units:
            first_free += 1
        base = first_free
        while base in bases or any(base ^ child in units for child in node):
            base += 1
        bases.add(base)
        units[position] = (position ^ base) << 10 | (0 in node) << 8 | label
        for child, below in node.items():
            units[base ^ child] = 1 << 31 | below if child == 0 else 0
            if child:
                pending.append((base ^ child, below, child))
    return [units.get(position, 0) for position in range((max(units) | 0xFF) + 257)]


def _punctuation_characters() -> list[str]:
    return [character for character in map(chr, range(128)) if PUNCTUATION_RUN.match(character)]


def _punctuation_pattern() -> str:
    # spaCy leaves some runs whole: --, but ! !.
    characters = _punctuation_characters()
    any_of = f"[{''.join(map(_escape, characters))}]"
    whole = [_escape(mark) for mark in characters if word_splitter(english_rules())(mark * 3) == mark * 3]
    ends = [
        *(rf"(?<!{mark}){mark}++" for mark in whole),
        f"[{''.join(sorted({*map(_escape, characters)} - {*whole}))}]",
    ]
    run = rf"(?:{'|'.join(ends)})\K(?=\S)"
    # A match of no width is not found twice at one place, hence \G, which holds behind the last match.
    return rf"(?={any_of})(?:\G{run}|(?<=[^\s{any_of[1:]})|{run})"


def _escape(text: str) -> str:
    return re.sub(r"([^\w\s]|_)", lambda match: rf"\x{{{ord(match[0]):x}}}", text)


def _trie_pattern(words: Iterable[str]) -> str:
    by_first: dict[str, set[str]] = {}
    for word in words:
        by_first.setdefault(word[:1], set()).add(word[1:])
    optional = by_first.pop("", None) is not None
    branches = [_escape(first) + _trie_pattern(rests) for first, rests in sorted(by_first.items())]
    if not branches:
        return ""
    # The longest first.
    return f"(?:{'|'.join(branches)}){'?' if optional else ''}"


def _to_oniguruma(pattern: str) -> str:
    # Runs stay together: spaCy searches from the left, where these expressions may backtrack.
    if pattern == r"\.\.+":
        return r"(?<!\.)\.\.++"
    if pattern == r"\'":
        return r"'(?!')"
    if pattern.endswith(r")\."):
        pattern += r"(?!\.)"
    pattern = re.sub(r"\\u([0-9A-Fa-f]{4})|\\U([0-9A-Fa-f]{8})", lambda m: rf"\x{{{m[1] or m[2]}}}", pattern)
    return re.sub(r"(?<!\\)#", r"\#", pattern)


def _plain_words() -> str:
    # Jumps over words that never part. The space put behind them changes nothing.
    marks = "".join(map(_escape, _punctuation_characters()))
    return rf"{_START}(?>(?:(?:[a-zA-Z]++|[{marks}]++)\s++){{1,1000}})\K"


class _SpacyRules:
    """spaCy's English rules as expressions that match, without width, where words part within a chunk."""

    def __init__(self):
        splitter, rules = word_splitter(english_rules()), json.loads(english_rules())
        self.prefix, self.suffix, self.infix = (
            "|".join(map(_to_oniguruma, affixes))
            # Two quotes that were split become one word when special cases are looked up at the end.
            for affixes in (["''", *rules["prefixes"]], ["''", *rules["suffixes"]], rules["infixes"])
        )
        url = _to_oniguruma(rules["url"])
        self.url = url.removeprefix("(?u)").removeprefix("^").removesuffix("$")
        self.cases = {case: parts for case, parts in splitter.cases.items() if standardize_text(case) == case}
        self.case = _trie_pattern(self.cases)
        self.suffixes = f"(?:{self.suffix}){{1,{_MOST_SUFFIXES}}}{_END}"
        first = [character for character in map(chr, range(33, 0x20000)) if splitter.prefix.search(character)]
        self.first_of_prefix = _ranges([*first, *"UCA."])

    def prefix_boundary(self) -> str:
        # A special case keeps its quote, with or without suffixes behind it, unless it is one without the quote too.
        prefix = f"(?>{self.prefix})"
        allowed = rf"(?!{self.case}{_END})(?:(?={prefix}{self.case}{_END})|(?!{self.case}{self.suffixes}))"
        return rf"(?=[{self.first_of_prefix}])(?:\G|{_START}){allowed}{prefix}\K(?=\S)"

    def suffix_boundary(self) -> str:
        ends = rf"\K(?={self.suffixes})"
        start = rf"{_START}(?=\S{{2,{_LONGEST_CHUNK}}}{_END})(?!{self.case}{_END})"
        # No suffix begins within a run of letters, unless behind a digit.
        first = rf"{start}(?:{self.case}{ends}|(?:[a-zA-Z]++|[^\sa-zA-Z])+?{ends})"
        further = rf"\G(?<=\S)(?:{self.suffix}){ends}"
        return f"{_plain_words()}|{first}|{further}"

    def special_case_boundary(self) -> str:
        lefts_of: dict[str, set[str]] = {}
        for parts in self.cases.values():
            for middle in range(1, len(parts)):
                lefts_of.setdefault("".join(parts[middle:]), set()).add("".join(parts[:middle]))
        several = _trie_pattern(case for case, parts in self.cases.items() if len(parts) > 1) + _END
        others = rf"{_START}(?>(?:(?!{several})\S++\s++){{1,1000}})\K"
        splits = "|".join(
            rf"(?={_escape(right)}{_END})(?<=(?:\A|\s){_trie_pattern(lefts)})"
            for right, lefts in sorted(lefts_of.items())
        )
        return rf"{others}|(?:{_START}(?={several})|\G(?<=\S))\S{{1,16}}?\K(?:{splits})"

    def infix_boundary(self) -> str:
        suspect = rf"(?=\S[a-zA-Z0-9']*+[^\sa-zA-Z0-9'])(?=\S{{2,{_LONGEST_CHUNK}}}{_END})"
        start = rf"(?:{_START}{suspect}(?!{self.case}{_END}|{self.url}{_END})|\G(?<=\S))"
        found = rf"(?:(?<=\S)(?:{self.infix})\K(?=\S)|(?:[a-zA-Z]++|[^\sa-zA-Z])\K(?={self.infix}))"
        return rf"{_plain_words()}|{start}(?:[a-zA-Z]++|[^\sa-zA-Z])*?{found}"
