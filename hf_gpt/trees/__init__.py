"""
Rows of token ids become token trees, and token trees become batches: `transforms` lays a row out, `token_tree` is the
structure, `collators` makes tensors, `mixture` draws from several tasks; `any_model` is for other causal models.
"""

from .any_model import path_log_probs

__all__ = ["path_log_probs"]
