"""
Convert a checkpoint into another format: hf_gpt, stock openai-gpt, stock gpt2, or the layout of OpenAI's release.

    python scripts/convert.py finetune-transformer-lm/model gpt1
    python scripts/convert.py gpt1 openai-gpt --to openai-gpt

What the source is, is told by its contents: OpenAI's TensorFlow release, its fine-tuned `best_params.jl`, stock
`openai-gpt` and `gpt2` (safetensors or `.bin`), hf_gpt, or a peft adapter, which is merged into its base model. The
output is written under another name and renamed when it is complete.
"""

import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path

from transformers import HfArgumentParser

from hf_gpt.conversion import HEADS
from hf_gpt.conversion_sources import KINDS, SourceOptions, read_checkpoint
from hf_gpt.conversion_targets import FORMATS, SPECIAL_TOKENS_CHOICES, write_checkpoint, write_folder
from hf_gpt.files import check_empty, output_folder
from hf_gpt.training_args import check_ranges


@dataclass
class ConversionArguments:
    """What to convert into what."""

    to: str = field(default="hf_gpt", metadata={"help": "Format to write.", "choices": list(FORMATS)})
    head: str | None = field(
        default=None,
        metadata={"help": "Head of the model, by default the source's; a new one is drawn.", "choices": list(HEADS)},
    )
    n_positions: int | None = field(default=None, metadata={"help": "Context length, at most the source's."})
    n_head: int | None = field(
        default=None, metadata={"help": "Attention heads of OpenAI's files, where not width / 64."}
    )
    special_tokens: str = field(
        default="auto",
        metadata={
            "help": "Rows of _start_, _delimiter_, _classify_, <pad> in openai-gpt, which has none: auto drops them "
            "where they are as drawn, and so come back.",
            "choices": list(SPECIAL_TOKENS_CHOICES),
        },
    )
    tokenizer_source: str | None = field(default=None, metadata={"help": "Folder of the tokenizer, if another."})
    no_tokenizer: bool = field(default=False, metadata={"help": "Convert the weights alone."})
    base_model: str | None = field(default=None, metadata={"help": "Base model of an adapter, if it has moved."})
    seed: int = field(default=0, metadata={"help": "Of the special tokens' rows and of a new head."})
    overwrite: bool = field(default=False, metadata={"help": "Replace an output folder that is not empty."})

    def __post_init__(self) -> None:
        check_ranges(self)


def main() -> None:
    """Check everything, convert, write; wrong input ends with one line and exit status 2."""
    parser = HfArgumentParser(ConversionArguments, description=__doc__.strip().splitlines()[0])
    parser.add_argument("source", help="File, folder or Hub id to read.")
    parser.add_argument("output", help="Folder to write.")
    try:
        args, places = parser.parse_args_into_dataclasses()
        with output_folder(Path(places.output), beside=True):
            convert(places.source, Path(places.output), args)
    except (ValueError, OSError) as error:
        print(f"convert.py: {error}", file=sys.stderr)
        sys.exit(2)


def convert(source: str, output: Path, args: ConversionArguments) -> None:
    """Write the model that the arguments describe."""
    if Path(source).exists() and output.resolve() in (Path(source).resolve(), *Path(source).resolve().parents):
        raise ValueError(f"{output} holds the source: name another folder to write.")
    check_empty(output, args.overwrite, "Name another folder, or give --overwrite.")
    names = SourceOptions.__dataclass_fields__
    options = SourceOptions(**{name: value for name, value in asdict(args).items() if name in names})
    checkpoint = read_checkpoint(source, options)
    parameters = sum(tensor.numel() for tensor in checkpoint.parameters.values())
    dtype = str(checkpoint.parameters["embed_tokens.weight"].dtype).removeprefix("torch.")
    print(f"{source} is {KINDS[checkpoint.kind]}: {parameters:,} parameters, {dtype}, head {checkpoint.head}.")
    write_folder(
        output,
        lambda folder: write_checkpoint(checkpoint, folder, args.to, args.special_tokens, args.seed),
    )
    print("\n".join([*checkpoint.notes, f"Written as {args.to} to {output}."]))


if __name__ == "__main__":
    main()
