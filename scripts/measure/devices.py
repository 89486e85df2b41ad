"""
Compare ways of spreading the same training over processes: rows a second and memory of each process.

    python scripts/measure/devices.py --output_dir outputs/devices
    python scripts/measure/devices.py --layouts "one process" "two processes, ZeRO-2" --output_dir outputs/devices

Every layout trains a model with GPT-1's blocks (random weights, gpt-mini's vocabulary) on the carried stories with
`scripts/finetune.py`: the same rows in the same global batches, on the CPU. The time of a step is the median of those
between the lines of its log, without the first; memory is the peak of what a process holds for itself, pages of files
and shared memory not counted, and that of the process that holds most. A finished layout is not measured again, so
the command goes on where it was stopped. Writes `results.json` and `results.md` after every layout.
"""

import importlib.util
import itertools
import os
import shutil
import statistics
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import psutil
import torch
from tqdm import tqdm
from transformers import AutoTokenizer, set_seed

from hf_gpt import GPTConfig, GPTForCausalLM
from hf_gpt.commands import REPOSITORY, command, parse_arguments
from hf_gpt.files import check_settings, flag, read_json, write_json, write_text

GLOBAL_BATCH = 16
# Layout -> configuration of accelerate with its overrides, or none; flags of finetune.py.
LAYOUTS = {
    "one process": ([], ["--per_device_train_batch_size", "16"]),
    "one process, 4 batches of 4 rows": (
        [],
        ["--per_device_train_batch_size", "4", "--gradient_accumulation_steps", "4"],
    ),
    "one process, activation checkpointing": (
        [],
        ["--per_device_train_batch_size", "16", "--activation_checkpointing", "true"],
    ),
    "two processes, DDP": (["two_cpu_processes.yaml"], ["--per_device_train_batch_size", "8"]),
    "two processes, ZeRO-2": (
        ["zero2.yaml", "--num_processes", "2", "--mixed_precision", "no", "--main_process_port", "0"],
        ["--per_device_train_batch_size", "8"],
    ),
}
SIZES = {"gpt1": {"n_layer": 12, "n_embd": 768, "n_head": 12}, "mini": {"n_layer": 5, "n_embd": 192, "n_head": 6}}
COMMON = ["--task", "stories", "--logging_steps", "1", "--disable_tqdm", "true", "--max_eval_rows", "8"]
COMMON += ["--save_strategy", "no", "--eval_strategy", "no", "--overwrite_output_dir", "true"]
STEP = "{'loss'"
LAUNCHER = "accelerate.commands.launch"


@dataclass
class MeasureArguments:
    """What to measure."""

    output_dir: str = flag(help="Folder of the runs, results.json and results.md.")
    layouts: list[str] | None = flag(None, f"These only; of: {'; '.join(LAYOUTS)}.")
    steps: int = flag(10, "Steps of each layout; at least 3.")
    size: str = flag("gpt1", f"Size of the model: {', '.join(SIZES)}.")
    threads: int = flag(2, "Threads of a layout in all, even: two processes have half of them each.")


def chosen_layouts(args: MeasureArguments) -> list[str]:
    """Layouts that can be run; stops at what does not exist."""
    unknown = [name for name in args.layouts or () if name not in LAYOUTS]
    if unknown:
        raise ValueError(f"unknown layout {unknown[0]!r}; choose of: {'; '.join(LAYOUTS)}.")
    if args.size not in SIZES:
        raise ValueError(f"unknown size {args.size}; choose of {', '.join(SIZES)}.")
    if args.steps < 3:
        raise ValueError("--steps must be at least 3, as the first is not counted.")
    if args.threads < 2 or args.threads % 2:
        raise ValueError("--threads must be even, so that each of two processes has half of them.")
    if importlib.util.find_spec("deepspeed") is not None:
        return list(args.layouts or LAYOUTS)
    remedy = 'deepspeed is not installed (pip install -e ".[deepspeed]")'
    if any("ZeRO" in name for name in args.layouts or ()):
        raise ValueError(f"{remedy}.")
    if not args.layouts:
        print(f"{remedy}: ZeRO-2 is not measured.", file=sys.stderr)
    return [name for name in args.layouts or LAYOUTS if "ZeRO" not in name]


def save_model(folder: Path, size: str) -> Path:
    """A model of random weights with gpt-mini's tokenizer, made once, atomically."""
    if folder.is_dir():
        return folder
    mini, unfinished = REPOSITORY / "model_cards" / "gpt-mini", folder.with_suffix(".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    set_seed(0)
    config = GPTConfig.from_pretrained(mini, n_positions=512, **SIZES[size])
    GPTForCausalLM(config).save_pretrained(unfinished)
    AutoTokenizer.from_pretrained(mini).save_pretrained(unfinished)
    return unfinished.rename(folder)


class _Memory(threading.Thread):
    """Peak of what each process of a command holds for itself (bytes), sampled twenty times a second."""

    def __init__(self, root: psutil.Process):
        super().__init__(daemon=True)
        self.root, self.peaks = root, {}
        self.done = threading.Event()

    def run(self) -> None:
        while not self.done.wait(0.05):
            try:
                family = [self.root, *self.root.children(recursive=True)]
            except psutil.NoSuchProcess:
                return
            for process in family:
                try:
                    # The launcher imports torch, too, but trains nothing.
                    command = process.cmdline()
                    if "scripts/finetune.py" in command and LAUNCHER not in command:
                        info = process.memory_info()
                        own = info.rss - getattr(info, "shared", 0)
                        self.peaks[process.pid] = max(self.peaks.get(process.pid, 0), own)
                except psutil.Error:
                    continue


def measure(name: str, model: Path, args: MeasureArguments) -> dict:
    """One layout: seconds of a step, and bytes of each process."""
    launcher, flags = LAYOUTS[name]
    output = Path(args.output_dir) / name.replace(",", "").replace(" ", "-")
    command = [sys.executable, "-u"]
    processes = 1
    if launcher:
        configuration, *overrides = launcher
        command += ["-m", LAUNCHER, "--config_file"]
        command += [f"scripts/configs/accelerate/{configuration}", *overrides]
        processes = 2
    else:
        flags = [*flags, "--use_cpu", "true"]
    command += ["scripts/finetune.py", *COMMON, "--model_name_or_path", str(model), "--max_steps", str(args.steps)]
    command += [*flags, "--output_dir", str(output.resolve())]
    threads = {"OMP_NUM_THREADS": str(args.threads // processes), "PYTHONUNBUFFERED": "1"}
    # DeepSpeed would take a GPU if there was one.
    environment = os.environ | threads | {"CUDA_VISIBLE_DEVICES": ""}
    times, lines = [], []
    running = subprocess.Popen(
        command, cwd=REPOSITORY, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    memory = _Memory(psutil.Process(running.pid))
    memory.start()
    try:
        for line in running.stdout:
            lines.append(line)
            if line.startswith(STEP):
                times.append(time.perf_counter())
        code = running.wait()
    finally:
        memory.done.set()
        for process in _family(running.pid):
            process.kill()
    memory.join()
    # A process that is just being started by another looks like it for a moment.
    peaks = sorted(memory.peaks.values())[-processes:]
    if code or len(times) != args.steps or len(peaks) != processes:
        found = f"exit status {code}, {len(times)} of {args.steps} steps, {len(peaks)} of {processes} processes"
        print("".join(lines[-30:]), file=sys.stderr)
        raise ValueError(f"{name} failed ({found}).")
    seconds = [later - earlier for earlier, later in itertools.pairwise(times)]
    (output / "model.safetensors").unlink()
    return {
        "processes": processes,
        "seconds of the steps": seconds,
        "rows a second": GLOBAL_BATCH / statistics.median(seconds),
        "peak bytes": peaks,
    }


def _family(pid: int) -> list[psutil.Process]:
    """A process that still runs, with all that it started."""
    try:
        process = psutil.Process(pid)
        return [*process.children(recursive=True), process]
    except psutil.NoSuchProcess:
        return []


def table(results: dict[str, dict]) -> str:
    """Results as a Markdown table."""
    columns = ["16 rows a step", "step", "rows/s", "peak memory of a process", "of all"]
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for name, result in results["layouts"].items():
        seconds = statistics.median(result["seconds of the steps"])
        peaks = [f"{size / 1e9:.2f} GB" for size in (max(result["peak bytes"]), sum(result["peak bytes"]))]
        lines.append(f"| {name} | {seconds:.2f} s | {result['rows a second']:.2f} | {' | '.join(peaks)} |")
    return "\n".join(lines)


@command(resume="The same command goes on where it was stopped.")
def main() -> None:
    """Measure what is missing, then print the table."""
    (args,) = parse_arguments((MeasureArguments,), description=__doc__)
    names = chosen_layouts(args)
    folder = Path(args.output_dir)
    file = folder / "results.json"
    settings = {"size": args.size, "steps": args.steps, "threads": args.threads, "torch": torch.__version__}
    results = {"settings": settings, "layouts": {}}
    if file.is_file():
        results = read_json(file)
        check_settings(folder, results["settings"], settings)
    folder.mkdir(parents=True, exist_ok=True)
    write_json(file, results)
    model = save_model(folder / "model", args.size).resolve()
    for name in tqdm([name for name in names if name not in results["layouts"]], desc="layouts"):
        results["layouts"][name] = measure(name, model, args)
        results["layouts"] = {name: results["layouts"][name] for name in LAYOUTS if name in results["layouts"]}
        write_json(file, results)
        write_text(folder / "results.md", table(results) + "\n")
    print(table(results))


if __name__ == "__main__":
    main()
