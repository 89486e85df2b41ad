r"""
The tokenizer as a plain `PreTrainedTokenizerFast`, for places that run no custom code: how `GPTTokenizer` splits text,
as a normalizer that ends up in `tokenizer.json`. Loading or using one needs neither hf_gpt nor ftfy.

Of 3,337 recorded texts 58 get other ids than from `GPTTokenizer`, most of them corrupted on purpose; from the stock
`openai-gpt` tokenizer 1,893 do. What it does not do is to repair mojibake and full-width letters.

Each step of the normalizer puts spaces where words part, lower case comes last, as in the release, and the words are
what then stands between spaces. The expressions are oniguruma's; `\K` leaves out what was matched before it, so that a
boundary is a match without width.
"""

import json
import re
from collections.abc import Iterable, Sequence

from ftfy.chardata import LIGATURES
from tokenizers import Regex, Tokenizer, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from ..model.tokenization_gpt import PUNCTUATION_RUN, GPTTokenizer, clean_up, english_rules, word_splitter

_START, _END = r"(?<!\S)", r"(?!\S)"
# The library panics on a search that backtracks too long: bounds keep any text far from that.
_MOST_SUFFIXES, _LONGEST_CHUNK = 20, 300
# Of ftfy and the release's clean-up what English texts need. Up to the first < of a line ftfy unescapes entities.
_UNESCAPED = r"(?<!<(?m:.*))(?![^<\n]*<)"
_CLEAN_UP = {
    r"\r\n?|[\x{2028}\x{2029}]": "\n",
    r"\x1b\[[0-9;]*[a-zA-Z]|[\x00-\x08\x0b\x0e-\x1b\x7f\x{206a}-\x{206f}\x{feff}\x{fff9}-\x{fffc}]": "",
    rf"&(?:quot|QUOT|ldquo|rdquo);{_UNESCAPED}|[\x{{201c}}-\x{{201f}}]": '"',
    rf"&(?:apos|\#39|\#x27|lsquo|rsquo);{_UNESCAPED}|[\x{{02bc}}\x{{b4}}\x{{2018}}-\x{{201b}}]": "'",
    rf"&[nm]dash;{_UNESCAPED}|[\x{{2013}}-\x{{2015}}]": "-",
    rf"&hellip;{_UNESCAPED}|[\x{{85}}\x{{2026}}]": "...",
    rf"&nbsp;{_UNESCAPED}|[^\S\n]": " ",
    rf"&(?:amp;)+{_UNESCAPED}": "&",
    rf"&(?:gt|GT);{_UNESCAPED}": ">",
    rf"&(?:lt|LT);{_UNESCAPED}": "<",
    r"\A\s+|\s+\z": "",
    r"\n\s*\n": "\n",
}


def fast_tokenizer(tokenizer: GPTTokenizer) -> PreTrainedTokenizerFast:
    """
    Export a tokenizer: with the same ids on nearly all texts (see `disagreement`), saved as a `tokenizer.json` that
    needs transformers alone. Its special tokens, template and limits are kept. The bare `tokenizers.Tokenizer` loads
    it as well, but takes the names of special tokens in a text for these tokens unless its `encode_special_tokens` is
    set. Offsets are the library's: the newline token has the first newline only.

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
        splits = [pre_tokenizers.Split(" ", behavior="removed"), pre_tokenizers.Split("\n", behavior="isolated")]
        backend.pre_tokenizer = pre_tokenizers.Sequence(splits)
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


def build_normalizer() -> normalizers.Normalizer:
    """The normalizer of an export, which makes any text lower-cased words separated by spaces or newlines."""
    rules = _WordRules()
    boundaries = (_punctuation(), rules.prefixes(), rules.suffixes(), rules.special_cases(), rules.infixes())
    replaced = [*_CLEAN_UP.items(), *((chr(code), text) for code, text in LIGATURES.items())]
    replaced += [(boundary, " ") for boundary in boundaries]
    steps = [normalizers.Replace(Regex(pattern), text) for pattern, text in replaced]
    return normalizers.Sequence([normalizers.NFC(), *steps, normalizers.Lowercase()])


def _escape(text: str) -> str:
    return re.sub(r"([^\w\s]|_)", lambda match: rf"\x{{{ord(match[0]):x}}}", text)


def _any_of(words: Iterable[str]) -> str:
    """A trie of the words, which tries the longest first."""
    by_first: dict[str, set[str]] = {}
    for word in words:
        by_first.setdefault(word[:1], set()).add(word[1:])
    optional = "?" if by_first.pop("", None) is not None else ""
    branches = [_escape(first) + _any_of(rests) for first, rests in sorted(by_first.items())]
    return f"(?:{'|'.join(branches)}){optional}" if branches else ""


def _punctuation() -> str:
    """Behind and before the runs of punctuation that the clean-up sets apart; spaCy leaves some whole: --, not ! !."""
    marks = [mark for mark in map(chr, range(128)) if PUNCTUATION_RUN.match(mark)]
    whole = [mark for mark in marks if word_splitter(english_rules())(mark * 3) == mark * 3]
    characters, others = (f"[{''.join(map(_escape, group))}]" for group in (marks, sorted({*marks} - {*whole})))
    runs = [rf"(?<!{mark}){mark}++" for mark in map(_escape, whole)]
    run = rf"(?:{'|'.join([*runs, others])})\K(?=\S)"
    # A match of no width is not found twice at one place, hence \G, which holds behind the last match.
    return rf"(?={characters})(?:\G{run}|(?<=[^\s{characters[1:]})|{run})"


def _to_oniguruma(pattern: str) -> str:
    # Runs stay together: spaCy searches from the left, where these expressions may backtrack.
    runs = {r"\.\.+": r"(?<!\.)\.\.++", r"\'": r"'(?!')"}
    pattern = runs.get(pattern, pattern + r"(?!\.)" if pattern.endswith(r")\.") else pattern)
    pattern = re.sub(r"\\u([0-9A-Fa-f]{4})|\\U([0-9A-Fa-f]{8})", lambda m: rf"\x{{{m[1] or m[2]}}}", pattern)
    return re.sub(r"(?<!\\)#", r"\#", pattern)


class _WordRules:
    """spaCy's English rules as expressions that match, without width, where words part within a chunk."""

    def __init__(self):
        rules = json.loads(english_rules())
        # Two quotes that were split become one word when special cases are looked up at the end.
        affixes = (["''", *rules["prefixes"]], ["''", *rules["suffixes"]], rules["infixes"])
        self.prefix, self.suffix, self.infix = ("|".join(map(_to_oniguruma, group)) for group in affixes)
        self.url = _to_oniguruma(rules["url"]).removeprefix("(?u)").removeprefix("^").removesuffix("$")
        # Without those that the clean-up would take apart.
        cases = word_splitter(english_rules()).cases.items()
        self.cases = {case: parts for case, parts in cases if " ".join(clean_up(case).split()) == case}
        self.case = _any_of(self.cases)
        self.ends = f"(?:{self.suffix}){{1,{_MOST_SUFFIXES}}}{_END}"

    def prefixes(self) -> str:
        # A special case keeps its quote, with or without suffixes behind it, unless it is one without the quote too.
        prefix = f"(?>{self.prefix})"
        allowed = rf"(?!{self.case}{_END})(?:(?={prefix}{self.case}{_END})|(?!{self.case}{self.ends}))"
        return rf"(?:\G|{_START}){allowed}{prefix}\K(?=\S)"

    def suffixes(self) -> str:
        here = rf"\K(?={self.ends})"
        start = rf"{_START}(?=\S{{2,{_LONGEST_CHUNK}}}{_END})(?!{self.case}{_END})"
        # No suffix begins within a run of letters, unless behind a digit.
        first = rf"{start}(?:{self.case}{here}|(?:[a-zA-Z]++|[^\sa-zA-Z])+?{here})"
        return rf"{first}|\G(?<=\S)(?:{self.suffix}){here}"

    def special_cases(self) -> str:
        lefts_of: dict[str, set[str]] = {}
        for parts in self.cases.values():
            for middle in range(1, len(parts)):
                lefts_of.setdefault("".join(parts[middle:]), set()).add("".join(parts[:middle]))
        several = _any_of(case for case, parts in self.cases.items() if len(parts) > 1) + _END
        splits = "|".join(
            rf"(?={_escape(right)}{_END})(?<=(?:\A|\s){_any_of(lefts)})" for right, lefts in sorted(lefts_of.items())
        )
        return rf"(?:{_START}(?={several})|\G(?<=\S))\S{{1,16}}?\K(?:{splits})"

    def infixes(self) -> str:
        suspect = rf"(?=\S[a-zA-Z0-9']*+[^\sa-zA-Z0-9'])(?=\S{{2,{_LONGEST_CHUNK}}}{_END})"
        start = rf"(?:{_START}{suspect}(?!{self.case}{_END}|{self.url}{_END})|\G(?<=\S))"
        found = rf"(?:(?<=\S)(?:{self.infix})\K(?=\S)|(?:[a-zA-Z]++|[^\sa-zA-Z])\K(?={self.infix}))"
        return rf"{start}(?:[a-zA-Z]++|[^\sa-zA-Z])*?{found}"
