"""A few lines of multiple-choice tasks, as their publishers write them: files, first row, rows of each split."""

import json

from ..task_files import jsonl, tsv


def passage(key, *answers):
    return json.dumps(
        {
            "id": key,
            "article": f"The story of {key}.\n\nIt ends.",
            "questions": [f"What is _ {i} ?" for i in range(len(answers))],
            "options": [["a", "b", "c", f"d{i}"] for i in range(len(answers))],
            "answers": list(answers),
        }
    )


RACE = {
    f"RACE/{split}/{level}/{number}.txt": passage(f"{level}{number}.txt", *answers)
    for split in ("train", "dev", "test")
    for level, number, answers in (("middle", 1, "DA"), ("middle", 2, "B"), ("high", 7, "C"))
}
RACE_ROW = {
    "id": "middle1.txt-0",
    "context": "The story of middle1.txt.\n\nIt ends.",
    "question": "What is _ 0 ?",
    "choices": ["a", "b", "c", "d0"],
    "label": 3,
}


def lettered(answer, *choices, labels="ABCDE"):
    texts = [{"label": label, "text": text} for label, text in zip(labels, choices, strict=False)]
    item = {"id": "q1", "question": {"stem": "Ice is", "choices": texts, "question_concept": "ice"}}
    return item | ({"answerKey": answer} if answer else {})


def arc(part):
    train = jsonl(lettered("2", "hot", "cold", "dry", labels="1234"), lettered("C", "hot", "cold", "dry"))
    names = ("Train", "Dev", "Test")
    return {f"{part}-{name}.jsonl": train for name in names}


ARC_ROW = {"id": "q1", "context": "Ice is", "question": "", "choices": ["hot", "cold", "dry"], "label": 1}
SWAG_HEADER = ",video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,ending2,ending3"
SWAG_LINE = '0,v1,34,"He sits, then she",He sits.,"then she",gold,stands.,"sits, too.",flies.,eats.'
SWAG_ROW = {
    "id": "0",
    "context": "He sits, then she",
    "question": "",
    "choices": ["stands.", "sits, too.", "flies.", "eats."],
    "label": 1,
}
HELLASWAG = {
    "ind": 4,
    "activity_label": "Baking",
    "ctx_a": "[header] How to bake [title] Take flour.",
    "ctx_b": "then",
    "ctx": "[header] How to bake [title] Take flour. [step] Mix it. then",
    "split": "train",
    "split_type": "indomain",
    "endings": ["bake it. [substeps] Wait.", "eat.", "run.", "sing."],
    "source_id": "wikihow~1",
}
HELLASWAG_ROW = {
    "id": "0",
    "context": "Baking: How to bake. Take flour. Mix it. then",
    "question": "",
    "choices": ["bake it. Wait.", "eat.", "run.", "sing."],
    "label": 0,
}
CODAH = tsv(("i", "He", 'says "no".', "flies.", "eats.", "sits.", 2), ("o", "She", "a.", "b.", "c.", "d.", 0))
FORMATS = {
    "race": (RACE, None, {"train": 4, "validation": 4, "test": 4}),
    "race_middle": (RACE, RACE_ROW, {"train": 3, "validation": 3, "test": 3}),
    "race_high": (RACE, None, {"train": 1, "validation": 1, "test": 1}),
    "arc_easy": (arc("ARC-Easy"), ARC_ROW, {"train": 2, "validation": 2, "test": 2}),
    "arc_challenge": (arc("ARC-Challenge"), ARC_ROW, {"train": 2, "validation": 2, "test": 2}),
    "commonsenseqa": (
        {
            "train_rand_split.jsonl": jsonl(lettered("B", *"vwxyz")),
            "dev_rand_split.jsonl": jsonl(lettered("E", *"vwxyz")),
            "test_rand_split_no_answers.jsonl": jsonl(lettered(None, *"vwxyz")),
        },
        {"id": "q1", "context": "Ice is", "question": "", "choices": list("vwxyz"), "label": 1},
        {"train": 1, "validation": 1, "test": 1},
    ),
    "swag": (
        {
            "train.csv": f"{SWAG_HEADER},label\n{SWAG_LINE},1\n",
            "val.csv": f"{SWAG_HEADER},label\n{SWAG_LINE},3\n",
            "test.csv": f"{SWAG_HEADER}\n{SWAG_LINE}\n",
        },
        SWAG_ROW,
        {"train": 1, "validation": 1, "test": 1},
    ),
    "hellaswag": (
        {
            "hellaswag_train.jsonl": jsonl(HELLASWAG | {"label": 0}),
            "hellaswag_val.jsonl": jsonl(HELLASWAG | {"label": 3}),
            "hellaswag_test.jsonl": jsonl(HELLASWAG),
        },
        HELLASWAG_ROW,
        {"train": 1, "validation": 1, "test": 1},
    ),
    "codah": (
        dict.fromkeys(("train.tsv", "dev.tsv", "test.tsv"), CODAH),
        {
            "id": "0",
            "context": "He",
            "question": "",
            "choices": ['says "no".', "flies.", "eats.", "sits."],
            "label": 2,
        },
        {"train": 2, "validation": 2, "test": 2},
    ),
}
