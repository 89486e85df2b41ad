"""Our checkpoints in sentence-transformers; skipped where it is not installed."""

import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from hf_gpt.features import FeatureExtractor

sentence_transformers = pytest.importorskip("sentence_transformers", reason="needs pip install sentence-transformers")
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer  # noqa: E402

TEXTS = ["She didn't open the door.", "Yes", "The rain fell all night upon the roofs of the town. " * 12]


@pytest.mark.parametrize(
    ("mode", "pooling", "template"),
    [("mean", "mean", False), ("lasttoken", "last", False), ("lasttoken", "classify", True), ("mean", "mean", True)],
)
def test_embeddings_are_our_features(tiny_checkpoint, mode, pooling, template, tmp_path):
    transformer = Transformer(str(tiny_checkpoint), processor_kwargs={"task_template": template})
    pool = Pooling(transformer.get_embedding_dimension(), pooling_mode=mode)
    embedder = sentence_transformers.SentenceTransformer(modules=[transformer, pool], device="cpu")
    tokenizer = AutoTokenizer.from_pretrained(tiny_checkpoint, task_template=template)
    extractor = FeatureExtractor(AutoModel.from_pretrained(tiny_checkpoint), tokenizer, pooling=pooling)
    expected = extractor(TEXTS).states[2]
    embedder.save(str(tmp_path / "saved"))
    for each in (embedder, sentence_transformers.SentenceTransformer(str(tmp_path / "saved"), device="cpu")):
        found = each.encode(TEXTS, convert_to_tensor=True)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
