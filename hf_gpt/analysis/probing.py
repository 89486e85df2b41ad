"""
What the states of each layer tell: classifiers on frozen states, with what they have to be compared with.

Properties of sentences (as in SentEval: Conneau et al., 2018) and of words are made from treebanks in CoNLL-U, or are
the labels of any file. A probe's accuracy means little alone: beside it stand the most frequent label (`majority`),
the static embeddings, the same model with random weights, and the probe's selectivity, its accuracy less that on a
control task of random labels fixed per word (Hewitt and Liang, 2019); that of a sentence hangs on its first word.
"""

import copy
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupShuffleSplit
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import LabelEncoder, StandardScaler
from torch import nn

from ..files import input_error
from ..model.modeling_gpt import GPTPreTrainedModel, ScalarMix
from ..model.tokenization_gpt import GPTTokenizer
from ..tasks.readers import Record
from ..tasks.tagging import read_treebank, treebank_words
from . import text_states
from .agreement import proportion

PROBES = ("linear", "mlp")
# Classes of the tasks that ask which word there is.
_WORDS = 20
_LENGTHS, _POSITIONS = (4, 8, 12, 16, 20, 25), (0, 1, 2, 4, 8, 16)
_DEEPEST = 8


@dataclass(frozen=True)
class TreeWord:
    """A word of a treebank: its form, part of speech, features, relation and head (0: none), and its characters."""

    form: str
    pos: str
    features: dict[str, str]
    relation: str
    head: int
    start: int
    end: int


@dataclass(frozen=True)
class Sentence:
    """A sentence of a treebank."""

    text: str
    words: tuple[TreeWord, ...]

    def below(self, *relations: str) -> list[TreeWord]:
        """Words in one of some relations to the root."""
        root = next((number for number, word in enumerate(self.words, 1) if word.head == 0), None)
        return [word for word in self.words if word.head == root and word.relation in relations]


def read_conllu(path: Path) -> list[Sentence]:
    """
    Sentences of a CoNLL-U file, plain or compressed, or of all files of a folder, such as Universal Dependencies'.

    Raises:
        ValueError: naming the line that is wrong; or if there is no sentence.
    """
    files = [path]
    if path.is_dir():
        files = sorted(file for file in path.rglob("*.conllu*") if file.is_file())
    if missing := [file for file in files if not file.is_file()]:
        raise ValueError(f"{missing[0]}: there is no such file.")
    sentences = [_sentence(record) for file in files for record in read_treebank(file)]
    if not sentences:
        raise ValueError(f"{path}: there is no sentence: name a .conllu file, or a folder with some.")
    return sentences


def _sentence(record: Record) -> Sentence:
    columns = treebank_words(record.fields)
    text = record.fields.get("text") or " ".join(columns["form"])
    words, cursor = [], 0
    names = ("form", "upos", "features", "relation", "head")
    for form, pos, features, relation, head in zip(*(columns[name] for name in names), strict=True):
        if not head.isdecimal() or int(head) > len(columns["form"]):
            raise input_error(record.where, f"there is no head {head!r} in the sentence.", "Correct it.")
        start = text.find(form, cursor)
        end = start + len(form) if start >= 0 else -1
        cursor = max(cursor, end)
        features = dict(part.split("=", 1) for part in features.split("|") if "=" in part)
        words.append(TreeWord(form, pos, features, relation.partition(":")[0], int(head), start, end))
    return Sentence(text, tuple(words))


@dataclass(frozen=True)
class ProbeTask:
    """
    What a probe is to tell: of each unit, `(units,)`, the number of its text, the row of its states, its label, and
    the word (type) that the control's label hangs on.
    """

    name: str
    texts: np.ndarray
    units: np.ndarray
    labels: np.ndarray
    types: np.ndarray


def _task(name: str, rows: Sequence[tuple[int, int, str | None, str]]) -> ProbeTask:
    """Of (text, unit, label, type); rows without a label are left out."""
    kept = [row for row in rows if row[2] is not None]
    texts, units, labels, types = zip(*kept, strict=True) if kept else ((), (), (), ())
    return ProbeTask(name, np.array(texts, int), np.array(units, int), np.array(labels, str), np.array(types, str))


def _binned(value: int, edges: Sequence[int]) -> str:
    return str(int(np.searchsorted(edges, value)))


def _depth(sentence: Sentence) -> str | None:
    depths = []
    for number in range(1, len(sentence.words) + 1):
        depth = 0
        while number and depth <= len(sentence.words):
            number, depth = sentence.words[number - 1].head, depth + 1
        depths.append(depth)
    return str(min(max(depths), _DEEPEST))


def _tense(sentence: Sentence) -> str | None:
    verbs = [*sentence.below("aux", "cop"), *(word for word in sentence.words if word.head == 0)]
    finite = [word.features for word in verbs if word.features.get("VerbForm") == "Fin"]
    return finite[0].get("Tense") if finite else None


def _number(sentence: Sentence, relation: str) -> str | None:
    number = next((word.features.get("Number") for word in sentence.below(relation)), None)
    return number if number in ("Sing", "Plur") else None


def _content(sentence: Sentence, wanted: set[str]) -> str | None:
    """Which of some words a sentence holds, if exactly one."""
    found = {word.form.lower() for word in sentence.words} & wanted
    return found.pop() if len(found) == 1 else None


def _frequent(words: Iterable[TreeWord]) -> set[str]:
    return {form for form, _ in Counter(word.form.lower() for word in words).most_common(_WORDS)}


def sentence_tasks(sentences: Sequence[Sentence]) -> list[ProbeTask]:
    """
    `length` (words, in seven classes), `content` (which of twenty frequent content words), `depth` of the tree,
    `tense` of the main verb, and number of its subject and of its object. A unit is a sentence.
    """
    words = (word for each in sentences for word in each.words)
    frequent = _frequent(word for word in words if word.pos in ("NOUN", "VERB", "ADJ"))
    labels: dict[str, Callable[[Sentence], str | None]] = {
        "length": lambda sentence: _binned(len(sentence.words), _LENGTHS),
        "content": lambda sentence: _content(sentence, frequent),
        "depth": _depth,
        "tense": _tense,
        "subject number": lambda sentence: _number(sentence, "nsubj"),
        "object number": lambda sentence: _number(sentence, "obj"),
    }
    return [
        _task(name, [(row, row, of(each), each.words[0].form.lower()) for row, each in enumerate(sentences)])
        for name, of in labels.items()
    ]


def word_tasks(sentences: Sequence[Sentence], rows: dict[tuple[int, int, int], int]) -> list[ProbeTask]:
    """
    `pos` (part of speech), `dependency` (relation to the head), `position` in the sentence, in seven classes, and
    `previous` (which of twenty frequent words stands before). `rows` tells the row of a word's states by number of its
    text and first and end character; words that the tokenizer splits otherwise have none and are left out.
    """
    frequent = _frequent(word for each in sentences for word in each.words)
    found: dict[str, list] = {"pos": [], "dependency": [], "position": [], "previous": []}
    for number, sentence in enumerate(sentences):
        before = None
        for index, word in enumerate(sentence.words):
            row = rows.get((number, word.start, word.end))
            labels = (word.pos, word.relation, _binned(index, _POSITIONS), before if before in frequent else None)
            before = word.form.lower()
            if row is not None:
                for name, label in zip(found, labels, strict=True):
                    found[name].append((number, row, label, before))
    return [_task(name, kept) for name, kept in found.items()]


def label_task(texts: Sequence[str], labels: Sequence[str | None]) -> ProbeTask:
    """The labels of texts; a unit is a text."""
    return _task("label", [(row, row, label, texts[row].split()[0].lower()) for row, label in enumerate(labels)])


def states_of(
    model: GPTPreTrainedModel, tokenizer: GPTTokenizer, texts: Sequence[str], by_word: bool
) -> tuple[np.ndarray, dict[tuple[int, int, int], int]]:
    """
    States `(layers, units, n_embd)`, from the embedding to the last block, of texts or of words, and their rows by
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


@dataclass(frozen=True)
class Split:
    """A task's units in two parts, with no text in both, and their classes."""

    train: np.ndarray
    test: np.ndarray
    classes: np.ndarray

    @classmethod
    def of(cls, task: ProbeTask, share: float = 0.25, most: int = 4000, seed: int = 0) -> "Split":
        """
        A random part of the texts is for testing; of both parts together at most so many units are kept.

        Raises:
            ValueError: if either part has fewer than two labels.
        """
        kept = np.sort(np.random.default_rng(seed).permutation(len(task.labels))[:most])
        if len(np.unique(task.texts[kept])) > 1:
            parts = GroupShuffleSplit(1, test_size=share, random_state=seed).split(kept, groups=task.texts[kept])
            train, test = (kept[part] for part in next(parts))
            if len(np.unique(task.labels[train])) > 1:
                return cls(train, test, LabelEncoder().fit_transform(task.labels))
        raise ValueError(f"The task {task.name} has too few labelled texts for a probe: give more.")


def control_labels(task: ProbeTask, classes: np.ndarray, seed: int = 0) -> np.ndarray:
    """Random classes, one for each word type, drawn with the frequencies of the task's own."""
    types, numbers = np.unique(task.types, return_inverse=True)
    return np.random.default_rng(seed).choice(classes, len(types))[numbers]


def probe(
    states: np.ndarray, classes: np.ndarray, split: Split, kind: str = "linear", seed: int = 0
) -> dict[str, float]:
    """
    Accuracy on the test part of what was fitted to the training part of states `(units, n_embd)` and classes
    `(units,)`, with Wilson's interval (95%): logistic regression (`linear`), a layer of 100 units (`mlp`), or the most
    frequent class (`majority`).
    """
    classifier = LogisticRegression(max_iter=200, C=0.1)
    if kind == "majority" or len(set(classes[split.train].tolist())) == 1:
        classifier = DummyClassifier(strategy="most_frequent")
    elif kind == "mlp":
        classifier = MLPClassifier((100,), early_stopping=True, random_state=seed)
    fitted = make_pipeline(StandardScaler(), classifier)
    fitted.fit(states[split.train], classes[split.train])
    right = fitted.predict(states[split.test]) == classes[split.test]
    return proportion(int(right.sum()), len(right))


def probe_mix(states: np.ndarray, split: Split, steps: int = 200, seed: int = 0) -> dict[str, Any]:
    """
    A linear probe on the scalar mix of all layers `(layers, units, n_embd)` (Peters et al., 2018), which is learnt
    with it by Adam: accuracy with its interval, and `weights` of the layers, which add up to 1.
    """
    train = states[:, split.train]
    scaled = (states - train.mean(1, keepdims=True)) / (train.std(1, keepdims=True) + 1e-6)
    inputs = torch.from_numpy(scaled).float().transpose(0, 1)  # (units, layers, n_embd)
    classes = torch.from_numpy(split.classes)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        mix, score = ScalarMix(len(states)), nn.Linear(states.shape[-1], int(classes.max()) + 1)
    optimizer = torch.optim.AdamW([*mix.parameters(), *score.parameters()], lr=0.02, weight_decay=0.01)
    own, target = inputs[split.train], classes[split.train]
    for _ in range(steps):
        loss = nn.functional.cross_entropy(score(mix(own)), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        right = score(mix(inputs[split.test])).argmax(-1) == classes[split.test]
    return {**proportion(int(right.sum()), len(right)), "weights": mix.scalars.detach().softmax(0).tolist()}


def probe_task(
    task: ProbeTask,
    states: dict[str, np.ndarray],
    static: np.ndarray,
    kind: str = "linear",
    most: int = 4000,
    seed: int = 0,
) -> dict[str, Any]:
    """
    All there is to tell of a property, of the states `(layers, units, n_embd)` of models by name, and of static
    embeddings `(units, n_embd)`: `classes`, `train` and `test` units, `majority`, `static`; and by model the `layers`
    (accuracy, `control` and `selectivity`) and the scalar `mix`. See `probe` and `Split.of`.
    """
    split = Split.of(task, most=most, seed=seed)
    random, classes = control_labels(task, split.classes, seed), split.classes
    found: dict[str, Any] = {
        "classes": len(set(classes.tolist())),
        "train": len(split.train),
        "test": len(split.test),
        "majority": probe(static[task.units], classes, split, "majority"),
        "static": probe(static[task.units], classes, split, kind, seed),
        "models": {},
    }
    for name, layers in states.items():
        own = layers[:, task.units]
        rows = []
        for each in own:
            real, control = (probe(each, wanted, split, kind, seed) for wanted in (classes, random))
            gain = real["accuracy"] - control["accuracy"]
            rows.append({**real, "control": control["accuracy"], "selectivity": gain})
        found["models"][name] = {"layers": rows, "mix": probe_mix(own, split, seed=seed)}
    return found
