"""
Training: arguments, optimizer and schedules, the Trainers and their checkpoints.

`fine_tuning` trains on a task, `multi_task` on several, `frozen` on cached features, `pretraining` on plain text.
"""
