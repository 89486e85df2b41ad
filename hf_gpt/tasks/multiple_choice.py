"""Tasks with choices: stories, Story Cloze, COPA, RACE, OpenBookQA, ARC, CommonsenseQA, SWAG, HellaSwag and CODAH."""

import json
import re
from collections.abc import Iterator
from functools import partial
from pathlib import PurePosixPath
from typing import Any

from .families import CARRIED, PARQUET_COPY, choice_task, files, hub
from .readers import read_plain_tsv, read_tar, read_text_file, read_xml
from .spec import Cut, Layout, TaskSpec


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


STORY_CLOZE = {
    "id": "InputStoryid",
    "context": ("InputSentence1", "InputSentence2", "InputSentence3", "InputSentence4"),
    "choices": ("RandomFifthSentenceQuiz1", "RandomFifthSentenceQuiz2"),
    "label": "AnswerRightEnding",
}
ENDINGS = ("ending0", "ending1", "ending2", "ending3")
SWAG = {"context": "startphrase", "choices": ENDINGS, "label": "label"}
HELLASWAG = {"context": "context", "choices": "endings", "label": "label"}


def _race(name: str, level: str, schools: str, paper_score: float) -> TaskSpec:
    folder = {"all": "[hm]i*"}.get(level, level)
    columns = {"context": "article", "question": "question", "choices": "options", "label": "answer"}
    options: dict[str, Any] = {"first_choice": "A", "skip_empty": True}
    passages = {"columns": {"id": "id", **columns}, "prepare": _passage, **options}
    return choice_task(
        name,
        f"Questions on passages of {schools} school English exams",
        files("RACE.tar.gz", read=partial(read_tar, pattern=f"{folder}/*.txt"), split_field="split", **passages),
        files(f"**/{{}}/{folder}/*.txt", read=read_text_file, many=True, **passages),
        hub=hub("ehovy/race", columns, level, **options),
        paper_score=paper_score,
        licence="non-commercial research",
        source="https://www.cs.cmu.edu/~glai1/data/race/",
    )


def _exam(
    name: str, description: str, layout: dict[str, Any], hub_id: str, config: str | None = None, **facts: Any
) -> TaskSpec:
    """Questions whose choices have letters: OpenBookQA, ARC and CommonsenseQA."""
    stem = "question_stem" if name == "openbookqa" else "question"
    return choice_task(
        name,
        description,
        files(
            columns={"id": "id", "context": "stem", "choices": "choices", "label": "answer"},
            prepare=_lettered_question,
            first_choice="A",
            **layout,
        ),
        hub=hub(
            hub_id,
            {"id": "id", "context": stem, "choices": "choices", "label": "answerKey"},
            config,
            prepare=_hub_choices,
            first_choice="A",
        ),
        **facts,
    )


def _arc(name: str, part: str, can: str) -> TaskSpec:
    return _exam(
        name,
        f"School science questions that word matching {can} answer",
        {"pattern": f"{part}-{{}}.jsonl", "names": ("Train", "Dev", "Test")},
        "allenai/ai2_arc",
        part,
        licence="CC BY-SA 4.0",
        source="https://allenai.org/data/arc",
    )


MULTIPLE_CHOICE_TASKS = (
    choice_task(
        "stories",
        "Which of two endings fits a four-sentence story; written for this project",
        files(
            "stories.jsonl",
            {"id": "id", "context": "story", "choices": ("ending1", "ending2"), "label": "label"},
            split_field="split",
        ),
        **CARRIED,
    ),
    choice_task(
        "rocstories",
        "Story Cloze: which of two endings fits a four-sentence story",
        *(
            Layout(
                STORY_CLOZE,
                train=f"cloze_test_val__{edition}*.csv",
                test=f"cloze_test_test__{edition}*.csv",
                first_choice=1,
            )
            for edition in ("spring2016", "winter2018")
        ),
        # The release trains on the published validation part and holds out these rows of it (its datasets.py).
        cut=Cut(374, seed=3535999445),
        paper_score=86.5,
        licence="research use, on the publisher's form",
        source="https://cs.rochester.edu/nlp/rocstories/",
    ),
    choice_task(
        "copa",
        "Which of two alternatives is the more plausible cause or effect of a premise",
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
        hub=hub(
            "aps/super_glue",
            {"context": "premise", "question": "question", "choices": ("choice1", "choice2"), "label": "label"},
            prepare=_copa_item,
            revision=PARQUET_COPY,
            data_dir="copa",
        ),
        cut=Cut(100),  # SuperGLUE's proportion: 400 to train on, 100 to validate
        licence="BSD 2-clause (reported)",
        source="https://people.ict.usc.edu/~gordon/copa.html",
    ),
    _race("race", "all", "middle and high", 59.0),
    _race("race_middle", "middle", "middle", 62.9),
    _race("race_high", "high", "high", 57.4),
    _exam(
        "openbookqa",
        "Elementary science questions with four choices",
        {"pattern": "{}.jsonl"},
        "allenai/openbookqa",
        "main",
        licence="Apache-2.0",
        source="https://allenai.org/data/open-book-qa",
    ),
    _arc("arc_easy", "ARC-Easy", "can"),
    _arc("arc_challenge", "ARC-Challenge", "cannot"),
    _exam(
        "commonsenseqa",
        "Questions of common knowledge with five choices",
        {"pattern": "{}.jsonl", "names": ("train_rand_split", "dev_rand_split", "test_rand_split_no_answers")},
        "tau/commonsense_qa",
        test_cut=Cut(0.1, group_by=("context",)),  # the same question can stand in several items
        licence="MIT",
        source="https://www.tau-nlp.org/commonsenseqa",
    ),
    choice_task(
        "swag",
        "Which of four endings goes on from a video's caption",
        files("{}.csv", SWAG, ("train", "val", "test")),
        hub=hub("allenai/swag", SWAG, "regular"),
        test_cut=Cut(0.05, group_by=("context",)),
        licence="MIT",
        source="https://github.com/rowanz/swagaf",
    ),
    choice_task(
        "hellaswag",
        "Which of four endings goes on from a caption or a how-to",
        files("hellaswag_{}.jsonl", HELLASWAG, ("train", "val", "test"), prepare=_activity),
        hub=hub("Rowan/hellaswag", HELLASWAG, revision=PARQUET_COPY, prepare=_activity),
        test_cut=Cut(0.05, group_by=("context",)),
        licence="MIT",
        source="https://github.com/rowanz/hellaswag",
    ),
    choice_task(
        "codah",
        "Which of four endings fits, written to fool models; the first of five folds",
        files(
            "{}.tsv",
            {"context": "prompt", "choices": ENDINGS, "label": "answer"},
            read=partial(read_plain_tsv, names=("category", "prompt", *ENDINGS, "answer")),
        ),
        hub=hub(
            "jaredfern/codah",
            # The misspelling is the Hub's.
            {"context": "question_propmt", "choices": "candidate_answers", "label": "correct_answer_idx"},
            "fold_0",
        ),
        licence="ODC-BY 1.0",
        source="https://github.com/Websail-NU/CODAH (data/cv_split/fold_0)",
    ),
)
