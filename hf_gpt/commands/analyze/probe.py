r"""
What the states of each layer hold of sentences and words: probes, with the controls that they need.

    python scripts/analyze.py probe --model_name_or_path model_cards/gpt-mini \
        --output_dir outputs/questions_probe
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

import numpy as np

from ...analysis import AnalysisArguments, interval_text, probing, read_examples, with_random_weights
from ...analysis.figures import grid_figure, probes_figure
from ...files import flag
from ...generation import print_table
from ...model.modeling_gpt import GPTModel, GPTPreTrainedModel
from ...model.tokenization_gpt import GPTTokenizer

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
    texts = [row.text for row in rows]
    model, tokenizer = args.load(GPTModel)
    models = {args.name: model} | ({"random weights": with_random_weights(model, args.seed)} if args.control else {})
    wanted, found = set(args.tasks or _TASKS), {}
    for by_word in (False, True):
        if not wanted & {*(probing.WORD_TASKS if by_word else probing.SENTENCE_TASKS)}:
            continue
        if by_word and not args.is_treebank:
            continue
        states, static, places = _states(models, tokenizer, texts, by_word)
        if not args.is_treebank:
            tasks = [probing.label_task(texts, [row.label for row in rows])]
        else:
            tasks = probing.word_tasks(rows, places) if by_word else probing.sentence_tasks(rows)
        for task in tasks:
            if task.name in wanted or not args.is_treebank:
                found[task.name] = probing.probe_task(task, states, static, args.probe, args.max_units, args.seed)
                _print(task.name, found[task.name])
    args.save("probes", probes_figure(found, f"{args.probe} probes, {args.name}"), found)
    weights = {name: each["models"][args.name]["mix"]["weights"] for name, each in found.items()}
    values = np.array(list(weights.values()))
    layers = [f"layer {layer}" for layer in range(values.shape[1])]
    args.save("mix", grid_figure(values, "Weights of the scalar mix", "", "", list(weights), layers), weights)


def _states(
    models: dict[str, GPTPreTrainedModel], tokenizer: GPTTokenizer, texts: list[str], by_word: bool
) -> tuple[dict[str, np.ndarray], np.ndarray, dict]:
    """By model the states of all layers, static embeddings, and where the words are."""
    read = {name: probing.states_of(model, tokenizer, texts, by_word) for name, model in models.items()}
    first = next(iter(models))
    static, _ = probing.states_of(probing.static_model(models[first]), tokenizer, texts, by_word)
    return {name: states for name, (states, _) in read.items()}, static[0], read[first][1]


def _print(name: str, found: dict) -> None:
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
