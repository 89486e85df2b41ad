"""Parts of the model: attention, feed-forward, blocks, the mix of layers, and the check of keyword arguments."""

import difflib
import inspect
from collections.abc import Callable, Iterable

import torch
from torch import nn
from transformers import Cache
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.utils import TransformersKwargs

from .attention import Dropout, blockwise_attention_forward, eager_attention_forward
from .configuration_gpt import GPTConfig

# Keyword arguments of a forward pass that have no parameter of their own: those of all models of transformers, of
# paged attention (`generate_batch`), of FlexAttention, of older callers, and what TRL's reward trainer passes through.
PASSED_ON = frozenset(
    (
        *TransformersKwargs.__annotations__,
        *("cache", "block_table", "read_index", "write_index", "logits_indices", "logits_processor_args"),
        *("kernel_options", "cache_position", "return_dict", "shift_labels", "margin"),
    )
)
_HAS_MKL = torch.backends.mkl.is_available()
# They return no attention probabilities.
_WITHOUT_PROBABILITIES = ("sdpa", "blockwise", "flex", "flash")


def check_arguments(model: nn.Module, names: Iterable[str]) -> None:
    """
    Raise a `TypeError` for keyword arguments, beside the parameters of a model's `forward`, that nothing would read;
    an attention function of its own may name more.
    """
    unknown = [name for name in names if name not in PASSED_ON]
    if not unknown:
        return
    attend = ALL_ATTENTION_FUNCTIONS.get(model.config._attn_implementation, eager_attention_forward)
    own = inspect.signature(attend).parameters
    known = sorted({*inspect.signature(type(model).forward).parameters, *PASSED_ON, *own} - {"self", "kwargs"})
    for name in unknown:
        if name not in own:
            close = difflib.get_close_matches(name, known, n=1)
            raise TypeError(
                f"{type(model).__name__}.forward() got an unexpected keyword argument {name!r}"
                + (f": did you mean {close[0]!r}?" if close else f"; it has {', '.join(known)}.")
            )


def has_probabilities(implementation: str) -> bool:
    """Whether an attention implementation returns its probabilities (`output_attentions`)."""
    return not any(name in implementation for name in _WITHOUT_PROBABILITIES)


class Linear(nn.Linear):
    """
    `nn.Linear` that decodes a few rows at a time (2 to 4 beams, say) in float32 on a CPU as one product of the weights
    with the rows as columns, which MKL has a quicker way for: up to half of the time at 2 rows, hardly less at 4.
    """

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        rows = input.shape[:-1]
        is_plain = input.device.type == "cpu" and input.dtype == torch.float32 and type(self.weight) is nn.Parameter
        if torch.is_grad_enabled() or not 2 <= rows.numel() <= 4 or not (_HAS_MKL and is_plain):
            return super().forward(input)
        columns = input.reshape(-1, self.in_features).T  # (in, rows)
        product = self.weight @ columns if self.bias is None else torch.addmm(self.bias[:, None], self.weight, columns)
        return product.T.contiguous().view(*rows, -1)  # (out, rows) -> (..., out)


class GPTAttention(nn.Module):
    """
    Multi-head self-attention through transformers' attention interface.

    What is drawn otherwise with `norm_first` says so itself (`feeds_residual`): transformers initialises no module of
    custom code that has no parameters of its own.
    """

    def __init__(self, config: GPTConfig, layer_idx: int):
        super().__init__()
        self.config = config
        self.layer_idx = layer_idx
        self.head_dim = config.n_embd // config.n_head
        self.scaling = self.head_dim**-0.5
        self.is_causal = config.is_causal
        self.c_attn = Linear(config.n_embd, 3 * config.n_embd)
        self.c_proj = Linear(config.n_embd, config.n_embd)
        self.c_proj.feeds_residual = True
        self.resid_dropout = Dropout(config.resid_pdrop)

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        past_key_values: Cache | None = None,
        implementation: str | None = None,
        **kwargs,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        implementation = implementation or self.config._attn_implementation
        by_head = (*hidden_states.shape[:-1], -1, self.head_dim)  # (batch, seq, head, dim)
        query, key, value = (
            part.view(by_head).transpose(1, 2) for part in self.c_attn(hidden_states).chunk(3, dim=-1)
        )  # (batch, head, seq, dim)
        if past_key_values is not None:
            key, value = past_key_values.update(key, value, self.layer_idx)
        attend: Callable = ALL_ATTENTION_FUNCTIONS.get_interface(implementation, eager_attention_forward)
        if implementation == "sdpa":
            # Still SDPA wherever training on a CPU is not what is done.
            attend = blockwise_attention_forward
        mixed, probabilities = attend(
            self,
            query,
            key,
            value,
            attention_mask,
            dropout=self.config.attn_pdrop if self.training else 0.0,
            scaling=self.scaling,
            **kwargs,
        )
        mixed = mixed.reshape(*hidden_states.shape[:-1], -1).contiguous()  # (batch, seq, head * dim)
        return self.resid_dropout(self.c_proj(mixed)), probabilities


class GPTMLP(nn.Module):
    """Position-wise feed-forward layer."""

    # The release's gelu is the tanh approximation, and its swish is torch's SiLU.
    activations = {"gelu": lambda: nn.GELU(approximate="tanh"), "relu": nn.ReLU, "swish": nn.SiLU}

    def __init__(self, config: GPTConfig):
        super().__init__()
        inner = config.n_inner if config.n_inner is not None else 4 * config.n_embd
        self.c_fc = Linear(config.n_embd, inner)
        self.c_proj = Linear(inner, config.n_embd)
        self.c_proj.feeds_residual = True
        self.act = self.activations[config.afn]()
        self.resid_dropout = Dropout(config.resid_pdrop)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return self.resid_dropout(self.c_proj(self.act(self.c_fc(hidden_states))))


class GPTBlock(GradientCheckpointingLayer):
    """Attend, add, norm, feed, add, norm; with `norm_first` the norms come before attention and feed-forward."""

    def __init__(self, config: GPTConfig, layer_idx: int):
        super().__init__()
        self.norm_first = config.norm_first
        self.attn = GPTAttention(config, layer_idx)
        self.ln_1 = nn.LayerNorm(config.n_embd, eps=config.layer_norm_epsilon)
        self.mlp = GPTMLP(config)
        self.ln_2 = nn.LayerNorm(config.n_embd, eps=config.layer_norm_epsilon)

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        past_key_values: Cache | None = None,
        **kwargs,
    ) -> torch.Tensor:
        if self.norm_first:
            attended, _ = self.attn(self.ln_1(hidden_states), attention_mask, past_key_values, **kwargs)
            hidden_states = hidden_states + attended
            return hidden_states + self.mlp(self.ln_2(hidden_states))
        attended, _ = self.attn(hidden_states, attention_mask, past_key_values, **kwargs)
        hidden_states = self.ln_1(hidden_states + attended)
        return self.ln_2(hidden_states + self.mlp(hidden_states))


class ScalarMix(nn.Module):
    """A learnt weighted mean of layers, times a learnt factor (Peters et al., 2018, equation 1)."""

    def __init__(self, layers: int):
        super().__init__()
        self.scalars = nn.Parameter(torch.zeros(layers))
        self.gamma = nn.Parameter(torch.ones(1))

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        weights = self.gamma * self.scalars.softmax(0)
        return (weights.unsqueeze(-1) * states).sum(-2)  # (..., layers, n_embd) -> (..., n_embd)
