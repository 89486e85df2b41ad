"""The release's optimizer and schedules against recorded values."""

import copy

import numpy as np
import pytest
import torch

from hf_gpt.training import optimization
from hf_gpt.training.optimization import SCHEDULES, MuonAndAdamW, ReleaseAdam, get_release_schedule

from ..support import golden

RUNS = [
    (model, head, run)
    for model in golden.models()
    for head in ("roc", "clf6")
    if (golden.golden_directory() / model / f"{head}_opt.npz").is_file()
    for run in golden.golden_config(model)[f"{head}_runs"]
]


@pytest.mark.parametrize("warmup", ["0.002", "0.2"])
@pytest.mark.parametrize("name", sorted(SCHEDULES))
def test_schedule_values(name, warmup):
    with np.load(golden.golden_directory() / "schedules.npz") as recorded:
        expected, finished = recorded[f"{name}_wu{warmup}"], recorded["t"]
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler = get_release_schedule(optimizer, name, total_updates=50, warmup=float(warmup))
    for step, value in zip(finished[:51], expected[:51], strict=True):
        assert scheduler.last_epoch == step
        assert scheduler.get_last_lr()[0] == pytest.approx(float(value), abs=1e-7)
        optimizer.step()
        scheduler.step()


def comparable(name: str, value: np.ndarray, width: int, head: str) -> np.ndarray:
    """Without the elements whose gradient is zero but for rounding, which Adam divides by itself."""
    value = value.reshape(-1) if name.endswith("/b") else value
    if name.endswith("attn/c_attn/b"):
        return np.concatenate([value[:width], value[2 * width :]])
    return value[:0] if head == "roc" and name == "model/clf/b" else value


@pytest.mark.parametrize(("model", "head", "run"), RUNS, ids=["-".join(case) for case in RUNS])
def test_parameters_after_steps(model, head, run):
    recorded = {key: value for key, value in golden.arrays(model, f"{head}_opt").items() if key.startswith(f"{run}/")}
    if not recorded:
        pytest.skip("this run is not among the recorded values that the repository carries")
    settings = golden.golden_config(model)[f"{head}_runs"][run]
    hp = settings["hp"]
    ours = golden.load_variables(model, head, lm_coef=hp["lm_coef"]).train()
    initial = copy.deepcopy(ours.state_dict())
    options = {"lr": hp["lr"], "betas": (hp["b1"], hp["b2"]), "eps": hp["e"], "weight_decay": hp["l2"]}
    options |= {"max_grad_norm": hp["max_grad_norm"], "decay_vectors": hp["vector_l2"]}
    optimizer = ReleaseAdam(ours.parameters(), **options)
    scheduler = get_release_schedule(optimizer, hp["lr_schedule"], hp["n_updates_total"], hp["lr_warmup"])
    if run.endswith("_tplus1"):
        # The other outcome of the release's race: the schedule saw the count after the update.
        scheduler.step()
    batch = golden.with_recorded_weights(golden.arrays(model, f"{head}_eval"))
    high_rate = hp["lr"] > 1e-4
    for step in range(1, 6):
        expected_rate = settings["lr_times_schedule"][step - 1]
        assert optimizer.param_groups[0]["lr"] == pytest.approx(expected_rate, rel=1e-6, abs=1e-12)
        optimizer.zero_grad()
        loss = ours(**batch).loss
        assert loss.item() == pytest.approx(settings["train_loss_before_step"][step - 1], abs=2e-5)
        loss.backward()
        optimizer.step()
        scheduler.step()
        if step == 1 and settings["step1_equals_initial_bitwise"]:
            assert all(torch.equal(value, initial[name]) for name, value in ours.state_dict().items())
        # The largest differences seen between right implementations, with the margin their spread calls for; the
        # root mean square separates a mistake from rounding.
        largest = (1.2e-4 if hp["lm_coef"] == 0 else 4e-5) if high_rate else 4e-6
        rms = (6e-7 if hp["lm_coef"] == 0 else 1.5e-7) if high_rate else 2e-8
        compare(recorded, f"{run}/step{step}/", golden.as_release(ours, lambda p: p), ours, head, largest, rms)
    for name, moment, largest, rms in (("m5", "exp_avg", 2e-7, 1e-7), ("v5", "exp_avg_sq", 1e-9, 2e-10)):
        values = golden.as_release(ours, lambda parameter, moment=moment: optimizer.state[parameter][moment])
        compare(recorded, f"{run}/{name}/", values, ours, head, largest, rms)


def compare(recorded, prefix, values, model, head, largest, rms):
    """Assert bounds of the largest and of the root mean square difference from what is recorded under a prefix."""
    differences, width = [], model.config.n_embd
    for key, expected in recorded.items():
        if key.startswith(prefix):
            # Of some only a part is recorded, such as `model/we[0:64]`.
            name, _, part = key.removeprefix(prefix).rstrip("]").partition("[")
            rows = slice(*(int(bound) if bound else None for bound in part.split(":"))) if part else ...
            value = values[name][rows].reshape(expected.shape).astype(np.float64)
            difference = comparable(name, value, width, head) - comparable(name, expected, width, head)
            differences.append(np.abs(difference).ravel())
    if differences:
        joined = np.concatenate(differences)
        assert joined.max() <= largest, f"{prefix}: largest difference {joined.max():.2e}"
        assert np.sqrt((joined**2).mean()) <= rms, f"{prefix}: rms {np.sqrt((joined**2).mean()):.2e}"


def test_muon_and_adamw_are_torchs_own():
    """The same bits as both optimizers by themselves, under a schedule."""
    alone = [torch.nn.Parameter(torch.randn(shape)) for shape in ((6, 4), (5,))]
    joined, gradients = copy.deepcopy(alone), [torch.randn_like(value) for value in alone]
    optimizers = [
        torch.optim.Muon(alone[:1], weight_decay=0.2, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(alone[1:], weight_decay=0.2, betas=(0.9, 0.95)),
        MuonAndAdamW(joined[:1], [{"params": joined[1:]}], lr=0.1, weight_decay=0.2, betas=(0.9, 0.95)),
    ]
    for factor in (1, 2, 3):
        for value, gradient in zip(alone + joined, gradients * 2, strict=True):
            value.grad = gradient * factor
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = 0.1 / factor
            optimizer.step()
    assert all(map(torch.equal, alone, joined))


def test_an_update_in_parts_gives_the_same_bits(monkeypatch):
    """Memory is bounded by working on some elements at a time, however they are shared out."""
    whole = [torch.nn.Parameter(torch.randn(shape)) for shape in [(2,), (2, 2), (7,), (1, 3), (1,), (6,), (5, 3)]]
    # A matrix whose elements do not lie in order is not taken in pieces.
    whole.append(torch.nn.Parameter(torch.randn(3, 4).t()))
    parts, gradients = copy.deepcopy(whole), [[torch.randn(value.shape) for value in whole] for _ in range(3)]
    for values in (whole, parts):
        optimizer = ReleaseAdam(values, lr=0.1, weight_decay=0.1)
        for step in gradients:
            for value, gradient in zip(values, step, strict=True):
                value.grad = gradient.clone()
            optimizer.step()
        monkeypatch.setattr(optimization, "_PART_ELEMENTS", 6)
    assert all(map(torch.equal, whole, parts))
