"""
How tasks are declared: a constructor for each family, and shorthands for where rows lie. First come the task's name, a
line on what is asked, its labels where they are classes, and the layouts of its files; all else is a field of
`TaskSpec` by its name.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from .readers import read_plain_tsv
from .spec import SINGLE_LABEL, SPLITS, Hub, Layout, TaskSpec

# The parquet copies that the Hub makes of data sets whose own repository holds only a loading script.
PARQUET_COPY = "refs/convert/parquet"
GLUE_SOURCE = "https://gluebenchmark.com/tasks"
GLUE_LICENCE = "none stated (GLUE card: CC BY 4.0)"
CARRIED_DATA = Path(__file__).resolve().parent / "data"
# What the data sets that were written for this project have in common.
CARRIED: dict[str, Any] = {
    "licence": "Apache-2.0",
    "source": "the package, hf_gpt/tasks/data",
    "default_dir": CARRIED_DATA,
}

Columns = Mapping[str, str | tuple[str, ...]]


def _class_task(
    family: str, name: str, description: str, label_names: tuple[str, ...], *layouts: Layout, **facts: Any
) -> TaskSpec:
    """A task of texts, or words, each with one of several labels."""
    labels = {"problem_type": SINGLE_LABEL, "label_names": label_names}
    return TaskSpec(name, family, description, layouts, **labels, **facts)


text_task = partial(_class_task, "classification")
inference_task = partial(_class_task, "entailment")
tagging_task = partial(_class_task, "tagging", metrics=())  # the metrics go with the labels


def similarity_task(name: str, description: str, *layouts: Layout, **facts: Any) -> TaskSpec:
    """A task of two texts in any order; `label_names` or, for ordinal scores, `score_range` is among the facts."""
    problem_type = SINGLE_LABEL if "label_names" in facts else "ordinal"
    return TaskSpec(name, "similarity", description, layouts, problem_type=problem_type, **facts)


def choice_task(name: str, description: str, *layouts: Layout, **facts: Any) -> TaskSpec:
    """A task of a context, perhaps a question, and choices."""
    return TaskSpec(name, "multiple-choice", description, layouts, **facts)


def answering_task(name: str, description: str, *layouts: Layout, **facts: Any) -> TaskSpec:
    """A task of a question and a passage, a span of which is the answer."""
    metrics = ("exact_match", "answer_f1")
    return TaskSpec(name, "question-answering", description, layouts, metrics=metrics, **facts)


def files(pattern: str, columns: Columns, names: tuple[str, ...] = ("train", "dev", "test"), **options: Any) -> Layout:
    """
    A layout whose file names differ in the part's name alone, which stands for `{}` in the pattern; without it, one
    file holds all parts (`split_field`).
    """
    return Layout(
        columns, **{split: pattern.format(name) for split, name in zip(SPLITS, names, strict=True)}, **options
    )


def glue_files(columns: Columns, **options: Any) -> Layout:
    """Files as GLUE lays them out: tab-separated, quotes as text, rows numbered by `index`; see `Layout`."""
    names = {"train": "train.tsv", "validation": "dev.tsv", "test": "test.tsv", "read": read_plain_tsv}
    return Layout({"id": "index", **columns}, **names | options)


def hub(id: str, columns: Columns, config: str | None = None, **options: Any) -> Hub:
    """A place on the Hub, with splits of the usual names; `options` are fields of `Hub` and of its `Layout`."""
    places = {name: options.pop(name) for name in ("revision", "data_dir") if name in options}
    return Hub(id, Layout(columns, **dict(zip(SPLITS, SPLITS, strict=True)) | options), config, **places)


def glue_hub(config: str, columns: Columns, **options: Any) -> Hub:
    """GLUE's place on the Hub, where all labels are called `label`; see `hub`."""
    return hub("nyu-mll/glue", {"id": "idx", "label": "label", **columns}, config, **options)
