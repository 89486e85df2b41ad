r"""
Perplexity of the models of a pretraining run against the tokens they have read, as a table and a picture.

    python scripts/measure/pretraining.py --models outputs/pretrained/checkpoint-* --text_files books/ \
        --other_files wikitext2/test.txt --tokens_per_step 2048 --output_dir outputs/curve

Measured are the documents of `--text_files` that `pretrain.py` held out of them, and every file of `--other_files`; of
each document the same stretch of at most `--characters` from its middle. `--zero_shot stories codah=path/to/codah` are
tasks, with the folders of their files, that each model answers without training (up to `--rows` rows). Tokens read are
the steps in a checkpoint's name, or in its `trainer_state.json`, times `--tokens_per_step`. Writes `curve.json`,
`curve.md` and `curve.png`; a run that was stopped goes on where it was.
"""

import contextlib
import io
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm

from hf_gpt.analysis.figures import new_figure, write_figure
from hf_gpt.commands import command, parse_arguments
from hf_gpt.commands.perplexity import PerplexityArguments
from hf_gpt.commands.perplexity import measure as perplexity_of
from hf_gpt.evaluation import EvaluationArguments, evaluate
from hf_gpt.files import check_settings, flag, read_json, write_json, write_text
from hf_gpt.tasks import load_task
from hf_gpt.training.arguments import DataArguments, ModelArguments
from hf_gpt.training.finetune import is_unlabelled
from hf_gpt.training.packing import HeldOut
from hf_gpt.training.text_files import iter_texts, unwrap_paragraphs

BOOKS = "held-out documents"


@dataclass
class CurveArguments:
    """Which models, and which texts."""

    models: list[str] = flag(help="Checkpoints of one run, or other folders of its models.")
    text_files: list[str] = flag(help="What was trained on, as pretrain.py takes it.")
    tokens_per_step: int = flag(help="Rows of a step times their length.")
    output_dir: str = flag(help="Folder of the results.")
    other_files: list[str] = flag([], "Other texts, each measured by itself.")
    hold_out_every: int = flag(50, "As in pretraining.")
    characters: int = flag(100_000, "Of a document.")
    zero_shot: list[str] = flag([], "TASK or TASK=FOLDER each.")
    rows: int = flag(500, "Of a task's split.")


def stretch(text: str, characters: int) -> str:
    """The middle of a text, with whole words."""
    if len(text) <= characters:
        return text
    start = text.index(" ", (len(text) - characters) // 2)
    return text[start : text.rindex(" ", start, start + characters)]


def read_texts(args: CurveArguments) -> dict[str, list[str]]:
    """Stretches of the texts, by the name of what they are."""
    documents = [text for _, text in iter_texts(args.text_files)]
    held_out = HeldOut.of(documents, args.hold_out_every)
    books = [piece for text in documents for piece in held_out.divide(text)[1]]
    others = {Path(file).name: [text for _, text in iter_texts([file])] for file in args.other_files}
    return {
        name: [stretch(unwrap_paragraphs(text), args.characters) for text in texts]
        for name, texts in {BOOKS: books, **others}.items()
    }


def steps_of(folder: Path) -> int:
    """Steps that a checkpoint has made."""
    state = folder / "trainer_state.json"
    if state.is_file():
        return read_json(state)["global_step"]
    found = re.search(r"\d+$", folder.name)
    if found is None:
        raise ValueError(f"{folder} has no trainer_state.json, and no number at the end of its name.")
    return int(found[0])


def measure(folder: Path, texts: dict[str, list[str]]) -> dict[str, dict[str, float]]:
    """Both perplexities of each of the texts."""
    found = {}
    for name, parts in texts.items():
        record = perplexity_of(PerplexityArguments(model_name_or_path=str(folder), text=parts))
        found[name] = {unit: record[f"perplexity_per_{unit}"] for unit in ("token", "word")}
    return found


def zero_shot(folder: Path, task: str, rows: int) -> dict[str, float | str]:
    """How a model answers a task (`TASK` or `TASK=FOLDER`) without training: `metric`, `split`, `rows` and `value`."""
    name, _, data = task.partition("=")
    flags = ["--task", name, *(["--data_dir", data] if data else []), "--max_eval_rows", str(rows)]
    flags += ["--max_train_rows", str(rows), "--model_name_or_path", str(folder), "--zero_shot", "true"]
    splits = load_task(name, data or None).splits
    # The test rows of some sets are published without labels, or not at all.
    split = "test" if "test" in splits and not is_unlabelled(splits["test"]) else "validation"
    with tempfile.TemporaryDirectory() as output, contextlib.redirect_stdout(io.StringIO()):
        flags += ["--split", split, "--disable_tqdm", "true", "--output_dir", output]
        record = evaluate(*parse_arguments((ModelArguments, DataArguments, EvaluationArguments), flags))
    metric = record["main_metric"]
    return {"metric": metric, "split": split, "rows": record["rows"], "value": record["metrics"][metric]}


def zero_shot_table(results: dict[str, dict]) -> str:
    """A Markdown table of the tasks, a row a model."""
    tasks = next(iter(results.values()))["zero_shot"]
    heads = [f"{name}, {found['metric']} ({found['split']}, {found['rows']:,})" for name, found in tasks.items()]
    lines = [f"| tokens read, millions | {' | '.join(heads)} |", "|---" * (1 + len(heads)) + "|"]
    for result in results.values():
        cells = [f"{found['value']:.3f}" for found in result["zero_shot"].values()]
        lines.append(f"| {result['tokens'] / 1e6:.1f} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def table(results: dict[str, dict]) -> str:
    """A Markdown table of the perplexities, a row a model."""
    names = list(next(iter(results.values()))["perplexity"])
    lines = [f"| tokens read, millions | {' | '.join(f'{name}, a token | a word' for name in names)} |"]
    lines.append("|---" * (1 + 2 * len(names)) + "|")
    for result in results.values():
        cells = [f"{value:.1f}" for name in names for value in result["perplexity"][name].values()]
        lines.append(f"| {result['tokens'] / 1e6:.1f} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def tables(results: dict[str, dict]) -> list[str]:
    """The tables that there are."""
    return [table(results)] + ([zero_shot_table(results)] if next(iter(results.values()))["zero_shot"] else [])


def draw(record: dict, path: Path) -> None:
    """Perplexity a token against tokens read, and the tasks answered without training, where there are any."""
    results = list(record["results"].values())
    panels = {"perplexity": ("token", "log", "perplexity a token"), "zero_shot": ("value", "linear", "metric")}
    panels = {name: panel for name, panel in panels.items() if results[0][name]}
    figure = new_figure(6 * len(panels), 4)
    for axes, (kind, (key, scale, label)) in zip(
        figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True
    ):
        for name in results[0][kind]:
            points = [(result["tokens"], result[kind][name][key]) for result in results]
            axes.plot(*zip(*points, strict=True), marker="o", label=name)
        axes.set(xscale="log", yscale=scale, xlabel="tokens read", ylabel=label)
        axes.legend()
    write_figure(path, figure, record)


@command(resume="The same command resumes where it was stopped.")
def main() -> None:
    """Measure the models in the order of their steps, writing after each."""
    (args,) = parse_arguments((CurveArguments,), description=__doc__)
    steps = {folder: steps_of(Path(folder)) for folder in args.models}
    output = Path(args.output_dir)
    texts = read_texts(args)
    record = {
        "characters": args.characters,
        "words": {name: sum(map(len, map(str.split, texts[name]))) for name in texts},
        "zero_shot_tasks": [task.partition("=")[0] for task in args.zero_shot],
        "rows": args.rows,
    }
    results = {}
    if (output / "curve.json").exists():
        found = read_json(output / "curve.json")
        results = found.pop("results")
        check_settings(output, found, record)
    output.mkdir(parents=True, exist_ok=True)
    for folder in tqdm(sorted(steps, key=steps.get), unit="model"):
        if folder not in results:
            answered = {task.partition("=")[0]: zero_shot(folder, task, args.rows) for task in args.zero_shot}
            results[folder] = {
                "tokens": steps[folder] * args.tokens_per_step,
                "perplexity": measure(folder, texts),
                "zero_shot": answered,
            }
        results = dict(sorted(results.items(), key=lambda item: item[1]["tokens"]))
        write_json(output / "curve.json", record | {"results": results})
        write_text(output / "curve.md", "\n".join(tables(results)))
    draw(record | {"results": results}, output / "curve.png")
    print("\n".join(tables(results)))


if __name__ == "__main__":
    main()
