r"""
What the states of each layer hold of sentences and words: probes, with the controls that they need.

    python scripts/analyze.py probe --model_name_or_path model_cards/gpt-mini --tasks tense pos \
        --file UD_English-EWT/en_ewt-ud-dev.conllu --output_dir outputs/probe

`--file` is a treebank in CoNLL-U (.conllu, or a folder of such files), of which six properties of sentences and four
of words are made, or any file of texts with labels; without it the bundled questions. A probe is logistic regression
on frozen states, or with `--probe mlp` a small network. probes.png and probes.json show its accuracy over the layers
with Wilson's intervals (95%), on the scalar mix of all layers, and of the same model with random weights; the most
frequent label and static embeddings; and selectivity, how much of it the probe cannot have memorized. mix.png
shows what the scalar mix weighs.

Properties are as in SentEval (Conneau et al., 2018); selectivity is a probe's accuracy less that on a control task of
random labels fixed per word (Hewitt and Liang, 2019), of a sentence per first word.
"""

import copy
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupShuffleSplit
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import LabelEncoder, StandardScaler
from torch import nn

from ..files import flag, read_text_lines, reading
from ..generation import print_table
from ..model.modeling_gpt import GPTModel, GPTPreTrainedModel
from ..model.tokenization_gpt import GPTTokenizer
from . import AnalysisArguments, interval_text, read_examples, text_states, with_random_weights
from .agreement import proportion
from .figures import curves_figure, grid_figure

# Questions with the kind of their answer.
_QUESTIONS = Path(__file__).parents[1] / "tasks" / "data" / "questions.jsonl"
PROBES = ("linear", "mlp")
SENTENCE_TASKS = ("length", "content", "depth", "tense", "subject number", "object number")
WORD_TASKS = ("pos", "dependency", "position", "previous")
_TASKS = (*SENTENCE_TASKS, *WORD_TASKS)
# Classes of the tasks that ask which word there is.
_WORDS = 20
_LENGTHS, _POSITIONS = (4, 8, 12, 16, 20, 25), (0, 1, 2, 4, 8, 16)
_DEEPEST = 8


class TreeWord(NamedTuple):
    """A word of a treebank: its form, part of speech, features, relation and head (0: none), and its characters."""

    form: str
    pos: str
    features: dict[str, str]
    relation: str
    head: int
    start: int
    end: int


class Sentence(NamedTuple):
    """A sentence of a treebank."""

    text: str
    words: list[TreeWord]

    def below(self, *relations: str) -> list[TreeWord]:
        """Words in one of some relations to the root."""
        root = next((number for number, word in enumerate(self.words, 1) if word.head == 0), None)
        return [word for word in self.words if word.head == root and word.relation in relations]


class Unit(NamedTuple):
    """
    A text or word of which a probe predicts a label (`None`: none): the number of its text, the row of its states, and
    the word (type) that the control's label hangs on.
    """

    text: int
    row: int
    label: str | None
    type: str


def read_conllu(path: Path) -> list[Sentence]:
    """
    Sentences of a CoNLL-U file, plain or compressed, or of all files of a folder, such as Universal Dependencies'. A
    `ValueError` names the file and the sentence's first line if one is wrong; or if there is no sentence.
    """
    sentences = []
    for file in sorted(path.rglob("*.conllu*")) if path.is_dir() else [path]:
        for is_blank, block in groupby(read_text_lines(file), key=lambda line: not line[1].strip()):
            if not is_blank:
                numbers, lines = zip(*block, strict=True)
                with reading(file, f"line {numbers[0]}"):
                    sentences.append(_sentence(lines))
    if not sentences:
        raise ValueError(f"{path}: there is no sentence: name a .conllu file, or a folder with some.")
    return sentences


def _sentence(lines: Sequence[str]) -> Sentence:
    """Of the ten columns of each word; ranges (2-3) and words that are not written (2.1) are left out."""
    texts = [line.removeprefix("# text = ") for line in lines if line.startswith("# text = ")]
    rows = [line.split("\t") for line in lines if not line.startswith("#")]
    if wrong := [row for row in rows if len(row) != 10]:
        raise ValueError(f"a word has {len(wrong[0])} columns, not 10")
    rows = [row for row in rows if row[0].isdecimal()]
    text, words, cursor = texts[0] if texts else " ".join(row[1] for row in rows), [], 0
    for _, form, _, pos, _, features, head, relation, *_ in rows:
        if not head.isdecimal() or int(head) > len(rows):
            raise ValueError(f"there is no head {head!r} in the sentence")
        start = text.find(form, cursor)
        end = start + len(form) if start >= 0 else -1
        cursor = max(cursor, end)
        features = dict(part.split("=", 1) for part in features.split("|") if "=" in part)
        words.append(TreeWord(form, pos, features, relation.partition(":")[0], int(head), start, end))
    if not words:
        raise ValueError("the sentence has no words")
    return Sentence(text, words)


def _binned(value: int, edges: Sequence[int]) -> str:
    return str(int(np.searchsorted(edges, value)))


def _depth(sentence: Sentence) -> str:
    """Of the deepest word; of words in a circle as many steps as there are words."""
    deepest = 0
    for number in range(1, len(sentence.words) + 1):
        depth = 0
        while number and depth <= len(sentence.words):
            number, depth = sentence.words[number - 1].head, depth + 1
        deepest = max(deepest, depth)
    return str(min(deepest, _DEEPEST))


def _tense(sentence: Sentence) -> str | None:
    verbs = [*sentence.below("aux", "cop"), *(word for word in sentence.words if word.head == 0)]
    finite = [word.features.get("Tense") for word in verbs if word.features.get("VerbForm") == "Fin"]
    return finite[0] if finite else None


def _number(sentence: Sentence, relation: str) -> str | None:
    numbers = [word.features.get("Number") for word in sentence.below(relation)][:1]
    return numbers[0] if numbers and numbers[0] in ("Sing", "Plur") else None


def _frequent(words: Iterable[TreeWord]) -> set[str]:
    return {form for form, _ in Counter(word.form.lower() for word in words).most_common(_WORDS)}


def sentence_tasks(sentences: Sequence[Sentence]) -> dict[str, list[Unit]]:
    """
    `length` (words, in seven classes), `content` (which of twenty frequent content words, if exactly one), `depth` of
    the tree, `tense` of the main verb, and number of its subject and of its object. A unit is a sentence.
    """
    words = (word for each in sentences for word in each.words)
    frequent = _frequent(word for word in words if word.pos in ("NOUN", "VERB", "ADJ"))
    found: dict[str, list[Unit]] = {name: [] for name in SENTENCE_TASKS}
    for row, sentence in enumerate(sentences):
        content = {word.form.lower() for word in sentence.words} & frequent
        labels = [_binned(len(sentence.words), _LENGTHS), content.pop() if len(content) == 1 else None]
        labels += [_depth(sentence), _tense(sentence), _number(sentence, "nsubj"), _number(sentence, "obj")]
        for units, label in zip(found.values(), labels, strict=True):
            units.append(Unit(row, row, label, sentence.words[0].form.lower()))
    return found


def word_tasks(sentences: Sequence[Sentence], rows: Mapping[tuple[int, int, int], int]) -> dict[str, list[Unit]]:
    """
    `pos` (part of speech), `dependency` (relation to the head), `position` in the sentence, in seven classes, and
    `previous` (which of twenty frequent words stands before). `rows` is the row of a word's states by number of its
    text and first and end character; words that the tokenizer splits otherwise have none and are left out.
    """
    frequent = _frequent(word for each in sentences for word in each.words)
    found: dict[str, list[Unit]] = {name: [] for name in WORD_TASKS}
    for number, sentence in enumerate(sentences):
        before = None
        for index, word in enumerate(sentence.words):
            row = rows.get((number, word.start, word.end))
            labels = (word.pos, word.relation, _binned(index, _POSITIONS), before if before in frequent else None)
            before = word.form.lower()
            for units, label in zip(found.values(), labels, strict=True):
                units += [] if row is None else [Unit(number, row, label, before)]
    return found


def label_task(texts: Sequence[str], labels: Sequence[str | None]) -> list[Unit]:
    """The labels of texts; a unit is a text."""
    return [Unit(row, row, label, texts[row].split()[0].lower()) for row, label in enumerate(labels)]


def states_of(
    model: GPTPreTrainedModel, tokenizer: GPTTokenizer, texts: Sequence[str], by_word: bool
) -> tuple[np.ndarray, dict[tuple[int, int, int], int]]:
    """
    States `(layers, units, n_embd)`, from the embeddings to the last block, of texts or of words, and their rows by
    number of text and characters, as `word_tasks` wants it; see `hf_gpt.analysis.text_states`.
    """
    states, places = text_states(model, tokenizer, texts, by_word=by_word)
    return np.stack([*states.values()]), {place: row for row, place in enumerate(places)}


def static_model(model: GPTPreTrainedModel) -> GPTPreTrainedModel:
    """The model's token embeddings alone: without positions and blocks, its only states are static."""
    static = copy.deepcopy(model.base_model)
    static.h = static.h[:0]
    with torch.no_grad():
        static.embed_positions.weight.zero_()
    if static.config.final_norm:
        static.ln_f = nn.Identity()
    static.config.n_layer = 0
    return static


def split(
    name: str, texts: np.ndarray, labels: np.ndarray, most: int = 4000, seed: int = 0, share: float = 0.25
) -> tuple[np.ndarray, np.ndarray]:
    """
    The units of a task, by the number of the text and the label of each, in two parts, for training and testing, with
    no text in both: a random share of the texts is for testing; of both parts together at most so many units are kept.
    A `ValueError` if there are too few labels.
    """
    kept = np.sort(np.random.default_rng(seed).permutation(len(labels))[:most])
    if len(np.unique(texts[kept])) > 1:
        parts = GroupShuffleSplit(1, test_size=share, random_state=seed).split(kept, groups=texts[kept])
        train, test = (kept[part] for part in next(parts))
        if len(np.unique(labels[train])) > 1:
            return train, test
    raise ValueError(f"The task {name} has too few labelled texts for a probe: give more.")


def control_labels(types: np.ndarray, classes: np.ndarray, seed: int = 0) -> np.ndarray:
    """Random classes, one for each word type, drawn with the frequencies of the task's own."""
    different, numbers = np.unique(types, return_inverse=True)
    return np.random.default_rng(seed).choice(classes, len(different))[numbers]


def probe(
    states: np.ndarray, classes: np.ndarray, train: np.ndarray, test: np.ndarray, kind: str = "linear", seed: int = 0
) -> dict[str, float]:
    """
    Accuracy on the test units of what was fitted to the training units of states `(units, n_embd)` and classes
    `(units,)`, with Wilson's interval (95%): logistic regression (`linear`), a layer of 100 units (`mlp`), or the most
    frequent class (`majority`).
    """
    classifier = LogisticRegression(max_iter=200, C=0.1)
    if kind == "majority" or len(set(classes[train].tolist())) == 1:
        classifier = DummyClassifier(strategy="most_frequent")
    elif kind == "mlp":
        classifier = MLPClassifier((100,), early_stopping=True, random_state=seed)
    fitted = make_pipeline(StandardScaler(), classifier).fit(states[train], classes[train])
    right = fitted.predict(states[test]) == classes[test]
    return proportion(int(right.sum()), len(right))


def probe_mix(
    states: np.ndarray, classes: np.ndarray, train: np.ndarray, test: np.ndarray, steps: int = 200, seed: int = 0
) -> dict[str, Any]:
    """
    A linear probe on the scalar mix of all layers `(layers, units, n_embd)` (Peters et al., 2018), which is learnt
    with it by Adam: accuracy with its interval, and `weights` of the layers, which add up to 1.
    """
    own = states[:, train]
    scaled = (states - own.mean(1, keepdims=True)) / (own.std(1, keepdims=True) + 1e-6)
    inputs, wanted = torch.from_numpy(scaled).float(), torch.from_numpy(classes)  # (layers, units, n_embd), (units,)
    scalars, gain = torch.zeros(len(states), requires_grad=True), torch.ones((), requires_grad=True)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        head = nn.Linear(states.shape[-1], int(classes.max()) + 1)

    def logits(units: np.ndarray) -> torch.Tensor:
        return head(gain * torch.einsum("l,lun->un", scalars.softmax(0), inputs[:, units]))

    optimizer = torch.optim.AdamW([scalars, gain, *head.parameters()], lr=0.02, weight_decay=0.01)
    for _ in range(steps):
        loss = nn.functional.cross_entropy(logits(train), wanted[train])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        right = logits(test).argmax(-1) == wanted[test]
    return {**proportion(int(right.sum()), len(right)), "weights": scalars.detach().softmax(0).tolist()}


def probe_task(
    name: str,
    units: Sequence[Unit],
    states: Mapping[str, np.ndarray],
    static: np.ndarray,
    kind: str = "linear",
    most: int = 4000,
    seed: int = 0,
) -> dict[str, Any]:
    """
    All that is reported of a property, of the states `(layers, units, n_embd)` of models by name, and of static
    embeddings `(units, n_embd)`: `classes`, `train` and `test` units, `majority`, `static`; and by model the `layers`
    (accuracy, `control` and `selectivity`) and the scalar `mix`. See `probe` and `split`.
    """
    labelled = [unit for unit in units if unit.label is not None]
    table = np.array(labelled, dtype=object).reshape(-1, 4)
    (texts, rows), (labels, types) = table[:, :2].astype(int).T, table[:, 2:].astype(str).T
    parts, classes = split(name, texts, labels, most, seed), LabelEncoder().fit_transform(labels)
    random, fixed = control_labels(types, classes, seed), static[rows]
    found: dict[str, Any] = {"classes": len(set(classes.tolist())), "train": len(parts[0]), "test": len(parts[1])}
    found |= {"majority": probe(fixed, classes, *parts, "majority"), "models": {}}
    found["static"] = probe(fixed, classes, *parts, kind, seed)
    for model, layers in states.items():
        own, scores = layers[:, rows], []
        for each in own:
            real, control = (probe(each, wanted, *parts, kind, seed) for wanted in (classes, random))
            gain = real["accuracy"] - control["accuracy"]
            scores.append({**real, "control": control["accuracy"], "selectivity": gain})
        found["models"][model] = {"layers": scores, "mix": probe_mix(own, classes, *parts, seed=seed)}
    return found


@dataclass(kw_only=True)
class Arguments(AnalysisArguments):
    """Which model and texts, what is asked of their states, and where the result goes."""

    # No flag: a text alone has no label.
    text: None = field(default=None, init=False)
    file: str | None = flag(None, "Treebank, or file of texts with labels; without it, the bundled questions.")
    tasks: list[str] | None = flag(None, "Properties of a treebank; by default all.", _TASKS)
    probe: str = flag("linear", "What reads the states.", PROBES)
    control: bool = flag(True, "Probe the model with random weights, too.")
    max_texts: int = flag(2000, "Texts that are read at most, drawn at random.")
    max_units: int = flag(4000, "Sentences or words of a task at most.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.tasks and not self.is_treebank:
            raise ValueError("--tasks are those of a treebank: give a .conllu --file, or a folder of such files.")

    @property
    def is_treebank(self) -> bool:
        """`bool`: whether the file is one, by its name."""
        return self.file is not None and (Path(self.file).is_dir() or ".conllu" in Path(self.file).suffixes)


def run(args: Arguments) -> None:
    """Read the states once for all tasks of a kind, probe, draw."""
    if args.is_treebank:
        rows = read_conllu(Path(args.file))
    else:
        rows = read_examples(Path(args.file or _QUESTIONS), args.text_column, args.label_column)
        if all(row.label is None for row in rows):
            raise ValueError(f"{args.file}: no text has a label in the column {args.label_column!r}.")
    order = np.random.default_rng(args.seed).permutation(len(rows))
    rows = [rows[row] for row in np.sort(order[: args.max_texts])]
    model, tokenizer = args.load(GPTModel)
    models = {args.name: model, "": static_model(model)}
    models |= {"random weights": with_random_weights(model, args.seed)} if args.control else {}
    wanted, found, texts = set(args.tasks or _TASKS), {}, [row.text for row in rows]
    for by_word in (False, True) if args.is_treebank else (False,):
        if not wanted & {*(WORD_TASKS if by_word else SENTENCE_TASKS)}:
            continue
        read = {name: states_of(each, tokenizer, texts, by_word) for name, each in models.items()}
        states = {name: values for name, (values, _) in read.items()}
        static = states.pop("")[0]
        if not args.is_treebank:
            tasks = {"label": label_task(texts, [row.label for row in rows])}
        else:
            tasks = word_tasks(rows, read[args.name][1]) if by_word else sentence_tasks(rows)
        for name, units in tasks.items():
            if name in wanted or not args.is_treebank:
                found[name] = probe_task(name, units, states, static, args.probe, args.max_units, args.seed)
                _print(name, found[name])
    panels = {name: _curves(task) for name, task in found.items()}
    title = f"Accuracy of {args.probe} probes, {args.name}"
    args.save("probes", curves_figure(panels, title, "layer", columns=3), found)
    weights = {name: each["models"][args.name]["mix"]["weights"] for name, each in found.items()}
    values = np.array(list(weights.values()))
    args.save("mix", grid_figure(values, "Weights of the scalar mix", "", "layer", list(weights)), weights)


def _curves(task: dict[str, Any]) -> dict[str, np.ndarray]:
    """Accuracy over the layers by model, and what it is compared with."""
    names = ("accuracy", "low", "high")
    rows = {model: each["layers"] for model, each in task["models"].items()}
    for title, name in (("static embeddings", "static"), ("most frequent label", "majority")):
        rows[title] = [dict.fromkeys(names, task[name]["accuracy"])] * len(next(iter(rows.values())))
    return {curve: np.array([[row[name] for row in own] for name in names]) for curve, own in rows.items()}


def _print(name: str, found: dict[str, Any]) -> None:
    print(f"{name}: {found['classes']} classes, {found['train']:,} for training, {found['test']:,} for testing")
    rows = [("", "most frequent label", found["majority"]), ("", "static embeddings", found["static"])]
    for model, each in found["models"].items():
        rows += [(model, f"layer {layer}", row) for layer, row in enumerate(each["layers"])]
        rows.append((model, "scalar mix", each["mix"]))
    cells = (
        (model, of, interval_text(row, "accuracy"), f"{row['selectivity']:+.3f}" if "selectivity" in row else "")
        for model, of, row in rows
    )
    print_table([dict(zip(("model", "of", "accuracy", "selectivity"), row, strict=True)) for row in cells])
