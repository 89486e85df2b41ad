"""A few lines of tasks of two texts, as their publishers write them: files, first row, rows of each split."""

import pytest

from ..task_files import pair_row, tsv

PARSES = ("promptID", "pairID", "genre", "sentence1_binary_parse", "sentence2_binary_parse")
MNLI_HEADER = ("index", *PARSES, "sentence1_parse", "sentence2_parse", "sentence1", "sentence2")


def mnli_tsv(*labels):
    """With the columns of labels where there are any."""
    parses = ("fiction", "( )", "( )", "(R)", "(R)")
    rows = [
        (i, 1, f"p{i}", *parses, f'He "ate {i}.', "He ate.", *([label] * 2 if label else ()))
        for i, label in enumerate(labels)
    ]
    return tsv((*MNLI_HEADER, *(("label1", "gold_label") if labels[0] else ())), *rows)


def glue_tsv(names, *rows):
    return tsv(("index", *names), *[(i, *row) for i, row in enumerate(rows)])


QNLI = glue_tsv(("question", "sentence", "label"), ("Who ate?", 'A "man" ate.', "not_entailment"))
RTE = glue_tsv(("sentence1", "sentence2", "label"), ("A man ate.", "Someone ate.", "entailment"))
SCITAIL = tsv(('Ice is "cold.', "Ice is cold.", "entails"), ("Ice is.", "Ice is hot.", "neutral"))
MRPC_HEADER = ("#1 ID", "#2 ID", "#1 String", "#2 String")
MRPC = "\ufeff" + tsv(("Quality", *MRPC_HEADER), *[(i % 2, i, i, f"He said {i}.", '"So') for i in range(20)])
QQP = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n3\t1\t2\tWho?\tWho is it?\t1\n"


def sts_lines(*scores):
    return tsv(*[("main", "news", 2014, i, score, f'A "man {i}.', f"Someone {i}.") for i, score in enumerate(scores)])


STS_FILES = {
    "sts-train.csv": sts_lines(4.4, 0.0) + "main\tnews\t2015\t9\t5\tA.\tB.\thttp://x\thttp://y\n",
    "sts-dev.csv": sts_lines(2.5),
    "sts-test.csv": sts_lines(5),
}
ONE_OF_EACH = {"train": 1, "validation": 1, "test": 1}
FORMATS = {
    "mnli": (
        {
            "train.tsv": mnli_tsv("neutral", "entailment"),
            "dev_matched.tsv": mnli_tsv("contradiction"),
            "test_matched.tsv": mnli_tsv("", ""),
        },
        pair_row("0", 'He "ate 0.', "He ate.", 1),
        {"train": 2, "validation": 1, "test": 2},
    ),
    "mnli_mismatched": (
        {
            "train.tsv": mnli_tsv("neutral"),
            "dev_mismatched.tsv": mnli_tsv("contradiction"),
            "test_mismatched.tsv": mnli_tsv(""),
            "dev_matched.tsv": "not read",
        },
        pair_row("0", 'He "ate 0.', "He ate.", 1),
        ONE_OF_EACH,
    ),
    "qnli": (
        {"train.tsv": QNLI, "dev.tsv": QNLI, "test.tsv": "index\tquestion\tsentence\n0\tWho?\tHe.\n"},
        pair_row("0", "Who ate?", 'A "man" ate.', 1),
        ONE_OF_EACH,
    ),
    "scitail": (
        {f"scitail_1.0_{part}.tsv": SCITAIL for part in ("train", "dev", "test")},
        pair_row("0", 'Ice is "cold.', "Ice is cold.", 0),
        {"train": 2, "validation": 2, "test": 2},
    ),
    "rte": (
        {"train.tsv": RTE, "dev.tsv": RTE, "test.tsv": "index\tsentence1\tsentence2\n0\tHe ate.\tHe.\n"},
        pair_row("0", "A man ate.", "Someone ate.", 0),
        ONE_OF_EACH,
    ),
    "mrpc": (
        {"msr_paraphrase_train.txt": MRPC, "msr_paraphrase_test.txt": MRPC},
        None,
        {"train": 18, "validation": 2, "test": 20},
    ),
    "qqp": (
        {"train.tsv": QQP, "dev.tsv": QQP, "test.tsv": "id\tquestion1\tquestion2\n0\tWho?\t\n"},
        pair_row("3", "Who?", "Who is it?", 1),
        ONE_OF_EACH,
    ),
    "stsb": (
        STS_FILES,
        pair_row("0", 'A "man 0.', "Someone 0.", pytest.approx(4.4)),
        {"train": 3, "validation": 1, "test": 1},
    ),
}
