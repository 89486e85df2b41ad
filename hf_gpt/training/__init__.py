"""
Training: arguments, optimizer and schedules, the Trainers and their atomic checkpoints.

A run is prepared (`fine_tuning` on one task, `multi_task` on several, `frozen` on cached features), fitted, measured
and written (`stages`); `pretraining` reads plain text, `rows` makes token trees of rows of your own.
"""
