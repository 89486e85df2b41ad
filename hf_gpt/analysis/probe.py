r"""
What the states of each layer hold of sentences and words: probes, with the controls that they need.

    hf-gpt analyze probe --model_name_or_path gpt-mini --tasks tense pos \
        --file UD_English-EWT/en_ewt-ud-dev.conllu --output_dir outputs/probe

`--file` is a treebank in CoNLL-U (.conllu, or a folder of such files), of which properties of sentences and words are
made as in SentEval (Conneau et al., 2018), or any file of texts with labels; without it the bundled questions. A probe
is logistic regression on frozen states. probes.png and probes.json show its accuracy over the layers with Wilson's
intervals (95%), next to that of the same model with random weights, of static embeddings, and the share of the most
frequent label. Selectivity is accuracy less that on random labels fixed per word, of a sentence per first word (Hewitt
and Liang, 2019): what a probe cannot have memorized.
"""

import copy
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from ..files import flag, reading
from ..generation import print_table
from ..model.modeling_gpt import GPTModel, GPTPreTrainedModel
from ..tasks.formats import read_treebank
from . import AnalysisArguments, interval_text, read_examples, text_states, with_random_weights
from .agreement import proportion
from .figures import curves_figure, write_figure

_QUESTIONS = Path(__file__).parents[1] / "tasks" / "data" / "questions.jsonl"
SENTENCE_TASKS = ("length", "depth", "tense", "subject number")
WORD_TASKS = ("pos", "previous")
# Words of `previous`, edges of the classes of `length`, and the last class of `depth`.
_WORDS, _LENGTHS, _DEEPEST = 20, (4, 8, 12, 16, 20, 25), 8


class TreeWord(NamedTuple):
    """A word of a treebank: its form, part of speech, features, relation and head (0: none), and its characters."""

    form: str
    pos: str
    features: dict[str, str]
    relation: str
    head: int
    start: int
    end: int


# Text and words.
Sentence = tuple[str, list[TreeWord]]


class Unit(NamedTuple):
    """A text or word with a label: the numbers of its text and its states, and the word (type) of its control."""

    text: int
    row: int
    label: str | None
    type: str


def read_conllu(path: Path) -> list[Sentence]:
    """Sentences of a CoNLL-U file, or of a folder of them; a `ValueError` names file and line of what is wrong."""
    sentences = []
    for file in sorted(path.rglob("*.conllu*")) if path.is_dir() else [path]:
        for where, fields in read_treebank(file):
            with reading(where):
                sentences.append(_sentence(fields))
    if not sentences:
        raise ValueError(f"{path}: there is no sentence: name a .conllu file, or a folder with some.")
    return sentences


def _sentence(fields: Mapping[str, Any]) -> Sentence:
    """Of the columns of each word; ranges (2-3) and words that are not written (2.1) are left out."""
    columns = (fields[name] for name in ("index", "form", "upos", "features", "head", "relation"))
    rows = [row for index, *row in zip(*columns, strict=True) if index.isdecimal()]
    text, words, cursor = fields.get("text", " ".join(row[0] for row in rows)), [], 0
    for form, pos, features, head, relation in rows:
        if not 0 <= int(head) <= len(rows):
            raise ValueError(f"there is no head {head} in the sentence")
        start = text.find(form, cursor)
        cursor = end = start + len(form) if start >= 0 else cursor
        features = dict(part.split("=", 1) for part in features.split("|") if "=" in part)
        words.append(TreeWord(form, pos, features, relation.partition(":")[0], int(head), start, end))
    if not words:
        raise ValueError("the sentence has no words")
    return text, words


def sentence_tasks(sentences: Sequence[Sentence]) -> dict[str, list[Unit]]:
    """`length` (words, in classes), `depth` of the tree, `tense` of the main verb, and number of its subject."""
    found: dict[str, list[Unit]] = {name: [] for name in SENTENCE_TASKS}
    for row, (_, words) in enumerate(sentences):
        # Up from every word, until all are above the root; words in a circle never are.
        heads, above, depth = [0, *(word.head for word in words)], range(len(words) + 1), 0
        while any(above) and depth < _DEEPEST:
            above, depth = [heads[number] for number in above], depth + 1
        root = heads.index(0, 1) if 0 in heads[1:] else None
        below = [word for word in words if word.head == root]
        verbs = [word for word in below if word.relation in ("aux", "cop")] + [word for word in words if not word.head]
        tenses = [word.features.get("Tense") for word in verbs if word.features.get("VerbForm") == "Fin"]
        numbers = [word.features.get("Number") for word in below if word.relation == "nsubj"]
        number = numbers[0] if numbers and numbers[0] in ("Sing", "Plur") else None
        labels = (str(np.searchsorted(_LENGTHS, len(words))), str(depth), tenses[0] if tenses else None, number)
        for units, label in zip(found.values(), labels, strict=True):
            units.append(Unit(row, row, label, words[0].form.lower()))
    return found


def word_tasks(sentences: Sequence[Sentence], rows: Mapping[tuple[int, int, int], int]) -> dict[str, list[Unit]]:
    """`pos` (part of speech), and `previous` (frequent word before), of words with a row of states, by their place."""
    counts = Counter(word.form.lower() for _, words in sentences for word in words)
    frequent = dict(counts.most_common(_WORDS))
    found: dict[str, list[Unit]] = {name: [] for name in WORD_TASKS}
    for number, (_, words) in enumerate(sentences):
        before = None
        for word in words:
            row, previous, before = rows.get((number, word.start, word.end)), before, word.form.lower()
            if row is not None:
                found["pos"].append(Unit(number, row, word.pos, before))
                found["previous"].append(Unit(number, row, previous if previous in frequent else None, before))
    return found


def static_model(model: GPTPreTrainedModel) -> GPTPreTrainedModel:
    """The model without positions, so that the states of its layer 0 are static: the token embeddings alone."""
    static = copy.deepcopy(model.base_model)
    static.embed_positions.weight.data.zero_()
    return static


def split(name: str, texts: np.ndarray, labels: np.ndarray, most: int = 4000, seed: int = 0) -> Sequence[np.ndarray]:
    """Some units of a task for training, and for testing those of a random quarter of the texts; of each its text."""
    kept = np.sort(np.random.default_rng(seed).permutation(len(labels))[:most])
    if len(np.unique(texts[kept])) > 1:
        parts = GroupShuffleSplit(1, test_size=0.25, random_state=seed).split(kept, groups=texts[kept])
        train, test = (kept[part] for part in next(parts))
        if len(np.unique(labels[train])) > 1:
            return train, test
    raise ValueError(f"The task {name} has too few labelled texts for a probe: give more.")


def probe(states: np.ndarray, classes: np.ndarray, train: np.ndarray, test: np.ndarray) -> dict[str, float]:
    """Accuracy of logistic regression on states `(units, n_embd)`; without features, of the most frequent class."""
    classifier = make_pipeline(StandardScaler(), LogisticRegression(max_iter=200, C=0.1))
    if not states.shape[1] or len(np.unique(classes[train])) == 1:
        classifier = DummyClassifier()
    right = classifier.fit(states[train], classes[train]).predict(states[test]) == classes[test]
    return proportion(int(right.sum()), len(right))


def probe_task(
    name: str, units: list[Unit], states: dict[str, np.ndarray], static: np.ndarray, most: int = 4000, seed: int = 0
) -> dict[str, Any]:
    """
    Of states `(layers, units, n_embd)` of models by name, and of static embeddings `(units, n_embd)`: the numbers of
    `classes`, `train` and `test` units, and as `curves` the accuracy at every layer and, of models, `selectivity`.
    """
    units = [unit for unit in units if unit.label is not None]
    texts, rows, labels, types = (np.array([unit[column] for unit in units]) for column in range(4))
    parts = split(name, texts, labels, most, seed)
    names, classes = np.unique(labels, return_inverse=True)
    different, numbers = np.unique(types, return_inverse=True)
    # One class for each word, drawn with the frequencies of the task's own.
    random, curves = np.random.default_rng(seed).choice(classes, len(different))[numbers], {}
    for model, layers in states.items():
        curves[model] = []
        for layer in layers:
            found, control = (probe(layer[rows], wanted, *parts) for wanted in (classes, random))
            curves[model].append({**found, "selectivity": found["accuracy"] - control["accuracy"]})
    for of, features in (("static embeddings", static[rows]), ("most frequent label", static[rows, :0])):
        curves[of] = [probe(features, classes, *parts)] * len(layers)
    return {"classes": len(names), "train": len(parts[0]), "test": len(parts[1]), "curves": curves}


@dataclass(kw_only=True)
class Arguments(AnalysisArguments):
    # No flag: a text alone has no label.
    text: None = field(default=None, init=False)
    file: str | None = flag(None, "Treebank, or file of texts with labels; without it, the bundled questions.")
    tasks: list[str] | None = flag(None, "Properties of a treebank; by default all.", (*SENTENCE_TASKS, *WORD_TASKS))
    max_texts: int = flag(2000, "Texts that are read at most, drawn at random.")
    max_units: int = flag(4000, "Sentences or words of a task at most.")


def run(args: Arguments) -> None:
    """Read the states once for all tasks of a kind, probe, draw."""
    path = Path(args.file or _QUESTIONS)
    is_treebank = path.is_dir() or ".conllu" in path.suffixes
    if args.tasks and not is_treebank:
        raise ValueError("--tasks are those of a treebank: give a .conllu --file, or a folder of such files.")
    rows = read_conllu(path) if is_treebank else read_examples(path, args.text_column, args.label_column)
    if not is_treebank and all(row.label is None for row in rows):
        raise ValueError(f"{path}: no text has a label in the column {args.label_column!r}.")
    order = np.random.default_rng(args.seed).permutation(len(rows))
    rows = [rows[row] for row in np.sort(order[: args.max_texts])]
    model, tokenizer = args.load(GPTModel)
    models = {args.name: model, "random weights": with_random_weights(model, args.seed)}
    found, panels, texts = {}, {}, [text for text, _ in rows]
    kinds = {False: SENTENCE_TASKS, True: WORD_TASKS} if is_treebank else {False: ("label",)}
    for by_word, names in kinds.items():
        if not (wanted := [name for name in names if not args.tasks or name in args.tasks]):
            continue
        read = {name: text_states(each, tokenizer, texts, by_word=by_word) for name, each in models.items()}
        states = {name: np.stack([*layers.values()]) for name, (layers, _) in read.items()}
        static = text_states(static_model(model), tokenizer, texts, [0], by_word)[0][0]
        if not is_treebank:
            tasks = {"label": [Unit(at, at, row.label, row.text.split()[0].lower()) for at, row in enumerate(rows)]}
        elif by_word:
            tasks = word_tasks(rows, {place: row for row, place in enumerate(read[args.name][1])})
        else:
            tasks = sentence_tasks(rows)
        for name in wanted:
            found[name] = task = probe_task(name, tasks[name], states, static, args.max_units, args.seed)
            print(f"{name}: {task['classes']} classes, {task['train']:,} for training, {task['test']:,} for testing")
            ends, curves = ("accuracy", "low", "high"), task["curves"]
            panels[name] = {of: [[row[end] for row in each] for end in ends] for of, each in curves.items()}
            cells = {of: zip(*values, strict=True) for of, values in panels[name].items()}
            table = {of: [interval_text(each) for each in values] for of, values in cells.items()}
            selectivity = [row["selectivity"] for row in curves[args.name]]
            print_table({"layer": range(len(selectivity)), **table, "selectivity": selectivity})
    figure = curves_figure(panels, f"Accuracy of linear probes, {args.name}", "layer")
    write_figure(args.folder / "probes.png", figure, found)
