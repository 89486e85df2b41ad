"""
A training step on choices after a common context, as token trees, as rows of their own, and by TRL's trainers.

    OMP_NUM_THREADS=1 python scripts/measure/trees.py --output_file outputs/trees.json

A step is forward and backward with random weights in float32, in a forked process after a small step, which gives time
of the processor and peak memory beyond weights and gradients. Sides take turns, and the least of each counts. The tree
reads each distinct token once: the ratio of all tokens to these is what it could gain at most where time is that of
tokens. DPO reads the reference model in every step on both sides.
"""

import copy
import ctypes
import gc
import multiprocessing
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import datasets
import torch
import trl
from datasets import Dataset
from tables import markdown
from tqdm import tqdm
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    GPT2Config,
    LlamaConfig,
    PreTrainedConfig,
    PreTrainedModel,
)
from trl.trainer.dpo_trainer import DataCollatorForPreference

from hf_gpt import GPT_MINI
from hf_gpt.commands import command, parse_arguments
from hf_gpt.files import flag, write_json
from hf_gpt.trees import collate_choices, path_log_probs, tree_model

CHOICE = 10  # tokens
SIZES = {"vocab_size": 8004, "pad_token_id": 8003}
TINY = {"hidden_size": 256, "intermediate_size": 1024, "num_hidden_layers": 4, "num_attention_heads": 4}
CONFIGS = {
    "llama, 256 wide, 4 layers": (LlamaConfig(**SIZES, **TINY), (2, 4, 16)),
    "gpt2": (GPT2Config(pad_token_id=8003, embd_pdrop=0.0, attn_pdrop=0.0, resid_pdrop=0.0), (2, 4, 16)),
}
CONTEXTS = (64, 400)
FORK = multiprocessing.get_context("fork")
Step, Row = Callable[[], torch.Tensor], dict[str, Any]
SMALL_ROW = {"context": [1, 2], "choices": [[3], [4]]}


@dataclass
class TreesArguments:
    """What to measure."""

    output_file: str = flag(help="A .json file.")
    rounds: int = flag(3, "Steps of each side.")


def alone(model: PreTrainedModel, context: list[int], choices: list[list[int]]) -> torch.Tensor:
    """As `path_log_probs`, of rows that repeat the context: `(1, choices)`."""
    rows = torch.tensor([[*context, *choice] for choice in choices])
    logits = model(rows, use_cache=False).logits[:, len(context) - 1 : -1].log_softmax(-1)
    return logits.gather(2, rows[:, len(context) :, None]).sum((1, 2))[None]


def memory(entry: str) -> int:
    """Bytes of this process, now (VmRSS) or at most (VmHWM)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(entry))


def measure(step: Step, warm_up: Step) -> tuple[float, int]:
    """Seconds of the processor, and by how many bytes a step raises the peak memory of a process of its own."""
    receiver, sender = FORK.Pipe(duplex=False)

    def run() -> None:
        warm_up().sum().backward()  # code comes into memory, and gradients are made
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)  # what was freed would be taken again, and not be counted
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins here
        before, start = memory("VmRSS"), time.process_time()
        step().sum().backward()
        sender.send((time.process_time() - start, memory("VmHWM") - before))

    process = FORK.Process(target=run)
    process.start()
    sender.close()
    found = receiver.recv()
    process.join()
    return found


def interleaved(sides: dict[str, Callable], rows: list[Row], rounds: int) -> dict[str, dict[str, list[float]]]:
    """Seconds and bytes of all turns of each side, which takes a row, after a small one."""
    turns = [
        {side: measure(*(partial(step, row) for row in rows)) for side, step in sides.items()} for _ in range(rounds)
    ]
    return {
        side: {what: [turn[side][place] for turn in turns] for place, what in enumerate(("seconds", "bytes"))}
        for side in sides
    }


def pair_sides(config: PreTrainedConfig, folder: str) -> Iterator[tuple[str, dict[str, Callable]]]:
    """A step of TRL's trainers on a pair, and ours with the same loss."""
    datasets.disable_progress_bars()
    tokenizer = AutoTokenizer.from_pretrained(GPT_MINI, eos_token="_classify_")
    settings = {"output_dir": folder, "report_to": "none", "use_cpu": True, "bf16": False}
    settings |= {"activation_checkpointing": False, "remove_unused_columns": False}
    texts = Dataset.from_list([{"prompt": "She", "chosen": " opened", "rejected": " closed"}])
    model = AutoModelForCausalLM.from_config(config)
    reference = copy.deepcopy(model).requires_grad_(False)
    ours = tree_model(copy.deepcopy(model), "log-probs", beta=0.1)
    args = {"train_dataset": texts, "processing_class": tokenizer}
    dpo = trl.DPOTrainer(model, ref_model=reference, args=trl.DPOConfig(**settings), **args)
    names, collator = ("prompt_ids", "chosen_ids", "rejected_ids"), DataCollatorForPreference(pad_token_id=0)

    def trl_preference(row: Row) -> torch.Tensor:
        return dpo.compute_loss(model, collator([dict(zip(names, (row["context"], *row["choices"]), strict=True))]))

    def preference(row: Row) -> torch.Tensor:
        with torch.no_grad():
            known = path_log_probs(reference, [row["context"]], [row["choices"]])
        return ours(**collate_choices([row | {"reference": known[0].tolist()}])).loss

    for each in (ours, reference):  # which are compared with paths alone once
        with torch.no_grad():
            path_log_probs(each, [[1, 2]], [[[3], [4]]])
    yield "DPO", {"tree": preference, "TRL": trl_preference}

    scored = copy.deepcopy(config)
    scored.num_labels = 1
    classifier = AutoModelForSequenceClassification.from_config(scored)
    ours = tree_model(AutoModelForCausalLM.from_config(config), "multiple-choice")
    args["train_dataset"] = Dataset.from_list([{"chosen_ids": [1, 2], "rejected_ids": [1, 3]}])
    reward = trl.RewardTrainer(classifier, args=trl.RewardConfig(**settings), **args)

    def trl_reward(row: Row) -> torch.Tensor:
        chosen, rejected = (row["context"] + choice for choice in row["choices"])
        pair = {"chosen_ids": chosen, "rejected_ids": rejected}
        return reward.compute_loss(classifier, reward.data_collator([pair]))

    with torch.no_grad():
        ours(**collate_choices([SMALL_ROW]))
    yield "reward", {"tree": lambda row: ours(**collate_choices([row])).loss, "TRL": trl_reward}


def row_of(name: Any, found: dict[str, dict[str, list[float]]], tokens: float | None = None) -> list[str]:
    """A line of a table: our least seconds and bytes, and how many times as much the other side takes."""
    ours, other = ({what: min(values) for what, values in side.items()} for side in found.values())
    ratio = other["seconds"] / ours["seconds"]
    shown = [f"{ours['seconds']:.2f} s", f"{ratio:.2f} x"]
    if tokens is not None:
        shown += [f"{tokens:.2f} x", f"{ratio / tokens:.2f}"]
    return [*map(str, name), *shown, f"{ours['bytes'] / 2**20:.0f} MB", f"{other['bytes'] / ours['bytes']:.2f} x"]


@command()
def main() -> None:
    """Measure all, print the tables and write what they are made of."""
    (args,) = parse_arguments((TreesArguments,), description=__doc__)
    torch.set_num_threads(1)  # before a fork
    generator, rows, pairs, results = torch.Generator().manual_seed(0), [], [], []
    for name, (config, numbers) in CONFIGS.items():
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config)
        with torch.no_grad():  # which compares the paths
            path_log_probs(model, [[1, 2]], [[[3], [4]]])
        for length, number in tqdm([(length, number) for length in CONTEXTS for number in numbers], desc=name):
            ids = torch.randint(1, 8000, (length + number * CHOICE,), generator=generator).tolist()
            choices = [ids[length + n * CHOICE :][:CHOICE] for n in range(number)]
            both = [{"context": ids[:length], "choices": choices}, SMALL_ROW]
            sides = {
                "tree": lambda row, m=model: path_log_probs(m, [row["context"]], [row["choices"]]),
                "rows": lambda row, m=model: alone(m, **row),
            }
            found, tokens = interleaved(sides, both, args.rounds), number * (length + CHOICE) / len(ids)
            rows.append(row_of((name, length, number), found, tokens))
            results.append({"model": name, "context": length, "choices": number, "tokens": tokens, **found})
            if number == 2:
                with tempfile.TemporaryDirectory() as folder:
                    for loss, sides in pair_sides(config, folder):
                        found = interleaved(sides, both, args.rounds)
                        pairs.append(row_of((loss, name, length), found))
                        results.append({"loss": loss, "model": name, "context": length, **found})
    header = ["model", "context", "choices", "step, tree", "rows of their own", "tokens", "share of that"]
    memory = ["memory, tree", "of rows"]
    tables = [markdown([*header, *memory], rows)]
    tables.append(markdown(["loss", "model", "context", "step, tree", "TRL", memory[0], "of TRL"], pairs))
    cpu = {"device": torch.cpu.get_capabilities()["cpu_name"], "threads": torch.get_num_threads()}
    write_json(Path(args.output_file), cpu | {"tables": tables, "steps": results})
    print(*tables, sep="\n\n")


if __name__ == "__main__":
    main()
