"""
Rows of token ids become token trees, and token trees become batches: `transforms` lays a row out, `token_tree` is the
structure, `collators` makes tensors, `mixture` draws from several tasks.
"""
