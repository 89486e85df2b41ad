"""The Trainer of language models on packed rows: perplexities in the log, the release's schedules, samples."""

import math
import sys
from functools import cached_property

import torch
from datasets import Dataset
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from transformers import PreTrainedModel

from ..model.tokenization_gpt import GPTTokenizer
from .checkpoints import WholeCheckpointTrainer
from .optimization import get_release_schedule

# Of a sample: tokens that are given, and tokens that the model goes on with.
_PROMPT, _SAMPLE = 8, 24


def perplexity(loss: float) -> float:
    """`exp(loss)`, infinite where no number is large enough."""
    return math.exp(loss) if loss < math.log(sys.float_info.max) else math.inf


class LanguageModelTrainer(WholeCheckpointTrainer):
    """
    `WholeCheckpointTrainer` for rows as `hf_gpt.training.packing.pack_documents` gives them, with
    `PretrainingArguments`.

    Each evaluation also logs `eval_perplexity`, exp(nats per predicted token), and `eval_word_perplexity`, exp(nats
    per word): the words are the white-space words of the texts as given, so that it can be compared between
    vocabularies.
    """

    @cached_property
    def tokens_per_word(self) -> float:
        """`float`: predicted tokens of the evaluation rows for each word; the first token of a piece is not one."""
        rows = self.eval_dataset
        predicted = sum(len(ids) for ids in rows["input_ids"]) - sum(len(starts) for starts in rows["starts"])
        return predicted / max(sum(rows["words"]), 1.0)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Add the perplexities to what an evaluation has found."""
        if "eval_loss" in logs:
            logs["eval_perplexity"] = perplexity(logs["eval_loss"])
            logs["eval_word_perplexity"] = perplexity(logs["eval_loss"] * self.tokens_per_word)
        super().log(logs, start_time)

    def create_scheduler(self, num_training_steps: int, optimizer: Optimizer | None = None) -> LRScheduler:
        """One of the release's schedules, or with `args.schedule == "trainer"` that of `args.lr_scheduler_type`."""
        if self.lr_scheduler is None and self.args.schedule != "trainer":
            warmup = self.args.get_warmup_steps(num_training_steps) / num_training_steps
            self.lr_scheduler = get_release_schedule(
                self.optimizer if optimizer is None else optimizer, self.args.schedule, num_training_steps, warmup
            )
            self._created_lr_scheduler = True
        return super().create_scheduler(num_training_steps, optimizer)


def samples(
    model: PreTrainedModel, tokenizer: GPTTokenizer, rows: Dataset, count: int = 3, seed: int = 0
) -> list[str]:
    """
    What a language model goes on with behind the beginnings of some rows, drawn from its 40 likeliest tokens.

    Args:
        model (`PreTrainedModel`): one that can generate; left in the mode that it is in.
        tokenizer (`GPTTokenizer`): of the model.
        rows (`datasets.Dataset`): as `pack_documents` gives them.
        count (`int`, *optional*, defaults to 3): samples at most.
        seed (`int`, *optional*, defaults to 0): of the draws; the random state around stays as it is.

    Returns:
        `list[str]`: a line each, ` | ` between what was given and what was drawn.
    """
    context = model.config.n_positions
    given = max(1, min(_PROMPT, context // 2))
    chosen = rows.select(range(0, len(rows), max(1, len(rows) // count)))[:count]["input_ids"]
    prompts = torch.tensor([row[:given] for row in chosen], device=model.device)  # (samples, given)
    device, was_training = model.device, model.training
    own = {"devices": []} if device.type == "cpu" else {"devices": [device.index or 0], "device_type": device.type}
    with torch.random.fork_rng(**own):
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
