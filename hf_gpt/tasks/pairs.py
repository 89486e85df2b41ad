"""Tasks of two texts: inference (SNLI, MNLI, QNLI, SciTail, RTE) and similarity (MRPC, QQP, STS-B)."""

from functools import partial

from .families import GLUE_LICENCE, GLUE_SOURCE, files, glue_files, glue_hub, hub, inference_task, similarity_task
from .readers import read_jsonl, read_plain_tsv, read_tsv
from .spec import Cut, Layout, TaskSpec

INFERENCE_LABELS = ("entailment", "neutral", "contradiction")
BINARY_INFERENCE_LABELS = ("entailment", "not_entailment")
PAIR = {"premise": "premise", "hypothesis": "hypothesis"}
SENTENCES = {"premise": "sentence1", "hypothesis": "sentence2"}
QUESTIONS = {"premise": "question1", "hypothesis": "question2"}
PARAPHRASE = {"premise": "#1 String", "hypothesis": "#2 String", "label": "Quality"}
STS_FIELDS = ("genre", "file", "year", "number", "score", "sentence1", "sentence2")
# One premise stands in several pairs.
PREMISE_CUT = Cut(0.1, group_by=("premise",))


def _mnli(name: str, genre: str, paper_score: float) -> TaskSpec:
    columns = {**SENTENCES, "label": "gold_label"}
    return inference_task(
        name,
        f"Whether a text entails, contradicts or leaves open a sentence; {genre}",
        INFERENCE_LABELS,
        Layout(
            {"id": "pairID", **columns},
            train="multinli_1.0_train.jsonl",
            validation=f"multinli_1.0_dev_{genre}.jsonl",
            test=f"multinli_*_test_{genre}_unlabeled.jsonl",
            skip_labels=("-",),
        ),
        glue_files(columns, validation=f"dev_{genre}.tsv", test=f"test_{genre}.tsv", skip_labels=("-",)),
        hub=glue_hub("mnli", PAIR, validation=f"validation_{genre}", test=f"test_{genre}"),
        test_cut=Cut(0.02, group_by=("premise",)),
        paper_score=paper_score,
        licence="OANC licence, parts CC BY 3.0 and CC BY-SA 3.0",
        source="https://cims.nyu.edu/~sbowman/multinli/",
    )


PAIR_TASKS = (
    inference_task(
        "snli",
        "Whether a caption entails, contradicts or leaves open a sentence",
        INFERENCE_LABELS,
        files("snli_1.0_{}.jsonl", {"id": "pairID", **SENTENCES, "label": "gold_label"}, skip_labels=("-",)),
        hub=hub("stanfordnlp/snli", {**PAIR, "label": "label"}, skip_labels=("-1",)),
        paper_score=89.9,
        licence="CC BY-SA 4.0",
        source="https://nlp.stanford.edu/projects/snli/",
    ),
    _mnli("mnli", "matched", 82.1),
    _mnli("mnli_mismatched", "mismatched", 81.4),
    inference_task(
        "qnli",
        "Whether a sentence holds the answer to a question",
        BINARY_INFERENCE_LABELS,
        glue_files({"premise": "question", "hypothesis": "sentence", "label": "label"}),
        hub=glue_hub("qnli", {"premise": "question", "hypothesis": "sentence"}),
        test_cut=Cut(0.05, group_by=("premise",)),
        paper_score=88.1,
        licence="CC BY-SA 4.0 (SQuAD, reported)",
        source=GLUE_SOURCE,
    ),
    inference_task(
        "scitail",
        "Whether a sentence from the web supports the answer to a science question",
        ("entailment", "neutral"),
        files(
            "scitail_1.0_{}.tsv",
            {**PAIR, "label": "label"},
            read=partial(read_plain_tsv, names=("premise", "hypothesis", "label")),
            labels=("entails", "neutral"),
        ),
        files("scitail_1.0_{}.txt", {**SENTENCES, "label": "gold_label"}, read=read_jsonl),
        hub=hub("allenai/scitail", {**PAIR, "label": "label"}, "tsv_format", labels=("entails", "neutral")),
        paper_score=88.3,
        licence="Apache-2.0",
        source="https://allenai.org/data/scitail",
    ),
    inference_task(
        "rte",
        "Whether a text entails a sentence",
        BINARY_INFERENCE_LABELS,
        glue_files({**SENTENCES, "label": "label"}),
        hub=glue_hub("rte", SENTENCES),
        cut=PREMISE_CUT,
        test_cut=PREMISE_CUT,
        paper_score=56.0,
        licence=GLUE_LICENCE,
        source=GLUE_SOURCE,
    ),
    similarity_task(
        "mrpc",
        "Whether two sentences from the news say the same",
        Layout(
            PARAPHRASE,
            train="msr_paraphrase_train.txt",
            test="msr_paraphrase_test.txt",
            read=read_plain_tsv,
            labels=("0", "1"),
        ),
        Layout(PARAPHRASE, train="train.tsv", validation="dev.tsv", read=read_plain_tsv, labels=("0", "1")),
        glue_files(PARAPHRASE, train=None, validation=None, labels=("0", "1")),
        hub=glue_hub("mrpc", SENTENCES),
        label_names=("not_equivalent", "equivalent"),
        metrics=("f1", "accuracy"),
        cut=PREMISE_CUT,
        paper_score=82.3,
        licence="Microsoft Research data licence, non-commercial (reported)",
        source="https://www.microsoft.com/en-us/download/details.aspx?id=52398",
    ),
    similarity_task(
        "qqp",
        "Whether two questions put to Quora ask the same",
        # Some rows of GLUE's file break off before the label, and some questions are empty.
        glue_files(
            {"id": "id", **QUESTIONS, "label": "is_duplicate"},
            read=partial(read_plain_tsv, short_rows=True),
            labels=("0", "1"),
            skip_labels=("",),
            skip_empty=True,
        ),
        # Quora's own file holds all rows, and no split.
        Layout(
            {"id": "id", **QUESTIONS, "label": "is_duplicate"},
            train="quora_duplicate_questions.tsv",
            read=read_tsv,
            labels=("0", "1"),
            skip_empty=True,
        ),
        hub=glue_hub("qqp", QUESTIONS, skip_empty=True),
        label_names=("not_duplicate", "duplicate"),
        metrics=("f1", "accuracy"),
        cut=PREMISE_CUT,
        test_cut=Cut(0.02, group_by=("premise",)),
        paper_score=70.3,
        licence="non-commercial, Quora's terms of service (reported)",
        source=GLUE_SOURCE,
    ),
    similarity_task(
        "stsb",
        "How similar two sentences are in meaning, from 0 to 5",
        files(
            "sts-{}.csv",
            {**SENTENCES, "label": "score"},
            read=partial(read_plain_tsv, names=STS_FIELDS, extra_fields=True),
        ),
        glue_files({**SENTENCES, "label": "score"}),
        hub=glue_hub("stsb", SENTENCES),
        score_range=(0, 5),
        metrics=("pearsonr", "spearmanr"),
        test_cut=PREMISE_CUT,
        paper_score=82.0,
        licence="scores CC BY-SA 4.0, texts under several licences (LICENSE.txt)",
        source="https://ixa2.si.ehu.eus/stswiki/index.php/STSbenchmark",
    ),
)
