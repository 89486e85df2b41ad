"""Questions in SQuAD's layout on Austen's Pride and Prejudice (1813): files, first row, rows of each split."""

import json
from pathlib import Path

_PARTS = json.loads((Path(__file__).parents[2] / "data" / "austen_questions.json").read_text(encoding="utf-8"))
QUESTIONS = {part["passage"]: part["answers"] for part in _PARTS}  # passage -> {question: answer}
NEWS, COUPLE, BALL = QUESTIONS


def squad(questions, **more):
    """The text of a file; `more` are further questions with their answers, as the file has them, by their id."""
    paragraphs = [
        {
            "context": passage,
            "qas": [
                {"id": f"q{number}.{n}", "question": question, "answers": [answer_in(passage, answer)]}
                for n, (question, answer) in enumerate(answers.items(), 1)
            ],
        }
        for number, (passage, answers) in enumerate(questions.items(), 1)
    ]
    paragraphs[0]["qas"] += [{"id": key, "question": "Who?", "answers": answers} for key, answers in more.items()]
    return json.dumps({"version": "1.1", "data": [{"title": "Pride and Prejudice", "paragraphs": paragraphs}]})


def answer_in(passage, text):
    return {"text": text, "answer_start": passage.index(text)}


TWO_ANSWERS = [answer_in(BALL, "Mr. Darcy"), answer_in(BALL, "his own")]
FIRST_ROW = {"id": "q1.1", "question": "Who told of the new neighbour?", "passage": NEWS, "answers": ["Mrs. Long"]}
FORMATS = {
    "squad": (
        {
            "train-v1.1.json": squad(QUESTIONS),
            "dev-v1.1.json.xz": squad({BALL: QUESTIONS[BALL]}, both=TWO_ANSWERS),
        },
        FIRST_ROW | {"label": [30, 39]},
        {"train": 20, "validation": 4},
    ),
}
