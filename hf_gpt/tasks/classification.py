"""Tasks of one text: questions, TREC, SST-2 and SST-5, CoLA, IMDb and AG News."""

import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import PurePosixPath
from typing import Any

from .families import CARRIED, GLUE_LICENCE, GLUE_SOURCE, PARQUET_COPY, files, glue_files, glue_hub, hub, text_task
from .readers import read_delimited, read_label_then_text, read_plain_tsv, read_tar, read_text_file
from .spec import Cut, Layout, TaskSpec


def _coarse_label(fields: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield {**fields, "label": fields["label"].partition(":")[0]}


def _sentence_of_tree(fields: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A line such as `(3 (2 It) (4 works))`: the score of the whole and the words; all parts have scores."""
    tree = f"{fields['label']} {fields['text']}"
    if not re.fullmatch(r"\([0-4] .*\)", tree) or tree.count("(") != tree.count(")"):
        raise ValueError(f"{tree[:40]!r} is no tree in brackets with a score from 0 to 4")
    text = " ".join(re.findall(r"\([0-4] ([^\s()]+)\)", tree))
    for written, meant in {"-LRB-": "(", "-RRB-": ")", "\\/": "/", "\\*": "*"}.items():
        text = text.replace(written, meant)
    yield {"label": tree[1], "text": text}


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
WITH_F1 = ("accuracy", "f1_macro")
TEXT = {"text": "text", "label": "label"}
FIVE_SCORES = ("0", "1", "2", "3", "4")
# Equal texts stay on one side of a cut.
TEXT_CUT = Cut(0.1, group_by=("text",))
# The three-letter folders are pos and neg; unsup holds reviews without labels.
REVIEW_FILES = "[np][eo][gs]/*.txt"
REVIEWS: dict[str, Any] = {"prepare": _review, "labels": ("neg", "pos")}
COLA = {"text": "sentence", "label": "label"}
COLA_FILES: dict[str, Any] = {
    "read": partial(read_plain_tsv, names=("source", "label", "mark", "sentence")),
    "labels": ("0", "1"),
}


def _trec(name: str, number: str, kind: str, labels: tuple[str, ...], prepare: Callable | None = None) -> TaskSpec:
    return text_task(
        name,
        f"What a question asks for, in {number} {kind} classes",
        labels,
        Layout(
            TEXT,
            train="train_5500.label",
            test="TREC_10.label",
            read=partial(read_label_then_text, encoding="iso-8859-1"),
            prepare=prepare,
        ),
        hub=hub(
            "CogComp/trec",
            {"text": "text", "label": f"{kind}_label"},
            revision=PARQUET_COPY,
            validation=None,
        ),
        metrics=WITH_F1,
        cut=TEXT_CUT,  # some questions stand in the file twice
        licence="none stated",
        source=TREC_SOURCE,
    )


CLASSIFICATION_TASKS = (
    text_task(
        "questions",
        "What a question asks for, in TREC's six coarse classes; written for this project",
        QUESTION_LABELS,
        files("questions.jsonl", {"id": "id", **TEXT}, split_field="split"),
        metrics=WITH_F1,
        **CARRIED,
    ),
    _trec("trec", "six", "coarse", QUESTION_LABELS, _coarse_label),
    _trec("trec50", "fifty", "fine", FINE_QUESTION_LABELS),
    text_task(
        "sst2",
        "Whether a phrase of a film review is negative or positive",
        ("negative", "positive"),
        # No test part is cut where test.tsv is missing: the phrases of one review stand all over the training file.
        Layout(COLA, train="train.tsv", validation="dev.tsv", read=read_plain_tsv, labels=("0", "1")),
        glue_files(COLA, train=None, validation=None),
        hub=hub("stanfordnlp/sst2", {"id": "idx", **COLA}),
        version=2,
        paper_score=91.3,
        licence=GLUE_LICENCE,
        source=GLUE_SOURCE,
    ),
    text_task(
        "sst5",
        "How negative or positive a sentence of a film review is, in five classes",
        ("very negative", "negative", "neutral", "positive", "very positive"),
        *(
            files(pattern, TEXT, read=read_label_then_text, prepare=_sentence_of_tree, labels=FIVE_SCORES)
            for pattern in ("{}.txt", "trees/{}.txt")
        ),
        hub=hub("SetFit/sst5", TEXT, labels=FIVE_SCORES),
        metrics=WITH_F1,
        licence="none stated",
        source="https://nlp.stanford.edu/sentiment (trainDevTestTrees_PTB.zip)",
    ),
    text_task(
        "cola",
        "Whether a sentence is acceptable English",
        ("unacceptable", "acceptable"),
        Layout(COLA, train="train.tsv", validation="dev.tsv", **COLA_FILES),
        glue_files(COLA, train=None, validation=None, labels=("0", "1")),
        Layout(COLA, train="in_domain_train.tsv", validation="in_domain_dev.tsv", **COLA_FILES),
        hub=glue_hub("cola", COLA),
        metrics=("matthews_correlation", "accuracy"),
        test_cut=TEXT_CUT,  # the authors keep the labels of their test part to themselves
        paper_score=45.4,
        licence="none stated; sentences from publications, research use (GLUE card: CC BY 4.0)",
        source="https://gluebenchmark.com/tasks (or https://nyu-mll.github.io/CoLA)",
    ),
    text_task(
        "imdb",
        "Whether a film review is negative or positive",
        ("negative", "positive"),
        Layout(
            {"id": "id", **TEXT},
            train="aclImdb_v1.tar.gz",
            test="aclImdb_v1.tar.gz",
            read=partial(read_tar, pattern=REVIEW_FILES),
            split_field="split",
            **REVIEWS,
        ),
        Layout(
            {"id": "id", **TEXT},
            train=f"**/train/{REVIEW_FILES}",
            test=f"**/test/{REVIEW_FILES}",
            read=read_text_file,
            many=True,
            **REVIEWS,
        ),
        hub=hub("stanfordnlp/imdb", TEXT, "plain_text", validation=None, prepare=_web_text, labels=REVIEWS["labels"]),
        cut=TEXT_CUT,
        licence="none stated; cite the paper",
        source="https://ai.stanford.edu/~amaas/data/sentiment/",
    ),
    text_task(
        "ag_news",
        "Which of four sections a news item belongs to",
        ("World", "Sports", "Business", "Sci/Tech"),
        Layout(
            {"text": "text", "label": "class"},
            train="train.csv",
            test="test.csv",
            read=partial(read_delimited, names=("class", "title", "description")),
            prepare=_news,
            labels=("1", "2", "3", "4"),
        ),
        hub=hub("fancyzhx/ag_news", TEXT, validation=None, prepare=_news),
        metrics=WITH_F1,
        cut=Cut(0.05, group_by=("text",)),
        licence="research, non-commercial",
        source="https://github.com/mhjabreel/CharCnn_Keras (data/ag_news_csv)",
    ),
)
