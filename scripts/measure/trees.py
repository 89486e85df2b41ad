"""
Time a training step on choices after a common context, as token trees and as rows of their own, on other models.

    OMP_NUM_THREADS=1 python scripts/measure/trees.py --output_file outputs/trees.json

A step is forward and backward of the choices' log-probabilities (`hf_gpt.trees.path_log_probs`) with random weights in
float32; both sides take turns, and times are of the processor. The tree reads each distinct token once: the ratio of
all tokens to these is what it could gain at most where time is that of tokens.
"""

import statistics
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from tables import markdown
from tqdm import tqdm
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig, PreTrainedModel

from hf_gpt.commands import command, parse_arguments
from hf_gpt.files import flag, write_json
from hf_gpt.trees import path_log_probs

CHOICE = 10  # tokens
TINY = {"hidden_size": 256, "intermediate_size": 1024, "num_hidden_layers": 4, "num_attention_heads": 4}
CONFIGS = {
    "llama, 256 wide, 4 layers": LlamaConfig(vocab_size=8000, **TINY),
    "gpt2": GPT2Config(embd_pdrop=0.0, attn_pdrop=0.0, resid_pdrop=0.0),
}


@dataclass
class TreesArguments:
    """What to time."""

    output_file: str = flag(help="A .json file.")
    rounds: int = flag(3, "Timed steps of each side.")


def alone(model: PreTrainedModel, context: list[int], choices: list[list[int]]) -> torch.Tensor:
    """As `path_log_probs`, of rows that repeat the context: `(1, choices)`."""
    rows = torch.tensor([[*context, *choice] for choice in choices])
    logits = model(rows, use_cache=False).logits[:, len(context) - 1 : -1].log_softmax(-1)
    return logits.gather(2, rows[:, len(context) :, None]).sum((1, 2))[None]


@command()
def main() -> None:
    """Time all, print the table and write what it is made of."""
    (args,) = parse_arguments((TreesArguments,), description=__doc__)
    generator, rows, results = torch.Generator().manual_seed(0), [], []
    for name, config in CONFIGS.items():
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")
        for length, number in tqdm([(64, 2), (64, 4), (64, 16), (400, 2), (400, 4), (400, 16)], desc=name):
            ids = torch.randint(1, 8000, (length + number * CHOICE,), generator=generator).tolist()
            context, choices = ids[:length], [ids[length + n * CHOICE :][:CHOICE] for n in range(number)]
            ways = {
                "tree": lambda c=context, k=choices, m=model: path_log_probs(m, [c], [k]),
                "rows": lambda c=context, k=choices, m=model: alone(m, c, k),
            }
            seconds: dict[str, list[float]] = {way: [] for way in ways}
            for turn in range(args.rounds + 1):
                for way, read in ways.items():
                    model.zero_grad()
                    start = time.process_time()
                    read().sum().backward()
                    if turn:  # the first one warms up, and checks the tree
                        seconds[way].append(time.process_time() - start)
            medians = {way: statistics.median(each) for way, each in seconds.items()}
            tokens = number * (length + CHOICE) / len(ids)
            gain = medians["rows"] / medians["tree"]
            results.append({"model": name, "context": length, "choices": number, "seconds": seconds, "tokens": tokens})
            shown = [f"{medians['tree']:.2f} s", f"{gain:.2f} x", f"{tokens:.2f} x", f"{gain / tokens:.2f}"]
            rows.append([name, length, number, *shown])
    header = ["model", "context", "choices", "step, tree", "rows of their own", "tokens", "share of that"]
    table = markdown(header, [[str(cell) for cell in row] for row in rows])
    cpu = {"device": torch.cpu.get_capabilities()["cpu_name"], "threads": torch.get_num_threads()}
    write_json(Path(args.output_file), cpu | {"tables": [table], "steps": results})
    print(table)


if __name__ == "__main__":
    main()
