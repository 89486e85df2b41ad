"""Tasks with choices: stories, Story Cloze, COPA, RACE, OpenBookQA, ARC, CommonsenseQA, SWAG, HellaSwag and CODAH."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import PurePosixPath
from typing import Any

from .readers import (
    read_jsonl,
    read_plain_tsv,
    read_tar,
    read_text_file,
    read_xml,
)
from .spec import CARRIED_DATA, PARQUET_COPY, Cut, Hub, Layout, TaskSpec

# Layouts that need more than names.


def _copa_item(fields: dict[str, Any]) -> Iterator[dict[str, Any]]:
    # The question as the authors put it to people (Roemmele et al., 2011).
    questions = {"cause": "What was the cause of this?", "effect": "What happened as a result?"}
    asked = fields["asks-for"] if "asks-for" in fields else fields["question"]
    yield {**fields, "question": questions[asked]}


def _lettered_question(fields: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The publication form of OpenBookQA, CommonsenseQA and ARC: a stem and choices labelled by letters."""
    choices = sorted(fields["question"]["choices"], key=lambda choice: choice["label"])
    yield {
        "id": fields["id"],
        "stem": fields["question"]["stem"],
        "choices": [choice["text"] for choice in choices],
        "answer": _letter(fields.get("answerKey")),
    }


def _letter(answer: str | None) -> str | None:
    # Some exams of ARC number their choices.
    return "ABCDEFGHI"[int(answer) - 1] if answer and answer in "123456789" else answer


def _hub_choices(fields: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield {**fields, "choices": fields["choices"]["text"], "answerKey": _letter(fields["answerKey"])}


def _passage(fields: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A file of RACE: a passage with several questions."""
    passage = json.loads(fields["text"])
    split = PurePosixPath(fields["path"]).parts[-3]
    items = zip(passage["questions"], passage["options"], passage["answers"], strict=True)
    for number, (question, options, answer) in enumerate(items):
        yield {
            "id": f"{passage['id']}-{number}",
            "split": "validation" if split == "dev" else split,
            "article": passage["article"],
            "question": question,
            "options": options,
            "answer": answer,
        }


def _activity(fields: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """HellaSwag's context behind the name of its activity; WikiHow's mark-up is no text."""
    clean = re.sub(r"\s*\[title\]\s*", ". ", f"{fields['activity_label']}: {fields['ctx']}")
    choices = [_without_marks(ending) for ending in fields["endings"]]
    yield {**fields, "context": _without_marks(clean), "endings": choices}


def _without_marks(text: str) -> str:
    return re.sub(r"\s*\[(?:header|title|step|substeps)\]\s*", " ", text).strip()


STORY_CLOZE_COLUMNS = {
    "id": "InputStoryid",
    "context": ("InputSentence1", "InputSentence2", "InputSentence3", "InputSentence4"),
    "choices": ("RandomFifthSentenceQuiz1", "RandomFifthSentenceQuiz2"),
    "label": "AnswerRightEnding",
}
ENDINGS = ("ending0", "ending1", "ending2", "ending3")
LETTERED_LAYOUT = Layout(
    {"id": "id", "context": "stem", "choices": "choices", "label": "answer"},
    read=read_jsonl,
    prepare=_lettered_question,
    first_choice="A",
)
SWAG_COLUMNS = {"context": "startphrase", "choices": ENDINGS, "label": "label"}
HELLASWAG_LAYOUT = Layout(
    {"context": "context", "choices": "endings", "label": "label"},
    train="hellaswag_train.jsonl",
    validation="hellaswag_val.jsonl",
    test="hellaswag_test.jsonl",
    prepare=_activity,
)
CODAH_LAYOUT = Layout(
    {"context": "prompt", "choices": ENDINGS, "label": "answer"},
    read=partial(read_plain_tsv, names=("category", "prompt", *ENDINGS, "answer")),
)


def _race(name: str, level: str, description: str, paper_score: float) -> TaskSpec:
    folder = {"all": "[hm]i*"}.get(level, level)
    columns = {"id": "id", "context": "article", "question": "question", "choices": "options", "label": "answer"}
    options: dict[str, Any] = {"prepare": _passage, "first_choice": "A", "skip_empty": True}
    archive = "RACE.tar.gz"
    return TaskSpec(
        name=name,
        family="multiple-choice",
        description=description,
        metrics=("accuracy",),
        licence="non-commercial research",
        source="https://www.cs.cmu.edu/~glai1/data/race/",
        paper_score=paper_score,
        layouts=(
            Layout(
                columns,
                train=archive,
                validation=archive,
                test=archive,
                read=partial(read_tar, pattern=f"{folder}/*.txt"),
                split_field="split",
                **options,
            ),
            Layout(
                columns,
                train=f"**/train/{folder}/*.txt",
                validation=f"**/dev/{folder}/*.txt",
                test=f"**/test/{folder}/*.txt",
                read=read_text_file,
                many=True,
                **options,
            ),
        ),
        hub=Hub(
            "ehovy/race",
            Layout(
                {name: field for name, field in columns.items() if name != "id"},
                train="train",
                validation="validation",
                test="test",
                first_choice="A",
                skip_empty=True,
            ),
            config=level,
        ),
    )


def _arc(name: str, part: str, description: str) -> TaskSpec:
    return TaskSpec(
        name=name,
        family="multiple-choice",
        description=description,
        metrics=("accuracy",),
        licence="CC BY-SA 4.0",
        source="https://allenai.org/data/arc",
        layouts=(
            replace(
                LETTERED_LAYOUT,
                train=f"{part}-Train.jsonl",
                validation=f"{part}-Dev.jsonl",
                test=f"{part}-Test.jsonl",
            ),
        ),
        hub=Hub(
            "allenai/ai2_arc",
            Layout(
                {"id": "id", "context": "question", "choices": "choices", "label": "answerKey"},
                train="train",
                validation="validation",
                test="test",
                prepare=_hub_choices,
                first_choice="A",
            ),
            config=part,
        ),
    )


MULTIPLE_CHOICE_TASKS = (
    TaskSpec(
        name="stories",
        family="multiple-choice",
        description="Which of two endings fits a four-sentence story; written for this project",
        metrics=("accuracy",),
        licence="Apache-2.0",
        source="the project's repository, scripts/data",
        default_dir=CARRIED_DATA,
        layouts=(
            Layout(
                {"id": "id", "context": "story", "choices": ("ending1", "ending2"), "label": "label"},
                train="stories.jsonl",
                validation="stories.jsonl",
                test="stories.jsonl",
                split_field="split",
            ),
        ),
    ),
    TaskSpec(
        name="rocstories",
        family="multiple-choice",
        description="Story Cloze: which of two endings fits a four-sentence story",
        metrics=("accuracy",),
        licence="research use, on the publisher's form",
        source="https://cs.rochester.edu/nlp/rocstories/",
        paper_score=86.5,
        # The release trains on the published validation part and holds out these rows of it (its datasets.py).
        cut=Cut(374, seed=3535999445),
        layouts=tuple(
            Layout(
                STORY_CLOZE_COLUMNS,
                train=f"cloze_test_val__{edition}*.csv",
                test=f"cloze_test_test__{edition}*.csv",
                first_choice=1,
            )
            for edition in ("spring2016", "winter2018")
        ),
    ),
    TaskSpec(
        name="copa",
        family="multiple-choice",
        description="Which of two alternatives is the more plausible cause or effect of a premise",
        metrics=("accuracy",),
        licence="BSD 2-clause (reported)",
        source="https://people.ict.usc.edu/~gordon/copa.html",
        # SuperGLUE's proportion: 400 to train on, 100 to validate.
        cut=Cut(100),
        layouts=(
            Layout(
                {
                    "id": "id",
                    "context": "p",
                    "question": "question",
                    "choices": ("a1", "a2"),
                    "label": "most-plausible-alternative",
                },
                train="copa-dev.xml",
                test="copa-test.xml",
                read=partial(read_xml, item="item"),
                prepare=_copa_item,
                first_choice=1,
            ),
        ),
        hub=Hub(
            "aps/super_glue",
            Layout(
                {"context": "premise", "question": "question", "choices": ("choice1", "choice2"), "label": "label"},
                train="train",
                validation="validation",
                test="test",
                prepare=_copa_item,
            ),
            revision=PARQUET_COPY,
            data_dir="copa",
        ),
    ),
    _race("race", "all", "Questions on passages of middle and high school English exams", 59.0),
    _race("race_middle", "middle", "Questions on passages of middle school English exams", 62.9),
    _race("race_high", "high", "Questions on passages of high school English exams", 57.4),
    TaskSpec(
        name="openbookqa",
        family="multiple-choice",
        description="Elementary science questions with four choices",
        metrics=("accuracy",),
        licence="Apache-2.0",
        source="https://allenai.org/data/open-book-qa",
        layouts=(replace(LETTERED_LAYOUT, train="train.jsonl", validation="dev.jsonl", test="test.jsonl"),),
        hub=Hub(
            "allenai/openbookqa",
            Layout(
                {"id": "id", "context": "question_stem", "choices": "choices", "label": "answerKey"},
                train="train",
                validation="validation",
                test="test",
                prepare=_hub_choices,
                first_choice="A",
            ),
            config="main",
        ),
    ),
    _arc("arc_easy", "ARC-Easy", "School science questions that word matching can answer"),
    _arc("arc_challenge", "ARC-Challenge", "School science questions that word matching cannot answer"),
    TaskSpec(
        name="commonsenseqa",
        family="multiple-choice",
        description="Questions of common knowledge with five choices",
        metrics=("accuracy",),
        licence="MIT",
        source="https://www.tau-nlp.org/commonsenseqa",
        # The same question can stand in several items.
        test_cut=Cut(0.1, group_by=("context",)),
        layouts=(
            replace(
                LETTERED_LAYOUT,
                train="train_rand_split.jsonl",
                validation="dev_rand_split.jsonl",
                test="test_rand_split_no_answers.jsonl",
            ),
        ),
        hub=Hub(
            "tau/commonsense_qa",
            Layout(
                {"id": "id", "context": "question", "choices": "choices", "label": "answerKey"},
                train="train",
                validation="validation",
                test="test",
                prepare=_hub_choices,
                first_choice="A",
            ),
        ),
    ),
    TaskSpec(
        name="swag",
        family="multiple-choice",
        description="Which of four endings goes on from a video's caption",
        metrics=("accuracy",),
        licence="MIT",
        source="https://github.com/rowanz/swagaf",
        test_cut=Cut(0.05, group_by=("context",)),
        layouts=(Layout(SWAG_COLUMNS, train="train.csv", validation="val.csv", test="test.csv"),),
        hub=Hub(
            "allenai/swag",
            Layout(SWAG_COLUMNS, train="train", validation="validation", test="test"),
            config="regular",
        ),
    ),
    TaskSpec(
        name="hellaswag",
        family="multiple-choice",
        description="Which of four endings goes on from a caption or a how-to",
        metrics=("accuracy",),
        licence="MIT",
        source="https://github.com/rowanz/hellaswag",
        test_cut=Cut(0.05, group_by=("context",)),
        layouts=(HELLASWAG_LAYOUT,),
        hub=Hub(
            "Rowan/hellaswag",
            replace(HELLASWAG_LAYOUT, train="train", validation="validation", test="test"),
            revision=PARQUET_COPY,
        ),
    ),
    TaskSpec(
        name="codah",
        family="multiple-choice",
        description="Which of four endings fits, written to fool models; the first of five folds",
        metrics=("accuracy",),
        licence="ODC-BY 1.0",
        source="https://github.com/Websail-NU/CODAH (data/cv_split/fold_0)",
        layouts=(replace(CODAH_LAYOUT, train="train.tsv", validation="dev.tsv", test="test.tsv"),),
        hub=Hub(
            "jaredfern/codah",
            Layout(
                # The misspelling is the Hub's.
                {"context": "question_propmt", "choices": "candidate_answers", "label": "correct_answer_idx"},
                train="train",
                validation="validation",
                test="test",
            ),
            config="fold_0",
        ),
    ),
)
