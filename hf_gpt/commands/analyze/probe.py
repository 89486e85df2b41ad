r"""
What the states of each layer hold of sentences and words: probes, with the controls that they need.

    python scripts/analyze.py probe --model_name_or_path model_cards/gpt-mini --tasks tense pos \
        --file UD_English-EWT/en_ewt-ud-dev.conllu --output_dir outputs/probe

`--file` is a treebank in CoNLL-U (.conllu, or a folder of such files), of which six properties of sentences and four
of words are made, or any file of texts with labels; without it the bundled questions. A probe is logistic regression
on frozen states, or with `--probe mlp` a small network. probes.png and probes.json show its accuracy over the layers
with Wilson's intervals (95%), on the scalar mix of all layers, and of the same model with random weights; the most
frequent label and static embeddings; and selectivity, how much of it the probe cannot have learnt by heart. mix.png
shows what the scalar mix weighs.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ...analysis import AnalysisArguments, interval_text, probing, read_examples, with_random_weights
from ...analysis.figures import curves_figure, grid_figure
from ...files import flag
from ...generation import print_table
from ...model.modeling_gpt import GPTModel

# Questions with the kind of their answer.
_QUESTIONS = Path(__file__).parents[2] / "tasks" / "data" / "questions.jsonl"
_TASKS = (*probing.SENTENCE_TASKS, *probing.WORD_TASKS)


@dataclass(kw_only=True)
class Arguments(AnalysisArguments):
    """Which model and texts, what is asked of their states, and where the result goes."""

    # No flag: a text alone has no label.
    text: None = field(default=None, init=False)
    file: str | None = flag(None, "Treebank, or file of texts with labels; without it, the bundled questions.")
    tasks: list[str] | None = flag(None, f"Of a treebank, some of {', '.join(_TASKS)}; by default all.")
    probe: str = flag("linear", "What reads the states.", probing.PROBES)
    control: bool = flag(True, "Probe the model with random weights, too.")
    max_texts: int = flag(2000, "Texts that are read at most, drawn at random.")
    max_units: int = flag(4000, "Sentences or words of a task at most.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if unknown := set(self.tasks or ()) - {*_TASKS}:
            raise ValueError(f"--tasks {' '.join(sorted(unknown))}: choose from {', '.join(_TASKS)}.")
        if self.tasks and not self.is_treebank:
            raise ValueError("--tasks are those of a treebank: give a .conllu --file, or a folder of such files.")

    @property
    def is_treebank(self) -> bool:
        """`bool`: whether the file is one, by its name."""
        return self.file is not None and (Path(self.file).is_dir() or ".conllu" in Path(self.file).suffixes)


def run(args: Arguments) -> None:
    """Read the states once for all tasks of a kind, probe, draw."""
    if args.is_treebank:
        rows = probing.read_conllu(Path(args.file))
    else:
        rows = read_examples(Path(args.file or _QUESTIONS), args.text_column, args.label_column)
        if all(row.label is None for row in rows):
            raise ValueError(f"{args.file}: no text has a label in the column {args.label_column!r}.")
    order = np.random.default_rng(args.seed).permutation(len(rows))
    rows = [rows[row] for row in np.sort(order[: args.max_texts])]
    model, tokenizer = args.load(GPTModel)
    models = {args.name: model, "static": probing.static_model(model)}
    models |= {"random weights": with_random_weights(model, args.seed)} if args.control else {}
    wanted, found, texts = set(args.tasks or _TASKS), {}, [row.text for row in rows]
    for by_word in (False, True) if args.is_treebank else (False,):
        if not wanted & {*(probing.WORD_TASKS if by_word else probing.SENTENCE_TASKS)}:
            continue
        read = {name: probing.states_of(each, tokenizer, texts, by_word) for name, each in models.items()}
        states = {name: values for name, (values, _) in read.items()}
        static = states.pop("static")[0]
        if not args.is_treebank:
            tasks = {"label": probing.label_task(texts, [row.label for row in rows])}
        else:
            tasks = probing.word_tasks(rows, read[args.name][1]) if by_word else probing.sentence_tasks(rows)
        for name, units in tasks.items():
            if name in wanted or not args.is_treebank:
                found[name] = probing.probe_task(name, units, states, static, args.probe, args.max_units, args.seed)
                _print(name, found[name])
    panels = {name: _curves(task) for name, task in found.items()}
    args.save(
        "probes", curves_figure(panels, f"{args.probe} probes, {args.name}: accuracy", "layer", columns=3), found
    )
    weights = {name: each["models"][args.name]["mix"]["weights"] for name, each in found.items()}
    values = np.array(list(weights.values()))
    args.save("mix", grid_figure(values, "Weights of the scalar mix", "", "layer", list(weights)), weights)


def _curves(task: dict[str, Any]) -> dict[str, np.ndarray]:
    """Accuracy over the layers by model, and what it is compared with."""
    names = ("accuracy", "low", "high")
    curves = {
        model: np.array([[row[name] for row in each["layers"]] for name in names])
        for model, each in task["models"].items()
    }
    count = next(iter(curves.values())).shape[1]
    static, majority = (np.full(count, task[name]["accuracy"]) for name in ("static", "majority"))
    return curves | {"static embeddings": static, "most frequent label": majority}


def _print(name: str, found: dict[str, Any]) -> None:
    print(f"{name}: {found['classes']} classes, {found['train']:,} for training, {found['test']:,} for testing")
    rows = [("", "most frequent label", found["majority"]), ("", "static embeddings", found["static"])]
    for model, each in found["models"].items():
        rows += [(model, f"layer {layer}", row) for layer, row in enumerate(each["layers"])]
        rows.append((model, "scalar mix", each["mix"]))
    print_table(
        [
            {"model": model, "of": of, "accuracy": interval_text(row, "accuracy")}
            | {"selectivity": f"{row['selectivity']:+.3f}" if "selectivity" in row else ""}
            for model, of, row in rows
        ]
    )
