"""
Measure what the most frequent tag of each word gives on a tagging task: the baseline beside `ud_pos` in README.

    python scripts/measure/tag_baseline.py --data_dir path/to/data/ud_english_ewt --rows 800 --eval_rows 500

A word gets the tag that it has most often in the training rows, whatever its case, as the model reads it; a word that
they do not have gets the most frequent tag of all. The rows are those of `tasks.py` with the same flags.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass, field

from hf_gpt.commands import command, parse_arguments
from hf_gpt.tasks import load_task
from hf_gpt.training.rows import subsample


@dataclass
class BaselineArguments:
    """What to count."""

    data_dir: str = field(metadata={"help": "Folder of the published files."})
    task: str = field(default="ud_pos", metadata={"help": "A task of words."})
    rows: int | None = field(default=None, metadata={"help": "Training rows at most."})
    eval_rows: int | None = field(default=None, metadata={"help": "Validation rows at most."})


@command()
def main() -> None:
    """Count, and print the shares of right tags among the words of the validation rows."""
    (args,) = parse_arguments((BaselineArguments,), description=__doc__)
    splits = load_task(args.task, args.data_dir, splits=("train", "validation")).splits
    counts: dict[str, Counter[int]] = defaultdict(Counter)
    for row in subsample(splits["train"], args.rows):
        for word, tag in zip(row["words"], row["label"], strict=True):
            counts[word.lower()][tag] += 1
    overall = sum(counts.values(), Counter())
    most = overall.most_common(1)[0][0]
    evaluated = subsample(splits["validation"], args.eval_rows)
    tagged = [pair for row in evaluated for pair in zip(row["words"], row["label"], strict=True)]
    known = [(word.lower(), tag) for word, tag in tagged if word.lower() in counts]
    right = sum(counts[word].most_common(1)[0][0] == tag for word, tag in known)
    unknown = sum(tag == most for word, tag in tagged if word.lower() not in counts)
    print(
        f"{len(tagged):,} words, {1 - len(known) / len(tagged):.1%} of them not in the {overall.total():,} of training"
    )
    print(f"most frequent tag of all: {sum(tag == most for _, tag in tagged) / len(tagged):.3f}")
    print(f"most frequent tag of each word: {(right + unknown) / len(tagged):.3f}")


if __name__ == "__main__":
    main()
