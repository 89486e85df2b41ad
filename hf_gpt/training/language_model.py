"""The Trainers of language models on packed rows: what is logged, the release's schedules, samples."""

import math
import sys
from functools import cached_property
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from torch import nn
from torch.optim import Optimizer
from transformers import EvalPrediction, PreTrainedModel

from ..model.tokenization_gpt import GPTTokenizer
from ..trees.collators import IGNORED_LABEL, MaskedRows, PackedRowCollator
from .optimization import MuonAndAdamW
from .trainer import SetEpoch, WholeCheckpointTrainer, own_random_state

# Of a sample: tokens that are given, and tokens that the model adds.
_PROMPT, _SAMPLE = 8, 24
# Tokens of a sample of a masked language model.
_FILLED = 32


def perplexity(loss: float) -> float:
    """`exp(loss)`, infinite where no number is large enough."""
    return math.exp(loss) if loss < math.log(sys.float_info.max) else math.inf


class LanguageModelTrainer(WholeCheckpointTrainer):
    """
    `WholeCheckpointTrainer` for rows of `hf_gpt.training.packing`, with `PretrainingArguments`. Each evaluation also
    logs `eval_perplexity`, exp(nats per predicted token), and `eval_word_perplexity`, exp(nats per word): of the
    white-space words of the texts as given, so that it can be compared between vocabularies.
    """

    # Names of what an evaluation adds to its loss.
    measures = ("perplexity", "word_perplexity")

    def create_optimizer(self, model: nn.Module | None = None) -> Optimizer:
        """
        The Trainer's own choice (`args.optim`), or with `args.optimizer == "muon"` Muon for the matrices of the blocks
        and AdamW for the rest, whose norms alone do not decay: biases of queries and keys that grow without bound make
        heads look at one token.
        """
        args = self.args
        if self.optimizer is None and args.optimizer == "muon":
            if self.is_fsdp_enabled or self.is_deepspeed_enabled:
                raise ValueError("--optimizer muon needs whole matrices: leave out FSDP and DeepSpeed.")
            model = model or self.model
            matrices = [weight for weight in model.transformer.h.parameters() if weight.ndim == 2]
            norms = [each for part in model.modules() if isinstance(part, nn.LayerNorm) for each in part.parameters()]
            taken = {*matrices, *norms}
            groups = [{"params": [each for each in model.parameters() if each not in taken]}]
            groups.append({"params": norms, "weight_decay": 0.0})
            betas = (args.adam_beta1, args.adam_beta2)
            self.optimizer = MuonAndAdamW(
                matrices, groups, args.learning_rate, args.weight_decay, betas, args.adam_epsilon
            )
        return super().create_optimizer(model)

    @cached_property
    def tokens_per_word(self) -> float:
        """`float`: predicted tokens of the evaluation rows for each word; the first token of a piece is not one."""
        rows = self.eval_dataset
        predicted = sum(len(ids) for ids in rows["input_ids"]) - sum(len(starts) for starts in rows["starts"])
        return predicted / max(sum(rows["words"]), 1.0)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Add the perplexities to what an evaluation has found."""
        if "eval_loss" in logs:
            logs.update(self.perplexities(logs["eval_loss"]))
        super().log(logs, start_time)

    def perplexities(self, loss: float) -> dict[str, float]:
        """What the loss of an evaluation says."""
        return {"eval_perplexity": perplexity(loss), "eval_word_perplexity": perplexity(loss * self.tokens_per_word)}


class MaskedLanguageModelTrainer(LanguageModelTrainer):
    """
    `LanguageModelTrainer` of a `GPTForMaskedLM` on `MaskedRows`, which logs `eval_masked_perplexity`, exp(nats per
    hidden token), and `eval_masked_word_accuracy`, the share of hidden words of which each token is the likeliest one.
    """

    measures = ("masked_perplexity", "masked_word_accuracy")

    def __init__(self, *args: Any, train_dataset: MaskedRows, **kwargs: Any):
        def accuracy(found: EvalPrediction) -> dict[str, float]:
            shares = masked_word_accuracy(found.predictions, found.label_ids, train_dataset)
            return {"masked_word_accuracy": shares}

        kwargs |= {"compute_metrics": accuracy, "preprocess_logits_for_metrics": lambda logits, _: logits.argmax(-1)}
        super().__init__(*args, train_dataset=train_dataset, **kwargs)
        self.args.prediction_loss_only = False
        # accelerate tells a data set its epoch, but not through the wrappers of several processes or a resumption.
        self.add_callback(SetEpoch(train_dataset))

    def perplexities(self, loss: float) -> dict[str, float]:
        """What the loss of an evaluation says."""
        return {"eval_masked_perplexity": perplexity(loss)}

    def prediction_step(self, model: Any, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        """As the Trainer does, with logits, which the model leaves out where weights are given."""
        return super().prediction_step(model, inputs | {"lm_weights": None}, *args, **kwargs)


def masked_word_accuracy(guesses: np.ndarray, labels: np.ndarray, rows: MaskedRows) -> float:
    """
    The share of hidden words that are guessed whole: `guesses` and `labels`, -100 where nothing is hidden, have the
    shape `(rows, length)`; `rows` say which tokens end and start a word.
    """
    hidden = labels != IGNORED_LABEL
    ids = np.where(hidden, labels, 0)
    begins = hidden.copy()
    begins[:, 1:] &= ~hidden[:, :-1] | rows.ends_word[ids[:, :-1]] | rows.starts_word[ids[:, 1:]]
    words = np.cumsum(begins)[hidden.ravel()] - 1  # of each hidden token the number of its word
    right = np.ones(int(begins.sum()), dtype=bool)
    right[words[(guesses != labels)[hidden]]] = False
    return float(right.mean())


def samples(
    model: PreTrainedModel, tokenizer: GPTTokenizer, rows: Dataset, count: int = 3, seed: int = 0
) -> list[str]:
    """
    How a language model continues the beginnings of some packed rows, drawn from its 40 likeliest tokens:
    a line each, ` | ` between what was given and what was drawn. Model and random state stay as they are.
    """
    context = model.config.n_positions
    given = max(1, min(_PROMPT, context // 2))
    chosen = rows.select(range(0, len(rows), max(1, len(rows) // count)))[:count]["input_ids"]
    prompts = torch.tensor([row[:given] for row in chosen], device=model.device)  # (samples, given)
    was_training = model.training
    with own_random_state(model.device):
        torch.manual_seed(seed)
        drawn = model.eval().generate(
            input_ids=prompts,
            attention_mask=torch.ones_like(prompts),
            max_new_tokens=min(_SAMPLE, context - given),
            do_sample=True,
            top_k=40,
        )
    model.train(was_training)
    texts = [[tokenizer.decode(part) for part in (row[:given], row[given:])] for row in drawn.tolist()]
    return [" | ".join(" ".join(part.split()) for part in parts) for parts in texts]


def fillings(model: PreTrainedModel, tokenizer: GPTTokenizer, rows: MaskedRows, count: int = 3) -> list[str]:
    """
    What a `GPTForMaskedLM` puts for the masks in the beginnings of some rows: a line each, ` | ` between the text with
    its masks, the tokens that the model finds likeliest in their places, and those that stood there.
    """
    chosen = [rows[index] for index in range(0, len(rows), max(1, len(rows) // count))][:count]
    batch = PackedRowCollator()([{name: row[name] for name in ("input_ids", "starts")} for row in chosen])
    names = [name for name in ("input_ids", "position_ids", "subtree_end") if name in batch]
    was_training = model.training
    with torch.no_grad():
        logits = model.eval()(**{name: batch[name].to(model.device) for name in names}).logits
    model.train(was_training)

    lines = []
    for row, guesses in zip(chosen, logits.argmax(-1).tolist(), strict=True):
        ids = row["input_ids"][:_FILLED]
        masks = [place for place, token_id in enumerate(ids) if token_id == tokenizer.mask_token_id]
        listed = (
            ", ".join(tokenizer.decode([of[place]]).strip() for place in masks) for of in (guesses, row["labels"])
        )
        lines.append(" | ".join([" ".join(tokenizer.decode(ids).split()), *listed]))
    return lines
