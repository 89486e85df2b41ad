"""
Text-to-text tasks as language modelling (Radford et al., 2019, section 3): `text prompt target end`, with the loss on
target and end alone, and targets generated behind the prompt.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from accelerate.utils import gather_object
from datasets import Dataset
from tqdm.auto import tqdm
from transformers import EvalPrediction

from ..model.configuration_gpt import GPTConfig, default_generation_config
from ..model.modeling_gpt import GPTForCausalLM
from ..model.tokenization_gpt import GPTTokenizer
from ..tasks.encode import EMPTY
from ..tasks.metrics import text_metrics
from ..tasks.spec import TEXT_TO_TEXT, TaskSpec
from ..trees.collators import IGNORED_LABEL, collate_trees
from ..trees.token_tree import TokenTree
from .arguments import DataArguments
from .language_model import perplexity
from .trainer import GPTTrainer

DEFAULT_PROMPT = "TL;DR:"


def saved_settings(config: GPTConfig) -> dict[str, Any]:
    """`prompt`, `max_new_tokens` and `num_beams` that a text-to-text model was saved with; of others nothing."""
    return (getattr(config, "task_specific_params", None) or {}).get(TEXT_TO_TEXT, {})


def declare_targets(model: GPTForCausalLM, spec: TaskSpec, tokenizer: GPTTokenizer, data: DataArguments) -> None:
    """
    Of a text-to-text task, have configuration, generation settings and tokenizer say, in place, how targets are
    written: the prompt, as the flags say or else as the model was saved with, and the end, which is `_classify_` where
    there is no end-of-text token. `model.generate` then stops by itself.
    """
    if spec.family != TEXT_TO_TEXT:
        return
    config, length = model.config, data.max_length or model.config.n_positions
    if not config.is_causal:
        raise ValueError("--target_column needs a causal model: a masked one writes no text.")
    settings = {"prompt": DEFAULT_PROMPT, "max_new_tokens": length // 4, "num_beams": 1} | saved_settings(config)
    settings |= {name: given for name in settings if (given := getattr(data, name)) is not None}
    if not config.eos_token_ids:
        config.eos_token_id = config.classify_token_id
    config.untrained_token_ids = sorted({*(config.untrained_token_ids or ())} - {*config.eos_token_ids}) or None
    config.task_specific_params = {TEXT_TO_TEXT: settings}
    model.generation_config = default_generation_config(config)
    model.generation_config.update(**settings, do_sample=False)
    tokenizer.task_template, tokenizer.padding_side = False, "left"
    tokenizer.eos_token = tokenizer.convert_ids_to_tokens(config.eos_token_ids[0])


@dataclass(frozen=True)
class TargetTransform:
    """
    Token ids of a row's `text` and `label`, the target, which may be missing -> the tree of one sequence with
    `lm_weights` of 1 for target and end, whose `path_ends` is the last token of the prompt. Of `max_length` tokens the
    last `max_new_tokens` are for target and end, of any row; a text that does not fit before them loses its end.
    """

    joined: ClassVar[tuple[str, ...]] = ("label",)
    prompt: tuple[int, ...]
    end: int
    max_length: int
    max_new_tokens: int

    @classmethod
    def of(cls, config: GPTConfig, tokenizer: GPTTokenizer, max_length: int) -> "TargetTransform":
        """As a model declares it (`declare_targets`); a `ValueError` if no token is left for a text."""
        settings = saved_settings(config)
        prompt = tokenizer(f" {settings['prompt']}", add_special_tokens=False)["input_ids"]
        if max_length <= len(prompt) + settings["max_new_tokens"]:
            what = f"--max_new_tokens {settings['max_new_tokens']} and a prompt of {len(prompt)} tokens leave"
            raise ValueError(f"{what} nothing of {max_length} tokens for a text: shorten one of them.")
        return cls(tuple(prompt), config.eos_token_ids[0], max_length, settings["max_new_tokens"])

    def fit(self, row: Mapping[str, Sequence[int]]) -> tuple[TokenTree, int]:
        """The tree of a row, and how many tokens of its text are lost; a `ValueError` if the target does not fit."""
        target = [*row["label"], self.end] if row["label"] else []
        if len(target) > self.max_new_tokens:
            found = f"A target has {len(target)} tokens, its end among them, where --max_new_tokens"
            raise ValueError(f"{found} keeps {self.max_new_tokens} of {self.max_length}: raise this.")
        text = row["text"][: self.max_length - len(self.prompt) - self.max_new_tokens]
        source = [*text, *self.prompt]
        weights = (0.0,) * len(source) + (1.0,) * len(target)
        tree = replace(TokenTree.from_paths([[*source, *target]]), lm_weights=weights, path_ends=(len(source) - 1,))
        return tree, len(row["text"]) - len(text)


def collate_targets(rows: Sequence[Mapping[str, Any]], pad_token_id: int) -> dict[str, torch.Tensor]:
    """Pads trees of `TargetTransform`; `labels` of shape `(batch, length)` are the targets, -100 elsewhere."""
    batch = collate_trees([TokenTree.from_row(row) for row in rows], pad_token_id)
    del batch["classify_index"]  # of a head
    return batch | {"labels": batch["input_ids"].masked_fill(batch["lm_weights"] == 0, IGNORED_LABEL)}


def target_loss(prediction: EvalPrediction) -> dict[str, float]:
    """Loss, nats per token of the targets and their ends, and perplexity, of sums and counts of shape `(rows, 2)`."""
    total, count = prediction.predictions.sum(axis=0, dtype=np.float64)
    return {"loss": total / count, "perplexity": perplexity(total / count)}


class TextToTextTrainer(GPTTrainer):
    """
    `GPTTrainer` for a `GPTForCausalLM` whose targets are declared (`declare_targets`) and trees of `TargetTransform`.
    The loss is a mean over the tokens of the global batch, and in evaluation over those of all rows, however they are
    batched; `metrics` (`text_metrics`) are those of the texts that are generated at the end.
    """

    def __init__(self, model: GPTForCausalLM, args: Any, metrics: Sequence[str], **kwargs: Any):
        self.measure = text_metrics(metrics)
        collator = partial(collate_targets, pad_token_id=model.config.pad_token_id)
        super().__init__(model, args, data_collator=collator, compute_metrics=target_loss, **kwargs)
        # Of the tied matrix, which checkpoints leave out, the Trainer would warn whenever it loads one.
        model._keys_to_ignore_on_save = [*model.all_tied_weights_keys]

    @torch.no_grad()
    def prediction_step(self, model: GPTForCausalLM, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        """Of each row the sum of its losses and their number; no loss, whose mean would depend on the batches."""
        model, ids, weights = self.model, inputs["input_ids"], inputs["lm_weights"]
        with self.compute_loss_context_manager():
            states = model.transformer(ids, use_cache=False).last_hidden_state
            rows = zip(states.split(1), ids.split(1), weights.split(1), strict=True)
            sums = [model.language_model_loss(*row, excluded=model.excluded_token_ids).float() for row in rows]
        return None, torch.stack([torch.stack(sums), weights.sum(dim=1)], dim=1), inputs["labels"][:, :1]

    @torch.no_grad()
    def predict_texts(self, rows: Dataset) -> tuple[list[str], dict[str, float]]:
        """
        What the model writes behind the prompts of encoded rows, each process of some of the batches; and of rows with
        a target the metrics, loss and perplexity. References are written as the model writes: lower case, words apart.
        """
        args, model, tokenizer = self.args, self.model.eval(), self.processing_class
        given = [ids[: ends[0] + 1] for ids, ends in zip(rows["input_ids"], rows["path_ends"], strict=True)]
        order = sorted((row for row, empty in enumerate(rows[EMPTY]) if not empty), key=lambda row: -len(given[row]))
        batches = [order[at : at + args.eval_batch_size] for at in range(0, len(order), args.eval_batch_size)]
        written, pad = {}, model.config.pad_token_id
        for batch in tqdm(batches[args.process_index :: args.world_size], "generating", disable=args.disable_tqdm):
            width = len(given[batch[0]])
            ids = torch.tensor([[*[pad] * (width - len(given[row])), *given[row]] for row in batch]).to(args.device)
            output = model.generate(input_ids=ids, attention_mask=ids.ne(pad).long())
            written |= dict(zip(batch, self.decode(output[:, width:].tolist()), strict=True))
        for others in gather_object([written]):
            written |= others
        texts, scores = [written.get(row, "") for row in range(len(rows))], {}
        if labelled := [number for number, label in enumerate(rows["label"]) if label]:
            ids = tokenizer([rows["label"][number] for number in labelled], add_special_tokens=False)["input_ids"]
            scores = self.measure(self.decode(ids), [texts[number] for number in labelled])
            found = self.predict(rows.select(labelled)).metrics
            scores |= {name: float(found[f"test_{name}"]) for name in ("loss", "perplexity")}
        return texts, scores

    def decode(self, ids: list[list[int]]) -> list[str]:
        """Texts of token ids, without special tokens."""
        return [text.strip() for text in self.processing_class.batch_decode(ids, skip_special_tokens=True)]
