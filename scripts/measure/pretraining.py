r"""
Perplexity of the models of a pretraining run against the tokens they have read, as a table and a figure.

    python scripts/measure/pretraining.py --models outputs/pretrained/checkpoint-* --text_files books/ \
        --other_files wikitext2/test.txt --tokens_per_step 2048 --output_dir outputs/curve

Measured are the documents of `--text_files` that `pretrain.py` held out of them, and every file of `--other_files`; of
each document the same stretch of at most `--characters` from its middle. `--zero_shot stories codah=path/to/codah` are
tasks, with the folders of their files, that each model answers without training (up to `--rows` rows). Tokens read are
the steps in a checkpoint's `trainer_state.json`, or else in its name, times `--tokens_per_step`. Writes `curve.json`,
`curve.md` and `curve.png`; the same command resumes a run that was stopped.
"""

import contextlib
import io
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tables import markdown
from tqdm import tqdm

from hf_gpt.analysis.figures import new_figure, write_figure
from hf_gpt.commands import command, parse_arguments, perplexity
from hf_gpt.evaluation import EvaluationArguments, evaluate
from hf_gpt.files import check_settings, flag, read_json, write_json, write_text
from hf_gpt.tasks import load_task
from hf_gpt.training.arguments import DataArguments, ModelArguments
from hf_gpt.training.finetune import lacks_label
from hf_gpt.training.packing import HeldOut
from hf_gpt.training.text_files import iter_texts, unwrap_paragraphs


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
    texts = {"held-out documents": [piece for text in documents for piece in held_out.divide(text)[1]]}
    texts |= {Path(file).name: [text for _, text in iter_texts([file])] for file in args.other_files}
    return {name: [stretch(unwrap_paragraphs(text), args.characters) for text in own] for name, own in texts.items()}


def steps_of(folder: Path) -> int:
    """Steps that a checkpoint has made."""
    state = folder / "trainer_state.json"
    if state.is_file():
        return read_json(state)["global_step"]
    found = re.search(r"\d+$", folder.name)
    if found is None:
        raise ValueError(f"{folder} has no trainer_state.json, and no number at the end of its name.")
    return int(found[0])


def measure(folder: str, texts: dict[str, list[str]]) -> dict[str, dict[str, float]]:
    """Both perplexities of each of the texts."""
    found = {}
    for name, parts in texts.items():
        record = perplexity.measure(perplexity.PerplexityArguments(model_name_or_path=folder, text=parts))
        found[name] = {unit: record[f"perplexity_per_{unit}"] for unit in ("token", "word")}
    return found


def zero_shot(folder: str, task: str, rows: int) -> dict[str, float | str]:
    """How a model answers a task (`TASK` or `TASK=FOLDER`) without training: `metric`, `split`, `rows` and `value`."""
    name, _, data = task.partition("=")
    splits = load_task(name, data or None).splits
    # The test rows of some sets are published without labels, or not at all.
    split = "test" if "test" in splits and not lacks_label(splits["test"]).all() else "validation"
    flags = ["--task", name, *(["--data_dir", data] if data else []), "--split", split, "--disable_tqdm", "true"]
    flags += ["--max_eval_rows", str(rows), "--max_train_rows", str(rows), "--model_name_or_path", folder]
    with tempfile.TemporaryDirectory() as output, contextlib.redirect_stdout(io.StringIO()):
        flags += ["--zero_shot", "true", "--output_dir", output]
        record = evaluate(*parse_arguments((ModelArguments, DataArguments, EvaluationArguments), flags))
    metric = record["main_metric"]
    return {"metric": metric, "split": split, "rows": record["rows"], "value": record["metrics"][metric]}


def tables(results: dict[str, dict[str, Any]]) -> list[str]:
    """Markdown tables of the perplexities and, where there are any, of the tasks; a row a model."""
    perplexities, header = [], ["tokens read, millions"]
    answers, tasks = [], ["tokens read, millions"]
    for result in results.values():
        read, measured = f"{result['tokens'] / 1e6:.1f}", result["perplexity"]
        perplexities.append([read, *(f"{value:.1f}" for found in measured.values() for value in found.values())])
        answers.append([read, *(f"{found['value']:.3f}" for found in result["zero_shot"].values())])
    header += [title for name in measured for title in (f"{name}, a token", "a word")]
    tasks += [
        f"{name}, {each['metric']} ({each['split']}, {each['rows']:,})" for name, each in result["zero_shot"].items()
    ]
    return [markdown(header, perplexities), *([markdown(tasks, answers)] if len(tasks) > 1 else [])]


def draw(record: dict[str, Any], path: Path) -> None:
    """Perplexity a token against tokens read, and the tasks answered without training, where there are any."""
    results = list(record["results"].values())
    panels = [("perplexity", "token", "log", "perplexity a token"), ("zero_shot", "value", "linear", "metric")]
    panels = [panel for panel in panels if results[0][panel[0]]]
    figure = new_figure(6 * len(panels), 4)
    for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        kind, key, scale, label = panel
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
    output, texts = Path(args.output_dir), read_texts(args)
    tasks = {task.partition("=")[0]: task for task in args.zero_shot}
    record = {
        "characters": args.characters,
        "words": {name: sum(map(len, map(str.split, texts[name]))) for name in texts},
        "zero_shot_tasks": list(tasks),
        "rows": args.rows,
    }
    found = read_json(output / "curve.json") if (output / "curve.json").is_file() else record | {"results": {}}
    results = found.pop("results")
    check_settings(output, found, record)
    output.mkdir(parents=True, exist_ok=True)
    for folder in tqdm(sorted(steps, key=steps.get), unit="model"):
        if folder not in results:
            answered = {name: zero_shot(folder, task, args.rows) for name, task in tasks.items()}
            measured = {"tokens": steps[folder] * args.tokens_per_step, "perplexity": measure(folder, texts)}
            results[folder] = measured | {"zero_shot": answered}
        results = dict(sorted(results.items(), key=lambda item: item[1]["tokens"]))
        write_json(output / "curve.json", record | {"results": results})
        write_text(output / "curve.md", "\n\n".join(tables(results)) + "\n")
    draw(record | {"results": results}, output / "curve.png")
    print("\n\n".join(tables(results)))


if __name__ == "__main__":
    main()
