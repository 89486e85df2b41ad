"""Tasks of questions that a span of a passage answers (SQuAD): rows, and spans from characters to tokens and back."""

import json
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from datasets import Dataset
from scipy.special import log_softmax

from ..files import input_error, read_text_lines
from ..trees.collators import IGNORED_LABEL
from .families import answering_task, files, hub
from .readers import Record

# Tokens of the longest answer that is given, as in transformers' and BERT's own scripts.
LONGEST_ANSWER = 30


def read_squad(path: Path) -> Iterator[Record]:
    """
    Questions of a JSON file as SQuAD 1.1 nests them, articles of paragraphs of questions, with the fields of the Hub's
    copy: `id`, `question`, `context`, and `answers` as lists `text` and `answer_start`.
    """
    remedy = 'SQuAD\'s layout is {"data": [{"paragraphs": [{"context", "qas": [{"id", "question", "answers"}]}]}]}.'
    number = 0
    try:
        for article in json.loads("\n".join(line for _, line in read_text_lines(path)))["data"]:
            for paragraph in article["paragraphs"]:
                for item in paragraph["qas"]:
                    number += 1
                    answers = item.get("answers") or ()
                    lists = {name: [answer[name] for answer in answers] for name in ("text", "answer_start")}
                    fields = {"id": item["id"], "question": item["question"], "context": paragraph["context"]}
                    yield Record(str(path), number, {**fields, "answers": lists}, "question")
    except (json.JSONDecodeError, RecursionError) as error:
        raise input_error(path, f"this is not valid JSON ({error}).", remedy) from error
    except (KeyError, TypeError, AttributeError) as error:
        problem = f"behind question {number} it is not laid out as SQuAD ({type(error).__name__}: {error})."
        raise input_error(path, problem, remedy) from error


def token_span(label: Sequence[int], token_starts: Sequence[int], token_ends: Sequence[int]) -> list[int]:
    """First and last token of the characters from `label[0]` to `label[1]`; -100 twice where there is no answer."""
    begin, end = label
    if begin < 0:
        return [IGNORED_LABEL] * 2
    first = bisect_right(token_ends, begin)
    return [first, max(first, bisect_left(token_starts, end) - 1)]


def best_answers(rows: Dataset, logits: np.ndarray) -> Iterator[tuple[str, float]]:
    """
    By row, the likeliest span of its passage, of `LONGEST_ANSWER` tokens at most, and its probability: that of the
    beginning times that of the end, over all windows of the passage together. `logits`, of beginnings and ends, have
    the shape `(rows, tokens, 2)`; tokens beyond those of an encoded row do not count.
    """
    columns = rows.select_columns(["passage", "token_starts", "token_ends"])
    for row, scores in zip(columns, logits, strict=True):
        count = len(row["token_starts"])
        starts, ends = log_softmax(scores[:count].astype(np.float64), axis=0).T
        spans = [starts[: count - more] + ends[more:] for more in range(min(LONGEST_ANSWER, count))]
        more = max(range(len(spans)), key=lambda length: spans[length].max())
        first = int(spans[more].argmax())
        text = row["passage"][row["token_starts"][first] : row["token_ends"][first + more]]
        yield text.strip(), float(np.exp(spans[more][first]))


COLUMNS = {"id": "id", "question": "question", "passage": "context", "label": "answers"}
ANSWERING_TASKS = (
    answering_task(
        "squad",
        "Which words of a passage answer a question (SQuAD 1.1)",
        files("{}-v1.1.json", COLUMNS, read=read_squad),
        hub=hub("rajpurkar/squad", COLUMNS, test=None),
        licence="CC BY-SA 4.0",
        source="https://rajpurkar.github.io/SQuAD-explorer (a test file is your own: its answers may be missing)",
    ),
)
