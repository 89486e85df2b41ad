"""
Convert a checkpoint: hf_gpt, stock openai-gpt, stock gpt2, the layout of OpenAI's release, CTranslate2.

    hf-gpt convert finetune-transformer-lm/model outputs/gpt1
    hf-gpt convert outputs/gpt1 outputs/openai-gpt --to openai-gpt

What the source is, is inferred from its contents: OpenAI's TensorFlow release, its fine-tuned `best_params.jl`, stock
`openai-gpt` and `gpt2` (safetensors or `.bin`), hf_gpt, or a peft adapter, which is merged into its base model.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path

from ..conversion.ctranslate2 import QUANTIZATIONS
from ..conversion.sources import KINDS, SourceOptions, read_checkpoint
from ..conversion.targets import FORMATS, write_checkpoint
from ..files import check_empty, flag, output_folder
from ..files.ranges import check_ranges
from . import command


@dataclass
class ConversionArguments(SourceOptions):
    """What to convert into what."""

    to: str = flag("hf_gpt", "Format to write.", FORMATS)
    quantization: str | None = flag(None, "With --to ctranslate2: type of the weights.", QUANTIZATIONS)
    overwrite: bool = flag(False, "Replace an output folder that is not empty.")

    def __post_init__(self) -> None:
        check_ranges(self)
        if self.quantization is not None and self.to != "ctranslate2":
            raise ValueError("--quantization goes with --to ctranslate2.")


def convert(source: str, output: str | Path, args: ConversionArguments) -> None:
    """Check everything, convert, and write the model that the arguments describe."""
    output = Path(output)
    if Path(source).exists() and output.resolve() in (Path(source).resolve(), *Path(source).resolve().parents):
        raise ValueError(f"{output} holds the source: name another folder to write.")
    with output_folder(output, whole=True):
        check_empty(output, args.overwrite, "Name another folder, or give --overwrite.")
        checkpoint = read_checkpoint(source, args)
        found = f"{KINDS[checkpoint.kind]}: {checkpoint.model.num_parameters():,} parameters"
        print(f"{source} is {found}, {str(checkpoint.model.dtype).removeprefix('torch.')}, head {checkpoint.head}.")
        # The output is replaced when all is written. What an interrupted run has left is deleted by the next one.
        temporary = output.parent / f".{output.name}.unfinished"
        shutil.rmtree(temporary, ignore_errors=True)
        try:
            (temporary / "written").mkdir(parents=True)
            write_checkpoint(checkpoint, temporary / "written", args.to, args.quantization)
            if output.exists():
                output.rename(temporary / "replaced")
            (temporary / "written").rename(output)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        print("\n".join([*checkpoint.notes, f"Written as {args.to} to {output}."]))


main = command(__doc__, ConversionArguments, source="File, folder or Hub id.", output="Folder to write.")(convert)
