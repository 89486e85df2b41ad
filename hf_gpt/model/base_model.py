"""What models share: initialisation, loading, saving, resizing, the loss of the language model, and outputs."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn
from transformers import PreTrainedModel, initialization
from transformers.modeling_outputs import QuestionAnsweringModelOutput
from transformers.utils import ModelOutput, logging
from transformers.utils.output_capturing import OutputRecorder

from .blocks import GPTAttention, GPTBlock, ScalarMix
from .configuration_gpt import GPTConfig, default_generation_config
from .losses import linear_cross_entropy

logger = logging.get_logger(__name__)


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


class GPTPreTrainedModel(PreTrainedModel):
    """Base of all GPT models."""

    config_class = GPTConfig
    base_model_prefix = "transformer"
    supports_gradient_checkpointing = True
    _no_split_modules = ["GPTBlock"]
    _skip_keys_device_placement = ["past_key_values"]
    _supports_sdpa = True
    _supports_flex_attn = True
    _supports_flash_attn = True
    _supports_attention_backend = True
    _can_compile_fullgraph = True
    _can_record_outputs = {
        "hidden_states": GPTBlock,
        "attentions": OutputRecorder(GPTAttention, layer_name=".attn", index=1),
    }

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if self.config.norm_first and getattr(module, "feeds_residual", False):
            # GPT-2's paper, section 2.3: no norm stands behind the sum of the 2 n_layer residual layers.
            std = self.config.initializer_range / math.sqrt(2 * self.config.n_layer)
            initialization.normal_(module.weight, mean=0.0, std=std)
        if isinstance(module, ScalarMix):
            initialization.zeros_(module.scalars)
            initialization.ones_(module.gamma)

    def save_pretrained(self, save_directory, is_main_process: bool = True, **kwargs) -> None:
        """As transformers does; generation settings stand beside every head, for the language model within."""
        super().save_pretrained(save_directory, is_main_process=is_main_process, **kwargs)
        if is_main_process and not self.can_generate():
            settings = getattr(self, "generation_config", None) or default_generation_config(self.config)
            settings.save_pretrained(save_directory)

    def resize_token_embeddings(self, *args, **kwargs) -> nn.Embedding:
        """As transformers does; special tokens whose rows are cut off become `None` in the configuration."""
        embeddings = super().resize_token_embeddings(*args, **kwargs)
        if changed := self.config.forget_ids_outside():
            logger.warning(f"{self.config.vocab_size} rows hold no row for {', '.join(changed)}: now without these.")
            if self.can_generate():
                fresh = default_generation_config(self.config)
                names = ("bos_token_id", "eos_token_id", "pad_token_id", "suppress_tokens")
                self.generation_config.update(**{name: getattr(fresh, name) for name in names})
        return embeddings

    def language_model_loss(
        self,
        hidden_states: torch.Tensor,
        targets: torch.Tensor,
        weights: torch.Tensor,
        parent_index: torch.Tensor | None = None,
        rows: torch.Tensor | None = None,
        excluded: Sequence[int] = (),
    ) -> torch.Tensor:
        """
        Weighted sum of the cross-entropies of tokens given the states of their parents, a scalar. Only the logits that
        a non-zero weight needs are computed.

        Args:
            hidden_states (`torch.Tensor` of shape `(batch, length, n_embd)`): last hidden states.
            targets (`torch.Tensor` of shape `(batch, length)`): the tokens to predict.
            weights (`torch.Tensor` of shape `(batch, length)`): weight of each token's loss; 0 leaves it out.
            parent_index (`torch.Tensor` of shape `(batch, length)`, *optional*): index in the row of the token
                before; by default the token to the left.
            rows (`torch.Tensor` of shape `(vocabulary, n_embd)`, *optional*): output matrix, by default that of the
                model, else the token embedding.
            excluded (`Sequence[int]`, *optional*): rows left out of the softmax beside that of padding.
        """
        batch, length = targets.shape
        row, column = weights.nonzero(as_tuple=True)  # (targets,) each
        parent = column - 1 if parent_index is None else parent_index[row, column]
        parent, order = (row * length + parent).sort(stable=True)  # (targets,), index into (batch * length)
        row, column = row[order], column[order]
        # Tokens that branch off the same parent are predicted by the same logits.
        parent, state_index = parent.unique_consecutive(return_inverse=True)  # (states,), (targets,)
        if rows is None:
            rows = (self.get_output_embeddings() or self.get_input_embeddings()).weight
        return linear_cross_entropy(
            hidden_states.reshape(batch * length, -1)[parent],  # (states, n_embd)
            rows,
            targets[row, column],
            weights[row, column],
            [*excluded, *({self.config.excluded_token_id} - {None})],
            state_index=state_index,
        )
