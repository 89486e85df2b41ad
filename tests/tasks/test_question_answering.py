"""Questions and passages: files, what is wrong with them, spans from characters to tokens and back, metrics."""

import re

import numpy as np
import pytest
from transformers import EvalPrediction

from hf_gpt.loading import open_source
from hf_gpt.tasks import get_task, load_task
from hf_gpt.tasks.encode import LONGEST_ANSWER, best_answers, encode_split
from hf_gpt.tasks.metrics import compute_metrics_for, logits_of, metric_function
from hf_gpt.trees.transforms import InputTransform

from ..support.formats.question_answering import BALL, COUPLE, FORMATS, NEWS, QUESTIONS, squad
from ..support.task_files import rows_of, write

pytestmark = pytest.mark.usefixtures("own_datasets_cache")


@pytest.fixture(scope="module", params=["gpt", "gpt2"])
def tokenizer(request, stock_gpt2):
    return open_source("gpt-mini" if request.param == "gpt" else stock_gpt2).tokenizer(task_template=True)


def encoded_rows(folder, tokenizer, max_length=32, split="train"):
    special = (tokenizer.bos_token_id, tokenizer.sep_token_id, tokenizer.cls_token_id)
    transform = InputTransform("question-answering", special, max_length)
    rows = load_task("squad", folder, splits=[split]).splits[split]
    return encode_split(rows, ("question", "passage"), tokenizer, transform)


def certain_logits(rows):
    """Logits of a model that knows the labels; other tokens of a batch are filled as the Trainer does."""
    logits = np.full((len(rows), max(map(len, rows["offsets"])) + 3, 2), -100.0)
    for row, label in enumerate(rows["label"]):
        logits[row, : len(rows[row]["offsets"])] = -5.0
        if label[0] >= 0:
            logits[row, label, [0, 1]] = 5.0
    return logits


def test_rows(tmp_path):
    data = load_task("squad", write(tmp_path, FORMATS["squad"][0]))
    assert data.notes["test"] == "left out: there is no test-v1.1.json"
    for row in rows_of(data):
        begin, end = row["label"]
        assert row["passage"][begin:end] == row["answers"][0]
    assert COUPLE.strip() in data.splits["train"]["passage"]
    assert data.splits["validation"][3]["answers"] == ["Mr. Darcy", "his own"]


def test_no_answer_is_lost(tokenizer, tmp_path):
    """Every span of words, wherever it stands among the windows, comes back from its tokens."""
    words = list(re.finditer(r"\S+", NEWS))
    spans = [(words[first].start(), last.end()) for count in (0, 1, 2) for first, last in enumerate(words[count:])]
    answers = {f"s{begin}-{end}": [{"text": NEWS[begin:end], "answer_start": begin}] for begin, end in spans}
    rows = encoded_rows(write(tmp_path, {"train-v1.1.json": squad({NEWS: {}}, **answers)}), tokenizer)
    assert sum(rows["truncated_tokens"]) == 0
    assert max(rows["length"]) > 64
    assert len(rows) > 200
    logits = certain_logits(rows)
    found = [text for text, _ in best_answers(rows, logits)]
    assert found == [answers[0] for answers in rows["answers"]]
    for row in rows:
        assert len(row["path_ends"]) == len(row["offsets"])
        (first, last), ends = row["label"], row["path_ends"]
        tokens = [row["input_ids"][end] for end in ends[first : last + 1]]
        expected = tokenizer(row["answers"][0], add_special_tokens=False)["input_ids"]
        assert tokenizer.decode(tokens).split() == tokenizer.decode(expected).split()
    prediction = EvalPrediction((logits[..., 0], logits[..., 1]), rows["label"])
    metrics = compute_metrics_for(get_task("squad"), rows)(prediction)
    # An answer that is an article alone shares no word with itself.
    assert metrics == {"exact_match": 1.0, "answer_f1": pytest.approx(1, abs=0.03)}


def test_a_passage_is_tokenized_as_the_tokenizer_does_a_pair(tokenizer, tmp_path):
    rows = encoded_rows(write(tmp_path, FORMATS["squad"][0]), tokenizer, max_length=400)
    for row, question in zip(rows, (question for answers in QUESTIONS.values() for question in answers), strict=True):
        assert row["input_ids"] == tokenizer(question, row["passage"])["input_ids"]


def test_the_best_span(tokenizer, tmp_path):
    """Of all that begin before they end and are no longer than allowed; the probability is that of both places."""
    rows = encoded_rows(write(tmp_path, {"train-v1.1.json": squad({NEWS: {"What?": "Monday"}})}), tokenizer)
    starts, ends = zip(*rows[0]["offsets"], strict=True)
    # The likeliest end is before the likeliest beginning; the two are too far apart.
    for peaks in ([(9, 0, 4), (4, 1, 9), (12, 1, 3)], [(0, 0, 9), (LONGEST_ANSWER, 1, 9)]):
        logits = np.random.default_rng(0).uniform(size=(1, len(starts), 2))
        for place, side, value in peaks:
            logits[0, place, side] = value
        probabilities = np.exp(logits[0]) / np.exp(logits[0]).sum(0)
        spans = np.tril(np.triu(np.outer(*probabilities.T)), LONGEST_ANSWER - 1)  # (first token, last token)
        first, last = np.unravel_index(spans.argmax(), spans.shape)
        ((text, probability),) = best_answers(rows, logits)
        assert text == NEWS[starts[first] : ends[last]].strip()
        assert probability == pytest.approx(spans.max())


@pytest.mark.parametrize(
    ("prediction", "answers", "exact", "f1"),
    [
        ("The Cat.", ["cat"], 1, 1),
        ("a cat sat", ["the cat", "dog"], 0, 2 / 3),  # 1 of 2 words, 1 of 1
        ("cat cat dog", ["cat dog"], 0, 4 / 5),  # words count as often as they come
        ("blue", ["red"], 0, 0),
        ("an", ["anthem"], 0, 0),  # articles are whole words, and nothing is left
        ("three-and-twenty", ["threeandtwenty"], 1, 1),  # punctuation goes without a gap
        ("the", ["a"], 1, 0),  # nothing equals nothing, and shares no word
    ],
)
def test_metrics_are_the_official_ones(prediction, answers, exact, f1):
    """By the rules of SQuAD 1.1's own script: lower case, no punctuation, no articles, the best of the answers."""
    for name, expected in (("exact_match", exact), ("answer_f1", f1)):
        measure = metric_function(name)
        assert measure([answers], [prediction]) == pytest.approx(expected)
        assert measure([answers, ["x"]], [prediction, "x"]) == pytest.approx((expected + 1) / 2)


def test_metrics_of_unanswered_questions_and_of_no_numbers(tokenizer, tmp_path):
    write(tmp_path, {"test-v1.1.json": squad({BALL: {"Who?": "Mr. Darcy"}}, new=[])})
    rows = encoded_rows(tmp_path, tokenizer, split="test")
    spec, logits, labels = get_task("squad"), certain_logits(rows), np.array(rows["label"][:])
    assert labels.tolist()[1] == [-100, -100]
    compute = compute_metrics_for(spec, rows)
    assert compute(EvalPrediction(logits, labels)) == {"exact_match": 1.0, "answer_f1": 1.0}
    assert compute(EvalPrediction(logits, np.full((2, 2), -100))) == {}
    with pytest.raises(ValueError, match="training has diverged"):
        logits_of((logits[..., 0] * np.nan, logits[..., 1]), spec)
