"""Products of matrices by oneDNN: float32 where it is as exact and faster, and weights laid out for inference."""

import time
from typing import NoReturn

import torch
from torch import nn
from transformers import PreTrainedModel

# Largest error of a product of standard normal numbers, divided by the root of the inner size: 2e-6 to 6e-6 in
# float32, 3e-3 where bfloat16 is multiplied.
_LARGEST_ERROR = 3e-5
# oneDNN has to be so much faster, or chance would decide, and two runs would differ in the last bits. On AMD's fifth
# EPYC it is twice as fast; on the fourth, where one product takes 0.87 of MKL's time, whole models gain nothing.
_LEAST_GAIN = 1.3
# (tokens, width, inner width of the feed-forward layer) of the product that decides.
_TRIAL = (512, 768, 3072)
PACKED_DTYPES = ("float32", "bfloat16", "int8")
_PACKED = "This model is packed for inference (hf_gpt.pack_for_inference): load it again to train, change or save it."
# Of 256 levels, that of the number 0.
_ZERO = 128


def use_fast_float32(enabled: bool | None = None) -> bool:
    """
    Let products of float32 matrices on the CPU run through oneDNN instead of MKL, which leaves half of some AMD
    processors idle: `torch.backends.mkldnn.matmul.fp32_precision = "bf16"`. The setting permits bfloat16, which oneDNN
    uses on processors with AMX only; so by default one product is computed both ways, and the setting is made where
    its error against float64 is that of float32 and its time is shorter. With `enabled` the setting, or torch's
    default, is made without a trial. It holds for the process; of a `torch.distributed` group the first one decides.

    Returns a `bool`: whether the setting is made. False without oneDNN.
    """
    choice = [_is_exact_and_faster() if enabled is None else enabled]
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.broadcast_object_list(choice)
    return _set(choice[0] and torch.backends.mkldnn.is_available())


def _set(enabled: bool) -> bool:
    torch.backends.mkldnn.matmul.fp32_precision = "bf16" if enabled else "none"
    return enabled


@torch.no_grad()
def _is_exact_and_faster() -> bool:
    """One product both ways, in turns on one thread (0.3 s), by processor time; it leaves one of the settings."""
    rows, width, inner = _TRIAL
    generator = torch.Generator().manual_seed(0)
    states, weight = (torch.randn(size, width, generator=generator) for size in (rows, inner))
    exact = states[:16].double() @ weight.double().t()
    seconds: dict[bool, float] = {True: float("inf"), False: float("inf")}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for turn in range(8):
            is_fast = _set(turn % 2 == 0)
            start = time.process_time()
            product = nn.functional.linear(states, weight)
            seconds[is_fast] = min(seconds[is_fast], time.process_time() - start)
            if is_fast and (product[:16] - exact).abs().max() > _LARGEST_ERROR * width**0.5:
                return False
    finally:
        torch.set_num_threads(threads)
    return seconds[True] * _LEAST_GAIN < seconds[False]


def _byte_scales(rows: torch.Tensor) -> torch.Tensor:
    """`(rows, 1)`: what one of 127 steps is worth in each row."""
    return rows.abs().amax(1, keepdim=True).clamp(min=torch.finfo(rows.dtype).tiny) / 127


class PackedLinear(nn.Module):
    """
    A linear layer that holds its weight as oneDNN reads it fastest. Whatever would train, change or save the weight
    ends in a `RuntimeError`; `kept` is one that the model uses elsewhere, too.
    """

    def __init__(self, layer: nn.Linear, dtype: str, kept: nn.Parameter | None = None):
        super().__init__()
        self.in_features, self.out_features, self.dtype = layer.in_features, layer.out_features, dtype
        self._kept = [kept]  # in a list, so that it is no parameter of this module
        weight, self.bias = layer.weight.detach(), None if layer.bias is None else layer.bias.detach()
        if dtype == "int8":
            self._scales = _byte_scales(weight)  # (out_features, 1)
            self._packed = torch.ops.onednn.qlinear_prepack((weight / self._scales).round_().to(torch.int8), None)
            self._zeros = torch.zeros(len(weight), dtype=torch.int32)
        else:
            self._packed = torch.ops.mkldnn._reorder_linear_weight(weight.to(getattr(torch, dtype)), 1)

    @property
    def weight(self) -> nn.Parameter:
        """`nn.Parameter` of shape `(out_features, in_features)`, where the model uses it elsewhere, too."""
        if self._kept[0] is None:
            raise RuntimeError(_PACKED)
        return self._kept[0]

    def refuse(self, *args, **kwargs) -> NoReturn:
        """In the place of what would train, change or save the weight."""
        raise RuntimeError(_PACKED)

    state_dict = register_parameter = __reduce__ = refuse

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """Of states `(..., in_features)` what `nn.Linear` gives, `(..., out_features)`, rounded as the dtype says."""
        if torch.is_grad_enabled() and states.requires_grad:
            raise RuntimeError(_PACKED)
        rows = states.reshape(-1, self.in_features)
        if self.dtype == "float32":
            product = torch.ops.mkldnn._linear_pointwise(rows, self._packed, self.bias, "none", [], "")
            return product.view(*states.shape[:-1], self.out_features)
        if self.dtype == "bfloat16":
            product = torch.ops.mkldnn._linear_pointwise(rows.bfloat16(), self._packed, None, "none", [], "").float()
        else:  # bytes times signed bytes, with one scale for each row of either
            scales = _byte_scales(rows)  # (rows, 1)
            levels = (rows / scales).round_().add_(_ZERO).to(torch.uint8)
            weight = (self._packed, self._scales, self._zeros)
            settings = (None, 1.0, 0, torch.float32, "none", [], "")
            product = torch.ops.onednn.qlinear_pointwise(levels, 1.0, _ZERO, *weight, *settings) * scales
        product = product if self.bias is None else product + self.bias  # (rows, out_features)
        return product.view(*states.shape[:-1], self.out_features)


def pack_for_inference(model: PreTrainedModel, dtype: str = "float32") -> PreTrainedModel:
    """
    Lay the weights of all linear layers of a model in float32 on the CPU out as oneDNN reads them fastest, in place.
    Logits, hidden states, losses and generation are as before, in less time; to train, adapt, resize or save the model
    it has to be loaded again, and these end in an error that says so. The rows of the vocabulary, which the embedding
    needs, are held twice.

    A `dtype` of `"float32"` gives float32's results; `"bfloat16"` and `"int8"` also round what is multiplied by the
    weights, to 8 bits of precision or to 255 levels in each row: compare the losses of your own texts.

    Returns the model. A `ValueError` for another dtype or device, a model that is packed already or not in float32, a
    torch without oneDNN, or a CPU without the instructions for it.
    """
    if dtype not in PACKED_DTYPES:
        raise ValueError(f"dtype must be one of {', '.join(PACKED_DTYPES)}, not {dtype}.")
    if not torch.backends.mkldnn.is_available():
        raise ValueError("This torch has no oneDNN, which multiplies packed weights.")
    if any(isinstance(module, PackedLinear) for module in model.modules()):
        raise ValueError(_PACKED)
    if model.device.type != "cpu" or model.dtype != torch.float32:
        raise ValueError(f"Only a float32 model on the CPU is packed, not {model.dtype} on {model.device}.")
    is_supported = {"int8": torch.cpu._is_vnni_supported, "bfloat16": torch.ops.mkldnn._is_mkldnn_bf16_supported}
    if dtype in is_supported and not is_supported[dtype]():
        raise ValueError(f"This CPU has no instructions for products of {dtype}: use float32.")
    model.requires_grad_(False)
    output, small = model.get_output_embeddings(), tuple(model._keep_in_fp32_modules or ())
    for name, module in [*model.named_modules()]:
        if type(module) is nn.Linear and not name.endswith(small):
            model.set_submodule(name, PackedLinear(module, dtype, module.weight if module is output else None))
    return model
