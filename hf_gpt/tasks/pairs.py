"""Tasks of two texts: inference (SNLI, MNLI, QNLI, SciTail, RTE) and similarity (MRPC, QQP, STS-B)."""

from dataclasses import replace
from functools import partial
from typing import Any

from .readers import read_jsonl, read_plain_tsv, read_tsv
from .spec import GLUE, SINGLE_LABEL, Cut, Hub, Layout, TaskSpec

GLUE_SOURCE = "https://gluebenchmark.com/tasks"
GLUE_LICENCE = "none stated (GLUE card: CC BY 4.0)"
INFERENCE_LABELS = ("entailment", "neutral", "contradiction")
BINARY_INFERENCE_LABELS = ("entailment", "not_entailment")
PAIR_COLUMNS = {"premise": "premise", "hypothesis": "hypothesis", "label": "label"}
SENTENCE_COLUMNS = {"premise": "sentence1", "hypothesis": "sentence2", "label": "gold_label"}
QUORA_COLUMNS = {"id": "id", "premise": "question1", "hypothesis": "question2", "label": "is_duplicate"}
PARAPHRASE_COLUMNS = {"premise": "#1 String", "hypothesis": "#2 String", "label": "Quality"}
STS_FIELDS = ("genre", "file", "year", "number", "score", "sentence1", "sentence2")
# One premise stands in several pairs.
PREMISE_CUT = Cut(0.1, group_by=("premise",))


def _hub_splits(**columns: str) -> Layout:
    return Layout(columns, train="train", validation="validation", test="test")


def _glue_tsv(columns: dict[str, str], **options: Any) -> Layout:
    defaults = {"train": "train.tsv", "validation": "dev.tsv", "test": "test.tsv", "read": read_plain_tsv}
    return Layout(columns, **(defaults | options))


def _mnli(name: str, genre: str, paper_score: float) -> TaskSpec:
    return TaskSpec(
        name=name,
        family="entailment",
        description=f"Whether a text entails, contradicts or leaves open a sentence; {genre}",
        problem_type=SINGLE_LABEL,
        label_names=INFERENCE_LABELS,
        metrics=("accuracy",),
        licence="OANC licence, parts CC BY 3.0 and CC BY-SA 3.0",
        source="https://cims.nyu.edu/~sbowman/multinli/",
        paper_score=paper_score,
        test_cut=Cut(0.02, group_by=("premise",)),
        layouts=(
            Layout(
                {"id": "pairID", **SENTENCE_COLUMNS},
                train="multinli_1.0_train.jsonl",
                validation=f"multinli_1.0_dev_{genre}.jsonl",
                test=f"multinli_*_test_{genre}_unlabeled.jsonl",
                read=read_jsonl,
                skip_labels=("-",),
            ),
            _glue_tsv(
                {"id": "index", **SENTENCE_COLUMNS},
                validation=f"dev_{genre}.tsv",
                test=f"test_{genre}.tsv",
                skip_labels=("-",),
            ),
        ),
        hub=Hub(
            GLUE,
            Layout(
                {"id": "idx", **PAIR_COLUMNS},
                train="train",
                validation=f"validation_{genre}",
                test=f"test_{genre}",
            ),
            config="mnli",
        ),
    )


PAIR_TASKS = (
    TaskSpec(
        name="snli",
        family="entailment",
        description="Whether a caption entails, contradicts or leaves open a sentence",
        problem_type=SINGLE_LABEL,
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
        ),
        hub=Hub("stanfordnlp/snli", replace(_hub_splits(**PAIR_COLUMNS), skip_labels=("-1",))),
    ),
    _mnli("mnli", "matched", 82.1),
    _mnli("mnli_mismatched", "mismatched", 81.4),
    TaskSpec(
        name="qnli",
        family="entailment",
        description="Whether a sentence holds the answer to a question",
        problem_type=SINGLE_LABEL,
        label_names=BINARY_INFERENCE_LABELS,
        metrics=("accuracy",),
        licence="CC BY-SA 4.0 (SQuAD, reported)",
        source=GLUE_SOURCE,
        paper_score=88.1,
        test_cut=Cut(0.05, group_by=("premise",)),
        layouts=(_glue_tsv({"id": "index", "premise": "question", "hypothesis": "sentence", "label": "label"}),),
        hub=Hub(
            GLUE,
            _hub_splits(id="idx", premise="question", hypothesis="sentence", label="label"),
            config="qnli",
        ),
    ),
    TaskSpec(
        name="scitail",
        family="entailment",
        description="Whether a sentence from the web supports the answer to a science question",
        problem_type=SINGLE_LABEL,
        label_names=("entailment", "neutral"),
        metrics=("accuracy",),
        licence="Apache-2.0",
        source="https://allenai.org/data/scitail",
        paper_score=88.3,
        layouts=(
            Layout(
                PAIR_COLUMNS,
                train="scitail_1.0_train.tsv",
                validation="scitail_1.0_dev.tsv",
                test="scitail_1.0_test.tsv",
                read=partial(read_plain_tsv, names=("premise", "hypothesis", "label")),
                labels=("entails", "neutral"),
            ),
            Layout(
                SENTENCE_COLUMNS,
                train="scitail_1.0_train.txt",
                validation="scitail_1.0_dev.txt",
                test="scitail_1.0_test.txt",
                read=read_jsonl,
            ),
        ),
        hub=Hub(
            "allenai/scitail",
            replace(_hub_splits(**PAIR_COLUMNS), labels=("entails", "neutral")),
            config="tsv_format",
        ),
    ),
    TaskSpec(
        name="rte",
        family="entailment",
        description="Whether a text entails a sentence",
        problem_type=SINGLE_LABEL,
        label_names=BINARY_INFERENCE_LABELS,
        metrics=("accuracy",),
        licence=GLUE_LICENCE,
        source=GLUE_SOURCE,
        paper_score=56.0,
        cut=PREMISE_CUT,
        test_cut=PREMISE_CUT,
        layouts=(_glue_tsv({"id": "index", **SENTENCE_COLUMNS, "label": "label"}),),
        hub=Hub(
            GLUE,
            _hub_splits(id="idx", premise="sentence1", hypothesis="sentence2", label="label"),
            config="rte",
        ),
    ),
    TaskSpec(
        name="mrpc",
        family="similarity",
        description="Whether two sentences from the news say the same",
        problem_type=SINGLE_LABEL,
        label_names=("not_equivalent", "equivalent"),
        metrics=("f1", "accuracy"),
        licence="Microsoft Research data licence, non-commercial (reported)",
        source="https://www.microsoft.com/en-us/download/details.aspx?id=52398",
        paper_score=82.3,
        cut=Cut(0.1, group_by=("premise",)),
        layouts=(
            Layout(
                PARAPHRASE_COLUMNS,
                train="msr_paraphrase_train.txt",
                test="msr_paraphrase_test.txt",
                read=read_plain_tsv,
                labels=("0", "1"),
            ),
            _glue_tsv(PARAPHRASE_COLUMNS, test=None, labels=("0", "1")),
            _glue_tsv({"id": "index", **PARAPHRASE_COLUMNS}, train=None, validation=None, labels=("0", "1")),
        ),
        hub=Hub(
            GLUE,
            _hub_splits(id="idx", premise="sentence1", hypothesis="sentence2", label="label"),
            config="mrpc",
        ),
    ),
    TaskSpec(
        name="qqp",
        family="similarity",
        description="Whether two questions put to Quora ask the same",
        problem_type=SINGLE_LABEL,
        label_names=("not_duplicate", "duplicate"),
        metrics=("f1", "accuracy"),
        licence="non-commercial, Quora's terms of service (reported)",
        source=GLUE_SOURCE,
        paper_score=70.3,
        # Quora's own file holds all rows, and no split.
        cut=PREMISE_CUT,
        test_cut=Cut(0.02, group_by=("premise",)),
        layouts=(
            # Some rows of GLUE's file break off before the label, and some questions are empty.
            _glue_tsv(
                QUORA_COLUMNS,
                read=partial(read_plain_tsv, short_rows=True),
                labels=("0", "1"),
                skip_labels=("",),
                skip_empty=True,
            ),
            Layout(
                QUORA_COLUMNS,
                train="quora_duplicate_questions.tsv",
                read=read_tsv,
                labels=("0", "1"),
                skip_empty=True,
            ),
        ),
        hub=Hub(
            GLUE,
            replace(
                _hub_splits(id="idx", premise="question1", hypothesis="question2", label="label"), skip_empty=True
            ),
            config="qqp",
        ),
    ),
    TaskSpec(
        name="stsb",
        family="similarity",
        description="How similar two sentences are in meaning, from 0 to 5",
        problem_type="ordinal",
        score_range=(0, 5),
        metrics=("pearsonr", "spearmanr"),
        licence="scores CC BY-SA 4.0, texts under several licences (LICENSE.txt)",
        source="https://ixa2.si.ehu.eus/stswiki/index.php/STSbenchmark",
        paper_score=82.0,
        test_cut=PREMISE_CUT,
        layouts=(
            Layout(
                {"premise": "sentence1", "hypothesis": "sentence2", "label": "score"},
                train="sts-train.csv",
                validation="sts-dev.csv",
                test="sts-test.csv",
                read=partial(read_plain_tsv, names=STS_FIELDS, extra_fields=True),
            ),
            _glue_tsv({"id": "index", "premise": "sentence1", "hypothesis": "sentence2", "label": "score"}),
        ),
        hub=Hub(
            GLUE,
            _hub_splits(id="idx", premise="sentence1", hypothesis="sentence2", label="label"),
            config="stsb",
        ),
    ),
)
