"""
A training step on choices after a common context, as token trees, as rows of their own, and by TRL's trainers.

    OMP_NUM_THREADS=1 python scripts/measure/trees.py --output_file outputs/trees.json

A step is forward and backward with random weights in float32, after a small one: time of the processor, and peak
memory beyond weights and gradients. Sides take turns, and the least of each counts. The tree reads each distinct token
once: the ratio of all tokens to these is what it could gain at most where time is that of tokens. DPO reads the
reference model in every step on both sides.
"""

import copy
import itertools
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import datasets
import torch
import trl
from datasets import Dataset
from harness import machine, markdown, peak_memory, seconds
from tqdm import tqdm
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, GPT2Config, LlamaConfig

from hf_gpt import GPT_MINI, GPTTokenizer
from hf_gpt.commands import command, parse_arguments
from hf_gpt.files import flag, write_json
from hf_gpt.trees import collate_choices, path_log_probs, tree_model

CHOICE = 10  # tokens of each
TINY = {"hidden_size": 256, "intermediate_size": 1024, "num_hidden_layers": 4, "num_attention_heads": 4}
CONFIGS = {
    "llama, 256 wide, 4 layers": LlamaConfig(vocab_size=8004, pad_token_id=8003, **TINY),
    "gpt2": GPT2Config(pad_token_id=8003, embd_pdrop=0.0, attn_pdrop=0.0, resid_pdrop=0.0),
}
CONTEXTS, CHOICES = (64, 400), (2, 4, 16)
Row = dict[str, Any]
Side = Callable[[Row], torch.Tensor]
Found = dict[str, dict[str, list[float]]]
SMALL_ROW = {"context": [1, 2], "choices": [[3], [4]]}


@dataclass
class TreesArguments:
    """What to measure."""

    output_file: str = flag(help="A .json file.")
    rounds: int = flag(3, "Steps of each side.")


def together(model: torch.nn.Module, row: Row) -> torch.Tensor:
    """Log-probabilities of the choices, `(1, choices)`; the context is read once."""
    return path_log_probs(model, [row["context"]], [row["choices"]])


def alone(model: torch.nn.Module, row: Row) -> torch.Tensor:
    """The same of rows that repeat the context."""
    start, rows = len(row["context"]), torch.tensor([row["context"] + choice for choice in row["choices"]])
    logits = model(rows, use_cache=False).logits[:, start - 1 : -1].log_softmax(-1)
    return logits.gather(2, rows[:, start:, None]).sum((1, 2))[None]


def interleaved(sides: dict[str, Side], row: Row, rounds: int) -> Found:
    """Seconds and bytes of all turns of each side."""

    def turn(side: str, row: Row) -> None:
        sides[side](row).sum().backward()

    found: Found = {side: {"seconds": [], "bytes": []} for side in sides}
    for side in sides:
        turn(side, SMALL_ROW)  # code comes into memory, gradients are made, and trees compared with paths alone
    for _, (side, values) in itertools.product(range(rounds), found.items()):
        step = partial(turn, side, row)
        values["bytes"].append(peak_memory(lambda step=step, taken=values["seconds"]: taken.append(seconds(step))))
    return found


def pair_sides(config: LlamaConfig | GPT2Config, folder: str) -> dict[str, dict[str, Side]]:
    """A step of TRL's trainers on a pair, and ours with the same loss."""
    datasets.disable_progress_bars()
    settings = {"output_dir": folder, "report_to": "none", "use_cpu": True, "bf16": False}
    settings |= {"activation_checkpointing": False, "remove_unused_columns": False}
    tokenizer = GPTTokenizer.from_pretrained(GPT_MINI, eos_token="_classify_")
    texts = Dataset.from_list([{"prompt": "She", "chosen": " opened", "rejected": " closed"}])
    model = AutoModelForCausalLM.from_config(config)
    reference = copy.deepcopy(model).requires_grad_(False)
    ours = tree_model(copy.deepcopy(model), "log-probs", beta=0.1)
    dpo = trl.DPOTrainer(model, reference, trl.DPOConfig(**settings), train_dataset=texts, processing_class=tokenizer)
    rewards = tree_model(AutoModelForCausalLM.from_config(config), "multiple-choice")
    scored = copy.deepcopy(config)
    scored.num_labels = 1
    classifier = AutoModelForSequenceClassification.from_config(scored)
    ids = Dataset.from_list([{"chosen_ids": [1, 2], "rejected_ids": [1, 3]}])
    reward = trl.RewardTrainer(classifier, trl.RewardConfig(**settings), train_dataset=ids, processing_class=tokenizer)

    def preference(row: Row) -> torch.Tensor:
        with torch.no_grad():
            known = together(reference, row)
        return ours(**collate_choices([row | {"reference": known[0].tolist()}])).loss

    def trl_preference(row: Row) -> torch.Tensor:
        chosen, rejected = row["choices"]
        pair = {"prompt_ids": row["context"], "chosen_ids": chosen, "rejected_ids": rejected}
        return dpo.compute_loss(model, dpo.data_collator([pair]))

    def trl_reward(row: Row) -> torch.Tensor:
        chosen, rejected = (row["context"] + choice for choice in row["choices"])
        batch = reward.data_collator([{"chosen_ids": chosen, "rejected_ids": rejected}])
        return reward.compute_loss(classifier, batch)

    of_reward = {"tree": lambda row: rewards(**collate_choices([row])).loss, "TRL": trl_reward}
    return {"DPO": {"tree": preference, "TRL": trl_preference}, "reward": of_reward}


def row_of(name: Iterable[Any], found: Found, tokens: float | None = None) -> list[str]:
    """A line of a table: our least seconds and bytes, and how many times as much the other side takes."""
    ours, other = ({what: min(values) for what, values in side.items()} for side in found.values())
    ratio = other["seconds"] / ours["seconds"]
    gained = [] if tokens is None else [f"{tokens:.2f} x", f"{ratio / tokens:.2f}"]
    memory = [f"{ours['bytes'] / 2**20:.0f} MB", f"{other['bytes'] / ours['bytes']:.2f} x"]
    return [*map(str, name), f"{ours['seconds']:.2f} s", f"{ratio:.2f} x", *gained, *memory]


@command()
def main() -> None:
    """Measure all, print the tables and write what they are made of."""
    (args,) = parse_arguments((TreesArguments,), doc=__doc__)
    generator, rows, pairs, results = torch.Generator().manual_seed(0), [], [], []
    for (name, config), length in tqdm([*itertools.product(CONFIGS.items(), CONTEXTS)]):
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config)
        for number in CHOICES:
            ids = torch.randint(1, 8000, (length + number * CHOICE,), generator=generator).tolist()
            choices = [ids[start : start + CHOICE] for start in range(length, len(ids), CHOICE)]
            row, tokens = {"context": ids[:length], "choices": choices}, number * (length + CHOICE) / len(ids)
            sides = {"tree": partial(together, model), "rows": partial(alone, model)}
            found = interleaved(sides, row, args.rounds)
            rows.append(row_of((name, length, number), found, tokens))
            results.append({"model": name, "context": length, "choices": number, "tokens": tokens, **found})
            with tempfile.TemporaryDirectory() as folder:
                for loss, both in pair_sides(config, folder).items() if number == 2 else ():
                    found = interleaved(both, row, args.rounds)
                    pairs.append(row_of((loss, name, length), found))
                    results.append({"loss": loss, "model": name, "context": length, **found})
    header = ["model", "context", "choices", "step, tree", "rows of their own", "tokens", "share of that"]
    tables = [markdown([*header, "memory, tree", "of rows"], rows)]
    tables.append(markdown(["loss", "model", "context", "step, tree", "TRL", "memory, tree", "of TRL"], pairs))
    write_json(Path(args.output_file), machine() | {"tables": tables, "steps": results})
    print(*tables, sep="\n\n")


if __name__ == "__main__":
    main()
