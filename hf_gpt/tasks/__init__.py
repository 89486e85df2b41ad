"""Tasks: every data set as one declarative, versioned `TaskSpec`, and `load_task`, which reads it.

    data = load_task("trec", "path/to/trec")
    data.splits["train"][0]   # {"id": "train-1", "text": "How did serfdom develop ...", "label": 1}
    data.notes["validation"]  # how that part was made

A task is declared (`spec`, `families`; `catalogue` holds all), its files or its place on the Hub found (`sources`), a
file's records read (`readers`) and turned into rows (`rows`), labels inferred (`labels`) and missing parts held out
(`held_out`); `loading` does so in turn. A further data set is one more entry in `classification`, `pairs`,
`multiple_choice`, `tagging` or `question_answering`: which fields of which files become which column.
"""

from .catalogue import TASKS, get_task, task_table
from .custom import CustomTask, custom_task
from .loading import TaskData, load_task
from .spec import Cut, Hub, Layout, TaskSpec

__all__ = [
    "TASKS",
    "CustomTask",
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
