"""What a model without pretraining or layers scores on a task: the baseline of the tables of `tasks.py`."""

from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np
from datasets import Dataset
from scipy import sparse
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge

from hf_gpt.tasks import TaskData
from hf_gpt.tasks.metrics import metric_function
from hf_gpt.tasks.spec import TEXT_COLUMNS, TaskSpec
from hf_gpt.training.rows import subsample

STRENGTHS = (0.01, 0.1, 1, 10, 100)


def score(task: TaskData, measured: str, rows: int | None, eval_rows: int | None) -> float:
    """
    The main metric on the `measured` split of a task with all its splits; trained on `rows` and measured on
    `eval_rows`, the same as in fine-tuning.

    Tags of words: the most frequent tag of each word whatever its case, as the model reads it, and of a word that the
    training rows do not have the most frequent of all. All else: logistic regression (of scores, ridge regression) on
    tf-idf of words and bigrams, whose regularisation is the best on the validation rows; a choice is taken by its own
    probability of being right.
    """
    splits = {name: subsample(part, rows if name == "train" else eval_rows) for name, part in task.splits.items()}
    if task.spec.family == "tagging":
        return most_frequent_tags(splits["train"], splits[measured])
    return bag_of_words(splits, task.spec, measured)


def most_frequent_tags(train: Dataset, rows: Dataset) -> float:
    """Share of right tags when every word gets the tag that it has most often in the training rows."""
    counts: dict[str, Counter[int]] = defaultdict(Counter)
    for row in train:
        for word, tag in zip(row["words"], row["label"], strict=True):
            counts[word.lower()][tag] += 1
    overall = sum(counts.values(), Counter())
    tagged = [pair for row in rows for pair in zip(row["words"], row["label"], strict=True)]
    return sum(counts.get(word.lower(), overall).most_common(1)[0][0] == tag for word, tag in tagged) / len(tagged)


def bag_of_words(splits: dict[str, Dataset], spec: TaskSpec, measured: str) -> float:
    """The metric of the best linear model of words on one of the splits."""
    metric, texts = metric_function(spec.main_metric), {name: examples(part, spec) for name, part in splits.items()}
    vectorizer = TfidfVectorizer(sublinear_tf=True, ngram_range=(1, 2), token_pattern=r"\w+|[^\w\s]")
    vectorizer.fit([text for column in texts["train"][0] for text in column])
    inputs = {name: weights([vectorizer.transform(column) for column in found]) for name, (found, _) in texts.items()}

    def value(model: Ridge | LogisticRegression, split: str) -> float:
        rows = splits[split]
        if spec.family != "multiple-choice":
            return float(metric(rows["label"][:], model.predict(inputs[split])))
        ends = np.cumsum([len(choices) for choices in rows["choices"]])
        parts = np.split(model.predict_proba(inputs[split])[:, 1], ends[:-1])
        return float(metric(rows["label"][:], [int(part.argmax()) for part in parts]))

    kinds = [Ridge(1 / each) if spec.has_scores else LogisticRegression(C=each, max_iter=1000) for each in STRENGTHS]
    models = [model.fit(inputs["train"], texts["train"][1]) for model in kinds]
    return value(max(models, key=lambda model: value(model, "validation")), measured)


def examples(rows: Dataset, spec: TaskSpec) -> tuple[list[Sequence[str]], Sequence]:
    """Columns of texts, one or a pair, and labels; every choice is a pair with what stands before it, right or not."""
    if spec.family != "multiple-choice":
        return [list(rows[name]) for name in TEXT_COLUMNS[spec.family]], rows["label"]
    found = []
    for row in rows:
        before = f"{row['context']} {row['question']}"
        found += [(before, choice, number == row["label"]) for number, choice in enumerate(row["choices"])]
    *columns, right = zip(*found, strict=True)
    return columns, right


def weights(texts: Sequence[sparse.csr_matrix]) -> sparse.csr_matrix:
    """Of words and bigrams; of a pair those of both texts, what they share, and their differences."""
    first, *second = texts
    both = [part for other in second for part in (other, first.multiply(other), abs(first - other))]
    return sparse.hstack([first, *both], format="csr")
