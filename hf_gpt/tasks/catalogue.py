"""The tasks by name, and the table of them."""

import difflib

from .classification import CLASSIFICATION_TASKS
from .custom import CUSTOM_ROW
from .multiple_choice import MULTIPLE_CHOICE_TASKS
from .pairs import PAIR_TASKS
from .question_answering import ANSWERING_TASKS
from .spec import TaskSpec
from .tagging import TAGGING_TASKS

TASKS: dict[str, TaskSpec] = {
    spec.name: spec
    for spec in (*CLASSIFICATION_TASKS, *PAIR_TASKS, *MULTIPLE_CHOICE_TASKS, *TAGGING_TASKS, *ANSWERING_TASKS)
}


def get_task(name: str) -> TaskSpec:
    """The task of that name; a `ValueError` when there is none, listing those there are and the nearest name."""
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


def task_table() -> str:
    """The tasks in the order of the registry, and `custom`, as a table of text."""
    rows = [{name: name for name in CUSTOM_ROW}]
    rows += [
        {
            "task": spec.name,
            "family": spec.family,
            "metrics": ", ".join(spec.metrics),
            "paper": f"{spec.paper_score:.1f}" if spec.paper_score is not None else "-",
            "licence": spec.licence,
            "files": spec.how_to_get,
        }
        for spec in TASKS.values()
    ]
    rows.append(CUSTOM_ROW)
    widths = {name: max(len(row[name]) for row in rows) for name in CUSTOM_ROW}
    return "\n".join("  ".join(row[name].ljust(width) for name, width in widths.items()).rstrip() for row in rows)
