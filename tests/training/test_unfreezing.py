"""What is trained when and how fast: stages, what they move, the norm of it, layer-wise rates."""

from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import TrainerCallback

from hf_gpt import GPTForSequenceClassification, GPTTrainer
from hf_gpt.training.unfreezing import level_of, unfreezing_plan

# Every update moves what it trains: the rate is constant.
FLAGS = ["--task", "questions", "--max_train_rows", "24", "--max_eval_rows", "8", "--learning_rate", "1e-3"]
FLAGS += ["--per_device_train_batch_size", "8", "--num_train_epochs", "4", "--schedule", "warmup_constant"]
FLAGS += ["--warmup", "0", "--load_best_model_at_end", "false", "--save_strategy", "steps", "--save_total_limit", "99"]
EMBEDDINGS, LOWER, UPPER, HEAD = range(4)
EVERYTHING = {EMBEDDINGS, LOWER, UPPER, HEAD}
STAGES = {
    "gradual": [{HEAD}, {HEAD, UPPER}, {HEAD, UPPER, LOWER}, EVERYTHING],
    "head_first": [{HEAD}, EVERYTHING],
    "chain_thaw": [{HEAD}, {EMBEDDINGS}, {LOWER}, {UPPER}, EVERYTHING],
}


def test_every_parameter_has_its_level(tiny_model):
    model = tiny_model(GPTForSequenceClassification, final_norm=True, head_layers="mix")
    for name, _ in model.named_parameters():
        parts = {"score": HEAD, "head_mix": HEAD, "embed": EMBEDDINGS, ".h.0.": LOWER, ".h.1.": UPPER, "ln_f": UPPER}
        assert level_of(name, 2) == next(level for part, level in parts.items() if part in name), name


@pytest.mark.parametrize(
    ("kind", "every", "first_updates"),
    [
        ("gradual", None, [0, 25, 50, 75]),
        ("gradual", "epoch", [0, 10, 20, 30]),
        ("gradual", "40", [0, 40, 80]),
        ("head_first", None, [0, 10]),
        ("chain_thaw", None, [0, 20, 40, 60, 80]),
    ],
)
def test_length_of_stages(kind, every, first_updates):
    plan = unfreezing_plan(kind, every, n_layer=2, updates=100, updates_per_epoch=10)
    changes = [step for step in range(100) if step == 0 or plan.trained_at(step) != plan.trained_at(step - 1)]
    assert changes == first_updates
    assert [set(plan.trained_at(step)) for step in changes] == STAGES[kind][: len(changes)]


def moved_levels(output: Path, step: int) -> set[int]:
    """Levels of which an update changed every parameter; those of which it changed some fail."""
    before, after = (load_file(output / f"checkpoint-{number}" / "model.safetensors") for number in (step - 1, step))
    moved: dict[int, set[bool]] = {}
    for name, value in after.items():
        moved.setdefault(level_of(name, 2), set()).add(not torch.equal(value, before[name]))
    assert all(len(answers) == 1 for answers in moved.values()), moved
    return {level for level, (answer,) in moved.items() if answer}


@pytest.mark.parametrize(
    ("kind", "flags"),
    [
        ("gradual", []),
        ("chain_thaw", []),
        ("head_first", ["--optimizer", "trainer"]),
        ("gradual", ["--gradient_accumulation_steps", "2", "--per_device_train_batch_size", "4"]),
    ],
)
def test_every_schedule_moves_what_it_should(kind, flags, train, tmp_path):
    stages = ["--unfreeze", kind, "--unfreeze_every", 2, "--max_steps", 10]
    train(tmp_path, *FLAGS, "--save_steps", 1, *flags, *stages)
    for step in range(2, 11):
        stage = min((step - 1) // 2, len(STAGES[kind]) - 1)
        assert moved_levels(tmp_path, step) == STAGES[kind][stage], step
    if kind == "gradual":
        # After 5 updates the head has had 5, the upper block 3, the lower one 1, and the embeddings have no moments.
        levels = [level_of(name, 2) for name in load_file(tmp_path / "checkpoint-5" / "model.safetensors")]
        states = torch.load(tmp_path / "checkpoint-5" / "optimizer.pt", weights_only=True)["state"].values()
        counts = {HEAD: 5, UPPER: 3, LOWER: 1}
        assert sorted(state["step"] for state in states) == sorted(counts[each] for each in levels if each in counts)


@pytest.mark.parametrize("optimizer", ["release", "trainer"])
def test_norm_and_layer_wise_rates_of_what_is_trained(optimizer, train, tmp_path, monkeypatch):
    """Gradients are clipped to the norm of 1e-4 without those of frozen levels, which would leave the head less."""
    seen = []

    class Gradients(TrainerCallback):
        def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):
            found = {level_of(name, 2) for name, value in model.named_parameters() if value.grad is not None}
            norms = [value.grad.norm() for value in model.parameters() if value.grad is not None]
            seen.append((found, torch.stack(norms).norm().item()))

    watched = partial(GPTTrainer, callbacks=[Gradients()])
    monkeypatch.setattr("hf_gpt.training.finetune.GPTTrainer", watched)
    flags = ["--save_steps", 4, "--max_steps", 4, "--layer_decay", 0.5, "--unfreeze", "head_first"]
    flags += ["--unfreeze_every", 2, "--optimizer", optimizer, "--max_grad_norm", 1e-4]
    train(tmp_path, *FLAGS, *flags)
    assert [levels for levels, _ in seen] == [{HEAD}, {HEAD}, EVERYTHING, EVERYTHING]
    assert [norm for _, norm in seen] == pytest.approx([1e-4] * 4, rel=1e-2)
    scheduler = torch.load(tmp_path / "checkpoint-4" / "scheduler.pt", weights_only=True)
    # The Trainer has a group for what does not decay, and embeddings have no bias.
    rates = {"release": [1e-3, 5e-4, 2.5e-4, 1.25e-4], "trainer": [*[1e-3] * 2, *[5e-4] * 2, *[2.5e-4] * 2, 1.25e-4]}
    assert scheduler["base_lrs"] == pytest.approx(rates[optimizer])
    card = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "| learning rate from layer to layer | times 0.5 |" in card
    assert "| unfreezing | head_first |" in card
