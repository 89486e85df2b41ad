"""Our checkpoints in sentence-transformers; skipped where it is not installed."""

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from hf_gpt import GPTForSequenceClassification
from hf_gpt.features import FeatureExtractor

sentence_transformers = pytest.importorskip("sentence_transformers", reason="needs pip install sentence-transformers")
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer  # noqa: E402

TEXTS = ["She didn't open the door.", "Yes", "The rain fell all night upon the roofs of the town. " * 12]


@pytest.fixture(scope="module", params=["language model", "classifier"])
def checkpoint(request, tiny_checkpoint, tmp_path_factory) -> Path:
    """A language model, and a fine-tuned one whose tokenizer adds the special tokens."""
    if request.param == "language model":
        return tiny_checkpoint
    tuned = tmp_path_factory.mktemp("tuned")
    GPTForSequenceClassification.from_pretrained(tiny_checkpoint).save_pretrained(tuned)
    AutoTokenizer.from_pretrained(tiny_checkpoint, task_template=True).save_pretrained(tuned)
    return tuned


@pytest.mark.parametrize(("mode", "pooling"), [("mean", "mean"), ("lasttoken", "last")])
def test_embeddings_are_our_features(checkpoint, mode, pooling, tmp_path):
    transformer = Transformer(str(checkpoint))
    pool = Pooling(transformer.get_embedding_dimension(), pooling_mode=mode)
    embedder = sentence_transformers.SentenceTransformer(modules=[transformer, pool], device="cpu")
    model, tokenizer = AutoModel.from_pretrained(checkpoint), AutoTokenizer.from_pretrained(checkpoint)
    expected = FeatureExtractor(model, tokenizer, pooling=pooling)(TEXTS).states[2]
    torch.testing.assert_close(embedder.encode(TEXTS, convert_to_tensor=True), expected, rtol=0, atol=1e-5)

    embedder.save(str(tmp_path / "saved"))
    again = sentence_transformers.SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    np.testing.assert_allclose(again.encode(TEXTS), expected.numpy(), rtol=0, atol=1e-5)


def test_state_of_the_classify_token(tiny_checkpoint):
    """Of a language model, by switching the task template on."""
    transformer = Transformer(str(tiny_checkpoint), processor_kwargs={"task_template": True})
    pool = Pooling(32, pooling_mode="lasttoken")
    embedder = sentence_transformers.SentenceTransformer(modules=[transformer, pool], device="cpu")
    tokenizer = AutoTokenizer.from_pretrained(tiny_checkpoint, task_template=True)
    expected = FeatureExtractor(AutoModel.from_pretrained(tiny_checkpoint), tokenizer, pooling="classify")(
        TEXTS
    ).states[2]
    torch.testing.assert_close(embedder.encode(TEXTS, convert_to_tensor=True), expected, rtol=0, atol=1e-5)
