"""
Pretrain a GPT language model from random weights on text files.

    accelerate launch scripts/pretrain.py --text_files books/ --tokenizer my_tokenizer \
        --output_dir outputs/pretrained --n_layer 5 --n_embd 192 --n_head 3 --n_positions 512 --max_steps 4000

Texts are tokenized and packed into rows of `n_positions` tokens once; later runs find them in the cache of
`datasets`. A run that was stopped goes on with `--resume_from_checkpoint last`. The final folder holds the model, its
tokenizer and `pretraining.json`: tokens seen, time and the perplexity on the held-out rows.
"""

import json
import math
import sys
from dataclasses import dataclass, field
from pathlib import Path

from transformers import AutoTokenizer, HfArgumentParser, set_seed
from transformers.trainer_utils import IntervalStrategy

from hf_gpt import GPTConfig, GPTForCausalLM
from hf_gpt.checkpoints import WholeCheckpointTrainer, last_checkpoint
from hf_gpt.conversion import default_generation_config
from hf_gpt.data_collator import PackedRowCollator
from hf_gpt.pretraining import packed_dataset
from hf_gpt.training_args import LauncherArguments, check_launch


@dataclass
class DataArguments:
    """What to read."""

    text_files: list[str] = field(metadata={"help": "Text files, folders, or .zip/.tar.xz archives of .txt files."})
    tokenizer: str = field(metadata={"help": "Folder or Hub id of a GPTTokenizer."})
    unwrap: bool = field(default=True, metadata={"help": "Join the hard-wrapped lines of a paragraph."})
    hold_out_every: int = field(default=50, metadata={"help": "Hold out about one document in so many; 0: none."})
    validation_rows: int = field(default=200, metadata={"help": "Held-out rows to measure, spread over them all."})
    num_proc: int | None = field(default=None, metadata={"help": "Processes that tokenize."})


@dataclass
class ModelArguments:
    """What to build."""

    n_layer: int = 5
    n_embd: int = 192
    n_head: int = 3
    n_positions: int = 512
    dropout: float = field(default=0.0, metadata={"help": "All dropout rates; the release's own is 0.1."})
    attn_implementation: str | None = None


@dataclass
class PretrainingArguments(LauncherArguments):
    """The Trainer's own arguments with defaults for a small GPT."""

    learning_rate: float = field(default=1e-3, metadata={"help": "Highest learning rate."})
    lr_scheduler_type: str = field(default="cosine", metadata={"help": "Shape of the schedule."})
    warmup_steps: float = field(default=200, metadata={"help": "Steps of warm-up, or a share below 1."})
    weight_decay: float = field(default=0.01, metadata={"help": "Decay of matrices."})
    per_device_train_batch_size: int = field(default=16, metadata={"help": "Rows of a step and device."})
    save_strategy: str = field(default="steps", metadata={"help": "When to save."})
    save_steps: float = field(default=200, metadata={"help": "Steps between checkpoints."})
    save_total_limit: int | None = field(default=2, metadata={"help": "Checkpoints that are kept."})
    eval_strategy: str = field(default="steps", metadata={"help": "When to measure the held-out rows."})
    eval_steps: float | None = field(default=500, metadata={"help": "Steps between measurements."})
    logging_steps: float = field(default=50, metadata={"help": "Steps between log lines."})
    prediction_loss_only: bool = field(default=True, metadata={"help": "Evaluation keeps the loss alone."})
    use_cache: bool = field(
        default=True, metadata={"help": "What the saved configuration says; training has no cache."}
    )
    remove_unused_columns: bool = field(default=False, metadata={"help": "The collator reads all columns."})
    report_to: str = field(default="none", metadata={"help": "Trackers, such as tensorboard."})


def main() -> None:
    """Parse arguments and run; wrong input ends with one line."""
    try:
        check_launch()
        pretrain()
    except (ValueError, OSError) as error:
        sys.exit(f"pretrain.py: {error}")


def pretrain() -> None:
    """Pack the texts, train, measure, save."""
    parser = HfArgumentParser((DataArguments, ModelArguments, PretrainingArguments))
    data, shape, training = parser.parse_args_into_dataclasses()
    output = Path(training.output_dir)
    checkpoint = training.resume_from_checkpoint
    if checkpoint == "last":
        found = last_checkpoint(output, training)
        checkpoint = None if found is None else str(found)
    elif checkpoint is None and output.is_dir() and any(output.iterdir()):
        raise ValueError(
            f"{output} is not empty: name another --output_dir, or go on with --resume_from_checkpoint last."
        )
    if not data.hold_out_every:
        training.eval_strategy = IntervalStrategy.NO
    set_seed(training.seed)

    tokenizer = AutoTokenizer.from_pretrained(data.tokenizer)
    with training.main_process_first(desc="packing"):
        arguments = (data.text_files, tokenizer, shape.n_positions, data.unwrap)
        train = packed_dataset(*arguments, hold_out_every=data.hold_out_every, num_proc=data.num_proc)
        validation = None
        if data.hold_out_every:
            rows = packed_dataset(*arguments, held_out=True, hold_out_every=data.hold_out_every)
            step = max(1.0, len(rows) / data.validation_rows)
            validation = rows.select([int(number * step) for number in range(min(len(rows), data.validation_rows))])

    dropout = dict.fromkeys(("embd_pdrop", "attn_pdrop", "resid_pdrop", "clf_pdrop"), shape.dropout)
    config = GPTConfig(
        vocab_size=len(tokenizer),
        n_positions=shape.n_positions,
        n_embd=shape.n_embd,
        n_layer=shape.n_layer,
        n_head=shape.n_head,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        start_token_id=tokenizer.bos_token_id,
        delimiter_token_id=tokenizer.sep_token_id,
        classify_token_id=tokenizer.cls_token_id,
        **dropout,
    )
    config._attn_implementation = shape.attn_implementation
    model = GPTForCausalLM(config)
    if training.process_index == 0:
        print(f"{len(train):,} training rows of {shape.n_positions} tokens, {model.num_parameters():,} parameters")
    trainer = WholeCheckpointTrainer(
        model=model,
        args=training,
        train_dataset=train,
        eval_dataset=validation,
        data_collator=PackedRowCollator(),
        processing_class=tokenizer,
    )
    result = trainer.train(resume_from_checkpoint=checkpoint)
    record = {
        "steps": trainer.state.global_step,
        "tokens_seen": trainer.state.global_step
        * training.train_batch_size
        * training.world_size
        * training.gradient_accumulation_steps
        * shape.n_positions,
        "validation_tokens": 0 if validation is None else len(validation) * shape.n_positions,
        "training_tokens": len(train) * shape.n_positions,
        "train_runtime_s": result.metrics["train_runtime"],
    }
    if validation is not None:
        record["validation_loss"] = trainer.evaluate()["eval_loss"]
        record["validation_perplexity"] = math.exp(record["validation_loss"])
    # The task heads that start from this model train with the paper's dropout.
    for name in dropout:
        setattr(model.config, name, 0.1)
    model.generation_config = default_generation_config(model.config)
    trainer.save_whole_model()
    if trainer.is_world_process_zero():
        (output / "pretraining.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
        print(json.dumps(record, indent=2))


if __name__ == "__main__":
    main()
