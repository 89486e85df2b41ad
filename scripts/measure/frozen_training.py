"""
Time an epoch of training a head on frozen features, from the cache and by running the model in every step.

    python scripts/measure/frozen_training.py --output_dir outputs/frozen_speed
    python scripts/measure/frozen_training.py --task trec --data_dir path/to/trec --output_dir outputs/trec_speed

Both trainings read the same batches and give the same numbers. Writes `frozen_training.json`: the seconds of every
epoch (without evaluation and saving) and of the features, which are computed once, and how many times as long a later
epoch takes without the cache.
"""

import json
import time
from dataclasses import dataclass
from pathlib import Path

from transformers import TrainerCallback

from hf_gpt.commands import command, parse_arguments
from hf_gpt.files import flag, write_json
from hf_gpt.loading import load_tokenizer
from hf_gpt.training.arguments import DataArguments, FineTuningArguments, ModelArguments
from hf_gpt.training.frozen import FeatureCollator, FrozenFeatureHead, FrozenFeatureTrainer, cache_features
from hf_gpt.training.loading import load_model
from hf_gpt.training.rows import encode_task, input_transform, load_task_data
from hf_gpt.trees.collators import TokenTreeCollator


@dataclass
class MeasureArguments:
    """What to time."""

    output_dir: str = flag(help="Folder of frozen_training.json.")
    model: str = flag("model_cards/gpt-mini", "The pretrained model.")
    task: str = flag("questions", "Name of the task.")
    data_dir: str | None = flag(None, "Folder of the data set's published files.")
    layers: str = flag("last", "What the head reads: last, the number of a layer, or mix.")
    epochs: int = flag(4, "Epochs of each training; at least 2.")
    batch_size: int = flag(64, "Rows of a step.")


class _EpochTimes(TrainerCallback):
    """Seconds of every epoch."""

    def __init__(self):
        self.seconds: list[float] = []

    def on_epoch_begin(self, args, state, control, **kwargs):
        self._start = time.perf_counter()

    def on_epoch_end(self, args, state, control, **kwargs):
        self.seconds.append(time.perf_counter() - self._start)


def measure(args: MeasureArguments) -> dict:
    """Train twice; what `frozen_training.json` holds."""
    model_args = ModelArguments(model_name_or_path=args.model, adaptation="frozen", layers=args.layers)
    data = DataArguments(task=args.task, data_dir=args.data_dir)
    training = FineTuningArguments(
        output_dir=args.output_dir,
        num_train_epochs=args.epochs,
        per_device_train_batch_size=args.batch_size,
        learning_rate=1e-3,
        eval_strategy="no",
        save_strategy="no",
        logging_strategy="epoch",
        disable_tqdm=True,
    )
    task, tokenizer = load_task_data(data), load_tokenizer(model_args)
    seconds, losses = {}, {}
    for name in ("the model in every step", "cached features"):
        model = load_model(model_args, task.spec, tokenizer, training.seed)
        encoded = encode_task(task, data, tokenizer, input_transform(data, task.spec, model.config))
        head, rows, collate = FrozenFeatureHead(model), encoded["train"], TokenTreeCollator(tokenizer.pad_token_id)
        if name == "cached features":
            start = time.perf_counter()
            rows = cache_features(head, {"train": rows}, collate, training)["train"]
            seconds["computing the features"] = time.perf_counter() - start
            collate = FeatureCollator(model.config)
        times = _EpochTimes()
        trainer = FrozenFeatureTrainer(
            model=head, args=training, train_dataset=rows, data_collator=collate, callbacks=[times]
        )
        losses[name] = trainer.train().training_loss
        seconds[name] = times.seconds
    without, cached = (sum(seconds[name][1:]) for name in losses)
    return {
        "task": args.task,
        "model": args.model,
        "layers": args.layers,
        "rows": len(rows),
        "rows of a step": args.batch_size,
        "device": str(training.device),
        "seconds": seconds,
        "training loss": losses,
        "times as long without the cache, later epochs": without / cached,
    }


@command()
def main() -> None:
    """Measure, print and write."""
    (args,) = parse_arguments((MeasureArguments,), description=__doc__)
    if args.epochs < 2:
        raise ValueError("--epochs must be at least 2, to have a later one.")
    record = measure(args)
    folder = Path(args.output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "frozen_training.json", record)
    print(json.dumps(record, indent=2))


if __name__ == "__main__":
    main()
