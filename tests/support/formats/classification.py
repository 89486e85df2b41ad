"""A few lines of tasks of one text, as their publishers write them: files, first row, rows of each split."""

from ..task_files import tsv

REVIEWS = {
    f"aclImdb/{split}/{label}/{number}_{rating}.txt": f"A {label} film, seen {number} times.<br />Really."
    for split in ("train", "test")
    for number in range(10)
    for label, rating in (("neg", 2), ("pos", 9))
}
NO_REVIEWS = {"aclImdb/README": "x", "aclImdb/train/unsup/0_0.txt": "x", "aclImdb/train/urls_neg.txt": "x"}
COLA_LINES = tsv(*[("xy99", number % 2, "*" * (1 - number % 2), f'He "reads {number} books.') for number in range(20)])
NEWS = "".join(f'"{number % 4 + 1}","Title {number}","It says ""stop"".\\It goes\\on."\n' for number in range(40))
TREES = "(3 (2 It) (4 (2 's) (4 (3 funny) (2 (2 -LRB-) (2 (2 1\\/2) (2 -RRB-))))))\n(0 Bad)\n"
FORMATS = {
    "sst5": (
        {f"trees/{name}.txt": TREES for name in ("train", "dev", "test")},
        {"id": "0", "text": "It 's funny ( 1/2 )", "label": 3},
        {"train": 2, "validation": 2, "test": 2},
    ),
    "cola": (
        {"train.tsv": COLA_LINES, "dev.tsv": COLA_LINES, "test.tsv": "index\tsentence\n0\tHe read.\n"},
        {"id": "0", "text": 'He "reads 0 books.', "label": 0},
        {"train": 20, "validation": 20, "test": 1},
    ),
    "imdb": (
        {**NO_REVIEWS, **REVIEWS},
        {"id": "train/neg/0_2", "text": "A neg film, seen 0 times.\nReally.", "label": 0},
        {"train": 18, "validation": 2, "test": 20},
    ),
    "ag_news": (
        {"train.csv": NEWS, "test.csv": NEWS},
        {"id": "0", "text": 'Title 0 It says "stop". It goes on.', "label": 0},
        {"train": 38, "validation": 2, "test": 40},
    ),
}
