"""What the task heads give, and which layers they read."""

from dataclasses import dataclass

import torch
from transformers.modeling_outputs import BaseModelOutputWithPast
from transformers.utils import ModelOutput
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
