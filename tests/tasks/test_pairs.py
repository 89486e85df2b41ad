"""Tasks of two texts in each publisher's layout, what broken rows and hidden labels become, and the real files."""

import math

import pytest

from hf_gpt.tasks import load_task

from ..support.formats.pairs import FORMATS, MRPC, MRPC_HEADER, QQP, RTE, STS_FILES, sts_lines
from ..support.task_files import jsonl, label_counts, rows_of, tsv, write

pytestmark = pytest.mark.usefixtures("own_datasets_cache")


STS_HEADER = "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2"


def test_mnli_in_its_authors_files(tmp_path):
    pair = {"gold_label": "neutral", "sentence1": "A.", "sentence2": "B.", "pairID": "7n", "genre": "fiction"}
    unknown = pair | {"gold_label": "hidden"}
    write(
        tmp_path,
        {
            "multinli_1.0_train.jsonl": jsonl(pair),
            "multinli_1.0_dev_matched.jsonl": jsonl(pair, pair | {"gold_label": "-"}),
            "multinli_0.9_test_matched_unlabeled.jsonl": jsonl({**unknown, "gold_label": ""}),
        },
    )
    data = load_task("mnli", tmp_path)
    assert rows_of(data)[0] == {"id": "7n", "premise": "A.", "hypothesis": "B.", "label": 1}
    assert data.notes["validation"].endswith("1 rows, 1 more left out for want of a gold label")
    assert rows_of(data, "test")[0]["label"] == -1


def test_scitail_as_json(tmp_path):
    pair = {"gold_label": "entailment", "sentence1": "Ice.", "sentence2": "Ice is.", "annotator_labels": []}
    data = load_task("scitail", write(tmp_path, {f"scitail_1.0_{part}.txt": jsonl(pair) for part in ("train", "dev")}))
    assert rows_of(data)[0] == {"id": "0", "premise": "Ice.", "hypothesis": "Ice is.", "label": 0}
    assert data.notes["test"] == "left out: there is no scitail_1.0_test.tsv or scitail_1.0_test.txt"


def test_mrpc_in_glues_files_numbers_its_test_rows(tmp_path):
    test = tsv(("index", *MRPC_HEADER), (0, 1, 2, "A.", "B."))
    data = load_task("mrpc", write(tmp_path, {"train.tsv": MRPC, "dev.tsv": MRPC, "test.tsv": test}))
    assert dict(data.splits.num_rows) == {"train": 20, "validation": 20, "test": 1}
    assert rows_of(data, "test")[0] == {"id": "0", "premise": "A.", "hypothesis": "B.", "label": -1}


def test_qqp_leaves_out_broken_rows_and_keeps_every_test_row(tmp_path):
    broken = QQP + "4\t3\t4\tWhy?\n5\t5\t6\tHow?\t\t0\n"
    data = load_task("qqp", write(tmp_path, FORMATS["qqp"][0] | {"train.tsv": broken}))
    assert data.splits["train"].num_rows == 1
    # The first lacks its second question as well.
    assert data.notes["train"] == "train.tsv: 1 rows, 2 more left out for an empty text"
    assert rows_of(data, "test")[0] == {"id": "0", "premise": "Who?", "hypothesis": "", "label": -1}


def test_qqp_leaves_out_rows_that_break_off_before_the_label(tmp_path):
    data = load_task("qqp", write(tmp_path, FORMATS["qqp"][0] | {"train.tsv": QQP + "4\t3\t4\tWhy?\tHow?\n"}))
    assert data.notes["train"] == "train.tsv: 1 rows, 1 more left out for want of a gold label"


def test_quoras_own_file_is_cut_into_three_parts(tmp_path):
    header = QQP.partition("\n")[0]
    rows = "".join(f'{i}\t1\t2\t"Is it ""{i // 2}""?"\tWhy {i}?\t{i % 2}\n' for i in range(100))
    data = load_task("qqp", write(tmp_path, {"quora_duplicate_questions.tsv": f"{header}\n{rows}"}))
    assert dict(data.splits.num_rows) == {"train": 88, "validation": 10, "test": 2}
    premises = [set(part["premise"]) for part in data.splits.values()]
    assert not premises[0] & premises[1]
    assert not premises[0] & premises[2]
    assert not premises[1] & premises[2]
    assert data.notes["train"].startswith("quora_duplicate_questions.tsv: 100 rows; 10 cut off for validation")
    assert 'Is it "0"?' in set.union(*premises)


def test_similarity_scores_have_a_bin_for_each_whole_score(tmp_path):
    data = load_task("stsb", write(tmp_path, STS_FILES))
    assert data.spec.num_labels == 6
    assert data.splits["train"]["label"][:] == pytest.approx([4.4, 0.0, 5.0])


def test_sts_in_glues_files(tmp_path):
    row = "0\tmain\tnews\t2014\t1\tnone\tnone\tA.\tB."
    files = dict.fromkeys(("train.tsv", "dev.tsv"), f"{STS_HEADER}\tscore\n{row}\t3.25\n")
    data = load_task("stsb", write(tmp_path, files | {"test.tsv": f"{STS_HEADER}\n{row}\n"}))
    assert rows_of(data)[0] == {"id": "0", "premise": "A.", "hypothesis": "B.", "label": 3.25}
    assert math.isnan(rows_of(data, "test")[0]["label"])


@pytest.mark.parametrize(
    ("name", "file", "content", "message"),
    [
        ("stsb", "sts-train.csv", sts_lines(4, 5.1), "line 2: the score '5.1' is not a number from 0 to 5"),
        ("stsb", "sts-train.csv", sts_lines("-1"), "line 1: the score '-1' is not a number from 0 to 5"),
        ("stsb", "sts-train.csv", "main\tnews\t2014\t1\t3\tA.\n", "line 1: 6 fields where 7 were expected"),
        ("scitail", "scitail_1.0_dev.tsv", "A.\tB.\tentailment\n", "line 1: .*not one of entails, neutral"),
        ("rte", "dev.tsv", RTE + "1\tA.\tB.\tneutral\n", "line 3: .*not one of entailment, not_entailment"),
        ("qnli", "test.tsv", "index\tquestion\tsentence\n0\tWho?\n", "line 2: 2 fields where 3 were expected"),
    ],
    ids=["score-too-high", "minus-one", "short-row", "label", "glue-label", "glue-short-row"],
)
def test_wrong_rows(name, file, content, message, tmp_path):
    write(tmp_path, FORMATS[name][0] | {file: content})
    with pytest.raises(ValueError, match=message):
        load_task(name, tmp_path)


def test_neither_training_file_nor_anything_to_cut_from(tmp_path):
    write(tmp_path, {"dev.tsv": RTE})
    with pytest.raises(FileNotFoundError, match=r"rte: the train file is missing.*train\.tsv"):
        load_task("rte", tmp_path)
    with pytest.raises(FileNotFoundError, match=r"rte: the test file is missing.*test\.tsv"):
        load_task("rte", tmp_path, splits=["test"])


@pytest.mark.whole
@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("mnli", {0: 5007, 1: 4408, 2: 4639}),
        ("qnli", {0: 2100, 1: 2100}),
        ("scitail", {0: 594, 1: 938}),
        ("rte", {0: 1249, 1: 1241}),
        ("snli", {0: 3325, 1: 3231, 2: 3275}),
    ],
)
def test_real_files(name, labels, real_folder):
    data = load_task(name, real_folder(name))
    assert label_counts(data, "train", "validation", "test") == labels
    column = "hypothesis" if name == "scitail" else "premise"
    texts = [set(part[column]) for part in data.splits.values()]
    assert sum(map(len, texts)) == len(set.union(*texts))


@pytest.mark.whole
def test_real_similarity_scores(real_folder):
    data = load_task("stsb", real_folder("stsb"))
    assert data.splits["validation"].num_rows == 1000
    assert data.splits["train"].num_rows + data.splits["test"].num_rows == 3749
    labels = data.splits["train"]["label"][:]
    assert (min(labels), max(labels)) == (0, 5)
