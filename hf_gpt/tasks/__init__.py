"""Tasks: every data set as one declarative, versioned `TaskSpec`, and `load_task`, which reads it.

    data = load_task("trec", "path/to/trec")
    data.splits["train"][0]   # {"id": "train-1", "text": "How did serfdom develop ...", "label": 1}
    data.notes["validation"]  # how that part was made

A further data set is one more entry in `classification`, `pairs` or `multiple_choice`, by the constructors of
`families`: which fields of which files become which column. The rows' columns are described in `spec`, the file
formats in `readers`, where rows come from in `loading`.
"""

import difflib
import os
from collections.abc import Sequence

from .classification import CLASSIFICATION_TASKS
from .custom import CUSTOM_ROW, custom_task
from .loading import TaskData, load_spec
from .multiple_choice import MULTIPLE_CHOICE_TASKS
from .pairs import PAIR_TASKS
from .spec import Cut, Hub, Layout, TaskSpec

__all__ = [
    "TASKS",
    "Cut",
    "Hub",
    "Layout",
    "TaskData",
    "TaskSpec",
    "custom_task",
    "get_task",
    "load_task",
    "task_table",
]

TASKS: dict[str, TaskSpec] = {spec.name: spec for spec in (*CLASSIFICATION_TASKS, *PAIR_TASKS, *MULTIPLE_CHOICE_TASKS)}


def get_task(name: str) -> TaskSpec:
    """
    The task of that name.

    Raises:
        `ValueError`: when there is none, listing those there are and the nearest name.
    """
    if name in TASKS:
        return TASKS[name]
    if name == "custom":
        raise ValueError(
            "The task 'custom' needs its files and columns: build it with custom_task(...), or on the command line "
            "with --task custom --train_file FILE --text_column NAME --label_column NAME."
        )
    near = difflib.get_close_matches(name.lower(), TASKS, n=1)
    guess = f" Did you mean {near[0]!r}?" if near else ""
    raise ValueError(f"There is no task {name!r}.{guess} Known tasks: {', '.join(sorted(TASKS))}, custom.")


def task_table() -> list[dict[str, str]]:
    """One row of printable fields for each task, in the order of the registry; the last is `custom`."""
    declared = [
        {
            "task": spec.name,
            "family": spec.family,
            "labels": str(len(spec.label_names)) if spec.label_names else "-",
            "metrics": ", ".join(spec.metrics),
            "paper": f"{spec.paper_score:.1f}" if spec.paper_score is not None else "-",
            "hub": spec.hub_id or ("carried" if spec.default_dir else "-"),
            "files": spec.how_to_get,
            "licence": spec.licence,
            "description": spec.description,
        }
        for spec in TASKS.values()
    ]
    return [*declared, CUSTOM_ROW]


def load_task(
    task: str | TaskSpec,
    data_dir: str | os.PathLike[str] | None = None,
    *,
    seed: int | None = None,
    splits: Sequence[str] | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
) -> TaskData:
    """Reads a task given by its name, or by its `TaskSpec`; arguments and errors are those of `load_spec`."""
    spec = get_task(task) if isinstance(task, str) else task
    return load_spec(spec, data_dir, seed=seed, splits=splits, cache_dir=cache_dir)
