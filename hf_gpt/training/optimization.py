"""The optimizer and the learning-rate schedules of the OpenAI release; and Muon for pretraining."""

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch.optim import AdamW, Muon, Optimizer
from torch.optim.lr_scheduler import LambdaLR

# Elements that are updated together on a CPU: they stay in its caches.
_PART_ELEMENTS = 2**19


def warmup_linear(progress: float, warmup: float = 0.002) -> float:
    """
    Factor of the learning rate: a rise over the warm-up (`warmup`, a share of the updates) times a linear fall;
    `progress` is finished updates / all updates. Beyond the last update it is 0, the release's formula negative.
    """
    return max(0.0, warmup_constant(progress, warmup) * (1 - progress))


def warmup_cosine(progress: float, warmup: float = 0.002) -> float:
    """Linear rise over the warm-up, then `0.5 * (1 + cos(pi * progress))`; see `warmup_linear`."""
    rise = warmup_constant(progress, warmup)
    return rise if progress <= warmup else 0.5 * (1 + math.cos(math.pi * min(progress, 1.0)))


def warmup_constant(progress: float, warmup: float = 0.002) -> float:
    """Linear rise over the warm-up, then 1; see `warmup_linear`."""
    return progress / warmup if progress <= warmup and warmup > 0 else 1.0


SCHEDULES = {schedule.__name__: schedule for schedule in (warmup_linear, warmup_cosine, warmup_constant)}


def get_release_schedule(optimizer: Optimizer, name: str, total_updates: int, warmup: float = 0.002) -> LambdaLR:
    """One of the release's `SCHEDULES` of finished updates: the first one's rate is 0, and moves but the moments."""
    return LambdaLR(optimizer, lambda step: SCHEDULES[name](step / total_updates, warmup))


def clip_gradients(parameters: Iterable[torch.nn.Parameter], max_norm: float) -> torch.Tensor:
    """
    Scale gradients in place to a norm of at most `max_norm`; return the norm before. On a CPU it is that of the norms
    of rows, right to 3e-7: torch's own, of 40,478 x 768 numbers in float32 lanes, is 0.17% too small.
    """
    parameters = [parameter for parameter in parameters if parameter.grad is not None]
    gradients = [parameter.grad for parameter in parameters]
    if any(type(each) is not torch.Tensor or each.device.type != "cpu" for each in gradients):
        return torch.nn.utils.clip_grad_norm_(parameters, max_norm)
    rows = [torch.linalg.vector_norm(gradient, dim=-1, dtype=torch.float32).view(-1) for gradient in gradients]
    norm = torch.cat(rows).double().norm().float() if rows else torch.zeros(())
    torch.nn.utils.clip_grads_with_norm_(parameters, max_norm, norm)
    return norm


class ReleaseAdam(Optimizer):
    r"""
    Adam as the OpenAI release wrote it, which differs from `torch.optim.AdamW` in three places: gradients are clipped
    by their global norm inside the optimizer, before the moments see them; epsilon is added outside the bias
    correction; weight decay is multiplied by the bias-corrected rate. With `m`, `v` the moments after update t:

        rate = lr * sqrt(1 - beta2**t) / (1 - beta1**t)
        p   -= rate * (m / (sqrt(v) + eps) + weight_decay * p)

    Decay falls on parameters of two or more axes (embeddings and positions included), on others with `decay_vectors`.
    `max_grad_norm` is 0 where the Trainer clips. Source: `opt.py` of openai/finetune-transformer-lm.
    """

    def __init__(
        self,
        params: Iterable,
        lr: float = 6.25e-5,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
        max_grad_norm: float = 1.0,
        decay_vectors: bool = False,
    ):
        self.max_grad_norm = max_grad_norm
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, defaults | {"decay_vectors": decay_vectors})

    @torch.no_grad()
    def step(self, closure: Callable[[], torch.Tensor] | None = None) -> torch.Tensor | None:
        """One update, as any optimizer's; the loss of `closure`, if there is one."""
        loss = None if closure is None else torch.enable_grad()(closure)()
        if self.max_grad_norm > 0:
            parameters = [parameter for group in self.param_groups for parameter in group["params"]]
            clip_gradients(parameters, self.max_grad_norm)
        for group in self.param_groups:
            self._update_group(group)
        return loss

    def state_dict(self) -> dict:
        """As any optimizer's, in the order of the parameters, whenever each was first trained; equal bytes."""
        packed, names = super().state_dict(), ("step", "exp_avg", "exp_avg_sq")
        states = sorted(packed["state"].items())
        return packed | {"state": {index: {name: state[name] for name in names} for index, state in states}}

    def _update_group(self, group: dict) -> None:
        beta1, beta2 = group["betas"]
        by_step: dict[int, list[tuple]] = {}
        for p in (parameter for parameter in group["params"] if parameter.grad is not None):
            state = self.state[p]
            if not state:
                state |= {"step": 0, "exp_avg": torch.zeros_like(p), "exp_avg_sq": torch.zeros_like(p)}
            state["step"] += 1
            is_decayed = bool(group["weight_decay"]) and (p.ndim >= 2 or group["decay_vectors"])
            row = (p, p.grad, state["exp_avg"], state["exp_avg_sq"], is_decayed)
            by_step.setdefault(state["step"], []).append(row)
        # Parameters that were frozen for a while have counted fewer updates: one multi-tensor update per count.
        for step, rows in sorted(by_step.items()):
            rate = group["lr"] * math.sqrt(1 - beta2**step) / (1 - beta1**step)
            for part in _parts(rows):
                values, gradients, first, second, are_decayed = zip(*part, strict=True)
                torch._foreach_lerp_(first, gradients, 1 - beta1)
                torch._foreach_mul_(second, beta2)
                torch._foreach_addcmul_(second, gradients, gradients, 1 - beta2)
                updates = torch._foreach_sqrt(second)
                torch._foreach_add_(updates, group["eps"])
                updates = torch._foreach_div(first, updates)
                for value, update, is_decayed in zip(values, updates, are_decayed, strict=True):
                    if is_decayed:
                        update.add_(value, alpha=group["weight_decay"])
                torch._foreach_add_(values, updates, alpha=-rate)


def _parts(rows: list[tuple]) -> Iterator[list[tuple]]:
    """Rows that are updated together: all, on a CPU one tensor or its pieces, of which an update makes two copies."""
    if rows[0][0].device.type != "cpu":
        yield rows
        return
    for *tensors, is_decayed in rows:
        is_plain = type(tensors[1]) is torch.Tensor and all(tensor.is_contiguous() for tensor in tensors)
        pieces = (tensor.view(-1).split(_PART_ELEMENTS) if is_plain else [tensor] for tensor in tensors)
        yield from ([(*piece, is_decayed)] for piece in zip(*pieces, strict=True))


class MuonAndAdamW(Optimizer):
    """
    `torch.optim.Muon` for `matrices`, each the weight of a linear layer, and `torch.optim.AdamW` for `groups`, as one
    optimizer; Muon's steps have the size of AdamW's (`match_rms_adamw`), so that both share `lr` and `weight_decay`.
    """

    def __init__(self, matrices: Iterable, groups: Iterable[dict], lr: float, weight_decay: float, **of_adamw: Any):
        muon = Muon(matrices, lr=lr, weight_decay=weight_decay, adjust_lr_fn="match_rms_adamw")
        adam = AdamW(groups, lr=lr, weight_decay=weight_decay, **of_adamw)
        super().__init__(muon.param_groups + adam.param_groups, {})
        self._parts = (muon, adam)

    @torch.no_grad()
    def step(self, closure: Callable[[], torch.Tensor] | None = None) -> torch.Tensor | None:
        """One update of both; the loss of `closure`, if there is one."""
        loss = None if closure is None else torch.enable_grad()(closure)()
        # Loading a state replaces groups and states, so each part takes its own again.
        for part, groups in zip(self._parts, (self.param_groups[:1], self.param_groups[1:]), strict=True):
            part.param_groups, part.state = groups, self.state
            part.step()
        return loss
