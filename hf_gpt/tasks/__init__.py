"""
Tasks: a data set is a paragraph of `catalogue.yaml`, a `TaskSpec` (`spec`); its files are read (`formats`) and made
into rows (`rows`, `load`), these into token trees (`encode`), then measured (`metrics`) and shown (`report`).
"""

from .catalogue import TASKS, get_task, task_table
from .custom import CustomTask, custom_task
from .load import TaskData, load_task
from .spec import HeldOut, Hub, Layout, TaskSpec

__all__ = ["TASKS", "CustomTask", "HeldOut", "Hub", "Layout", "TaskData", "TaskSpec", "custom_task", "get_task"]
__all__ += ["load_task", "task_table"]
