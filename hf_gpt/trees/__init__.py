"""Rows become token trees (`transforms`, `token_tree`), these batches (`collators`), also of other models' rows."""

from .any_model import collate_choices, path_log_probs
from .training import tree_model

__all__ = ["collate_choices", "path_log_probs", "tree_model"]
