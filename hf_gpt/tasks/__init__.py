"""Tasks: every data set as one declarative, versioned `TaskSpec`, and `load_task`, which reads it.

    data = load_task("trec", "path/to/trec")
    data.splits["train"][0]   # {"id": "0", "text": "How did serfdom develop ...", "label": 1}
    data.notes["validation"]  # how that split was made

A data set is a paragraph of `catalogue.yaml` (see `spec`); its files are read (`formats`) and made into rows (`rows`,
`load`), these into token trees (`encode`), then measured (`metrics`) and shown (`report`).
"""

from .catalogue import TASKS, get_task, task_table
from .custom import CustomTask, custom_task
from .load import TaskData, load_task
from .spec import HeldOut, Hub, Layout, TaskSpec

__all__ = ["TASKS", "CustomTask", "HeldOut", "Hub", "Layout", "TaskData", "TaskSpec", "custom_task", "get_task"]
__all__ += ["load_task", "task_table"]
