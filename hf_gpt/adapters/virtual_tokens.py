"""Prefix and prompt tuning of the task heads: learnt virtual tokens above the roots of token trees."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from peft import PeftModel
from peft.utils import AuxiliaryTrainingWrapper, PeftType
from torch import nn

from ..model.modeling_gpt import GPTTaskModel, default_lm_weights

# peft's task type of the task heads. It has none for multiple choice, and what it does for classification (a cache of
# keys and values, `inputs_embeds`) neither token trees nor the language-model loss can follow.
GPT_TASK = "GPT_TASK"

Inputs = dict[str, torch.Tensor | None]
_OF_TREES = ("position_ids", "subtree_end", "parent_index", "lm_weights", "classify_index")


def as_tree_inputs(model: GPTTaskModel, inputs: Inputs) -> Inputs:
    """
    The inputs of a task head as one row per example, whichever way they were given.

    Args:
        model (`GPTTaskModel`): knows its classify token.
        inputs (`dict`): arguments of its `forward`, `None` for what is not given: a batch of `TokenTreeCollator`, or
            conventional tensors, whose sequences are laid out one after the other.

    Returns:
        `dict`: the same without `attention_mask`, with `position_ids` and `classify_index`, all `(batch, length)`
        but the last; `subtree_end` is `None` where every row is one sequence.

    Raises:
        ValueError: if `position_ids` come with an `attention_mask` or without `classify_index`.
    """
    if inputs["position_ids"] is not None or inputs["subtree_end"] is not None:
        missing = [name for name in ("position_ids", "classify_index") if inputs[name] is None]
        if missing or inputs["attention_mask"] is not None:
            raise ValueError(
                "With virtual tokens, give a token tree whole (position_ids and classify_index, no attention_mask), "
                "or conventional inputs without any of them."
            )
        return {name: value for name, value in inputs.items() if name != "attention_mask"}
    ids, mask, index = inputs["input_ids"], inputs["attention_mask"], inputs["classify_index"]
    batch = ids.shape[0]
    if index is None:
        ids, mask, index = model.conventional_inputs(ids, mask)
    weights = inputs["lm_weights"]
    if weights is None and not model.reads_words:
        weights = default_lm_weights(ids, mask, batch)
    rows, length = ids.shape
    present = torch.ones_like(ids, dtype=torch.bool) if mask is None else mask.bool()
    own = torch.arange(rows // batch * length, device=ids.device).view(-1, length)
    # A token sees what stands before it in its own sequence; padding is a root of its own.
    ends = torch.where(present.view(batch, -1, length), own[:, -1:] + 1, own + 1)
    return {
        "input_ids": ids.reshape(batch, -1),
        "position_ids": (present.long().cumsum(-1) - 1).clamp(min=0).view(batch, -1),
        "subtree_end": None if mask is None and rows == batch else ends.flatten(1),
        "parent_index": None,
        "lm_weights": None if weights is None else weights.reshape(batch, -1),
        "classify_index": index,
    }


def with_virtual_tokens(inputs: Inputs, count: int) -> Inputs:
    """
    Put a chain of `count` virtual tokens above all roots of every row of what `as_tree_inputs` returns: what was a
    root is now behind the last of them, and all indices and positions are moved. Their id is 0, and no loss reads
    them.
    """
    ids = inputs["input_ids"]
    batch, length = ids.shape
    first, none = torch.arange(count, device=ids.device), torch.zeros(count, device=ids.device, dtype=torch.long)

    def ahead(values: torch.Tensor, name: str, by: int = 0) -> torch.Tensor | None:
        if inputs[name] is None:
            return None
        rest = (inputs[name] + by).expand(batch, -1)
        return torch.cat([values.to(rest.dtype).expand(batch, -1), rest], dim=1)

    index = inputs["classify_index"]
    return {
        "input_ids": ahead(none, "input_ids"),
        "position_ids": ahead(first, "position_ids", count),
        "subtree_end": ahead(none + count + length, "subtree_end", count),
        "parent_index": ahead(first, "parent_index", count),
        "lm_weights": ahead(none, "lm_weights"),
        "classify_index": torch.where(index < 0, index, index + count),
    }


def _overwrite(module: nn.Module, args: Any, output: torch.Tensor, states: torch.Tensor, start: int) -> None:
    """Forward hook: the last features, from `start` on, of the first positions become learnt ones."""
    output[:, : states.shape[0], start:] = states.to(output.dtype)


class PeftModelForGPTTask(PeftModel):
    """
    A task head with a prefix or a prompt (peft's task type `GPT_TASK`); of adapters without virtual tokens as
    `PeftModel`.

    Virtual tokens stand above the roots of every token tree. Prompt tuning learns their embeddings (Lester et al.,
    2021), prefix tuning their keys and values in every block (Li and Liang, 2021), so that what is computed at their
    positions does not matter. So trees, chains and conventional padded inputs all work and give the same numbers,
    shared tokens stay shared, and the language-model loss is there; `hidden_states` begin with the virtual tokens.
    The numbers of prefix tuning are those of peft's cache of keys and values.

    Raises:
        TypeError: for a model without the head of a task.
    """

    def __init__(self, model: nn.Module, peft_config: Any, adapter_name: str = "default", **kwargs: Any):
        if not isinstance(model, GPTTaskModel):
            raise TypeError(
                f"The task type {GPT_TASK} is that of the heads for choices, texts and words; a "
                f'{type(model).__name__} takes "CAUSAL_LM" or "FEATURE_EXTRACTION".'
            )
        super().__init__(model, peft_config, adapter_name, **kwargs)

    def forward(
        self, input_ids: torch.Tensor | None = None, attention_mask: torch.Tensor | None = None, **kwargs: Any
    ) -> Any:
        """
        Arguments and result are those of `GPTTaskModel.forward`.

        Raises:
            ValueError: for `inputs_embeds`, for prefix tuning under gradient checkpointing, and for prompt tuning
                with `release_quirks`.
        """
        inputs = {"input_ids": input_ids, "attention_mask": attention_mask}
        inputs |= {name: kwargs.pop(name, None) for name in _OF_TREES}
        config = self.active_peft_config
        if not config.is_prompt_learning or self._adapters_disabled:
            return super().forward(**inputs, **kwargs)
        if input_ids is None:
            raise ValueError("Virtual tokens stand before input_ids: give these instead of inputs_embeds.")
        model = self.get_base_model()
        inputs = with_virtual_tokens(as_tree_inputs(model, inputs), config.num_virtual_tokens)
        with self._virtual_states(model, config):
            return model(**inputs, **kwargs)

    @contextmanager
    def disable_adapter(self) -> Iterator[None]:
        """Within it, this is the base model with the base model's head."""
        if not self.active_peft_config.is_prompt_learning:
            with super().disable_adapter():
                yield
            return
        # peft's own wants a model that generates.
        wrappers = [module for module in self.modules() if isinstance(module, AuxiliaryTrainingWrapper)]
        was_disabled = self._adapters_disabled
        try:
            self._adapters_disabled = True
            for wrapper in wrappers:
                wrapper.enable_adapters(False)
            yield
        finally:
            self._adapters_disabled = was_disabled
            for wrapper in wrappers:
                wrapper.enable_adapters(not was_disabled)

    @contextmanager
    def _virtual_states(self, model: GPTTaskModel, config: Any) -> Iterator[None]:
        """Within it, the model meets the learnt states at the first positions of every row."""
        is_prefix = config.peft_type == PeftType.PREFIX_TUNING
        if is_prefix and model.training and model.is_activation_checkpointing:
            raise ValueError("Prefix tuning does not go with gradient checkpointing: switch that off.")
        if not is_prefix and model.config.release_quirks:
            raise ValueError("Prompt tuning does not go with release_quirks: take prefix tuning, or leave them out.")
        encoder = self.prompt_encoder[self.active_adapter]
        states = encoder.embedding.weight
        if not config.inference_mode:
            states = encoder(self.prompt_tokens[self.active_adapter][: config.num_virtual_tokens].to(states.device))
        if is_prefix:
            width = model.config.n_embd
            by_block = states.view(config.num_virtual_tokens, config.num_layers, 2 * width).unbind(1)
            # Behind the query: key and value (virtual token, 2 * n_embd).
            targets = [
                (block.attn.c_attn, own, width) for block, own in zip(model.transformer.h, by_block, strict=True)
            ]
        else:
            targets = [(model.get_input_embeddings(), states, 0)]
        with ExitStack() as hooks:
            for module, own, start in targets:
                hooks.enter_context(module.register_forward_hook(partial(_overwrite, states=own, start=start)))
            yield


def virtual_tokens(model: nn.Module) -> int:
    """How many positions of the context a model's adapter takes: 0 for all but prefix and prompt tuning."""
    if not isinstance(model, PeftModel) or not model.active_peft_config.is_prompt_learning:
        return 0
    return model.active_peft_config.num_virtual_tokens
