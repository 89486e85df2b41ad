"""
Time this project and its peers on the same work, in one run, and print ratios.

    python scripts/measure/benchmark.py --suites multiple-choice features generate --output_dir outputs/bench
    python scripts/measure/benchmark.py --suites classification --data_dir DATA --output_dir outputs/bench_files

Contenders take turns, so that whatever else the machine does falls on all of them; figures are medians, on a CPU of
processor time, all threads together (`OMP_NUM_THREADS=1` for one). Peers are transformers' own `openai-gpt` and `gpt2`
at the same size, on random batches padded to the longest sequence; ours are batches of rows of like length, as in
fine-tuning; one more contender is our model with every sequence laid out on its own. Training is forward and backward
of the joint loss with dropout, in float32 on a CPU and bfloat16 autocast on a GPU; `generate` stays in float32. Where
`hf_gpt.use_fast_float32` finds oneDNN's float32 products as exact and faster, ours use them, and peers are timed as
they are used and with the same products.

Writes `results.json` and `results.md`; the same command resumes a run that was stopped. `--data_dir` holds the
published files (`openbookqa/`, `trec6/`, ...) and the release's vocabulary (`gpt_bpe/`); only `multiple-choice-files`
and `classification` need it.
"""

import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from harness import FOLDERS, keep_settings, machine, markdown, peak_memory, seconds, shown, write_results
from tqdm import tqdm
from transformers import PreTrainedModel

from hf_gpt import GPTConfig, GPTForCausalLM, GPTForMultipleChoice, GPTModel, token_trees
from hf_gpt.commands import command, parse_arguments
from hf_gpt.conversion.ctranslate2 import write_ctranslate2
from hf_gpt.conversion.tokenizers import release_tokenizer
from hf_gpt.files import flag, read_json, read_yaml
from hf_gpt.performance import pack_for_inference, use_fast_float32
from hf_gpt.tasks import load_task
from hf_gpt.trees.collators import LengthGroupedSampler, collate_trees
from hf_gpt.trees.token_tree import TokenTree

VOCABULARY = 40478
START, DELIMITER, CLASSIFY, PAD = range(VOCABULARY, VOCABULARY + 4)
POOL = 50  # batches among which rows of like length are sought, as in training
LM_COEFFICIENT, NEW_TOKENS = 0.5, 64
OURS, UNSHARED, FAST = "hf_gpt", "hf_gpt, nothing shared", ", fast products"
# Configuration, transformer, language model and double heads of both peers.
PEERS = {
    name: [getattr(transformers, prefix + part) for part in ("Config", "Model", "LMHeadModel", "DoubleHeadsModel")]
    for name, prefix in (("openai-gpt", "OpenAIGPT"), ("gpt2", "GPT2"))
}
# Who else decodes on a CPU, and in which dtype: our packed model, and CTranslate2 with the same weights.
PACKED, CTRANSLATE2 = "hf_gpt, packed", "CTranslate2"
DECODERS = {f"{name} {dtype}": dtype for name in (PACKED, CTRANSLATE2) for dtype in ("float32", "int8")}
SIZES = {
    "gpt1": {"n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 512},
    "tiny": {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 512},
}
SUITES = read_yaml(Path(__file__).with_name("suites.yaml"))
HEADER = ["work", OURS, *PEERS, "nothing shared", "memory", "padding, ours and theirs"]
HEADER += ["product rate", "logits differ"]
Row = list[list[int]]  # token ids of the sequences of one example
Turn = Callable[[], object]  # of a contender, with all batches of a workload
Batch = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Workload:
    """The rows of a turn in the batches of both sides."""

    name: str
    suite: str
    grouped: list[list[Row]]  # batches of rows of like length, as our sampler makes them
    shuffled: list[list[Row]]  # the same rows in random batches, as a Trainer's default makes them

    @property
    def rows(self) -> list[Row]:
        """All rows."""
        return [row for batch in self.grouped for row in batch]

    @property
    def trains(self) -> bool:
        """Whether a turn has a backward pass."""
        return self.suite not in ("features", "generate")


def distinct(rows: Sequence[Row]) -> list[int]:
    """Tokens of each row's tree."""
    return [len(TokenTree.from_paths(row)) for row in rows]


def random_rows(shape: Mapping[str, Any], number: int, random: np.random.Generator) -> list[Row]:
    """Rows with the lengths of a shape of `suites.yaml`."""

    def tokens(fewest: int, most: int) -> list[int]:
        return random.integers(0, VOCABULARY, random.integers(fewest, most + 1)).tolist()

    rows = []
    for _ in range(number):
        context, parts = tokens(*shape["context"]), [tokens(*shape["choice"]) for _ in range(shape["choices"])]
        rows.append([[START, *context, *([DELIMITER, *part] if part else []), CLASSIFY] for part in parts])
    return rows


def task_rows(task: str, data_dir: Path, number: int, random: np.random.Generator) -> list[Row]:
    """Rows drawn from a task's training split, tokenized and truncated as in fine-tuning."""
    data, tokenizer = load_task(task, data_dir / FOLDERS.get(task, task)), release_tokenizer(data_dir / "gpt_bpe")
    split = data.splits["train"]
    chosen = split.select(random.permutation(len(split))[:number])
    found = token_trees(chosen, tokenizer, family=data.spec.family, max_length=512)
    trees = map(TokenTree.from_row, found)
    return [
        [[tree.input_ids[token] for token in tree.path(choice)] for choice in range(len(tree.path_ends))]
        for tree in trees
    ]


def make_workload(name: str, suite: str, seed: int = 0, data_dir: Path = Path()) -> Workload:
    """
    Draw rows, group them by length into batches, and shuffle the same rows into others.

    Rows are drawn from a pool of many batches, as in an epoch; of its batches those are timed that lie evenly over
    the lengths (of two, those at a quarter and at three quarters), so that either side meets long and short rows.
    """
    source, random = SUITES[suite][name], np.random.default_rng(seed)
    size, count = source["batch_size"], source["batches"]
    draw = partial(task_rows, source["task"], data_dir) if "task" in source else partial(random_rows, source)
    rows = draw(size * POOL, random)
    lengths = distinct(rows)
    batches = np.array_split(list(LengthGroupedSampler(lengths, size, seed)), -(-len(rows) // size))
    batches = sorted(batches, key=lambda batch: max(lengths[row] for row in batch))
    batches = [batches[int((place + 0.5) / count * len(batches))] for place in range(count)]
    shuffled = np.array_split(random.permutation(np.concatenate(batches)), count)
    return Workload(name, suite, *([[rows[row] for row in batch] for batch in each] for each in (batches, shuffled)))


def padding_share(batches: Sequence[Sequence[Row]], as_trees: bool) -> float:
    """Share of the laid out tokens that are padding, batches padded to their longest row or sequence."""
    lengths = [distinct(rows) if as_trees else [len(path) for row in rows for path in row] for rows in batches]
    return 1 - sum(map(sum, lengths)) / sum(max(batch) * len(batch) for batch in lengths)


def useful_flops(rows: Sequence[Row], size: dict, trains: bool = True) -> float:
    """
    Floating-point operations that a turn of a model of `size` cannot do without: products over distinct tokens and
    attention over tokens that are seen; in training also the logits of distinct parents, and the same twice backward.
    """
    width, total = size["n_embd"], 0.0
    for tree in map(TokenTree.from_paths, rows):
        seen = sum(position + 1 for position in tree.position_ids)
        total += size["n_layer"] * (24 * width**2 * len(tree) + 4 * width * seen)
        if trains:
            parents = {tree.parent_index[token] for token in range(len(tree)) if tree.lm_weights[token] > 0}
            total += 2 * width * (VOCABULARY + 3) * len(parents)
    return 3 * total if trains else total


def contenders(workload: Workload, device: str = "cpu") -> tuple[str, ...]:
    """Names of those that take turns at a workload."""
    if workload.suite == "generate" and device == "cpu":
        lacking = () if torch.cpu._is_vnni_supported() else (f"{PACKED} int8",)
        return (OURS, *PEERS, *(name for name in DECODERS if name not in lacking))
    return (OURS, *PEERS, UNSHARED) if len(workload.rows[0]) > 1 else (OURS, *PEERS)


def build(name: str, workload: Workload, size: dict, device: str = "cpu") -> Turn:
    """What a contender does in a turn, all batches of a workload."""
    model = build_model(name, workload.suite, size).to(device).train(workload.trains)
    if workload.suite == "generate":
        return generation(name, padded(workload.rows)[0][:, 0].to(device), model)
    batches = [{key: value.to(device) for key, value in batch.items()} for batch in batches_of(name, workload)]

    def turn() -> None:
        for batch in batches:
            with torch.inference_mode(not workload.trains), torch.autocast(device, torch.bfloat16, device == "cuda"):
                outputs = model(**batch)
            if workload.trains:
                choice = outputs.get("mc_loss")  # of a peer, whose `loss` is that of its language model alone
                loss = outputs.loss if choice is None else choice + LM_COEFFICIENT * outputs.loss
                loss.backward()
                model.zero_grad()

    return turn


def build_model(name: str, suite: str, size: dict) -> PreTrainedModel:
    """A contender's model with what a suite needs on top, the release's vocabulary and dropout of 0.1 everywhere."""
    place = {"features": 0, "pretrain": 1, "generate": 1}.get(suite, 2)
    if name not in PEERS:
        return (GPTModel, GPTForCausalLM, GPTForMultipleChoice)[place](GPTConfig(**size, pad_token_id=PAD))
    config_class, *classes = PEERS[name]
    config = config_class(vocab_size=PAD + 1, bos_token_id=None, eos_token_id=None, pad_token_id=PAD, **size)
    return classes[place](config)


def batches_of(name: str, workload: Workload) -> list[Batch]:
    """Single sequences, those of a language model without padding; else token trees, or sequences for both heads."""
    batches = workload.shuffled if name in PEERS else workload.grouped
    if workload.suite == "pretrain":
        return [{"input_ids": ids[:, 0], "labels": ids[:, 0]} for ids, _ in map(padded, batches)]
    if workload.suite == "features":
        return [{"input_ids": ids[:, 0], "attention_mask": mask[:, 0]} for ids, mask in map(padded, batches)]
    if name in PEERS:
        return [double_heads_batch(rows) for rows in batches]
    return [tree_batch(rows, None if name == OURS else 0) for rows in batches]


def tree_batch(rows: Sequence[Row], share_limit: int | None = None) -> Batch:
    """Token trees, whose paths share at most so many tokens."""
    batch = collate_trees([TokenTree.from_paths(row, share_limit) for row in rows], PAD)
    return batch | {"labels": torch.zeros(len(rows), dtype=torch.long)}


def padded(rows: Sequence[Row]) -> tuple[torch.Tensor, torch.Tensor]:
    """`input_ids` and `attention_mask`, `(rows, sequences, length)`, padded on the right to the longest."""
    paths = [torch.tensor(path) for row in rows for path in row]
    input_ids = torch.nn.utils.rnn.pad_sequence(paths, batch_first=True, padding_value=PAD)
    input_ids = input_ids.view(len(rows), -1, input_ids.shape[-1])
    return input_ids, (input_ids != PAD).long()


def double_heads_batch(rows: Sequence[Row]) -> Batch:
    """What a peer with two heads takes, with the labels of both losses."""
    input_ids, mask = padded(rows)
    batch = {"input_ids": input_ids, "attention_mask": mask.flatten(0, 1), "mc_token_ids": mask.sum(-1) - 1}
    labels = input_ids.masked_fill(input_ids == PAD, -100)
    return batch | {"labels": labels, "mc_labels": torch.zeros(len(rows), dtype=torch.long)}


def generation(name: str, input_ids: torch.Tensor, model: PreTrainedModel) -> Turn:
    """Greedy generation of `NEW_TOKENS` tokens behind each row, in float32; openai-gpt has no key-value cache."""
    if name.startswith(CTRANSLATE2):
        return ctranslate2_generation(input_ids.tolist(), model, DECODERS[name])
    if name in DECODERS:
        pack_for_inference(model, DECODERS[name])
    arguments = {"max_new_tokens": NEW_TOKENS, "min_new_tokens": NEW_TOKENS, "do_sample": False, "pad_token_id": PAD}
    return partial(model.generate, input_ids, attention_mask=torch.ones_like(input_ids), **arguments)


def ctranslate2_generation(rows: list[list[int]], model: PreTrainedModel, dtype: str) -> Turn:
    """The same by CTranslate2, from our export."""
    from ctranslate2 import Generator

    with tempfile.TemporaryDirectory() as folder:
        write_ctranslate2(model, None, Path(folder), None if dtype == "float32" else dtype)
        generator = Generator(folder, compute_type=dtype, intra_threads=torch.get_num_threads())
    prompts = [[f"<{token}>" for token in ids] for ids in rows]
    arguments = {"max_length": NEW_TOKENS, "min_length": NEW_TOKENS, "include_prompt_in_result": False}
    return partial(generator.generate_batch, prompts, **arguments)


def logits_difference(workload: Workload, size: dict) -> float:
    """Largest difference between our task logits and openai-gpt's on the first batch, both with the same weights."""
    theirs, rows = build_model("openai-gpt", workload.suite, size).eval(), workload.grouped[0]
    with tempfile.TemporaryDirectory() as folder:
        theirs.save_pretrained(folder)
        ours = GPTForMultipleChoice.from_pretrained(folder).eval()
    with torch.no_grad():
        logits, expected = ours(**tree_batch(rows)).logits, theirs(**double_heads_batch(rows)).mc_logits
    return float((logits - expected.view_as(logits)).abs().max())


@dataclass
class BenchmarkArguments:
    """What to time."""

    output_dir: str = flag(help="Folder of results.json and results.md.")
    suites: list[str] = flag(["multiple-choice"], "What to time.", SUITES)
    data_dir: str = flag(".", "Folder of the data sets' folders.")
    size: str = flag("gpt1", "Size of all models.", SIZES)
    rounds: int = flag(3, "Timed turns of each contender.")
    seed: int = flag(0, "Of rows and weights.")
    memory: bool = flag(True, "Measure peak memory, in a turn of its own.")
    device: str = flag("cuda" if torch.cuda.is_available() else "cpu", "Where to run: cpu or cuda.")


def product_rate(workload: Workload, width: int, device: str) -> float:
    """
    Floating-point operations per second of the model's own matrix products and nothing else: forward and both
    gradients of a block's four layers at the tokens of a batch, repeated for about as many operations as a block
    does in a turn.
    """

    def products(states: torch.Tensor, weight: torch.Tensor, gradient: torch.Tensor) -> None:
        torch.mm(states, weight.t())
        torch.mm(gradient, weight)
        torch.mm(gradient.t(), states)

    tokens = max(sum(distinct(batch)) for batch in workload.grouped)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    taken = operations = 0.0
    for inputs, outputs in [(width, 3 * width), (width, width), (width, 4 * width), (4 * width, width)]:
        shapes = ((tokens, inputs), (outputs, inputs), (tokens, outputs))
        turn = partial(products, *(torch.randn(shape, device=device, dtype=dtype) for shape in shapes))
        turn()
        taken += sum(seconds(turn, device) for _ in range(4))
        operations += 4 * 3 * 2 * tokens * inputs * outputs
    return operations / taken


def measure(workload: Workload, args: BenchmarkArguments) -> dict[str, Any]:
    """Times of every contender in turns, with the machine's rate and what else tables say of a workload."""
    size, device = SIZES[args.size], args.device
    decodes = workload.suite == "generate"  # in products of single tokens; its fast ones are those of packed models
    fast = use_fast_float32(False if decodes or device == "cuda" else None)
    torch.manual_seed(0)
    turns = {name: build(name, workload, size, device) for name in contenders(workload, device)}
    turns |= {name + FAST: turns[name] for name in PEERS if fast}
    for turn in turns.values():
        turn()  # warms up
    times, rates = {name: [] for name in turns}, []
    for _ in tqdm(range(args.rounds), desc=workload.name, unit="round"):
        for name, turn in turns.items():
            use_fast_float32(fast and name not in PEERS)
            times[name].append(seconds(turn, device))
        rates.append(product_rate(workload, size["n_embd"], device))
    medians = {name: statistics.median(values) for name, values in times.items()}
    ours, theirs = padding_share(workload.grouped, as_trees=True), padding_share(workload.shuffled, as_trees=False)
    result = {
        "suite": workload.suite,
        "seconds": times,
        "median_seconds": medians,
        "rows": len(workload.rows),
        "tokens": sum(distinct(workload.rows)),
        "ratio": {name: value / medians[OURS] for name, value in medians.items()},
        "fast_float32": fast,
        "padding": {"hf_gpt": ours, "peers": theirs},
    }
    if not decodes:
        flops, rate = useful_flops(workload.rows, size, workload.trains), statistics.median(rates)
        result |= {"useful_flops": flops, "product_rate": rate, "share_of_product_rate": flops / medians[OURS] / rate}
    if workload.trains and workload.suite != "pretrain":
        result["logits_difference"] = logits_difference(workload, size)
    if args.memory:
        result["peak_memory"] = {name: peak_memory(turn, device) for name, turn in turns.items()}
    return result


def table(results: Mapping[str, Mapping[str, Any]]) -> str:
    """
    A Markdown table, one workload a row: our median time of a turn, how many times as long the others took (as they
    are used, and with fast products like ours), our peak memory as a share of openai-gpt's, and our share of the rate
    of the model's own matrix products; of decoding its own table.
    """
    decoded = {name: result for name, result in results.items() if result["suite"] == "generate"}
    rows = []
    for name, result in results.items():
        if name not in decoded:
            memory, ratios = result.get("peak_memory"), result["ratio"]
            rows.append([name, f"{result['median_seconds'][OURS]:.2f} s"])
            for who in (*PEERS, UNSHARED):
                rows[-1] += [", ".join(f"{ratios[each]:.2f} x" for each in (who, who + FAST) if each in ratios) or "-"]
            rows[-1] += [shown(memory and memory[OURS] / memory["openai-gpt"], "{:.2f}")]
            rows[-1] += ["{hf_gpt:.1%}, {peers:.1%}".format(**result["padding"])]
            rows[-1] += [shown(result.get("share_of_product_rate"), "{:.0%}")]
            rows[-1] += [shown(result.get("logits_difference"), "{:.0e}")]
    tables = ([markdown(HEADER, rows)] if rows else []) + ([decoding_table(decoded)] if decoded else [])
    return "\n\n".join(tables)


def decoding_table(results: Mapping[str, Mapping[str, Any]]) -> str:
    """A Markdown table of decoding: tokens a second of every contender, and how many times those of gpt2 that is."""
    names, rows = [*dict.fromkeys(name for result in results.values() for name in result["median_seconds"])], []
    for work, result in results.items():
        rates = {name: result["rows"] * NEW_TOKENS / taken for name, taken in result["median_seconds"].items()}
        rows.append([work, *(f"{rates[name]:.1f} ({rates[name] / rates['gpt2']:.2f} x)" for name in names)])
    return markdown(["tokens a second (of gpt2's)", *names], rows)


@command(resume="The same command resumes it.")
def main() -> None:
    """Run the suites, writing after each workload; results of other settings are not mixed with these."""
    (args,) = parse_arguments((BenchmarkArguments,), doc=__doc__)
    if args.rounds < 1:
        raise ValueError(f"--rounds must be at least 1, not {args.rounds}.")
    folder, data_dir = Path(args.output_dir), Path(args.data_dir)
    record = {"size": args.size, "rounds": args.rounds, "seed": args.seed}
    record |= machine(args.device) | {"dtype": "bfloat16" if args.device == "cuda" else "float32"}
    planned = [make_workload(name, suite, args.seed, data_dir) for suite in args.suites for name in SUITES[suite]]
    keep_settings(folder, record)
    file = folder / "results.json"
    results = read_json(file)["results"] if file.is_file() else {}
    for workload in planned:
        if workload.name not in results:
            results[workload.name] = measure(workload, args)
            write_results(folder, {**record, "results": results}, table(results))
    print(table(results))


if __name__ == "__main__":
    main()
