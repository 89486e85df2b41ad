"""
A training step on choices after a common context, as token trees, as rows of their own, and by TRL's trainers.

    OMP_NUM_THREADS=1 python scripts/measure/trees.py --output_file outputs/trees.json

A step is forward and backward with random weights in float32, in a forked process, which gives time of the processor
and peak memory beyond the weights. Sides take turns, and the least of each counts. The tree reads each distinct token
once: the ratio of all tokens to these is what it could gain at most where time is that of tokens. DPO reads the
reference model in every step on both sides.
"""

import copy
import multiprocessing
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import datasets
import psutil
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
    "gpt2": (GPT2Config(pad_token_id=8003, embd_pdrop=0.0, attn_pdrop=0.0, resid_pdrop=0.0), (2, 4)),
}
CONTEXTS = (64, 400)
FORK = multiprocessing.get_context("fork")
Step = Callable[[], torch.Tensor]


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


def measure(step: Step) -> tuple[float, int]:
    """Seconds of the processor, and by how many bytes a step raises the peak memory of a process of its own."""
    receiver, sender = FORK.Pipe(duplex=False)

    def run() -> None:
        before, start = psutil.Process().memory_info().rss, time.process_time()
        step().sum().backward()
        seconds = time.process_time() - start
        sender.send((seconds, 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before))

    process = FORK.Process(target=run)
    process.start()
    sender.close()
    found = receiver.recv()
    process.join()
    return found


def interleaved(sides: dict[str, Step], rounds: int) -> dict[str, dict[str, list[float]]]:
    """Seconds and bytes of all turns of each side."""
    turns = [{side: measure(step) for side, step in sides.items()} for _ in range(rounds)]
    return {
        side: {what: [turn[side][place] for turn in turns] for place, what in enumerate(("seconds", "bytes"))}
        for side in sides
    }


def pair_sides(config: PreTrainedConfig, row: dict[str, Any], folder: str) -> Iterator[tuple[str, dict[str, Step]]]:
    """A step of TRL's trainers on a pair, and ours with the same loss."""
    datasets.disable_progress_bars()
    tokenizer = AutoTokenizer.from_pretrained(GPT_MINI, eos_token="_classify_")
    settings = {"output_dir": folder, "report_to": "none", "use_cpu": True, "bf16": False}
    settings |= {"activation_checkpointing": False, "remove_unused_columns": False}
    chosen, rejected = row["choices"]
    texts = Dataset.from_list([{"prompt": "She", "chosen": " opened", "rejected": " closed"}])
    model = AutoModelForCausalLM.from_config(config)
    reference = copy.deepcopy(model).requires_grad_(False)
    ours = tree_model(copy.deepcopy(model), "log-probs", beta=0.1)
    args = {"train_dataset": texts, "processing_class": tokenizer}
    dpo = trl.DPOTrainer(model, ref_model=reference, args=trl.DPOConfig(**settings), **args)
    ids = DataCollatorForPreference(pad_token_id=0)(
        [{"prompt_ids": row["context"], "chosen_ids": chosen, "rejected_ids": rejected}]
    )

    def preference() -> torch.Tensor:
        with torch.no_grad():
            known = path_log_probs(reference, [row["context"]], [row["choices"]])
        return ours(**collate_choices([row | {"reference": known[0].tolist()}])).loss

    for each in (ours, reference):  # which are compared with paths alone once
        with torch.no_grad():
            path_log_probs(each, [[1, 2]], [[[3], [4]]])
    yield "DPO", {"tree": preference, "TRL": lambda: dpo.compute_loss(model, {**ids})}

    scored = copy.deepcopy(config)
    scored.num_labels = 1
    classifier = AutoModelForSequenceClassification.from_config(scored)
    ours = tree_model(AutoModelForCausalLM.from_config(config), "multiple-choice")
    pair = {"chosen_ids": row["context"] + chosen, "rejected_ids": row["context"] + rejected}
    args["train_dataset"] = Dataset.from_list([pair])
    reward = trl.RewardTrainer(classifier, args=trl.RewardConfig(**settings), **args)
    batch = reward.data_collator([pair])
    with torch.no_grad():
        ours(**collate_choices([{"context": [1, 2], "choices": [[3], [4]]}]))
    yield (
        "reward",
        {
            "tree": lambda: ours(**collate_choices([row])).loss,
            "TRL": lambda: reward.compute_loss(classifier, {**batch}),
        },
    )


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
            context, choices = ids[:length], [ids[length + n * CHOICE :][:CHOICE] for n in range(number)]
            sides = {
                "tree": lambda c=context, k=choices, m=model: path_log_probs(m, [c], [k]),
                "rows": lambda c=context, k=choices, m=model: alone(m, c, k),
            }
            found, tokens = interleaved(sides, args.rounds), number * (length + CHOICE) / len(ids)
            rows.append(row_of((name, length, number), found, tokens))
            results.append({"model": name, "context": length, "choices": number, "tokens": tokens, **found})
            if number == 2:
                with tempfile.TemporaryDirectory() as folder:
                    for loss, sides in pair_sides(config, {"context": context, "choices": choices}, folder):
                        found = interleaved(sides, args.rounds)
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
