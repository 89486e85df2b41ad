"""Two methods that peft does not have: bottleneck adapters (Houlsby et al., 2019), and biases alone (BitFit)."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from peft import LNTuningConfig
from peft.tuners.tuners_utils import BaseTuner, BaseTunerLayer, check_adapters_to_merge
from peft.utils import PeftType
from torch import nn

ACTIVATIONS = {"gelu": nn.functional.gelu, "relu": nn.functional.relu, "tanh": torch.tanh}
NO_MERGE = "no weights of the model equal them. Keep the adapter, or take one that merges (lora, ia3, ln, bitfit)."


@dataclass
class _ModulesConfig(LNTuningConfig):
    """Which of the model's modules a method adapts, as the simplest of peft's configurations says it."""

    trainable_token_indices: list[int] | dict[str, list[int]] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.peft_type = PeftType(type(self).__name__.removesuffix("Config").upper())
        if isinstance(self.target_modules, list):
            self.target_modules = set(self.target_modules)


@dataclass
class HoulsbyConfig(_ModulesConfig):
    """
    Settings of bottleneck adapters (Houlsby et al., 2019, section 2.1 and figure 2).

    Args:
        bottleneck_size (`int`, *optional*, defaults to 32): width between the two projections.
        activation (`str`, *optional*, defaults to `"gelu"`): a key of `ACTIVATIONS`.
        init_std (`float`, *optional*, defaults to 0.01): of the projections' weights, from a normal
            distribution truncated at two standard deviations; small, so that training starts near the model.
        target_modules (`list[str]` or `str`, *optional*): modules whose output goes through an adapter, by default
            attention and feed-forward layer of every block.
        exclude_modules, modules_to_save, trainable_token_indices (*optional*): as in `peft.LoraConfig`.
    """

    bottleneck_size: int = 32
    activation: str = "gelu"
    init_std: float = 0.01


class _Layer(nn.Module, BaseTunerLayer):
    def __init__(self, base_layer: nn.Module):
        super().__init__()
        self.base_layer = base_layer
        self.merged_adapters = []


class HoulsbyLayer(_Layer):
    """A module whose output (or the first of several) becomes `output + up(activation(down(output)))`."""

    adapter_layer_names = ("houlsby_down", "houlsby_up")
    other_param_names = ("activations",)

    def __init__(self, base_layer: nn.Module, width: int):
        super().__init__(base_layer)
        self.width = width
        self.houlsby_down = nn.ModuleDict()
        self.houlsby_up = nn.ModuleDict()
        self.activations: dict[str, str] = {}

    def update_layer(self, adapter_name: str, config: HoulsbyConfig) -> None:
        """Add an adapter."""
        down = nn.Linear(self.width, config.bottleneck_size)
        up = nn.Linear(config.bottleneck_size, self.width)
        for linear in (down, up):
            bound = 2 * config.init_std
            nn.init.trunc_normal_(linear.weight, std=config.init_std, a=-bound, b=bound)
            nn.init.zeros_(linear.bias)
        self.houlsby_down[adapter_name] = down
        self.houlsby_up[adapter_name] = up
        self.activations[adapter_name] = config.activation

    def _get_base_layer_device_and_dtype(self, base_layer: nn.Module) -> tuple[torch.device, torch.dtype]:
        # peft asks for a `weight`, which attention and feed-forward layers as a whole do not have.
        first = next(base_layer.parameters())
        return first.device, first.dtype

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """As of the module, the states `(..., width)` through the active adapters one after the other."""
        outputs = self.base_layer(*args, **kwargs)
        if self.disable_adapters:
            return outputs
        states = outputs[0] if isinstance(outputs, tuple) else outputs
        for name in self.active_adapters:
            if name in self.houlsby_down:
                down, up = self.houlsby_down[name], self.houlsby_up[name]
                inner = down(self._cast_input_dtype(states, down.weight.dtype))
                states = states + up(ACTIVATIONS[self.activations[name]](inner)).to(states.dtype)
        return (states, *outputs[1:]) if isinstance(outputs, tuple) else states


class _Tuner(BaseTuner):
    def _replace_module(self, parent, child_name, new_module, child) -> None:
        # peft's own also copies `weight`, which attention as a whole does not have and trained token rows compute.
        setattr(parent, child_name, new_module)

    def _create_and_replace(self, peft_config, adapter_name, target, target_name, parent, current_key, **kwargs):
        layer = target if isinstance(target, self.tuner_layer_cls) else self._wrapped(target, current_key)
        layer.update_layer(adapter_name, peft_config)
        layer._move_adapter_to_device_of_base_layer(adapter_name)
        setattr(parent, target_name, layer)


class HoulsbyModel(_Tuner):
    """
    A transformer with two bottleneck adapters per block (Houlsby et al., 2019, figure 2): after attention and after
    the feed-forward layer, each before its residual addition.
    """

    prefix = "houlsby_"
    tuner_layer_cls = HoulsbyLayer
    target_module_mapping = {"hf_gpt": ["attn", "mlp"]}

    def _wrapped(self, target: nn.Module, name: str) -> HoulsbyLayer:
        return HoulsbyLayer(target, self.model.config.hidden_size)

    def _check_merge_allowed(self) -> None:
        # Here, and not only in the layer, so that nothing is half merged.
        raise ValueError(f"Bottleneck adapters cannot be merged: {NO_MERGE}")


@dataclass
class BitFitConfig(_ModulesConfig):
    """
    Settings of training biases alone, by default all of every block (Ben Zaken et al., 2022, section 3).

    Args:
        target_modules (`list[str]` or `str`, *optional*): `nn.Linear` and `nn.LayerNorm` modules.
        exclude_modules, modules_to_save, trainable_token_indices (*optional*): as in `peft.LoraConfig`.
    """


class BitFitLayer(_Layer):
    """
    A linear layer or layer norm with a bias of each adapter's own in place of its bias, not added to it: the numbers
    are those of training the bias itself, and merging loses nothing.
    """

    adapter_layer_names = ("bitfit_bias",)

    def __init__(self, base_layer: nn.Module):
        super().__init__(base_layer)
        self.bitfit_bias = nn.ParameterDict()
        self.unmerged_bias: torch.Tensor | None = None

    def update_layer(self, adapter_name: str, config: BitFitConfig) -> None:
        """Add an adapter, which starts from the base layer's bias."""
        bias = self.base_layer.bias.detach() if self.unmerged_bias is None else self.unmerged_bias
        self.bitfit_bias[adapter_name] = nn.Parameter(bias.clone())

    def _only(self, names: Iterable[str]) -> str | None:
        """The one of some adapters that this layer has."""
        own = [name for name in names if name in self.bitfit_bias]
        if len(own) > 1:
            raise ValueError(f"A layer has one bias: take one adapter, not {', '.join(own)}.")
        return own[0] if own else None

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """As of the layer, `(..., features)`, with the bias of the active adapter."""
        if self.disable_adapters and self.merged:
            self.unmerge()
        layer, name = self.base_layer, self._only(self.active_adapters)
        if self.disable_adapters or self.merged or name is None:
            return layer(hidden_states)
        bias = self.bitfit_bias[name].to(layer.weight.dtype)
        if isinstance(layer, nn.LayerNorm):
            return nn.functional.layer_norm(hidden_states, layer.normalized_shape, layer.weight, bias, layer.eps)
        return nn.functional.linear(hidden_states, layer.weight, bias)

    def merge(self, safe_merge: bool = False, adapter_names: list[str] | None = None) -> None:
        """Write an adapter's bias, by default the active one's, into the base layer; `safe_merge` wants it finite."""
        name = self._only(check_adapters_to_merge(self, adapter_names))
        if name is None:
            return
        bias = self.bitfit_bias[name].detach()
        if safe_merge and not bias.isfinite().all():
            raise ValueError(f"The adapter {name} is broken: its biases are not finite.")
        self.unmerge()
        self.unmerged_bias = self.base_layer.bias.data
        self.base_layer.bias.data = bias.to(self.unmerged_bias.dtype, copy=True)
        self.merged_adapters.append(name)

    def unmerge(self) -> None:
        """Give the base layer its own bias back."""
        if self.unmerged_bias is not None:
            self.base_layer.bias.data = self.unmerged_bias
        self.unmerged_bias = None
        self.merged_adapters.clear()


class BitFitModel(_Tuner):
    """A transformer of which only biases are trained (Ben Zaken et al., 2022)."""

    prefix = "bitfit_"
    tuner_layer_cls = BitFitLayer
    target_module_mapping = {"hf_gpt": ["c_attn", "c_proj", "c_fc", "ln_1", "ln_2", "ln_f"]}

    def _wrapped(self, target: nn.Module, name: str) -> BitFitLayer:
        if not isinstance(target, nn.Linear | nn.LayerNorm) or target.bias is None:
            raise TypeError(f"{name} is no linear layer or layer norm with a bias: leave it out.")
        return BitFitLayer(target)
