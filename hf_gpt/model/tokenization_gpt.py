"""
The tokenizer of the original GPT (Radford et al., 2018): the release's text standardisation, word splitting and BPE.

`text -> ftfy -> clean-up -> spaCy's words -> lower case -> BPE with the end mark </w>`. spaCy's rules are data, which
`words.json` next to `tokenizer.json` holds, so that the ids of a published model never change. The BPE is that of the
`tokenizers` library. With a vocabulary of bytes it is GPT-2's tokenizer.
"""

import copy
import difflib
import functools
import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from string import ascii_lowercase
from typing import Any

from tokenizers import Encoding, Regex, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import BatchEncoding, PreTrainedTokenizerFast

try:
    import ftfy
    from ftfy.fixes import uncurl_quotes
except ImportError:  # GPT-2's tokenizer does without
    ftfy = None

END_OF_WORD = "</w>"
# GPT-2's one special token, which separates documents.
END_OF_TEXT = "<|endoftext|>"
# In the order in which they are added to a vocabulary.
NAMED_TOKENS = {"unk_token": "<unk>", "bos_token": "_start_", "sep_token": "_delimiter_", "cls_token": "_classify_"}
NAMED_TOKENS |= {"pad_token": "<pad>"}
PLAIN_CHARACTERS = str.maketrans(
    {"\u2014": "-", "\u2013": "-", "\u2015": "-", "\u2026": "...", "\u00b4": "'"}  # em dash, en dash, bar, ..., acute
)
# A run of one and the same of these characters becomes a word of its own. The backslash is not among them: the
# release's pattern loses it to string escaping.
PUNCTUATION_RUN = re.compile(r'([-~!";?+,)(/*\[\]}{|_])\1*')
# In lines of these characters ftfy does nothing but make quotation marks straight: its other fixers look for other
# characters, HTML entities (&), control characters and carriage returns, and these marks are no mojibake.
_ONLY_QUOTES_CHANGE = re.compile("[\t\n\x0c\x20-\x25\x27-\x7e\u2013\u2014\u2018\u2019\u201c\u201d\u2026]*")
# Affixes are short, but for runs of full stops: each is first looked for in so many characters.
_AFFIX_WINDOW = 16
# Longer chunks are seldom seen again, and so are not kept in memory.
_LONGEST_CACHED = 64
# difflib's time may grow with the cube of a length, so longer sequences are aligned by their places alone.
_MOST_COMPARED = 256


def fixed_lines(text: str) -> Iterator[tuple[str, str]]:
    """The lines of a text with their newlines, before and after `ftfy.fix_text`, which treats them one by one."""
    if ftfy is None:
        raise ImportError("GPT's tokenizer needs ftfy: pip install ftfy")
    if text.isascii() and text.isprintable() and "&" not in text:
        yield text, text
        return
    unescape_html = "auto"
    for line in re.findall(r"[^\n]*\n|[^\n]+", text):
        if _ONLY_QUOTES_CHANGE.fullmatch(line):
            yield line, uncurl_quotes(line)
        else:
            yield line, ftfy.fix_text(line, unescape_html=unescape_html)
        # ftfy stops unescaping entities for the rest of a text at its first <.
        unescape_html = False if "<" in line else unescape_html


def fix_text(text: str) -> str:
    """What `ftfy.fix_text` returns with its defaults, several times as quick for most English texts."""
    return "".join(fixed for _, fixed in fixed_lines(text))


def clean_up(text: str) -> str:
    """The release's clean-up: plain dashes, dots and apostrophes, and runs of punctuation between spaces."""
    return PUNCTUATION_RUN.sub(r" \g<0> ", text.translate(PLAIN_CHARACTERS))


class WordSplitter:
    """
    Turns text into the release's words, lower-cased, separated by single spaces, newlines as words of their own.

    The algorithm is that of spaCy's tokenizer. It treats each chunk between white space by itself, save for special
    cases that hold affixes or spaces (`:)`, `'em.`): these it looks up among the words of the whole line at the end.
    So chunks are remembered, and a line with one that such a special case would change is looked up as a whole.

    Args:
        rules (`dict`): those of spaCy's tokenizer of a language: regular expressions for `prefixes`, `suffixes` and
            `infixes`, for `url` and, or `None`, for any other `token_match` that is not split; `cases`, the special
            cases, with their words.
    """

    def __init__(self, rules: dict[str, Any]):
        self.prefix = re.compile("|".join(f"^{rule}" for rule in rules["prefixes"]))
        self.suffix = re.compile("|".join(f"{rule}$" for rule in rules["suffixes"]))
        self.infix = re.compile("|".join(rules["infixes"]))
        self.url = re.compile(rules["url"])
        self.whole = re.compile(rules["token_match"] or "(?!)")
        self.cases = {case: words.split(" ") for case, words in rules["cases"].items()}
        # Those that are looked up at the end, by the words that they would be without special cases.
        self._late = {
            tuple(word for chunk in case.split() for word in self._split(chunk, {})): case
            for case in self.cases
            if " " in case or any(rule.search(case) for rule in (self.prefix, self.suffix, self.infix))
        }
        self._changed = {words for words, case in self._late.items() if list(words) != self.cases[case]}
        self._longest_late = max(map(len, self._late), default=0)
        self._late_across_chunks = any(" " in case for case in self._late.values())
        self._split_part = _remembered(functools.partial(self._split, cases=self.cases))
        self._split_chunk = _remembered(self._split_chunk)

    def _split(self, part: str, cases: dict[str, list[str]]) -> list[str]:
        # spacy/tokenizer.pyx: _split_affixes and _attach_tokens.
        before, after, size = [], [], 0
        while len(part) != size and part not in cases and not self.whole.match(part):
            size = len(part)
            start = _affix_length(self.prefix, part)
            if start and part[start:] in cases:
                before.append(part[:start])
                part = part[start:]
                break
            end = size - _affix_length(self.suffix, part[start:], at_end=True)
            if end < size and part[:end] in cases:
                after.append(part[end:])
                part = part[:end]
                break
            before.append(part[:start])
            after.append(part[end:])
            part = part[start:end]
        middle = cases[part] if part in cases else self._split_infixes(part)
        return [word for word in (*before, *middle, *reversed(after)) if word]

    def _split_infixes(self, part: str) -> list[str]:
        if self.whole.match(part) or self.url.match(part):
            return [part]
        words, done = [], 0
        for found in self.infix.finditer(part):
            if found.start():
                words += (part[done : found.start()], found[0])
                done = found.end()
        return [*words, part[done:]]

    def _spans(self, words: Sequence[str]) -> Iterable[tuple[int, int]]:
        # All that may be a late special case, by start and end.
        for start in range(len(words)):
            for end in range(start + 1, min(start + self._longest_late, len(words)) + 1):
                yield start, end

    def _split_chunk(self, chunk: str) -> str | None:
        # None if the words may depend on the rest of the line.
        words = [word for part in clean_up(chunk).split() for word in self._split_part(part)]
        late = self._late_across_chunks or any(tuple(words[i:j]) in self._changed for i, j in self._spans(words))
        return None if late else " ".join(words).lower()

    def _split_line(self, line: str) -> str:
        found = [self._split_chunk(chunk) for chunk in line.split()]
        return " ".join(self._look_up_late(line)).lower() if None in found else " ".join(found)

    def _look_up_late(self, line: str) -> list[str]:
        # spacy/tokenizer.pyx: _filter_special_spans and _retokenize_special_spans. Of matches that overlap the longest
        # counts, of those the first, though it may change nothing.
        parts = [self._split_part(part) for part in clean_up(line).split()]
        words = [word for part in parts for word in part]
        behind_space = set(itertools.accumulate(map(len, parts)))
        matches = [(start, end) for start, end in self._spans(words) if tuple(words[start:end]) in self._late]
        taken, ends, changed, start = set(), {}, [], 0
        for first, end in sorted(matches, key=lambda match: (match[0] - match[1], match[0])):
            if first not in taken and end - 1 not in taken:
                ends[first] = end
            taken.update(range(first, end))
        while start < len(words):
            end = ends.get(start, start + 1)
            spaced = (" " * (place in behind_space) + words[place] for place in range(start + 1, end))
            case = "".join((words[start], *spaced)) if start in ends else None
            changed += self.cases.get(case, words[start:end])
            start = end
        return changed

    def __call__(self, text: str) -> str:
        """The lower-cased words of any text, separated by single spaces; a newline is the word newline."""
        return " \n ".join(filter(None, map(self._split_line, fix_text(text).split("\n"))))


def _remembered(function: Callable[[str], Any]) -> Callable[[str], Any]:
    cached = functools.lru_cache(1 << 17)(function)
    return lambda text: (cached if len(text) <= _LONGEST_CACHED else function)(text)


def _affix_length(affixes: re.Pattern, part: str, at_end: bool = False) -> int:
    # By as few of the first, or last, characters as need be: long runs take linear time.
    size = _AFFIX_WINDOW
    while True:
        window = part[-size:] if at_end else part[:size]
        found = affixes.search(window)
        length = len(found[0]) if found else 0
        if length < size // 2 or size >= len(part):
            return length
        size *= 2


@functools.lru_cache(maxsize=8)
def word_splitter(rules: str) -> WordSplitter:
    """The process's one `WordSplitter` by the rules of a `words.json`, given as its text."""
    return WordSplitter(json.loads(rules))


@functools.cache
def english_rules() -> str:
    """The text of `words_en.json`: English rules, which come with the code."""
    return Path(__file__).with_name("words_en.json").read_text(encoding="utf-8")


def align(text: str, words: str) -> list[tuple[int, int]]:
    """Start and end in the text of what each character of its words (`WordSplitter`) comes from; a space: (0, 0)."""
    origins, base, after_newline = [], 0, False
    for before, after in fixed_lines(text):
        for character, (start, end) in zip(after, _origins(before, after), strict=True):
            if character == "\n" and origins:
                # One word for all newlines between two words, none for those before the first.
                first = origins.pop()[0] if after_newline else base + start
                origins.append((first, base + end))
                after_newline = True
            elif not character.isspace():
                origins += [(base + start, base + end)] * len(character.translate(PLAIN_CHARACTERS).lower())
                after_newline = False
        base += len(before)
    found = iter(origins)
    return [(0, 0) if character == " " else next(found) for character in words]


def _origins(before: str, after: str) -> list[tuple[int, int]]:
    """Where in a line each character of what ftfy makes of it comes from."""
    if uncurl_quotes(before) == after:
        return [(index, index + 1) for index in range(len(after))]
    # First whole words, then the characters of the words that differ: fast on long lines.
    old_words, new_words = (re.findall(r"\s*\S+|\s+$", side) for side in (before, after))
    origins, base = [], 0
    for _, old_start, old_end, new_start, new_end in _differences(old_words, new_words):
        old, new = "".join(old_words[old_start:old_end]), "".join(new_words[new_start:new_end])
        for _, start, end, first, last in [("", 0, len(old), 0, len(new))] if old == new else _differences(old, new):
            if end - start == last - first:
                origins += [(base + index, base + index + 1) for index in range(start, end)]
            else:
                origins += [(base + start, base + end)] * (last - first)
        base += len(old)
    return origins


def _differences(before: Sequence[str], after: Sequence[str]) -> list[tuple[str, int, int, int, int]]:
    if max(len(before), len(after)) <= _MOST_COMPARED:
        return difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
    if len(before) == len(after):
        return [("", index, index + 1, index, index + 1) for index in range(len(before))]
    changed = (index for index, (old, new) in enumerate(zip(before, after, strict=False)) if old != new)
    same = next(changed, min(len(before), len(after)))
    return [("", 0, same, 0, same), ("", same, len(before), same, len(after))]


class LazyBatchEncoding(BatchEncoding):
    """A `BatchEncoding` whose `encodings` (tokens, words, positions) are moved when they are first asked for."""

    _ends_with_a_word = False

    def __setitem__(self, name: str, value: Any) -> None:
        # transformers' text generation pipeline keeps the prompt here, and puts what is generated right after it. A
        # prompt ends with a word, and the space between two words is in the tokens of neither.
        if name == "prompt_text" and self._ends_with_a_word and value and not value[-1:].isspace():
            value += " "
        super().__setitem__(name, value)

    @functools.cached_property
    def _encodings(self) -> list[Encoding]:
        return self._move()


def _with_offsets(encoding: Encoding, offsets_of: Callable[[Encoding], list[tuple[int, int]]]) -> Encoding:
    """An encoding of the `tokenizers` library, and what overflowed from it, with other character positions."""
    state = json.loads(encoding.__getstate__())
    parts = (_with_offsets(part, offsets_of) for part in encoding.overflowing)
    state |= {"offsets": offsets_of(encoding), "overflowing": [json.loads(part.__getstate__()) for part in parts]}
    found = Encoding()
    found.__setstate__(json.dumps(state).encode())
    return found


def _with_masks_hidden(text: str, mask: str | None) -> tuple[str, str]:
    """A text with a made-up word, as long as the mask and split as words are, for each mask; that word, or none."""
    if mask is None or mask not in text:
        return text, ""
    made_up = next(word for letter in ascii_lowercase if (word := letter * len(mask)) not in text.lower())
    return text.replace(mask, made_up), made_up


class GPTTokenizer(PreTrainedTokenizerFast):
    """
    The original GPT's tokenizer with the interface of a fast tokenizer. Ids equal those of the release's encoder.

    Ids: the vocabulary (`<unk>` is 0), then `_start_`, `_delimiter_`, `_classify_`, `<pad>`. `_start_` is the
    `bos_token`, `_delimiter_` the `sep_token`, `_classify_` the `cls_token`; there is no `eos_token`, as the release
    has none. Text never becomes a special token, whatever it contains (`split_special_tokens` is always on), but for
    the mask of a masked language model: where there is a `mask_token`, it stands for itself.

    The index of `word_ids()` counts the release's words; with `is_split_into_words=True` each given word is treated as
    a text of its own (a word of white space with a newline is the newline token) and the index counts these. Offsets
    point into the text, or the word, as given; where ftfy changes it, as well as `difflib` aligns the two.

    A vocabulary of all 256 bytes without end marks is GPT-2's: `byte_level` is true then, ids, offsets and decoding
    are those of transformers' `GPT2Tokenizer`, the special tokens follow its own, `<|endoftext|>` is `eos_token` and
    `unk_token`. `tokenizer.json` alone takes lower-cased words separated by single spaces.

    Args:
        task_template (`bool`, *optional*, defaults to `False`): whether `tokenizer(a)` gives `_start_ a _classify_`
            and `tokenizer(a, b)` gives `_start_ a _delimiter_ b _classify_` (section 3.3 of the paper). Otherwise no
            special tokens are added, as language models want it.
        vocab (`dict[str, int]`, *optional*), merges (`list[tuple[str, str]]`, *optional*): the vocabulary, and the BPE
            merges, first learnt first.
        unk_token, pad_token, bos_token, sep_token, cls_token (`str`, *optional*): the special tokens.
        mask_token (`str`, *optional*): what hides a token, such as `<mask>`; by default there is none. It becomes the
            last row where the vocabulary does not have it.
        words (`dict`, *optional*): the rules by which `WordSplitter` splits text, by default the English ones.
        kwargs: those of `PreTrainedTokenizerFast`, such as `model_max_length` or `padding_side`.

    Raises:
        ValueError: if there is no vocabulary, or `words.json` holds no rules.
    """

    # The first two are those of transformers' `openai-gpt`, and are not written.
    vocab_files_names = {
        "vocab_file": "vocab.json",
        "merges_file": "merges.txt",
        "tokenizer_file": "tokenizer.json",
        "words_file": "words.json",
    }
    model_input_names = ["input_ids", "attention_mask"]
    padding_side = truncation_side = "right"

    def __init__(self, task_template: bool = False, vocab=None, merges=None, words: dict | None = None, **kwargs):
        named = {name: kwargs.pop(name, token) for name, token in NAMED_TOKENS.items()}
        # A setting of hf_gpt 0.1, which changes nothing any more.
        kwargs.pop("mode", None)
        backend, language = kwargs.pop("tokenizer_object", None), kwargs.pop("language", None)
        vocab_file, merges_file, tokenizer_file, words_file = map(kwargs.pop, self.vocab_files_names, [None] * 4)
        if backend is not None:
            self._tokenizer = copy.deepcopy(backend)
        elif vocab is not None and merges is not None:
            self._tokenizer = _new_backend(vocab, merges, str(named["unk_token"]))
        else:
            self._tokenizer = _read_backend(tokenizer_file, vocab_file, merges_file, str(named["unk_token"]))
        # Whether this is GPT-2's tokenizer, whose pieces are bytes.
        pieces, self._rules = self._tokenizer.get_vocab(with_added_tokens=False), None
        self.byte_level = not self._tokenizer.model.end_of_word_suffix and _holds_bytes(pieces)
        if self.byte_level:
            self._prepare_bytes(named, kwargs)
        else:
            self._rules = _read_rules(words_file, language) if words is None else show_rules(words)
            # Words arrive ready: a file of transformers' own tokenizer must not split them again.
            self._tokenizer.normalizer = None
            self._tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", behavior="removed")
        # Before the base class adds them in an order of its own.
        self._tokenizer.add_special_tokens([token for token in named.values() if token is not None])
        self._task_template, kwargs["split_special_tokens"] = bool(task_template), True
        super().__init__(task_template=task_template, **named, **kwargs)
        if self.mask_token is not None:
            self._let_texts_hold_the_mask()
        self.update_post_processor()

    def _prepare_bytes(self, named: dict[str, Any], kwargs: dict[str, Any]) -> None:
        # What a stock tokenizer has for the tokens of tasks, often the end of text, is not what a model knows.
        backend, vocabulary = self._tokenizer, self._tokenizer.get_vocab()
        if "_start_" not in vocabulary:
            named |= NAMED_TOKENS | {"unk_token": named["unk_token"]}
        end = END_OF_TEXT if END_OF_TEXT in vocabulary else None
        named["unk_token"] = named["unk_token"] if str(named["unk_token"]) in vocabulary else end
        found = backend.pre_tokenizer
        prefix = isinstance(found, pre_tokenizers.ByteLevel) and found.add_prefix_space
        kwargs |= {"eos_token": end, "add_prefix_space": prefix} | kwargs
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=bool(kwargs["add_prefix_space"]))
        if end is not None:
            backend.add_special_tokens([end])

    def _let_texts_hold_the_mask(self) -> None:
        # The base class has added it as special, as what text never becomes, and the backend cannot take that back.
        state = json.loads(self._tokenizer.to_str())
        for token in state["added_tokens"]:
            token["special"] = token["special"] and token["content"] != self.mask_token
            # GPT-2's words bring their space with them.
            token["lstrip"] = token["lstrip"] or (self.byte_level and token["content"] == self.mask_token)
        self._tokenizer = Tokenizer.from_str(json.dumps(state))
        self._tokenizer.encode_special_tokens = True

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path, *args, **kwargs) -> "GPTTokenizer":
        """As in transformers, with the task template for a pipeline that classifies texts."""
        if kwargs.get("_from_pipeline") in ("text-classification", "zero-shot-classification"):
            # The head needs its tokens, and of an adapter the pipeline takes the tokenizer of the base model.
            kwargs.setdefault("task_template", True)
        return super().from_pretrained(pretrained_model_name_or_path, *args, **kwargs)

    @classmethod
    def convert_to_native_format(cls, trust_remote_code: bool = False, **kwargs) -> dict[str, Any]:
        # The base class would take tokenizer.json apart; `__init__` reads it as a whole.
        return kwargs

    @property
    def task_template(self) -> bool:
        """`bool`: whether special tokens are added as the paper does for tasks. May be set."""
        return self._task_template

    @task_template.setter
    def task_template(self, value: bool) -> None:
        self._task_template = bool(value)
        self.update_post_processor()

    @property
    def language(self) -> str:
        """`str`: the code of the language by whose rules text is split into words, `en` for GPT-2's bytes, too."""
        return "en" if self._rules is None else json.loads(self._rules)["language"]

    @property
    def newline_id(self) -> int:
        """`int`: the token between two paragraphs."""
        return self.convert_tokens_to_ids("\u010a" if self.byte_level else "\n" + END_OF_WORD)

    def piece(self, token_id: int) -> tuple[str, bool | None]:
        """A token's text, and whether it ends a word, which GPT-2's do not say: a space stands before their words."""
        if self.byte_level:
            return self.decode([token_id]), None
        token = self.convert_ids_to_tokens(token_id)
        return token.removesuffix(END_OF_WORD), token.endswith(END_OF_WORD)

    def update_post_processor(self) -> None:
        """Writes the template and the decoder into the backend."""
        if self._task_template:
            before, between, after = [self.bos_token], [self.sep_token], [self.cls_token]
            if None in (*before, *between, *after):
                raise ValueError("the task template needs a bos_token, a sep_token and a cls_token")
        else:
            # As in transformers, a flag for a token that there is not is off.
            self._add_bos_token = self.add_bos_token and self.bos_token is not None
            self._add_eos_token = self.add_eos_token and self.eos_token is not None
            before, after = [self.bos_token] * self._add_bos_token, [self.eos_token] * self._add_eos_token
            between = [*after, *before]
        specials = dict.fromkeys([*before, *between, *after])
        self._tokenizer.post_processor = processors.TemplateProcessing(
            single=[*before, "$A:0", *after],
            pair=[*before, "$A:0", *between, "$B:1", *after],
            special_tokens=[(token, self.convert_tokens_to_ids(token)) for token in specials],
        )
        # Special tokens have no end mark of their own.
        steps = [decoders.Replace(token, token + END_OF_WORD) for token in self.all_special_tokens]
        steps += [decoders.BPEDecoder(suffix=END_OF_WORD), decoders.Fuse(), decoders.Replace(Regex(" ?\n ?"), "\n")]
        self._tokenizer.decoder = decoders.ByteLevel() if self.byte_level else decoders.Sequence(steps)

    def _encode_plus(self, text, text_pair=None, return_tensors=None, is_split_into_words=False, **kwargs):
        kwargs["split_special_tokens"] = True
        if isinstance(text, (list, tuple)) and not text:  # the base class looks for a first text
            return BatchEncoding({name: [] for name in self.model_input_names}, tensor_type=return_tensors)
        batched = isinstance(text, (list, tuple)) and (not is_split_into_words or isinstance(text[0], (list, tuple)))
        alone = not batched and isinstance(text, str) != is_split_into_words
        if alone:
            # The base class takes an empty second text for none, but not in a batch.
            text, text_pair = [text], None if text_pair is None else [text_pair]
        prepared = (self._prepared(given, is_split_into_words) for given in (text, text_pair))
        encoded = super()._encode_plus(*prepared, is_split_into_words=is_split_into_words, **kwargs)
        found = LazyBatchEncoding(encoded.data, encoded.encodings)
        found._ends_with_a_word = alone and not self.byte_level and not is_split_into_words
        if is_split_into_words or not self.byte_level:
            samples = encoded.get("overflow_to_sample_mapping", range(len(text)))
            pairs = text_pair or [None] * len(text)
            sources = [_sequences_of(*pair, is_split_into_words) for pair in zip(text, pairs, strict=True)]
            found._move = lambda: [
                _with_offsets(each, functools.partial(self._offsets_in, sources[sample]))
                for each, sample in zip(encoded.encodings, samples, strict=True)
            ]
            del found._encodings  # what `_move` returns takes their place
        if kwargs.get("return_offsets_mapping"):
            found["offset_mapping"] = [each.offsets for each in found.encodings]
        if alone and return_tensors is None and not kwargs.get("return_overflowing_tokens"):
            found.data = {name: row[0] if isinstance(row[0], list) else row for name, row in found.items()}
        return found.convert_to_tensors(return_tensors)

    def split_words(self, text: str) -> str:
        """The words of a text as the backend gets them: lower-cased, separated by spaces, the mask as it is."""
        shown, made_up = _with_masks_hidden(text, self.mask_token)
        words = word_splitter(self._rules)(shown)
        return words.replace(made_up, self.mask_token) if made_up else words

    def _prepared(self, given: Any, in_words: bool) -> Any:
        """What the library gets for texts, or for lists of words: words separated by spaces, of GPT-2 the text."""
        if isinstance(given, (list, tuple)):
            if self.byte_level and in_words and given and isinstance(given[0], str):
                return [given[0], *(f" {word}" for word in given[1:])]
            return type(given)(self._prepared(each, in_words) for each in given)
        if self.byte_level or not isinstance(given, str):
            return given
        is_newline = in_words and "\n" in given and given.isspace()
        return "\n" if is_newline else self.split_words(given)

    def _offsets_in(self, sources: Sequence[str | Sequence[str]], encoding: Encoding) -> list[tuple[int, int]]:
        """Positions in the text as given, or in a given word, of an encoding of words."""

        @functools.cache
        def origins(sequence: int, word: int | None) -> list[tuple[int, int]]:
            text = sources[sequence] if word is None else sources[sequence][word]
            if word is not None and "\n" in text and text.isspace():
                return [(text.index("\n"), text.rindex("\n") + 1)]
            shown, _ = _with_masks_hidden(text, self.mask_token)
            return align(shown, self.split_words(shown))

        offsets = []
        rows = zip(encoding.sequence_ids, encoding.word_ids, encoding.offsets, strict=True)
        for sequence, word, (start, end) in rows:
            if sequence is None:
                offsets.append((0, 0))
            elif self.byte_level:
                # All but the first of the given words had a space put before them.
                offsets.append((max(start - 1, 0), end - 1) if word else (start, end))
            else:
                found = origins(sequence, None if isinstance(sources[sequence], str) else word)
                offsets.append((found[start][0], found[end - 1][1]))
        return offsets

    def _save_pretrained(self, save_directory, *args, **kwargs) -> tuple[str, ...]:
        # The backend keeps those of the last call, which are no part of the tokenizer.
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        files = super()._save_pretrained(save_directory, *args, **kwargs)
        if self.byte_level:
            return files
        words_file = Path(save_directory) / self.vocab_files_names["words_file"]
        words_file.write_text(self._rules, encoding="utf-8", newline="\n")
        return (*files, str(words_file))

    def train_new_from_iterator(self, *args, **kwargs):
        """Not available: the vocabulary must be learnt behind the release's word splitting."""
        raise NotImplementedError("train a vocabulary with hf-gpt train_tokenizer")


def show_rules(rules: dict[str, Any]) -> str:
    """The text of a `words.json`: JSON with a line for each rule."""
    return json.dumps(rules, ensure_ascii=False, indent=1) + "\n"


def _read_rules(path: str | None, language: str | None) -> str:
    """The rules in a `words.json`, by default the English ones; a `ValueError` names what is damaged."""
    rules = english_rules() if path is None else Path(path).read_text(encoding="utf-8")
    try:
        found = json.loads(rules)["language"]
        word_splitter(rules)
    except (ValueError, LookupError, TypeError, AttributeError, re.error, RecursionError) as error:
        raise ValueError(f"{path}: no rules of words as save_pretrained writes them ({error})") from error
    if language not in (None, found):
        raise ValueError(f"The words of {language!r} need a words.json of their own, found that of {found!r}.")
    return rules


def _read_backend(tokenizer_file, vocab_file, merges_file, unk_token: str) -> Tokenizer:
    """The backend in `tokenizer.json`, or in a stock model's two files; a `ValueError` names what is damaged."""
    if tokenizer_file is None and None in (vocab_file, merges_file):
        raise ValueError("GPTTokenizer needs a vocabulary: GPTTokenizer.from_pretrained(directory) loads a saved one")
    if tokenizer_file is None:
        return _new_backend(*models.BPE.read_file(str(vocab_file), str(merges_file)), unk_token)
    try:
        return Tokenizer.from_file(str(tokenizer_file))
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # the library has no other kind than Exception, and panics, which are none
        raise ValueError(f"{tokenizer_file}: no tokenizer of the tokenizers library ({error})") from error


def _new_backend(vocab: dict[str, int], merges: list[tuple[str, str]], unk_token: str) -> Tokenizer:
    if _holds_bytes(vocab):
        return Tokenizer(models.BPE(vocab=vocab, merges=merges, continuing_subword_prefix="", end_of_word_suffix=""))
    return Tokenizer(models.BPE(vocab=vocab, merges=merges, unk_token=unk_token, end_of_word_suffix=END_OF_WORD))


def _holds_bytes(vocabulary: dict[str, int]) -> bool:
    marked = any(token.endswith(END_OF_WORD) for token in vocabulary)
    return not marked and vocabulary.keys() >= set(pre_tokenizers.ByteLevel.alphabet())


def _sequences_of(text: Any, text_pair: Any, is_split_into_words: bool) -> Sequence[str | Sequence[str]]:
    """The one or two sequences of an input: texts, or lists of words."""
    if text_pair is not None:
        return [text, text_pair]
    if is_split_into_words:
        return text if text and isinstance(text[0], (list, tuple)) else [text]
    return [text] if isinstance(text, str) else text  # a text, or a pair of texts


# So that `save_pretrained` writes this file and its place in `auto_map`, too.
GPTTokenizer.register_for_auto_class()
