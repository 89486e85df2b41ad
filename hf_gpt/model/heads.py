"""What the task heads give, which layers they read, and how a span is asked for."""

from dataclasses import dataclass

import torch
from transformers.modeling_outputs import BaseModelOutputWithPast, QuestionAnsweringModelOutput
from transformers.utils import ModelOutput, can_return_tuple
from transformers.utils.output_capturing import resolve_hidden_states_indices, selected_hidden_states


@dataclass
class GPTTaskOutput(ModelOutput):
    r"""
    Output of the task heads.

    Args:
        loss (`torch.Tensor`, *optional*): `task_loss + lm_coef * lm_loss`, of those terms that were computed.
        logits (`torch.Tensor` of shape `(batch, choices)`, `(batch, num_labels)` or `(batch, words, num_labels)`):
            scores before the softmax.
        task_loss (`torch.Tensor`, *optional*): mean loss of the examples' labels.
        lm_loss (`torch.Tensor`, *optional*): mean over sequences of the mean over their predicted tokens.
        hidden_states (`tuple[torch.Tensor]`, *optional*): after the embedding and every block.
        attentions (`tuple[torch.Tensor]`, *optional*): attention probabilities of every block.
    """

    loss: torch.Tensor | None = None
    logits: torch.Tensor | None = None
    task_loss: torch.Tensor | None = None
    lm_loss: torch.Tensor | None = None
    hidden_states: tuple[torch.Tensor, ...] | None = None
    attentions: tuple[torch.Tensor, ...] | None = None


@dataclass
class GPTSpanOutput(QuestionAnsweringModelOutput):
    """
    `QuestionAnsweringModelOutput` with both terms of the loss (`task_loss`, `lm_loss`, see `GPTTaskOutput`).
    `start_logits` and `end_logits` have the shape `(batch, tokens)`, -inf for padding.
    """

    task_loss: torch.Tensor | None = None
    lm_loss: torch.Tensor | None = None


class SpanHead:
    """Part of a model that gives and takes the places of a span as transformers' question answering does."""

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        start_positions: torch.Tensor | None = None,
        end_positions: torch.Tensor | None = None,
        **kwargs,
    ) -> GPTSpanOutput:
        r"""
        Scores of the tokens and the joint loss; the task's is the mean of the cross-entropies of both places.

        Args:
            input_ids, attention_mask, kwargs: see `GPTTaskModel`.
            start_positions, end_positions (`torch.Tensor` of shape `(batch,)`, *optional*): of the first and the last
                token of the answer, among those that are scored. A place that is negative, or behind the tokens as an
                answer outside a window is, counts nothing. A collator of token trees gives both as `labels` of shape
                `(batch, 2)`.

        Returns:
            `GPTSpanOutput`
        """
        if start_positions is not None and end_positions is not None:
            labels = torch.stack([start_positions.flatten(), end_positions.flatten()], dim=1)  # (batch, 2)
            index, embeds = kwargs.get("classify_index"), kwargs.get("inputs_embeds")
            tokens = next(given for given in (index, input_ids, embeds) if given is not None).shape[1]
            kwargs["labels"] = labels.masked_fill(labels.lt(0) | labels.ge(tokens), -100)
        outputs = super().forward(input_ids, attention_mask, return_dict=True, **kwargs)
        start_logits, end_logits = outputs.logits.unbind(-1)  # (batch, tokens) each
        others = {name: value for name, value in outputs.items() if name != "logits"}
        return GPTSpanOutput(start_logits=start_logits, end_logits=end_logits, **others)


class HeadLayers:
    """Part of a model whose head, `score`, reads the states of the layers that `config.head_layers` names."""

    def _captured_layers(self, asked):
        """`output_hidden_states` of the transformer: what the caller asks for, and what the head reads."""
        selected = selected_hidden_states(asked)
        if self.config.head_layers is None or (selected is None and asked):
            return asked
        return [*self.config.layers_of_head, *(selected or ())]

    def _asked_states(self, hidden_states, asked):
        """Of the captured hidden states those that the caller asked for, as the transformer alone returns them."""
        selected = selected_hidden_states(asked)
        if selected is None:
            return hidden_states if asked else None
        kept = resolve_hidden_states_indices(self.transformer, selected)
        return tuple(states if layer in kept else None for layer, states in enumerate(hidden_states))

    def _read_layers(self, outputs: BaseModelOutputWithPast) -> list[torch.Tensor]:
        """Of the transformer's outputs the states that the head reads, `(batch, length, n_embd)` each."""
        if self.config.head_layers is None:
            return [outputs.last_hidden_state]
        return [outputs.hidden_states[layer] for layer in self.config.layers_of_head]

    def _mixed(self, states: torch.Tensor) -> torch.Tensor:
        """`(..., layers, n_embd)` states as one, `(..., n_embd)`, in the precision of the head."""
        mixed = self.head_mix(states) if self.config.head_layers == "mix" else states.squeeze(-2)
        weight = self.score.weight
        # A quantised weight has its own way.
        return mixed.to(weight.dtype) if isinstance(weight, torch.Tensor) and weight.is_floating_point() else mixed
