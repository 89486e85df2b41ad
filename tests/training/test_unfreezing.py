"""What is trained when and how fast: stages, layer-wise rates, the same bits after resuming, refusals."""

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import TrainerCallback

from hf_gpt.model.modeling_gpt import GPTForMultipleChoice, GPTForSequenceClassification
from hf_gpt.training.optimization import ReleaseAdam
from hf_gpt.training.trainer import GPTTrainer
from hf_gpt.training.unfreezing import level_of, scale_by_level, unfreezing_plan, unfreezing_stages

from ..support.runs import assert_same, finetune, finish, launch_command, start_launch, training_lines

# 7 updates an epoch, 14 in all; every update moves what it trains: the rate is constant.
FLAGS = ["--task", "questions", "--max_train_rows", "52", "--max_eval_rows", "12", "--learning_rate", "1e-3"]
FLAGS += ["--per_device_train_batch_size", "8", "--num_train_epochs", "2", "--schedule", "warmup_constant"]
FLAGS += ["--warmup", "0", "--load_best_model_at_end", "false", "--save_strategy", "steps", "--save_total_limit", "99"]
EMBEDDINGS, LOWER, UPPER, HEAD = range(4)
EVERYTHING = {EMBEDDINGS, LOWER, UPPER, HEAD}
STAGES = {
    "gradual": [{HEAD}, {HEAD, UPPER}, {HEAD, UPPER, LOWER}, EVERYTHING],
    "head_first": [{HEAD}, EVERYTHING],
    "chain_thaw": [{HEAD}, {EMBEDDINGS}, {LOWER}, {UPPER}, EVERYTHING],
}


@pytest.fixture(scope="module")
def gradual_run(tiny_checkpoint, tmp_path_factory) -> Path:
    """Stages of 3 updates, a checkpoint after each update."""
    output = tmp_path_factory.mktemp("gradual") / "out"
    finetune(
        *("--model_name_or_path", tiny_checkpoint, "--output_dir", output, *FLAGS, "--save_steps", 1),
        *("--unfreeze", "gradual", "--unfreeze_every", 3),
    )
    return output


def moved_levels(output: Path, step: int) -> set[int]:
    """Levels of which an update changed every parameter; those of which it changed some fail."""
    before, after = (load_file(output / f"checkpoint-{number}" / "model.safetensors") for number in (step - 1, step))
    moved: dict[int, set[bool]] = {}
    for name, value in after.items():
        moved.setdefault(level_of(name, 2), set()).add(not torch.equal(value, before[name]))
    assert all(len(answers) == 1 for answers in moved.values()), moved
    return {level for level, (answer,) in moved.items() if answer}


def stage_at(step: int, kind: str, steps: int) -> set[int]:
    """What the update that makes a checkpoint of this number trains."""
    return STAGES[kind][min((step - 1) // steps, len(STAGES[kind]) - 1)]


@pytest.mark.parametrize("kind", STAGES)
def test_stages(kind):
    assert unfreezing_stages(kind, n_layer=2) == STAGES[kind]


@pytest.mark.parametrize("head", [GPTForMultipleChoice, GPTForSequenceClassification], ids=["choices", "classes"])
def test_every_parameter_has_its_level(head, tiny_model):
    model = tiny_model(head, final_norm=True, head_layers="mix")
    levels = {name: level_of(name, 2) for name, _ in model.named_parameters()}
    assert {name for name, level in levels.items() if level == HEAD} == {
        *("score.weight", "score.bias", "head_mix.scalars", "head_mix.gamma")
    }
    assert {name for name, level in levels.items() if level == EMBEDDINGS} == {
        *("transformer.embed_tokens.weight", "transformer.embed_positions.weight")
    }
    assert levels["transformer.ln_f.weight"] == levels["transformer.h.1.ln_2.bias"] == UPPER
    assert levels["transformer.h.0.attn.c_attn.weight"] == LOWER


@pytest.mark.parametrize(
    ("kind", "every", "first_updates"),
    [
        ("gradual", None, [0, 25, 50, 75]),
        ("gradual", "epoch", [0, 10, 20, 30]),
        ("gradual", "0.05", [0, 5, 10, 15]),
        ("gradual", "40", [0, 40, 80]),
        ("head_first", None, [0, 10]),
        ("chain_thaw", None, [0, 20, 40, 60, 80]),
    ],
)
def test_length_of_stages(kind, every, first_updates):
    plan = unfreezing_plan(kind, every, n_layer=2, updates=100, updates_per_epoch=10)
    changes = [step for step in range(100) if step == 0 or plan.trained_at(step) != plan.trained_at(step - 1)]
    assert changes == first_updates
    assert [plan.trained_at(step) for step in changes] == STAGES[kind][: len(changes)]


def test_a_plan_in_words():
    assert str(unfreezing_plan("chain_thaw", "30", n_layer=2, updates=100, updates_per_epoch=10)).splitlines() == [
        "  updates 1 to 30: the head",
        "  updates 31 to 60: the embeddings",
        "  updates 61 to 90: block 0",
        "  updates 91 to 100: block 1",
        "  never, as there are 100 updates: everything",
    ]
    lines = str(unfreezing_plan("gradual", None, n_layer=2, updates=100, updates_per_epoch=10)).splitlines()
    assert lines[2:] == ["  updates 51 to 75: blocks 0 to 1 and the head", "  updates 76 to 100: everything"]


def test_gradual_unfreezing_moves_what_it_should(gradual_run):
    for step in range(2, 15):
        assert moved_levels(gradual_run, step) == stage_at(step, "gradual", 3), step


@pytest.mark.parametrize(
    ("kind", "flags"),
    [
        ("chain_thaw", []),
        ("head_first", ["--optimizer", "trainer"]),
        ("gradual", ["--gradient_accumulation_steps", "2", "--per_device_train_batch_size", "4"]),
    ],
    ids=["chain-thaw", "head first, AdamW", "gradual, accumulation"],
)
def test_every_schedule_moves_what_it_should(kind, flags, tiny_checkpoint, tmp_path):
    finetune(
        *(
            "--model_name_or_path",
            tiny_checkpoint,
            "--output_dir",
            tmp_path / "out",
            *FLAGS,
            "--save_steps",
            1,
            *flags,
        ),
        *("--unfreeze", kind, "--unfreeze_every", 2, "--max_steps", 10),
    )
    for step in range(2, 11):
        assert moved_levels(tmp_path / "out", step) == stage_at(step, kind, 2), step


def test_moments_count_the_updates_of_their_parameter_alone(gradual_run):
    """After 8 updates the head has had 8, the upper block 5, the lower one 2, and the embeddings have no moments."""
    names = list(load_file(gradual_run / "checkpoint-8" / "model.safetensors"))
    states = torch.load(gradual_run / "checkpoint-8" / "optimizer.pt", weights_only=True)["state"]
    counts = sorted(state["step"] for state in states.values())
    levels = [level_of(name, 2) for name in names]
    assert counts == sorted([8] * levels.count(HEAD) + [5] * levels.count(UPPER) + [2] * levels.count(LOWER))


@pytest.mark.parametrize("step", [2, 3, 7])
def test_resuming_gives_the_same_bits(step, gradual_run, tiny_checkpoint, tmp_path):
    """Inside a stage, at its end, and inside the second epoch; two boundaries of stages lie behind."""
    output = tmp_path / "out"
    shutil.copytree(gradual_run / f"checkpoint-{step}", output / f"checkpoint-{step}")
    record = finetune(
        *("--model_name_or_path", tiny_checkpoint, "--output_dir", output, *FLAGS, "--save_steps", 1),
        *("--unfreeze", "gradual", "--unfreeze_every", 3, "--resume_from_checkpoint", "last"),
    )
    assert record["resumed"]
    for number in (step + 1, 14):
        name = f"checkpoint-{number}/model.safetensors"
        assert_same(output / name, gradual_run / name, torch.equal)
    assert training_lines(output / "checkpoint-14") == training_lines(gradual_run / "checkpoint-14")
    first, second = (
        torch.load(folder / "checkpoint-14" / "optimizer.pt", weights_only=True) for folder in (output, gradual_run)
    )
    torch.testing.assert_close(first, second, rtol=0, atol=0)


class _Gradients(TrainerCallback):
    """Which levels have gradients when the optimizer meets them, and the norm of all of them."""

    seen: list[tuple[set[int], float]] = []

    def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):
        gradients = {name: value.grad for name, value in model.named_parameters() if value.grad is not None}
        norm = torch.stack([gradient.norm() for gradient in gradients.values()]).norm().item()
        self.seen.append(({level_of(name, 2) for name in gradients}, norm))


def test_the_norm_is_that_of_what_is_trained(tiny_checkpoint, tmp_path, monkeypatch):
    """Gradients are cut to the norm of 1e-4 without those that are thrown away, which would leave the head less."""
    monkeypatch.setattr(_Gradients, "seen", [])

    class Watched(GPTTrainer):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs, callbacks=[_Gradients()])

    monkeypatch.setattr("hf_gpt.training.finetune.GPTTrainer", Watched)
    finetune(
        *("--model_name_or_path", tiny_checkpoint, "--output_dir", tmp_path / "out", *FLAGS, "--save_strategy", "no"),
        *("--unfreeze", "head_first", "--unfreeze_every", 2, "--max_steps", 4, "--max_grad_norm", 1e-4),
    )
    assert [levels for levels, _ in _Gradients.seen] == [{HEAD}, {HEAD}, EVERYTHING, EVERYTHING]
    assert [norm for _, norm in _Gradients.seen] == pytest.approx([1e-4] * 4, rel=1e-2)


@pytest.mark.parametrize("optimizer_class", [ReleaseAdam, torch.optim.AdamW])
def test_rates_fall_from_layer_to_layer(optimizer_class, tiny_model):
    model = tiny_model(GPTForSequenceClassification, final_norm=True)
    parameters = dict(model.named_parameters())
    vectors = [value for value in parameters.values() if value.ndim == 1]
    matrices = [value for value in parameters.values() if value.ndim > 1]
    groups = [{"params": matrices}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = optimizer_class(groups, lr=1e-3, weight_decay=0.01)
    scale_by_level(optimizer, model, decay=0.5, n_layer=2)
    found = {id(value): group for group in optimizer.param_groups for value in group["params"]}
    assert len(found) == len(parameters)
    expected = {EMBEDDINGS: 1e-3 / 8, LOWER: 1e-3 / 4, UPPER: 1e-3 / 2, HEAD: 1e-3}
    for name, value in parameters.items():
        assert found[id(value)]["lr"] == pytest.approx(expected[level_of(name, 2)]), name
        assert found[id(value)]["weight_decay"] == (0.0 if value.ndim == 1 else 0.01)
    assert optimizer.param_groups[0]["lr"] == 1e-3


@pytest.mark.parametrize("optimizer", ["release", "trainer"])
def test_layer_wise_rates_in_a_run(optimizer, tiny_checkpoint, tmp_path):
    finetune(
        *(
            "--model_name_or_path",
            tiny_checkpoint,
            "--output_dir",
            tmp_path / "out",
            *FLAGS,
            "--save_steps",
            2,
            "--max_steps",
            2,
        ),
        *("--layer_decay", 0.5, "--unfreeze", "head_first", "--unfreeze_every", 1, "--optimizer", optimizer),
    )
    scheduler = torch.load(tmp_path / "out" / "checkpoint-2" / "scheduler.pt", weights_only=True)
    groups = 2 if optimizer == "trainer" else 1
    rates = [rate for rate in (1e-3, 5e-4, 2.5e-4, 1.25e-4) for _ in range(groups)]
    # Embeddings have no bias: one group less where the Trainer has one for what does not decay.
    assert scheduler["base_lrs"] == pytest.approx(rates[: 8 - 1] if groups == 2 else rates)
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert "| learning rate from layer to layer | times 0.5 |" in card
    assert "| unfreezing | head_first |" in card


REFUSALS = {
    "adapter": (["--unfreeze", "gradual", "--adaptation", "lora"], "--unfreeze is for training the whole model"),
    "frozen": (["--layer_decay", "0.9", "--adaptation", "frozen"], "--layer_decay is for training the whole model"),
    "decay": (["--layer_decay", "1.1"], "above 0 and at most 1"),
    "no stage": (["--unfreeze_every", "3"], "say which with --unfreeze"),
    "no number": (["--unfreeze", "gradual", "--unfreeze_every", "often"], "give epoch"),
    "half an update": (["--unfreeze", "gradual", "--unfreeze_every", "1.5"], "give epoch"),
    "head only": (["--unfreeze", "gradual", "--unfreeze_every", "epoch"], "nothing but the head"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals_before_training(name, tiny_checkpoint, tmp_path):
    flags, message = REFUSALS[name]
    flags = ["--task", "questions", "--max_train_rows", "24", "--max_eval_rows", "6", *flags]
    with pytest.raises(ValueError, match=message):
        finetune("--model_name_or_path", tiny_checkpoint, "--output_dir", tmp_path / "out", *flags)
    assert not (tmp_path / "out").exists()


def test_sharded_models_are_refused(tiny_checkpoint, tmp_path, monkeypatch):
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    monkeypatch.setenv("FSDP_VERSION", "2")
    with pytest.raises(ValueError, match="not with sharded ones"):
        finetune(
            "--model_name_or_path", tiny_checkpoint, "--output_dir", tmp_path / "out", *FLAGS, "--unfreeze", "gradual"
        )


@pytest.mark.slow
def test_two_processes_give_the_numbers_of_one(tiny_checkpoint, tmp_path):
    flags = [
        "--model_name_or_path",
        tiny_checkpoint,
        *FLAGS,
        "--dropout",
        "0",
        "--save_strategy",
        "epoch",
        "--logging_steps",
        "1",
    ]
    flags += ["--unfreeze", "gradual", "--unfreeze_every", "3", "--layer_decay", "0.8", "--disable_tqdm", "true"]
    finetune(*flags, "--output_dir", tmp_path / "one")
    command = launch_command(
        "two_cpu_processes", *flags, "--per_device_train_batch_size", 4, "--output_dir", tmp_path / "two"
    )
    finish(start_launch(tmp_path / "log", command), tmp_path / "log")
    first, second = (load_file(tmp_path / name / "model.safetensors") for name in ("one", "two"))
    for name, value in first.items():
        torch.testing.assert_close(value, second[name], rtol=0, atol=1e-5)
