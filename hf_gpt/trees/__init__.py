"""
Rows of token ids become token trees, and token trees become batches: `transforms` lays a row out, `token_tree` is the
structure, `collators` makes tensors and batches; `any_model` is for other causal models, and `training` trains them.
"""

from .any_model import collate_choices, path_log_probs
from .training import tree_model

__all__ = ["collate_choices", "path_log_probs", "tree_model"]
