"""The Trainers of language models on packed rows: what is logged, Muon, the accuracy of hidden words."""

import math
from typing import Any

import numpy as np
from torch import nn
from torch.optim import Optimizer

from ..trees.collators import IGNORED_LABEL, MaskedRows, collate_packed_rows
from .optimization import MuonAndAdamW
from .trainer import SetEpoch, WholeCheckpointTrainer


def perplexity(loss: float) -> float:
    """`exp(loss)`, infinite where that is no number any more."""
    return math.exp(loss) if loss < 709.7 else math.inf


class LanguageModelTrainer(WholeCheckpointTrainer):
    """
    `WholeCheckpointTrainer` for rows of `hf_gpt.training.packing`, with `PretrainingArguments`. An evaluation logs
    `eval_perplexity`, exp(nats per predicted token), and `eval_word_perplexity`, exp(nats per white-space word of the
    texts); with `MaskedRows` `eval_masked_perplexity`, exp(nats per hidden token), and `eval_masked_word_accuracy`.
    """

    def __init__(self, *args: Any, train_dataset: Any, **kwargs: Any):
        super().__init__(*args, train_dataset=train_dataset, data_collator=collate_packed_rows, **kwargs)
        self.is_masked, self.measures = isinstance(train_dataset, MaskedRows), ("perplexity", "word_perplexity")
        if self.is_masked:
            self.measures = ("masked_perplexity", "masked_word_accuracy")
            self.args.prediction_loss_only = False
            self.preprocess_logits_for_metrics = lambda found, labels: found.argmax(-1)
            self.compute_metrics = lambda found: {"masked_word_accuracy": masked_word_accuracy(*found, train_dataset)}
            self.add_callback(SetEpoch(train_dataset))

    def create_optimizer(self, model: nn.Module | None = None) -> Optimizer:
        """The Trainer's own, or Muon for the matrices of the blocks and AdamW for the rest: norms do not decay."""
        args = self.args
        if self.optimizer is None and args.optimizer == "muon":
            if self.is_fsdp_enabled:
                raise ValueError("--optimizer muon needs whole matrices: leave out FSDP.")
            model = model or self.model
            matrices = [weight for weight in model.transformer.h.parameters() if weight.ndim == 2]
            norms = [each for part in model.modules() if isinstance(part, nn.LayerNorm) for each in part.parameters()]
            taken = {*matrices, *norms}
            groups = [{"params": [each for each in model.parameters() if each not in taken]}]
            groups.append({"params": norms, "weight_decay": 0.0})
            own = {"betas": (args.adam_beta1, args.adam_beta2), "eps": args.adam_epsilon}
            self.optimizer = MuonAndAdamW(matrices, groups, args.learning_rate, args.weight_decay, **own)
        return super().create_optimizer(model)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Add the perplexities to what an evaluation has found."""
        if (loss := logs.get("eval_loss")) is not None:
            logs[f"eval_{self.measures[0]}"] = perplexity(loss)
            if not self.is_masked:
                rows = self.eval_dataset  # in which the first token of a piece is not predicted
                predicted = sum(map(len, rows["input_ids"])) - sum(map(len, rows["starts"]))
                logs["eval_word_perplexity"] = perplexity(loss * predicted / max(sum(rows["words"]), 1.0))
        super().log(logs, start_time)

    def prediction_step(self, model: Any, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        """As the Trainer does; of a masked model with logits, which it leaves out where weights are given."""
        inputs = inputs | {"lm_weights": None} if self.is_masked else inputs
        return super().prediction_step(model, inputs, *args, **kwargs)


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
