"""Several processes and shards give the numbers of one process; launches that would not are refused."""

import multiprocessing
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
import torch.distributed
from accelerate.commands.config.config_args import load_config_from_file
from torch.distributed.fsdp import fully_shard

from hf_gpt.model.modeling_gpt import GPTForMultipleChoice
from hf_gpt.training.arguments import check_launch
from hf_gpt.training.optimization import ReleaseAdam
from hf_gpt.trees.collators import collate_trees
from hf_gpt.trees.token_tree import TokenTree

from ..support.runs import REPOSITORY, assert_same_parameters, launch_command, start_launch
from ..support.tiny import CLASSIFY, DELIMITER, PAD, START, build_model

CONFIGURATIONS = REPOSITORY / "scripts/configs/accelerate"


@pytest.mark.slow
def test_a_launched_run_names_what_is_wrong(tiny_checkpoint, tmp_path):
    flags = ["--task", "questions", "--model_name_or_path", tiny_checkpoint, "--output_dir", tmp_path / "out"]
    command = launch_command("two_cpu_processes", *flags, "--adaptation", "frozen", "--layers", "7")
    assert start_launch(tmp_path / "log", command).wait(timeout=600)
    assert "finetune.py: --layers 7: give last, mix, or a number from 0" in (tmp_path / "log").read_text()


@pytest.mark.parametrize("path", sorted(CONFIGURATIONS.glob("*.yaml")), ids=lambda path: path.stem)
def test_configurations_are_accelerates_own(path):
    """accelerate knows every setting, and what FSDP wraps is there."""
    config = load_config_from_file(str(path))
    wrapped = config.fsdp_config.get("fsdp_transformer_layer_cls_to_wrap") if config.fsdp_config else None
    assert wrapped in (None, *GPTForMultipleChoice._no_split_modules)


@pytest.mark.parametrize(
    ("gpus", "environment", "message"),
    [
        (0, {}, None),
        (2, {}, "2 GPUs are visible"),
        (2, {"LOCAL_RANK": "0"}, None),
        (0, {"ACCELERATE_USE_FSDP": "true"}, "configured for GPUs"),
        (0, {"ACCELERATE_MIXED_PRECISION": "bf16"}, "configured for GPUs"),
        # What accelerate leaves in the environment after --cpu --num_processes 2.
        (0, {"ACCELERATE_USE_CPU": "True", "MASTER_ADDR": "127.0.0.1"}, r"two_cpu_processes\.yaml"),
    ],
)
def test_launches_that_would_do_something_else_are_refused(gpus, environment, message, monkeypatch):
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: gpus > 0)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with nullcontext() if message is None else pytest.raises(ValueError, match=message):
        check_launch()


def train_steps(model: torch.nn.Module, rows: list[int], processes: int) -> None:
    """Five updates with the release's Adam on items of which each process has its part."""
    generator, trees = torch.Generator().manual_seed(1), []
    for row in range(4):
        tokens = torch.randint(0, START, (2, 6 + row), generator=generator).tolist()
        context = [START, *tokens[0], DELIMITER]
        trees.append(TokenTree.from_paths([[*context, *tokens[1][:3], CLASSIFY], [*context, *tokens[1], CLASSIFY]]))
    batch = collate_trees([trees[row] for row in rows], PAD)
    batch["labels"] = torch.tensor([[0, 1, 1, 0][row] for row in rows])
    optimizer = ReleaseAdam(model.parameters(), lr=1e-3)
    model.train()
    for _ in range(5):
        loss = model(**batch, num_items_in_batch=4).loss
        # FSDP averages gradients over processes; the model has divided by the items of all of them.
        (loss * processes).backward()
        optimizer.step()
        optimizer.zero_grad()


def shard_and_train(rank: int, folder: Path) -> None:
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    model = build_model(GPTForMultipleChoice)
    mesh = torch.distributed.init_device_mesh("cpu", (2,))
    for block in (*model.transformer.h, model):
        fully_shard(block, mesh=mesh)
    train_steps(model, [[0, 1], [2, 3]][rank], processes=2)
    whole = {name: parameter.full_tensor().detach() for name, parameter in model.named_parameters()}
    if rank == 0:
        torch.save(whole, folder / "parameters.pt")
    torch.distributed.destroy_process_group()


@pytest.mark.slow
def test_sharded_training_gives_the_numbers_of_one_process(tmp_path):
    """
    Model, joint loss and the release's Adam under FSDP2, on two CPU processes. accelerate itself shards on
    accelerators only, so this calls torch's `fully_shard`.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    processes = [context.Process(target=shard_and_train, args=(rank, tmp_path)) for rank in (0, 1)]
    for process in processes:
        process.start()
    model = build_model(GPTForMultipleChoice)
    train_steps(model, [0, 1, 2, 3], processes=1)
    for process in processes:
        process.join(120)
        assert process.exitcode == 0
    sharded = torch.load(tmp_path / "parameters.pt", weights_only=True)
    assert_same_parameters(sharded, {name: value.detach() for name, value in model.named_parameters()})
