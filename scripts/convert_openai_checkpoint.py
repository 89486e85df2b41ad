"""
Convert the OpenAI release of GPT (openai/finetune-transformer-lm, folder `model`) into an hf_gpt model.

    python scripts/convert_openai_checkpoint.py --source finetune-transformer-lm/model --output_dir gpt1

The output folder loads with `AutoModelForCausalLM.from_pretrained` and `AutoTokenizer.from_pretrained` once `hf_gpt`
is imported. It is written under another name and renamed when it is complete.
"""

import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path

from transformers import HfArgumentParser

from hf_gpt import GPTTokenizer
from hf_gpt.conversion import HEADS, load_release


@dataclass
class ConversionArguments:
    """What to convert, and into what."""

    source: str = field(metadata={"help": "Folder of the release: params_shapes.json, params_0.npy ... params_9.npy."})
    output_dir: str = field(metadata={"help": "Folder to write; must not exist, or be empty."})
    head: str = field(default="causal-lm", metadata={"help": "Head of the model.", "choices": list(HEADS)})
    n_positions: int | None = field(default=None, metadata={"help": "Context length, at most the release's 512."})
    n_head: int | None = field(default=None, metadata={"help": "Attention heads, where it is not width / 64."})
    tokenizer_source: str | None = field(
        default=None, metadata={"help": "Folder with encoder_bpe_*.json and vocab_*.bpe; by default the source."}
    )
    no_tokenizer: bool = field(default=False, metadata={"help": "Convert the weights alone."})
    seed: int = field(default=0, metadata={"help": "Of the special tokens' rows and the head, which are drawn anew."})


def main() -> None:
    """Check everything, convert, write; wrong input ends with one line and exit status 2."""
    (args,) = HfArgumentParser(ConversionArguments).parse_args_into_dataclasses()
    try:
        convert(args)
    except (ValueError, FileNotFoundError) as error:
        print(f"convert_openai_checkpoint.py: {error}", file=sys.stderr)
        sys.exit(2)


def convert(args: ConversionArguments) -> None:
    """Write the model that the arguments describe."""
    output = Path(args.output_dir)
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise ValueError(f"{output} already exists and is not an empty folder: name another --output_dir.")
    tokenizer = None
    if not args.no_tokenizer:
        source = args.tokenizer_source or args.source
        try:
            tokenizer = GPTTokenizer.from_release(source, task_template=args.head != "causal-lm")
        except (ValueError, FileNotFoundError) as error:
            raise ValueError(
                f"{error}; --tokenizer_source names another folder, --no_tokenizer does without"
            ) from error
    model = load_release(args.source, HEADS[args.head], args.n_positions, args.n_head, args.seed)
    if tokenizer is not None:
        if len(tokenizer) != model.config.vocab_size:
            raise ValueError(
                f"The tokenizer has {len(tokenizer) - 4:,} tokens and the weights {model.config.vocab_size - 4:,}: "
                "they do not belong together. Name the vocabulary with --tokenizer_source, or give --no_tokenizer."
            )
        tokenizer.model_max_length = model.config.n_positions
    temporary = output.with_name(f".{output.name}.partial")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    model.save_pretrained(temporary)
    model.generation_config.save_pretrained(temporary)
    if tokenizer is not None:
        tokenizer.save_pretrained(temporary)
    if output.is_dir():
        output.rmdir()
    temporary.replace(output)
    print(f"{model.num_parameters():,} parameters, {type(model).__name__}, written to {output}")


if __name__ == "__main__":
    main()
