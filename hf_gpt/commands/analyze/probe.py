r"""
What the states of each layer tell of sentences and words: probes, with the controls that they need.

    python scripts/analyze.py probe --model_name_or_path model_cards/gpt-mini \
        --output_dir outputs/questions_probe
    python scripts/analyze.py probe --model_name_or_path model_cards/gpt-mini --tasks tense pos \
        --file UD_English-EWT/en_ewt-ud-dev.conllu --output_dir outputs/probe

`--file` is a treebank in CoNLL-U (.conllu, or a folder of such files), of which six properties of sentences and four
of words are made, or any file of texts with labels; without it the carried questions. A probe is logistic regression
on frozen states, or with `--probe mlp` a small network. probes.png and probes.json show its accuracy over the layers
with Wilson's intervals (95%), on the scalar mix of all layers, and of the same model with random weights; the most
frequent label and static embeddings; and selectivity, which tells how much of it the probe cannot have learnt by
heart. mix.png shows what the scalar mix weighs.
"""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ...analysis import AnalysisArguments, probing, read_examples, redrawn
from ...analysis.pictures import grid_picture, probes_picture, write_picture
from ...files import flag
from ...model.modeling_gpt import GPTModel, GPTPreTrainedModel
from ...model.tokenization_gpt import GPTTokenizer

# Questions with the kind of their answer.
_CARRIED = Path(__file__).parents[2] / "tasks" / "data"
_SENTENCE = ("length", "content", "depth", "tense", "subject number", "object number")
_WORD = ("pos", "dependency", "position", "previous")


@dataclass(kw_only=True)
class Arguments(AnalysisArguments):
    """Which model and texts, what is asked of their states, and where the result goes."""

    # No flag: a text alone has no label.
    text: None = field(default=None, init=False)
    file: str | None = flag(None, "Treebank, or file of texts with labels; without it, the carried questions.")
    tasks: list[str] | None = flag(None, f"Of a treebank, some of {', '.join((*_SENTENCE, *_WORD))}; by default all.")
    probe: str = flag("linear", "What reads the states.", probing.PROBES)
    control: bool = flag(True, "Probe the model with random weights, too.")
    max_texts: int = flag(2000, "Texts that are read at most, drawn at random.")
    max_units: int = flag(4000, "Sentences or words of a task at most.")

    def __post_init__(self) -> None:
        super().__post_init__()
        unknown = set(self.tasks or ()) - {*_SENTENCE, *_WORD}
        if unknown:
            raise ValueError(f"--tasks {' '.join(sorted(unknown))}: choose from {', '.join((*_SENTENCE, *_WORD))}.")
        if self.tasks and not self.is_treebank:
            raise ValueError("--tasks are those of a treebank: give a .conllu --file, or a folder of such files.")
        for name in ("max_texts", "max_units"):
            if getattr(self, name) < 8:
                raise ValueError(f"--{name} {getattr(self, name)}: the number must be at least 8.")

    @property
    def is_treebank(self) -> bool:
        """`bool`: whether the file is one, by its name."""
        return self.file is not None and (Path(self.file).is_dir() or ".conllu" in Path(self.file).suffixes)


def run(args: Arguments) -> None:
    """Read the states once for all tasks of a kind, probe, draw."""
    random, wanted = np.random.default_rng(args.seed), args.tasks or [*_SENTENCE, *_WORD]
    if args.is_treebank:
        rows = probing.read_conllu(Path(args.file))
    else:
        rows = read_examples(Path(args.file or _CARRIED / "questions.jsonl"), args.text_column, args.label_column)
        if all(row.label is None for row in rows):
            raise ValueError(f"{args.file}: no text has a label in the column {args.label_column!r}.")
    rows = [rows[row] for row in np.sort(random.permutation(len(rows))[: args.max_texts])]
    texts = [row.text for row in rows]
    model, tokenizer = args.load(GPTModel)
    models = {args.name: model} | ({"random weights": redrawn(model, args.seed)} if args.control else {})
    found = {}
    kinds = ((False, _SENTENCE), (True, _WORD)) if args.is_treebank else ((False, wanted),)
    for by_word in (by_word for by_word, names in kinds if set(names) & set(wanted)):
        states, static, places = _states(models, tokenizer, texts, by_word)
        if not args.is_treebank:
            tasks = [probing.label_task(texts, [row.label for row in rows])]
        else:
            tasks = probing.word_tasks(rows, places) if by_word else probing.sentence_tasks(rows)
            tasks = [task for task in tasks if task.name in wanted]
        for task in tasks:
            found[task.name] = probing.probe_task(task, states, static, args.probe, args.max_units, args.seed)
            _print(task, found[task.name])
    folder, title = Path(args.output_dir), f"{args.probe} probes, {args.name}"
    write_picture(folder / "probes.png", probes_picture(found, title), found)
    weights = {name: each["models"][args.name]["mix"]["weights"] for name, each in found.items()}
    layers = [f"layer {layer}" for layer in range(len(next(iter(weights.values()))))]
    figure = grid_picture(np.array(list(weights.values())), "Weights of the scalar mix", "", "", layers)
    figure.axes[0].set_yticks(range(len(weights)), list(weights))
    write_picture(folder / "mix.png", figure, weights)


def _states(
    models: dict[str, GPTPreTrainedModel], tokenizer: GPTTokenizer, texts: list[str], by_word: bool
) -> tuple[dict[str, np.ndarray], np.ndarray, dict]:
    """By model the states of all layers, static embeddings, and where the words are."""
    read = {name: probing.states_of(model, tokenizer, texts, by_word) for name, model in models.items()}
    first = next(iter(models))
    static, _ = probing.states_of(probing.static_model(models[first]), tokenizer, texts, by_word)
    return {name: states for name, (states, _) in read.items()}, static[0], read[first][1]


def _print(task: probing.ProbeTask, found: dict) -> None:
    print(f"{task.name}: {found['classes']} classes, {found['train']:,} for training, {found['test']:,} for testing")
    for name in ("majority", "static"):
        print(f"  {name:24}{_interval(found[name])}")
    for name, each in found["models"].items():
        for layer, row in enumerate(each["layers"]):
            print(f"  {name[:14]:15}layer {layer:<3}{_interval(row)}  selectivity {row['selectivity']:+.3f}")
        print(f"  {name[:14]:15}mix      {_interval(each['mix'])}")


def _interval(row: dict[str, float]) -> str:
    return f"{row['accuracy']:.3f} ({row['low']:.3f} to {row['high']:.3f})"
