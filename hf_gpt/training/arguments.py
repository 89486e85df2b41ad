"""Arguments of fine-tuning."""

import os
from dataclasses import dataclass

import torch
from transformers import TrainingArguments
from transformers.integrations import get_reporting_integration_callbacks

from ..adapters import METHODS
from ..files import flag
from ..files.ranges import check_ranges
from ..loading import NamesModel
from ..tasks.custom import CustomTask
from ..trees.transforms import TRUNCATION_RULES
from .optimization import SCHEDULES
from .unfreezing import KINDS


@dataclass
class ModelArguments(NamesModel):
    """Which model, and its settings."""

    model_name_or_path: str | None = flag(None, "Folder or Hub id of a model or an adapter, or the OpenAI release.")
    keep_head: bool = flag(False, "Keep the head of a fine-tuned model, whose labels must be the task's.")
    random_weights: bool = flag(False, "Keep the model's shape but initialize its weights randomly: no pretraining.")
    transfer_layers: int | None = flag(None, "Lowest layers to keep; the others are randomly initialized.")
    lm_coef: float = flag(0.5, "Weight of the language-model loss; 0 leaves it out.")
    dropout: float | None = flag(None, "All four dropout rates; by default those of the model's configuration.")
    release_quirks: bool = flag(False, "Train as the release does where it errs (see GPTConfig).")
    attn_implementation: str | None = flag(None, "By default sdpa.", ["sdpa", "eager", "flex_attention"])
    adaptation: str = flag(
        "full", "Train everything, the head alone (frozen), or an adapter and the head.", ["full", "frozen", *METHODS]
    )
    layers: str | None = flag(None, "What a frozen model's head reads: last, mix (learnt), or a layer's number.")
    adapter_size: int | None = flag(None, "Rank of lora (8), tokens of prefix and prompt (20), width of houlsby (32).")
    use_dora: bool = flag(False, "With --adaptation lora: DoRA.")
    use_rslora: bool = flag(False, "With --adaptation lora: rank-stabilised LoRA.")


@dataclass
class DataArguments(CustomTask):
    """Which task, and how its rows are laid out."""

    task: str | None = flag(None, "Name of the task; --list_tasks prints all.")
    list_tasks: bool = flag(False, "Print the tasks and stop.")
    data_dir: str | None = flag(None, "Folder of the data set's published files.")
    tasks: list[str] | None = flag(None, "Tasks that are trained together, a head for each on one transformer.")
    data_dirs: list[str] | None = flag(None, "With --tasks: folders of published files, as trec=FOLDER sst2=FOLDER.")
    max_length: int | None = flag(None, "Longest sequence in tokens; by default the model's context.")
    truncation: str = flag("longest_first", "What long texts lose; half is the release's rule.", TRUNCATION_RULES)
    share_prefix: bool = flag(True, "Compute what the sequences of a row have in common once.")
    max_train_rows: int | None = flag(None, "Train on so many rows only, chosen once for all.")
    max_eval_rows: int | None = flag(None, "Evaluate on so many rows only.")
    num_proc: int | None = flag(None, "Processes that tokenize.")

    def __post_init__(self) -> None:
        check_ranges(self)


def check_launch() -> None:
    """
    Refuse launches that would do something else than asked: several GPUs without a launcher (`nn.DataParallel`),
    `accelerate launch --cpu --num_processes N`, which starts one process, and GPU configurations without a GPU.
    """
    settings, on_cpus = os.environ, "`--config_file scripts/configs/accelerate/two_cpu_processes.yaml` on CPUs"
    on_cpu, has_launcher = settings.get("ACCELERATE_USE_CPU") == "True", "LOCAL_RANK" in settings
    is_for_gpus = settings.get("ACCELERATE_MIXED_PRECISION", "no") != "no" and not on_cpu
    is_for_gpus = is_for_gpus or settings.get("ACCELERATE_USE_FSDP", "").lower() == "true"
    if is_for_gpus and not torch.accelerator.is_available():
        raise ValueError(f"accelerate was configured for GPUs, and there is none. Use {on_cpus}.")
    if torch.cuda.device_count() > 1 and not has_launcher:
        problem = f"{torch.cuda.device_count()} GPUs are visible but there is no launcher"
        raise ValueError(f"{problem}. Start with `accelerate launch`, or choose one GPU with CUDA_VISIBLE_DEVICES=0.")
    if on_cpu and "MASTER_ADDR" in settings and not has_launcher:
        raise ValueError(f"accelerate was asked for several CPU processes but started only this one. Use {on_cpus}.")


@dataclass
class LauncherArguments(TrainingArguments):
    """The Trainer's own arguments; processes that a launcher starts where there is no accelerator stay on the CPU."""

    output_dir: str | None = flag(None, "Folder of the results (required).")
    resume_from_checkpoint: str | None = flag(None, "Resume after a stop: last, or the folder of a checkpoint.")
    logging_nan_inf_filter: bool = flag(False, "Leave losses that are not finite, which end a run, out of the log.")
    overwrite_output_dir: bool = flag(False, "Replace what an earlier run left in --output_dir.")
    report_to: list[str] = flag(["none"], "Trackers, such as tensorboard.")
    remove_unused_columns: bool = flag(False, "The collator reads all columns.")
    use_cache: bool = flag(True, "What the saved configuration says; training has no cache.")
    fast_float32: bool | None = flag(None, "CPU products of float32 by oneDNN; by default if faster and as exact.")

    def __post_init__(self) -> None:
        if not self.output_dir:
            raise ValueError("Name a folder for the results with --output_dir.")
        if self.deepspeed or os.environ.get("ACCELERATE_USE_DEEPSPEED", "").lower() == "true":
            raise ValueError("DeepSpeed is not supported: use DDP or FSDP2.")
        check_ranges(self)
        if not torch.accelerator.is_available():
            self.dataloader_pin_memory = False
            # The Trainer takes --bf16 for a GPU's unless it is to stay on the CPU.
            if self.bf16 or self.bf16_full_eval or int(os.environ.get("WORLD_SIZE", "1")) > 1:
                self.use_cpu = True
        super().__post_init__()
        for tracker in get_reporting_integration_callbacks(self.report_to):
            tracker()  # an error where it is not installed, before the data is read


@dataclass
class FineTuningArguments(LauncherArguments):
    """The Trainer's own arguments with the paper's settings for defaults (Radford et al., 2018, section 4.1)."""

    learning_rate: float = flag(6.25e-5, "Highest learning rate.")
    num_train_epochs: float = flag(3.0, "Passes over the training rows.")
    per_device_train_batch_size: int = flag(32, "Rows of a step and device.")
    per_device_eval_batch_size: int = flag(64, "Rows of an evaluation step and device.")
    weight_decay: float = flag(0.01, "Decay of matrices and embeddings.")
    max_grad_norm: float = flag(1.0, "Gradients are scaled down to this norm.")
    optim: str = flag("adamw_torch_fused", "With --optimizer trainer: its optimizer.")
    optimizer: str = flag("release", "The release's Adam, or that of --optim.", ["release", "trainer"])
    schedule: str = flag("warmup_linear", "The release's, or that of --lr_scheduler_type.", [*SCHEDULES, "trainer"])
    warmup: float = flag(0.002, "Share of the updates that warm up (release schedules).")
    layer_decay: float = flag(1.0, "Factor of the learning rate from each layer to the one below, from the head down.")
    unfreeze: str = flag(
        "none",
        "Begin with the head alone, then train one more block from the top in each stage (gradual), everything "
        "(head_first), or each block alone from the bottom and then everything (chain_thaw).",
        ["none", *KINDS],
    )
    unfreeze_every: str | None = flag(None, "Length of a stage: epoch, or updates (default: equal; head_first: 1/10).")
    train_sampling_strategy: str = flag("group_by_length", "Batches of rows of like length, or random.")
    eval_strategy: str = flag("epoch", "When to evaluate.")
    save_strategy: str = flag("epoch", "When to save a checkpoint.")
    save_total_limit: int | None = flag(1, "Checkpoints kept next to the best.")
    load_best_model_at_end: bool = flag(True, "Keep the best checkpoint's weights.")
    logging_steps: float = flag(10, "Steps between log lines.")
    ddp_find_unused_parameters: bool | None = flag(False, "Every parameter takes part in every step.")
    seeds: int | None = flag(None, "Train so many times, with seeds from --seed up, in folders of --output_dir.")

    @property
    def is_sharded(self) -> bool:
        """`bool`: whether FSDP shards the parameters."""
        return bool(self.fsdp) or os.environ.get("ACCELERATE_USE_FSDP", "").lower() == "true"

    def __post_init__(self) -> None:
        if self.save_strategy == "no":
            self.load_best_model_at_end = False
        super().__post_init__()
        if self.unfreeze_every is not None and self.unfreeze == "none":
            raise ValueError("--unfreeze_every is the length of a stage: say which with --unfreeze.")


def check_adaptation(model_args: ModelArguments, data: DataArguments, args: FineTuningArguments) -> None:
    """Refuse what does not go with the way in which the model is adapted, or with a language model as the task."""
    is_frozen, adaptation = model_args.adaptation == "frozen", model_args.adaptation
    of_heads = {"--adaptation": adaptation != "full", "--unfreeze": args.unfreeze != "none"}
    of_heads |= {"--label_smoothing_factor": args.label_smoothing_factor, "FSDP": args.is_sharded}
    for name in (name for name, is_given in of_heads.items() if is_given and data.target_column is not None):
        raise ValueError(f"{name}: not with --target_column, for which the whole language model is trained.")
    for name, is_given in {"--unfreeze": args.unfreeze != "none", "--layer_decay": args.layer_decay < 1}.items():
        if is_given and adaptation != "full":
            raise ValueError(f"{name} is for training the whole model, not for --adaptation {adaptation}.")
    if args.is_sharded and (args.unfreeze != "none" or is_frozen):
        raise ValueError("--unfreeze and --adaptation frozen go with whole models (DDP), not with sharded ones.")
    if is_frozen and args.activation_checkpointing:
        raise ValueError("Frozen features need no backward pass: leave out --activation_checkpointing.")
