"""The output folder of a run: where the run goes on from, and what it replaces."""

import shutil
from pathlib import Path

from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from ..adapters import HEAD_CONFIG
from ..cards.callback import EMISSIONS
from ..files import FACTS, METRICS, PREDICTIONS, PRETRAINING, UNFINISHED, check_empty, contents
from ..tasks.submissions import SUBMISSION_FILES
from .arguments import LauncherArguments
from .checkpoints import is_whole, last_checkpoint

RESULT_FILES = (METRICS, PREDICTIONS, PRETRAINING, "README.md", FACTS, EMISSIONS)
RESULT_FILES += (*SUBMISSION_FILES.values(),)
# A whole model and an adapter in one folder would be taken for each other.
MODEL_FILES = ("config.json", "generation_config.json", "model.safetensors")
ADAPTER_FILES = ("adapter_config.json", "adapter_model.safetensors", HEAD_CONFIG)
# Folder of cached features while a head is trained on them.
FEATURES = "features"
# Where the Trainer puts TensorBoard's files.
TRACKER_LOGS = "runs"


def check_output_dir(args: LauncherArguments) -> str | None:
    """
    Where to resume from (a checkpoint's folder, or None); a `ValueError` where something would be overwritten unasked,
    or the checkpoint is not whole. `last` is the newest one of `output_dir`, or without any the beginning.
    """
    output = Path(args.output_dir)
    resume = args.resume_from_checkpoint
    only_leftovers = False
    if resume == "last":
        found = last_checkpoint(output, args)
        if found is not None:
            return str(found)
        # Those that were killed in their first checkpoint have left half of one.
        left = {name for name in contents(output) if not name.startswith(f"{PREFIX_CHECKPOINT_DIR}-")}
        only_leftovers = left <= {UNFINISHED, TRACKER_LOGS, FEATURES}
        if args.process_index == 0:
            print(f"{output} holds no checkpoint yet: training starts at the beginning.", flush=True)
    elif resume is not None:
        if not Path(resume).is_dir():
            raise ValueError(f"--resume_from_checkpoint {resume}: there is no such folder.")
        if not is_whole(Path(resume)):
            problem = "is not a whole checkpoint: it has no trainer_state.json that can be read"
            raise ValueError(f"--resume_from_checkpoint {resume} {problem}.")
        return resume
    check_empty(
        output,
        args.overwrite_output_dir or only_leftovers,
        "Name another --output_dir, replace what is there with --overwrite_output_dir, or go on with "
        "--resume_from_checkpoint last.",
    )
    return None


def remove_earlier_results(output: Path) -> None:
    """Result files and checkpoints of an earlier run, which the new run replaces; other files stay."""
    for name in (*RESULT_FILES, *MODEL_FILES, *ADAPTER_FILES):
        (output / name).unlink(missing_ok=True)
    for path in output.glob(f"{PREFIX_CHECKPOINT_DIR}-*"):
        # Without its state, a checkpoint is not whole.
        (path / TRAINER_STATE_NAME).unlink(missing_ok=True)
        shutil.rmtree(path)
    shutil.rmtree(output / UNFINISHED, ignore_errors=True)
