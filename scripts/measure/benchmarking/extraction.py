"""Vectors of real sentences: this project, transformers' feature-extraction pipeline, and sentence-transformers."""

import functools
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from transformers import OpenAIGPTDoubleHeadsModel, PreTrainedModel, pipeline

from hf_gpt import GPTForMultipleChoice, GPTTokenizer
from hf_gpt.features import FeatureExtractor
from hf_gpt.tasks import load_task

from .contenders import as_ours, our_model, peer_config
from .measure import in_turns

SENTENCES = 256
BATCH = 32
OURS, STOCK, STOCK_BATCHED, SENTENCE_TRANSFORMERS = (
    "hf_gpt",
    "openai-gpt, pipeline",
    f"openai-gpt, pipeline, batches of {BATCH}",
    "sentence-transformers",
)
Embed = Callable[[Sequence[str]], np.ndarray]


def sentences(data_dir: Path, number: int, seed: int) -> list[str]:
    """Premises of SNLI, drawn at random: single English sentences as people write them."""
    premises = load_task("snli", data_dir / "snli").splits["validation"].unique("premise")
    return [premises[index] for index in np.random.default_rng(seed).permutation(len(premises))[:number]]


def same_weights(size: dict) -> tuple[PreTrainedModel, PreTrainedModel]:
    """Our transformer and the stock one with the same random weights, in evaluation mode."""
    theirs = OpenAIGPTDoubleHeadsModel(peer_config("openai-gpt", size))
    ours = our_model(GPTForMultipleChoice, size)
    ours.load_state_dict(as_ours(theirs.state_dict()))
    return ours.transformer.eval(), theirs.transformer.eval()


def embedders(size: dict, tokenizer: GPTTokenizer, folder: Path, device: torch.device) -> dict[str, Embed]:
    """
    Each contender's way from sentences to the mean of the last hidden states, `(sentences, n_embd)`.

    All have the same tokenizer, so that the same tokens are read. The pipeline returns the states of all tokens, as
    tensors, of which the mean is taken here; it runs one sentence at a time unless told otherwise.
    """
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    ours, theirs = (model.to(device) for model in same_weights(size))
    ours.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    transformer = Transformer(str(folder))
    pooling = Pooling(transformer.get_embedding_dimension(), pooling_mode="mean")
    embedder = SentenceTransformer(modules=[transformer, pooling], device=str(device))
    extractor = FeatureExtractor(ours, tokenizer, pooling="mean")
    stock = pipeline("feature-extraction", model=theirs, tokenizer=tokenizer, device=device)

    def batched(texts: Sequence[str]) -> np.ndarray:
        lengths = [len(ids) for ids in tokenizer(list(texts))["input_ids"]]
        states = stock(list(texts), batch_size=BATCH, return_tensors=True)
        return np.stack([states[row][0, :length].mean(0).numpy() for row, length in enumerate(lengths)])

    return {
        OURS: lambda texts: extractor(texts).states[size["n_layer"]].numpy(),
        STOCK: lambda texts: np.stack([s[0].mean(0).numpy() for s in stock(list(texts), return_tensors=True)]),
        STOCK_BATCHED: batched,
        SENTENCE_TRANSFORMERS: lambda texts: embedder.encode(list(texts), batch_size=BATCH),
    }


def extraction(
    data_dir: Path, tokenizer: GPTTokenizer, size: dict, rounds: int, seed: int, device: torch.device
) -> dict[str, Any]:
    """Times of every contender in turns, and by how much their vectors differ from ours at most."""
    texts = sentences(data_dir, SENTENCES, seed)
    torch.manual_seed(seed)
    verbosity = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()  # the pipeline advises to use a data set
    with tempfile.TemporaryDirectory() as folder:
        ways = embedders(size, tokenizer, Path(folder), device)
        vectors = {name: embed(texts) for name, embed in ways.items()}
        turns = {name: functools.partial(embed, texts) for name, embed in ways.items()}
        times, medians = in_turns(turns, rounds, device, "extraction")
    transformers.logging.set_verbosity(verbosity)
    return {
        "suite": "extraction",
        "sentences": len(texts),
        "tokens": sum(len(ids) for ids in tokenizer(texts)["input_ids"]),
        "seconds": times,
        "median_seconds": medians,
        "ratio": {name: value / medians[OURS] for name, value in medians.items()},
        "vectors_differ": {name: float(np.abs(value - vectors[OURS]).max()) for name, value in vectors.items()},
    }


def extraction_table(result: Mapping[str, Any]) -> str:
    """A Markdown table of the contenders' sentences per second."""
    lines = ["| mean of the last states | sentences/s | time | vectors differ by |", "|---|---|---|---|"]
    for name, seconds in result["median_seconds"].items():
        speed, ratio = result["sentences"] / seconds, result["ratio"][name]
        lines.append(f"| {name} | {speed:.0f} | {ratio:.2f} x | {result['vectors_differ'][name]:.0e} |")
    return "\n".join(lines)
