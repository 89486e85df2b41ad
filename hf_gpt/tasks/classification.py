"""Tasks of one text: questions, TREC, SST-2, CoLA, IMDb and AG News."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import PurePosixPath
from typing import Any

from .readers import read_delimited, read_label_then_text, read_plain_tsv, read_tar, read_text_file
from .spec import CARRIED_DATA, GLUE, PARQUET_COPY, SINGLE_LABEL, Cut, Hub, Layout, TaskSpec

# Layouts that need more than names.


def _coarse_label(fields: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield {**fields, "label": fields["label"].partition(":")[0]}


def _review(fields: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A file of aclImdb: its folders are the split and the label."""
    split, label, name = PurePosixPath(fields["path"]).parts[-3:]
    item = {"id": f"{split}/{label}/{PurePosixPath(name).stem}", "split": split, "label": label}
    yield from _web_text({**item, "text": fields["text"]})


def _web_text(fields: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield {**fields, "text": fields["text"].replace("<br />", "\n")}


def _news(fields: dict[str, Any]) -> Iterator[dict[str, Any]]:
    text = fields["text"] if "text" in fields else f"{fields['title']} {fields['description']}"
    # The set's makers wrote line ends as backslashes.
    yield {**fields, "text": text.replace("\\", " ")}


def _hub_splits(**columns: str) -> Layout:
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
TREC_SOURCE = "https://cogcomp.seas.upenn.edu/Data/QA/QC/"
TREC_LAYOUT = Layout(
    {"text": "text", "label": "label"},
    train="train_5500.label",
    test="TREC_10.label",
    read=partial(read_label_then_text, encoding="iso-8859-1"),
)
COLA_COLUMNS = {"text": "sentence", "label": "label"}
COLA_READER = partial(read_plain_tsv, names=("source", "label", "mark", "sentence"))
REVIEW_COLUMNS = {"id": "id", "text": "text", "label": "label"}
# The three-letter folders are pos and neg; unsup holds reviews without labels.
REVIEW_FILES = "[np][eo][gs]/*.txt"
NEWS_LAYOUT = Layout(
    {"text": "text", "label": "class"},
    train="train.csv",
    test="test.csv",
    read=partial(read_delimited, names=("class", "title", "description")),
    prepare=_news,
    labels=("1", "2", "3", "4"),
)

CLASSIFICATION_TASKS = (
    TaskSpec(
        name="questions",
        family="classification",
        description="What a question asks for, in TREC's six coarse classes; written for this project",
        problem_type=SINGLE_LABEL,
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
        name="trec",
        family="classification",
        description="What a question asks for, in six coarse classes",
        problem_type=SINGLE_LABEL,
        label_names=QUESTION_LABELS,
        metrics=("accuracy", "f1_macro"),
        licence="none stated",
        source=TREC_SOURCE,
        # Some questions stand in the file twice.
        cut=Cut(0.1, group_by=("text",)),
        layouts=(replace(TREC_LAYOUT, prepare=_coarse_label),),
        hub=Hub(
            "CogComp/trec",
            replace(_hub_splits(text="text", label="coarse_label"), validation=None),
            revision=PARQUET_COPY,
        ),
    ),
    TaskSpec(
        name="trec50",
        family="classification",
        description="What a question asks for, in fifty fine classes",
        problem_type=SINGLE_LABEL,
        label_names=FINE_QUESTION_LABELS,
        metrics=("accuracy", "f1_macro"),
        licence="none stated",
        source=TREC_SOURCE,
        cut=Cut(0.1, group_by=("text",)),
        layouts=(TREC_LAYOUT,),
        hub=Hub(
            "CogComp/trec",
            replace(_hub_splits(text="text", label="fine_label"), validation=None),
            revision=PARQUET_COPY,
        ),
    ),
    TaskSpec(
        name="sst2",
        family="classification",
        description="Whether a phrase of a film review is negative or positive",
        problem_type=SINGLE_LABEL,
        label_names=("negative", "positive"),
        metrics=("accuracy",),
        licence="none stated (GLUE card: CC BY 4.0)",
        source="https://gluebenchmark.com/tasks",
        version=2,
        paper_score=91.3,
        # No test part is cut where test.tsv is missing: the phrases of one review stand all over the training file.
        layouts=(
            Layout(
                {"text": "sentence", "label": "label"},
                train="train.tsv",
                validation="dev.tsv",
                read=read_plain_tsv,
                labels=("0", "1"),
            ),
            Layout({"id": "index", "text": "sentence", "label": "label"}, test="test.tsv", read=read_plain_tsv),
        ),
        hub=Hub("stanfordnlp/sst2", _hub_splits(id="idx", text="sentence", label="label")),
    ),
    TaskSpec(
        name="cola",
        family="classification",
        description="Whether a sentence is acceptable English",
        problem_type=SINGLE_LABEL,
        label_names=("unacceptable", "acceptable"),
        metrics=("matthews_correlation", "accuracy"),
        licence="none stated; sentences from publications, research use (GLUE card: CC BY 4.0)",
        source="https://gluebenchmark.com/tasks (or https://nyu-mll.github.io/CoLA)",
        paper_score=45.4,
        # The authors keep the labels of their test part to themselves.
        test_cut=Cut(0.1, group_by=("text",)),
        layouts=(
            Layout(COLA_COLUMNS, train="train.tsv", validation="dev.tsv", read=COLA_READER, labels=("0", "1")),
            Layout({"id": "index", **COLA_COLUMNS}, test="test.tsv", read=read_plain_tsv, labels=("0", "1")),
            Layout(
                COLA_COLUMNS,
                train="in_domain_train.tsv",
                validation="in_domain_dev.tsv",
                read=COLA_READER,
                labels=("0", "1"),
            ),
        ),
        hub=Hub(GLUE, _hub_splits(id="idx", **COLA_COLUMNS), config="cola"),
    ),
    TaskSpec(
        name="imdb",
        family="classification",
        description="Whether a film review is negative or positive",
        problem_type=SINGLE_LABEL,
        label_names=("negative", "positive"),
        metrics=("accuracy",),
        licence="none stated; cite the paper",
        source="https://ai.stanford.edu/~amaas/data/sentiment/",
        cut=Cut(0.1, group_by=("text",)),
        layouts=(
            Layout(
                REVIEW_COLUMNS,
                train="aclImdb_v1.tar.gz",
                test="aclImdb_v1.tar.gz",
                read=partial(read_tar, pattern=REVIEW_FILES),
                prepare=_review,
                labels=("neg", "pos"),
                split_field="split",
            ),
            Layout(
                REVIEW_COLUMNS,
                train=f"**/train/{REVIEW_FILES}",
                test=f"**/test/{REVIEW_FILES}",
                read=read_text_file,
                prepare=_review,
                labels=("neg", "pos"),
                many=True,
            ),
        ),
        hub=Hub(
            "stanfordnlp/imdb",
            Layout(
                {"text": "text", "label": "label"},
                train="train",
                test="test",
                prepare=_web_text,
                labels=("neg", "pos"),
            ),
            config="plain_text",
        ),
    ),
    TaskSpec(
        name="ag_news",
        family="classification",
        description="Which of four sections a news item belongs to",
        problem_type=SINGLE_LABEL,
        label_names=("World", "Sports", "Business", "Sci/Tech"),
        metrics=("accuracy", "f1_macro"),
        licence="research, non-commercial",
        source="https://github.com/mhjabreel/CharCnn_Keras (data/ag_news_csv)",
        cut=Cut(0.05, group_by=("text",)),
        layouts=(NEWS_LAYOUT,),
        hub=Hub(
            "fancyzhx/ag_news",
            Layout({"text": "text", "label": "label"}, train="train", test="test", prepare=_news),
        ),
    ),
)
