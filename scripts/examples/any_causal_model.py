"""
Fine-tune any causal model of transformers on multiple choice from a CSV file; each context is read once.

    python scripts/examples/any_causal_model.py --model_name_or_path HuggingFaceTB/SmolLM2-135M \
        --train_file train.csv --validation_file validation.csv --learning_rate 5e-5 --output_dir outputs/choices

The columns are `context`, `label` (the right choice, counted from 0) and, in their order, the choices; a row may leave
the last ones empty. All flags of `TrainingArguments` can be given.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from datasets import Dataset, load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, HfArgumentParser, Trainer, TrainingArguments, set_seed

import hf_gpt  # noqa: F401  registers GPT
from hf_gpt.trees import collate_choices, tree_model


@dataclass
class Arguments:
    """The model, its files and its loss."""

    model_name_or_path: str
    train_file: str
    validation_file: str | None = None
    head: str = "multiple-choice"
    lm_coef: float = 0.0


def read(path: str, tokenizer: Callable[..., Any]) -> Dataset:
    """The rows of a CSV file as token ids."""
    table = load_dataset("csv", data_files=path, split="train")
    names = table.column_names
    columns = [name for name in names if name not in ("context", "label")]
    if len(columns) < 2 or len(names) != len(columns) + 2:
        raise SystemExit(f"{path}: give the columns context, label and at least two choices, not {names}.")

    def encode(row: dict[str, Any]) -> dict[str, Any]:
        choices = [str(row[name]) for name in columns if row[name] is not None]
        if row["label"] not in range(len(choices)) or not row["context"]:
            raise SystemExit(f"{path}: label {row['label']!r} is none of the {len(choices)} choices of a row: {row}.")
        ids = tokenizer([f" {choice}" for choice in choices], add_special_tokens=False)["input_ids"]
        return {"context": tokenizer(row["context"])["input_ids"], "choices": ids, "label": row["label"]}

    return table.map(encode, remove_columns=names)


def main() -> None:
    """Train, evaluate and save."""
    own, args = HfArgumentParser((Arguments, TrainingArguments)).parse_args_into_dataclasses()
    args.remove_unused_columns = False
    tokenizer = AutoTokenizer.from_pretrained(own.model_name_or_path)
    train, validation = (path and read(path, tokenizer) for path in (own.train_file, own.validation_file))
    set_seed(args.seed)  # of the head
    model = tree_model(AutoModelForCausalLM.from_pretrained(own.model_name_or_path), own.head, own.lm_coef)
    trainer = Trainer(
        model,
        args,
        data_collator=collate_choices,
        train_dataset=train,
        eval_dataset=validation,
        processing_class=tokenizer,
        compute_metrics=lambda found: {"accuracy": float((found.predictions.argmax(-1) == found.label_ids).mean())},
    )
    trainer.train(resume_from_checkpoint=args.resume_from_checkpoint)
    trainer.save_model()
    if validation:
        metrics = trainer.evaluate()
        trainer.save_metrics("eval", metrics)
        print(f"validation accuracy: {metrics['eval_accuracy']:.4f}")


if __name__ == "__main__":
    main()
