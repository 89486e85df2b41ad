"""
Training: arguments, optimizer and schedules, the Trainers and the checkpoints that they resume from to the same bits.

`finetune` goes from arguments to results (`frozen` and `multi_task` are what it trains other than a whole model);
`pretraining` reads plain text, `rows` makes token trees of rows of your own.
"""
