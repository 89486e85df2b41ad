"""A few lines of multiple-choice tasks, as their publishers write them: files, first row, rows of each split."""

import json

from ..task_files import choice_row, jsonl, tsv


def passage(key, *answers):
    numbers = range(len(answers))
    row = {"id": key, "article": f"The story of {key}.\n\nIt ends.", "answers": list(answers)}
    row |= {"questions": [f"What is _ {i} ?" for i in numbers], "options": [["a", "b", "c", f"d{i}"] for i in numbers]}
    return json.dumps(row)


RACE = {
    f"RACE/{split}/{level}/{number}.txt": passage(f"{level}{number}.txt", *answers)
    for split in ("train", "dev", "test")
    for level, number, answers in (("middle", 1, "DA"), ("middle", 2, "B"), ("high", 7, "C"))
}
RACE_ROW = choice_row(
    "middle1.txt-0", "The story of middle1.txt.\n\nIt ends.", ["a", "b", "c", "d0"], 3, question="What is _ 0 ?"
)


def lettered(answer, *choices, labels="ABCDE"):
    texts = [{"label": label, "text": text} for label, text in zip(labels, choices, strict=False)]
    item = {"id": "q1", "question": {"stem": "Ice is", "choices": texts, "question_concept": "ice"}}
    return jsonl(item | ({"answerKey": answer} if answer else {}))


def arc(part):
    train = lettered("2", "hot", "cold", "dry", labels="1234") + lettered("C", "hot", "cold", "dry")
    return {f"{part}-{name}.jsonl": train for name in ("Train", "Dev", "Test")}


ARC_ROW = choice_row("q1", "Ice is", ["hot", "cold", "dry"], 1)
SWAG_HEADER = ",video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,ending2,ending3"
SWAG_LINE = '0,v1,34,"He sits, then she",He sits.,"then she",gold,stands.,"sits, too.",flies.,eats.'
HELLASWAG = {
    "ind": 4,
    "activity_label": "Baking",
    "ctx_a": "[header] How to bake [title] Take flour.",
    "ctx_b": "then",
    "ctx": "[header] How to bake [title] Take flour. [step] Mix it. then",
    "split_type": "indomain",
    "endings": ["bake it. [substeps] Wait.", "eat.", "run.", "sing."],
    "source_id": "wikihow~1",
}
BAKED = "Baking: How to bake. Take flour. Mix it. then"
CODAH = tsv(("i", "He", 'says "no".', "flies.", "eats.", "sits.", 2), ("o", "She", "a.", "b.", "c.", "d.", 0))


def of_each(number):
    return {"train": number, "validation": number, "test": number}


FORMATS = {
    "race": (RACE, None, of_each(4)),
    "race_middle": (RACE, RACE_ROW, of_each(3)),
    "race_high": (RACE, None, of_each(1)),
    "arc_easy": (arc("ARC-Easy"), ARC_ROW, of_each(2)),
    "arc_challenge": (arc("ARC-Challenge"), ARC_ROW, of_each(2)),
    "commonsenseqa": (
        {
            "train_rand_split.jsonl": lettered("B", *"vwxyz"),
            "dev_rand_split.jsonl": lettered("E", *"vwxyz"),
            "test_rand_split_no_answers.jsonl": lettered(None, *"vwxyz"),
        },
        choice_row("q1", "Ice is", "vwxyz", 1),
        of_each(1),
    ),
    "swag": (
        {
            "train.csv": f"{SWAG_HEADER},label\n{SWAG_LINE},1\n",
            "val.csv": f"{SWAG_HEADER},label\n{SWAG_LINE},3\n",
            "test.csv": f"{SWAG_HEADER}\n{SWAG_LINE}\n",
        },
        choice_row("0", "He sits, then she", ["stands.", "sits, too.", "flies.", "eats."], 1),
        of_each(1),
    ),
    "hellaswag": (
        {
            "hellaswag_train.jsonl": jsonl(HELLASWAG | {"label": 0}),
            "hellaswag_val.jsonl": jsonl(HELLASWAG | {"label": 3}),
            "hellaswag_test.jsonl": jsonl(HELLASWAG),
        },
        choice_row("0", BAKED, ["bake it. Wait.", "eat.", "run.", "sing."], 0),
        of_each(1),
    ),
    "codah": (
        dict.fromkeys(("train.tsv", "dev.tsv", "test.tsv"), CODAH),
        choice_row("0", "He", ['says "no".', "flies.", "eats.", "sits."], 2),
        of_each(2),
    ),
}
