"""
The tokenizer of the original GPT (Radford et al., 2018): the release's text standardisation, word splitting and BPE.

`text -> ftfy -> clean-up -> spaCy's English words -> lower case -> BPE with the end mark </w>`. The words come from
`word_splitting.py`, the BPE is that of the `tokenizers` library. With a vocabulary of bytes it is GPT-2's tokenizer.
"""

import copy
import functools
import itertools
import json
from collections.abc import Callable
from typing import Any

from tokenizers import AddedToken, Encoding, Regex, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import BatchEncoding, PreTrainedTokenizerFast
from transformers.tokenization_utils_base import PaddingStrategy, TruncationStrategy
from transformers.utils import logging

from .alignment import (
    LazyBatchEncoding,
    is_newline_word,
    offsets_in,
    offsets_in_spaced_words,
    realigned,
    sequences_of,
)
from .configuration_gpt import UNREADABLE
from .word_splitting import TextIds, word_splitter

logger = logging.get_logger(__name__)
END_OF_WORD = "</w>"
# GPT-2's one special token, which parts documents.
END_OF_TEXT = "<|endoftext|>"
_NO_MODES = (
    "mode='fast' was a setting of hf_gpt 0.1: the ids are the release's own now, which takes ftfy and spaCy. "
    "PreTrainedTokenizerFast.from_pretrained reads a folder that was saved with it as it was then; "
    "hf_gpt.conversion.fast_tokenizer makes the like of any tokenizer."
)


def _with_masks_hidden(text: str, mask: str | None) -> tuple[str, str]:
    """A text with a made-up word, as long as the mask and split as words are, for each mask; that word, or none."""
    if mask is None or mask not in text:
        return text, ""
    letters = itertools.cycle("zqxjkvwp")
    made_up = "".join(itertools.islice(letters, 7 + len(mask)))
    for start in range(8):
        word = made_up[start : start + len(mask)]
        if word not in text.lower():
            return text.replace(mask, word), word
    raise ValueError(f"A text with {mask!r} holds every made-up word that could stand for it, such as {word!r}.")


def _map_strings(function, texts):
    if isinstance(texts, str):
        return function(texts)
    if isinstance(texts, (list, tuple)):
        return type(texts)(_map_strings(function, text) for text in texts)
    return texts


class GPTTokenizer(PreTrainedTokenizerFast):
    """
    The original GPT's tokenizer with the interface of a fast tokenizer. Ids equal those of the release's encoder.

    Ids: the vocabulary (`<unk>` is 0), then `_start_`, `_delimiter_`, `_classify_`, `<pad>`. `_start_` is the
    `bos_token`, `_delimiter_` the `sep_token`, `_classify_` the `cls_token`; there is no `eos_token`, as the release
    has none. Text never becomes a special token, whatever it contains (`split_special_tokens` is always on), but for
    the mask of a masked language model: where there is a `mask_token`, it stands for itself.

    The index of `word_ids()` counts the release's words; with `is_split_into_words=True` each given word is treated as
    a text of its own (so `don't` still becomes `do n't`; a word of white space with a newline is the newline token)
    and the index counts the given words. Offsets point into the text as given (into the given word with
    `is_split_into_words=True`), exactly so where ftfy leaves the text alone, and as well as `difflib` aligns the two
    texts where it does not; the newline token spans from the first to the last newline of its white space.

    `tokenizer.json` holds the BPE, the special tokens and the template: loaded by the `tokenizers` library alone it
    takes lower-cased words parted by single spaces.

    A vocabulary of all 256 bytes without end marks is GPT-2's: `byte_level` is true then, text is split as GPT-2 does,
    ids, offsets and decoding are those of transformers' `GPT2Tokenizer`, and the special tokens stand behind its own.
    `<|endoftext|>` is the `eos_token` and the `unk_token`. Of the words of `is_split_into_words=True` all but the
    first get a space before them.

    Args:
        task_template (`bool`, *optional*, defaults to `False`): whether `tokenizer(a)` gives `_start_ a _classify_`
            and `tokenizer(a, b)` gives `_start_ a _delimiter_ b _classify_` (section 3.3 of the paper). Otherwise no
            special tokens are added, as language models want it.
        vocab (`dict[str, int]`, *optional*): the vocabulary.
        merges (`list[tuple[str, str]]`, *optional*): the BPE merges, first learnt first.
        unk_token, pad_token, bos_token, sep_token, cls_token (`str`, *optional*): the special tokens.
        mask_token (`str`, *optional*): what hides a token, such as `<mask>`; by default there is none. It becomes the
            last row where the vocabulary does not have it.
        language (`str`, *optional*, defaults to `"en"`): by whose rules spaCy splits words, for a vocabulary that was
            learnt so (`scripts/train_tokenizer.py --language de`).
        kwargs: those of `PreTrainedTokenizerFast`, such as `model_max_length` or `padding_side`.

    Raises:
        ValueError: if there is no vocabulary.
    """

    # The first two are those of a stock `openai-gpt`; only the last is written.
    vocab_files_names = {"vocab_file": "vocab.json", "merges_file": "merges.txt", "tokenizer_file": "tokenizer.json"}
    model_input_names = ["input_ids", "attention_mask"]
    padding_side = "right"
    truncation_side = "right"

    def __init__(
        self,
        task_template: bool = False,
        vocab: dict[str, int] | None = None,
        merges: list[tuple[str, str]] | None = None,
        unk_token: str = "<unk>",
        pad_token: str = "<pad>",
        bos_token: str = "_start_",
        sep_token: str = "_delimiter_",
        cls_token: str = "_classify_",
        mask_token: str | None = None,
        language: str = "en",
        **kwargs,
    ):
        named = {"unk_token": unk_token, "pad_token": pad_token, "bos_token": bos_token}
        named |= {"sep_token": sep_token, "cls_token": cls_token, "mask_token": mask_token}
        if not isinstance(kwargs.get("model_max_length"), int | float | None):
            raise ValueError(f"model_max_length must be a number, not {kwargs['model_max_length']!r}")
        if not isinstance(language, str):
            raise ValueError(f"language must be a code such as 'de', not {language!r}")
        self.language = language
        mode = kwargs.pop("mode", "exact")
        if mode not in ("exact", "fast"):
            raise ValueError(f"mode={mode!r}: there is one way to split text, so leave it out.")
        if mode == "fast":
            logger.warning(_NO_MODES)
        tokenizer_object = kwargs.pop("tokenizer_object", None)
        files = [kwargs.pop(name, None) for name in ("tokenizer_file", "vocab_file", "merges_file")]
        if tokenizer_object is not None:
            self._tokenizer = copy.deepcopy(tokenizer_object)
        elif vocab is not None and merges is not None:
            self._tokenizer = _new_backend(vocab, merges, str(unk_token))
        else:
            self._tokenizer = _read_backend(*files, str(unk_token))
        # Whether this is GPT-2's tokenizer, whose pieces are bytes.
        self.byte_level = not self._tokenizer.model.end_of_word_suffix and _holds_bytes(
            self._tokenizer.get_vocab(with_added_tokens=False)
        )
        if self.byte_level:
            named, kwargs = self._prepare_bytes(named, kwargs)
        else:
            # Words arrive ready: a file of the stock tokenizer, or one of mode fast, must not split them again.
            self._tokenizer.normalizer = None
            self._tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", behavior="removed")
        # Before the base class adds them in an order of its own.
        self._tokenizer.add_special_tokens(
            [
                token if isinstance(token, AddedToken) else AddedToken(token, normalized=False, special=True)
                for token in map(named.get, ("unk_token", "bos_token", "sep_token", "cls_token", "pad_token"))
                if token is not None
            ]
        )
        self._text_ids = TextIds()
        self._task_template = bool(task_template)
        kwargs["split_special_tokens"] = True
        super().__init__(task_template=task_template, language=language, **named, **kwargs)
        if self.mask_token is not None:
            self._let_texts_hold_the_mask()
        self.update_post_processor()

    def _prepare_bytes(self, named: dict[str, Any], kwargs: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        # The settings of a stock tokenizer become ours. What it has been given for the tokens of tasks, often the end
        # of text, is not what a model knows as these.
        backend = self._tokenizer
        vocabulary = backend.get_vocab()
        if "_start_" not in vocabulary:
            named |= {
                "bos_token": "_start_",
                "sep_token": "_delimiter_",
                "cls_token": "_classify_",
                "pad_token": "<pad>",
            }
        end = END_OF_TEXT if END_OF_TEXT in vocabulary else None
        named["unk_token"] = named["unk_token"] if str(named["unk_token"]) in vocabulary else end
        found = backend.pre_tokenizer
        prefix = isinstance(found, pre_tokenizers.ByteLevel) and found.add_prefix_space
        kwargs = {"eos_token": end, "add_prefix_space": prefix} | kwargs
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=bool(kwargs["add_prefix_space"]))
        if end is not None:
            backend.add_special_tokens([AddedToken(end, normalized=False, special=True)])
        return named, kwargs

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
        """As in transformers; whatever is wrong in a file is a `ValueError` that says whose it is."""
        try:
            return super().from_pretrained(pretrained_model_name_or_path, *args, **kwargs)
        except UNREADABLE as error:
            raise ValueError(
                f"tokenizer.json or tokenizer_config.json of {pretrained_model_name_or_path} cannot be read: {error}"
            ) from error

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
        self._special_ids = [self.convert_tokens_to_ids(tokens) for tokens in (before, between, after)]
        self._tokenizer.post_processor = processors.TemplateProcessing(
            single=[*before, "$A:0", *after],
            pair=[*before, "$A:0", *between, "$B:1", *after],
            special_tokens=[
                (token, self.convert_tokens_to_ids(token)) for token in dict.fromkeys([*before, *between, *after])
            ],
        )
        self._template = self._tokenizer.post_processor.__getstate__()
        steps = [
            # Special tokens have no end mark of their own.
            *(decoders.Replace(token, token + END_OF_WORD) for token in self.all_special_tokens),
            decoders.BPEDecoder(suffix=END_OF_WORD),
            decoders.Fuse(),
            decoders.Replace(Regex(" ?\n ?"), "\n"),
        ]
        self._tokenizer.decoder = decoders.ByteLevel() if self.byte_level else decoders.Sequence(steps)

    def build_inputs_with_special_tokens(
        self, token_ids_0: list[int], token_ids_1: list[int] | None = None
    ) -> list[int]:
        """
        The ids of one or two sequences with the tokens of the task template, or of `add_bos_token` and
        `add_eos_token`.
        """
        before, between, after = self._special_ids
        if token_ids_1 is not None:
            token_ids_0 = [*token_ids_0, *between, *token_ids_1]
        return [*before, *token_ids_0, *after]

    def get_special_tokens_mask(
        self, token_ids_0: list[int], token_ids_1: list[int] | None = None, already_has_special_tokens: bool = False
    ) -> list[int]:
        """As in transformers: 1 for a special token, 0 for others."""
        if already_has_special_tokens:
            return super().get_special_tokens_mask(token_ids_0, token_ids_1, already_has_special_tokens=True)
        placeholders = [None if ids is None else [None] * len(ids) for ids in (token_ids_0, token_ids_1)]
        return [int(index is not None) for index in self.build_inputs_with_special_tokens(*placeholders)]

    def _encode_plus(self, text, text_pair=None, return_tensors=None, **kwargs) -> BatchEncoding:
        kwargs.pop("split_special_tokens", None)
        if isinstance(text, (list, tuple)) and not text:
            # The base class looks for a first text.
            return BatchEncoding({name: [] for name in self.model_input_names}, tensor_type=return_tensors)
        encoded = None if self.byte_level else self._encode_ids(text, text_pair, return_tensors, **kwargs)
        return self._encode_words(text, text_pair, return_tensors, **kwargs) if encoded is None else encoded

    def _encode_ids(
        self,
        text,
        text_pair,
        return_tensors=None,
        add_special_tokens: bool = True,
        padding_strategy: PaddingStrategy = PaddingStrategy.DO_NOT_PAD,
        truncation_strategy: TruncationStrategy = TruncationStrategy.DO_NOT_TRUNCATE,
        max_length: int | None = None,
        pad_to_multiple_of: int | None = None,
        padding_side: str | None = None,
        return_attention_mask: bool | None = None,
        verbose: bool = True,
        **others,
    ) -> BatchEncoding | None:
        # The same as `_encode_words` by a cache of ids, many times as quick; None where the latter has to do it.
        if any(others.values()):
            return None
        batched = isinstance(text, (list, tuple))
        texts, pairs = (text, text_pair) if batched else ([text], None if text_pair is None else [text_pair])
        settings = self._settings()
        if settings is None or not _are_texts(texts) or (pairs is not None and not _are_texts(pairs, len(texts))):
            return None
        if self.mask_token is not None and any(self.mask_token in each for each in (*texts, *(pairs or ()))):
            return None
        if self._text_ids.backend is not self._tokenizer:
            self._text_ids = TextIds(self._tokenizer, self.language)
        rows = [list(map(self._text_ids, side)) for side in (texts, pairs) if side is not None]
        is_cut = truncation_strategy != TruncationStrategy.DO_NOT_TRUNCATE
        room = (max_length or 0) - add_special_tokens * self.num_special_tokens_to_add()
        if is_cut and pairs is None and room > 0 and truncation_strategy != TruncationStrategy.ONLY_SECOND:
            kept = slice(room) if self.truncation_side == "right" else slice(-room, None)
            rows = [[ids[kept] for ids in rows[0]]]
        if add_special_tokens:
            rows = list(map(self.build_inputs_with_special_tokens, *rows))
        else:
            rows = [list(itertools.chain(*row)) for row in zip(*rows, strict=True)]
        if is_cut and (max_length is None or max(map(len, rows)) > max_length):
            return None
        for row in rows:
            self._eventual_warn_about_too_long_sequence(row, max_length, verbose)
        data = {"input_ids": rows}
        if return_attention_mask is None or return_attention_mask:
            data["attention_mask"] = [[1] * len(row) for row in rows]
        padding = {
            "max_length": max_length,
            "pad_to_multiple_of": pad_to_multiple_of,
            "padding_side": padding_side or self.padding_side,
        }
        if padding_strategy != PaddingStrategy.DO_NOT_PAD:
            wants_mask = "attention_mask" in data
            data = self.pad(data, padding_strategy, return_attention_mask=wants_mask, verbose=False, **padding).data
        if not batched and return_tensors is None:
            data = {name: values[0] for name, values in data.items()}
        encoded = LazyBatchEncoding(data, tensor_type=return_tensors, n_sequences=1 if pairs is None else 2)
        arguments = {
            "add_special_tokens": add_special_tokens,
            "padding_strategy": padding_strategy,
            "truncation_strategy": truncation_strategy,
            "verbose": False,
            **padding,
        }
        # Copies, as the caller may change the lists.
        texts, pairs = (list(texts), pairs and list(pairs)) if batched else (text, text_pair)
        encoded._make_encodings = functools.partial(self._encodings_of, settings, texts, pairs, arguments)
        return encoded

    def _encodings_of(self, settings: tuple, text, text_pair, arguments: dict[str, Any]) -> list[Encoding]:
        if self._settings() != settings:
            raise ValueError(
                "the tokenizer has been changed since this text was encoded: encode it again for tokens and positions"
            )
        return self._encode_words(text, text_pair, **arguments).encodings

    def _settings(self) -> tuple | None:
        # What ids depend on besides the vocabulary and the arguments, or None if text may become added tokens, pieces
        # are drawn by chance, or the template is not the tokenizer's own.
        backend = self._tokenizer
        added = backend.get_added_tokens_decoder()
        template = backend.post_processor.__getstate__()
        if (
            template != self._template
            or backend.model.dropout is not None
            or not all(token.special or token.content == self.mask_token for token in added.values())
        ):
            return None
        return template, len(added), self.truncation_side, self.pad_token

    def _encode_words(
        self, text, text_pair=None, return_tensors=None, is_split_into_words: bool = False, **kwargs
    ) -> BatchEncoding:
        # By the library's encodings of what it gets, whose positions are moved to those in what was given.
        batched = isinstance(text, (list, tuple)) and (not is_split_into_words or isinstance(text[0], (list, tuple)))
        alone = not batched and isinstance(text, str) != is_split_into_words
        if alone:
            # The base class takes an empty second text for none, but not in a batch.
            text, text_pair = [text], None if text_pair is None else [text_pair]
        prepared = (self._prepared(given, is_split_into_words) for given in (text, text_pair))
        encoded = super()._encode_plus(
            *prepared, is_split_into_words=is_split_into_words, split_special_tokens=True, **kwargs
        )
        found = LazyBatchEncoding(encoded.data, encoded.encodings, n_sequences=encoded.n_sequences)
        if is_split_into_words or not self.byte_level:
            samples = encoded.get("overflow_to_sample_mapping", range(len(text)))
            places = self._places(text, text_pair, is_split_into_words)
            found._make_encodings = lambda: [
                realigned(encoding, places[sample])
                for encoding, sample in zip(encoded.encodings, samples, strict=True)
            ]
        if kwargs.get("return_offsets_mapping"):
            found["offset_mapping"] = [encoding.offsets for encoding in found.encodings]
        if alone and return_tensors is None and not kwargs.get("return_overflowing_tokens"):
            found.data = {name: row[0] if isinstance(row[0], list) else row for name, row in found.items()}
        return found.convert_to_tensors(return_tensors)

    def _prepared(self, given, is_split_into_words: bool):
        """What the library gets for texts, or for lists of words: words parted by spaces, of GPT-2 the text itself."""
        if self.byte_level:
            return _with_spaces(given) if is_split_into_words else given

        def split(text: str) -> str:
            if is_split_into_words and is_newline_word(text):
                return "\n"
            shown, word = _with_masks_hidden(text, self.mask_token)
            words = word_splitter(self.language)(shown)
            return words.replace(word, self.mask_token) if word else words

        return _map_strings(split, given)

    def _places(self, texts, pairs, is_split_into_words: bool) -> list[Callable[[Encoding], list[tuple[int, int]]]]:
        """What tells the positions in each of the given texts."""
        if self.byte_level:
            return [offsets_in_spaced_words] * len(texts)

        def hide(text: str) -> str:
            return _with_masks_hidden(text, self.mask_token)[0]

        # As they were split, and as long as they were given.
        texts, pairs = _map_strings(hide, texts), _map_strings(hide, pairs) or [None] * len(texts)
        sources = [sequences_of(*pair, is_split_into_words) for pair in zip(texts, pairs, strict=True)]
        return [functools.partial(offsets_in, source, self.language) for source in sources]

    def add_tokens(self, new_tokens, special_tokens: bool = False) -> int:
        """As any tokenizer's, but a `ValueError` for what no text holds once it is split into lower-cased words."""
        tokens = list(new_tokens) if isinstance(new_tokens, (list, tuple)) else [new_tokens] * bool(new_tokens)
        for token in () if special_tokens or self.byte_level else tokens:
            if not getattr(token, "special", False) and str(token) not in (
                words := word_splitter(self.language)(str(token))
            ):
                raise ValueError(
                    f"{str(token)!r} would never be found, text becomes lower-cased words: add {words!r} instead."
                )
        return super().add_tokens(tokens, special_tokens=special_tokens)

    def _save_pretrained(self, *args, **kwargs) -> tuple[str, ...]:
        # The backend keeps those of the last call, which are no part of the tokenizer.
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        return super()._save_pretrained(*args, **kwargs)

    def train_new_from_iterator(self, *args, **kwargs):
        """Not available: the vocabulary must be learnt behind the release's word splitting."""
        raise NotImplementedError("train a vocabulary with scripts/train_tokenizer.py")


def _read_backend(tokenizer_file, vocab_file, merges_file, unk_token: str) -> Tokenizer:
    """The backend in `tokenizer.json`, or in a stock model's two files; a `ValueError` names what is damaged."""
    if tokenizer_file is None and None in (vocab_file, merges_file):
        raise ValueError(
            "GPTTokenizer needs a vocabulary: GPTTokenizer.from_pretrained(directory) loads a saved tokenizer, "
            "hf_gpt.conversion.tokenizers.release_tokenizer(directory) the release's files"
        )
    try:
        if tokenizer_file is None:
            return _new_backend(*models.BPE.read_file(str(vocab_file), str(merges_file)), unk_token)
        backend = Tokenizer.from_file(str(tokenizer_file))
    except BaseException as error:  # the library raises no other kind than Exception, and panics, which are none
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        raise ValueError(
            f"{tokenizer_file or vocab_file}: no tokenizer of the tokenizers library ({error})"
        ) from error
    if not isinstance(backend.model, models.BPE):
        raise ValueError(f"{tokenizer_file}: expected a BPE, found {type(backend.model).__name__}")
    return backend


def _new_backend(vocab: dict[str, int], merges: list[tuple[str, str]], unk_token: str) -> Tokenizer:
    if _holds_bytes(vocab):
        return Tokenizer(models.BPE(vocab=vocab, merges=merges, continuing_subword_prefix="", end_of_word_suffix=""))
    return Tokenizer(models.BPE(vocab=vocab, merges=merges, unk_token=unk_token, end_of_word_suffix=END_OF_WORD))


def _holds_bytes(vocabulary: dict[str, int]) -> bool:
    return vocabulary.keys() >= set(pre_tokenizers.ByteLevel.alphabet()) and not any(
        token.endswith(END_OF_WORD) for token in vocabulary
    )


def _with_spaces(batch):
    """Words with a space before all but the first of each text."""
    return batch and [[f" {word}" if number else word for number, word in enumerate(words)] for words in batch]


def _are_texts(texts, number: int | None = None) -> bool:
    # The base class has the messages for what is not.
    same_number = number is None or (isinstance(texts, (list, tuple)) and len(texts) == number)
    return same_number and set(map(type, texts)) == {str}
