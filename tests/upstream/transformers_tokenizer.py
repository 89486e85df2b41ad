"""transformers' common tests of tokenizers on GPTTokenizer with gpt-mini's vocabulary."""

import unittest
from pathlib import Path

from tests.test_tokenization_common import TokenizerTesterMixin
from tests.test_tokenizers_backend_mixin import TokenizersBackendTesterMixin

from hf_gpt import GPTTokenizer

GPT_MINI = str(Path(__file__).resolve().parents[2] / "model_cards" / "gpt-mini")


class TokenizerTests(TokenizerTesterMixin, TokenizersBackendTesterMixin):
    tokenizer_class = rust_tokenizer_class = GPTTokenizer
    from_pretrained_id = [GPT_MINI]
    test_tokenizer_from_extractor = False

    @classmethod
    def setUpClass(cls):
        TokenizersBackendTesterMixin.setUpClass.__func__(cls)
        cls.from_pretrained_kwargs = cls.from_pretrained_kwargs or {}
        TokenizerTesterMixin.setUpClass.__func__(cls)


class Exact(TokenizerTests, unittest.TestCase):
    pass
