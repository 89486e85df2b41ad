"""Tasks: every data set as one declarative, versioned `TaskSpec`, and `load_task`, which reads it.

    data = load_task("trec", "path/to/trec")
    data.splits["train"][0]   # {"id": "train-1", "text": "How did serfdom develop ...", "label": 1}
    data.notes["validation"]  # how that part was made

A further data set is one more entry below: which fields of which files become which column. The rows' columns are
described in `task_spec`, the file formats in `task_readers`, where rows come from in `task_loading`.
"""

import difflib
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from .custom_task import custom_task
from .task_loading import TaskData, load_spec
from .task_readers import read_label_then_text, read_plain_tsv, read_xml
from .task_spec import Cut, Hub, Layout, TaskSpec

__all__ = [
    "TASKS",
    "Cut",
    "Hub",
    "Layout",
    "TaskData",
    "TaskSpec",
    "custom_task",
    "get_task",
    "load_task",
    "task_table",
]

CARRIED_DATA = Path(__file__).resolve().parent.parent / "scripts" / "data"
# The parquet copies that the Hub makes of data sets whose own repository holds only a loading script.
PARQUET_COPY = "refs/convert/parquet"


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
        "answer": fields.get("answerKey"),
    }


def _coarse_label(fields: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield {**fields, "label": fields["label"].partition(":")[0]}


def _hub_openbookqa(fields: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield {**fields, "choices": fields["choices"]["text"]}


def _hub_sentences(**columns: str) -> Layout:
    return Layout(columns, train="train", validation="validation", test="test")


QUESTION_LABELS = ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM")
# fmt: off
FINE_QUESTION_LABELS = (
    "ABBR:abb", "ABBR:exp", "DESC:def", "DESC:desc", "DESC:manner", "DESC:reason", "ENTY:animal", "ENTY:body",
    "ENTY:color", "ENTY:cremat", "ENTY:currency", "ENTY:dismed", "ENTY:event", "ENTY:food", "ENTY:instru",
    "ENTY:lang", "ENTY:letter", "ENTY:other", "ENTY:plant", "ENTY:product", "ENTY:religion", "ENTY:sport",
    "ENTY:substance", "ENTY:symbol", "ENTY:techmeth", "ENTY:termeq", "ENTY:veh", "ENTY:word", "HUM:desc", "HUM:gr",
    "HUM:ind", "HUM:title", "LOC:city", "LOC:country", "LOC:mount", "LOC:other", "LOC:state", "NUM:code",
    "NUM:count", "NUM:date", "NUM:dist", "NUM:money", "NUM:ord", "NUM:other", "NUM:perc", "NUM:period", "NUM:speed",
    "NUM:temp", "NUM:volsize", "NUM:weight",
)
# fmt: on
INFERENCE_LABELS = ("entailment", "neutral", "contradiction")
TREC_SOURCE = "https://cogcomp.seas.upenn.edu/Data/QA/QC/"
TREC_LAYOUT = Layout(
    {"text": "text", "label": "label"},
    train="train_5500.label",
    test="TREC_10.label",
    read=partial(read_label_then_text, encoding="iso-8859-1"),
)
PAIR_COLUMNS = {"premise": "premise", "hypothesis": "hypothesis", "label": "label"}
STORY_CLOZE_COLUMNS = {
    "id": "InputStoryid",
    "context": ("InputSentence1", "InputSentence2", "InputSentence3", "InputSentence4"),
    "choices": ("RandomFifthSentenceQuiz1", "RandomFifthSentenceQuiz2"),
    "label": "AnswerRightEnding",
}

_TASKS = (
    TaskSpec(
        name="questions",
        family="classification",
        description="What a question asks for, in TREC's six coarse classes; written for this project",
        problem_type="single_label_classification",
        label_names=QUESTION_LABELS,
        metrics=("accuracy", "f1_macro"),
        licence="Apache-2.0",
        source="the project's repository, scripts/data",
        default_dir=CARRIED_DATA,
        layouts=(
            Layout(
                {"id": "id", "text": "text", "label": "label"},
                train="questions.jsonl",
                validation="questions.jsonl",
                test="questions.jsonl",
                split_field="split",
            ),
        ),
    ),
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
    TaskSpec(
        name="openbookqa",
        family="multiple-choice",
        description="Elementary science questions with four choices",
        metrics=("accuracy",),
        licence="Apache-2.0",
        source="https://allenai.org/data/open-book-qa",
        layouts=(
            Layout(
                {"id": "id", "context": "stem", "choices": "choices", "label": "answer"},
                train="train.jsonl",
                validation="dev.jsonl",
                test="test.jsonl",
                prepare=_lettered_question,
                first_choice="A",
            ),
        ),
        hub=Hub(
            "allenai/openbookqa",
            Layout(
                {"id": "id", "context": "question_stem", "choices": "choices", "label": "answerKey"},
                train="train",
                validation="validation",
                test="test",
                prepare=_hub_openbookqa,
                first_choice="A",
            ),
            config="main",
        ),
    ),
    TaskSpec(
        name="snli",
        family="entailment",
        description="Whether a caption entails, contradicts or leaves open a sentence",
        problem_type="single_label_classification",
        label_names=INFERENCE_LABELS,
        metrics=("accuracy",),
        licence="CC BY-SA 4.0",
        source="https://nlp.stanford.edu/projects/snli/",
        paper_score=89.9,
        layouts=(
            Layout(
                {"id": "pairID", "premise": "sentence1", "hypothesis": "sentence2", "label": "gold_label"},
                train="snli_1.0_train.jsonl",
                validation="snli_1.0_dev.jsonl",
                test="snli_1.0_test.jsonl",
                skip_labels=("-",),
            ),
            Layout(PAIR_COLUMNS, train="train.csv", validation="dev.csv", test="test.csv", skip_labels=("-",)),
        ),
        hub=Hub("stanfordnlp/snli", replace(_hub_sentences(**PAIR_COLUMNS), skip_labels=("-1",))),
    ),
    TaskSpec(
        name="sst2",
        family="classification",
        description="Whether a phrase of a film review is negative or positive",
        problem_type="single_label_classification",
        label_names=("negative", "positive"),
        metrics=("accuracy",),
        licence="none stated (GLUE card: CC BY 4.0)",
        source="https://gluebenchmark.com/tasks",
        paper_score=91.3,
        layouts=(
            Layout(
                {"text": "sentence", "label": "label"},
                train="train.tsv",
                validation="dev.tsv",
                test="test.tsv",
                read=read_plain_tsv,
                labels=("0", "1"),
            ),
        ),
        hub=Hub("stanfordnlp/sst2", _hub_sentences(text="sentence", label="label")),
    ),
    TaskSpec(
        name="trec",
        family="classification",
        description="What a question asks for, in six coarse classes",
        problem_type="single_label_classification",
        label_names=QUESTION_LABELS,
        metrics=("accuracy", "f1_macro"),
        licence="none stated",
        source=TREC_SOURCE,
        # Some questions stand in the file twice.
        cut=Cut(0.1, group_by=("text",)),
        layouts=(replace(TREC_LAYOUT, prepare=_coarse_label),),
        hub=Hub(
            "CogComp/trec",
            replace(_hub_sentences(text="text", label="coarse_label"), validation=None),
            revision=PARQUET_COPY,
        ),
    ),
    TaskSpec(
        name="trec50",
        family="classification",
        description="What a question asks for, in fifty fine classes",
        problem_type="single_label_classification",
        label_names=FINE_QUESTION_LABELS,
        metrics=("accuracy", "f1_macro"),
        licence="none stated",
        source=TREC_SOURCE,
        cut=Cut(0.1, group_by=("text",)),
        layouts=(TREC_LAYOUT,),
        hub=Hub(
            "CogComp/trec",
            replace(_hub_sentences(text="text", label="fine_label"), validation=None),
            revision=PARQUET_COPY,
        ),
    ),
)
TASKS: dict[str, TaskSpec] = {spec.name: spec for spec in _TASKS}


def get_task(name: str) -> TaskSpec:
    """
    The task of that name.

    Raises:
        `ValueError`: when there is none, listing those there are and the nearest name.
    """
    if name in TASKS:
        return TASKS[name]
    if name == "custom":
        raise ValueError("The task 'custom' needs its files and columns: build it with custom_task(...).")
    near = difflib.get_close_matches(name.lower(), TASKS, n=1)
    guess = f" Did you mean {near[0]!r}?" if near else ""
    raise ValueError(f"There is no task {name!r}.{guess} Known tasks: {', '.join(sorted(TASKS))}, custom.")


def task_table() -> list[dict[str, str]]:
    """One row of printable fields for each task, in the order of the registry."""
    return [
        {
            "task": spec.name,
            "family": spec.family,
            "labels": str(len(spec.label_names)) if spec.label_names else "-",
            "metrics": ", ".join(spec.metrics),
            "paper": f"{spec.paper_score:.1f}" if spec.paper_score is not None else "-",
            "hub": spec.hub_id or ("carried" if spec.default_dir else "-"),
            "files": "; ".join(", ".join(names) for names in spec.files.values() if names),
            "licence": spec.licence,
            "description": spec.description,
        }
        for spec in TASKS.values()
    ]


def load_task(
    task: str | TaskSpec,
    data_dir: str | os.PathLike[str] | None = None,
    *,
    seed: int | None = None,
    splits: Sequence[str] | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
) -> TaskData:
    """Reads a task given by its name, or by its `TaskSpec`; arguments and errors are those of `load_spec`."""
    spec = get_task(task) if isinstance(task, str) else task
    return load_spec(spec, data_dir, seed=seed, splits=splits, cache_dir=cache_dir)
