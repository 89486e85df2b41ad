"""A few lines of the bundled and the first tasks, as published: files, first row, rows of each split."""

from ..task_files import choice_row, jsonl, pair_row

STORY_HEADER = (
    "InputStoryid,InputSentence1,InputSentence2,InputSentence3,InputSentence4,"
    "RandomFifthSentenceQuiz1,RandomFifthSentenceQuiz2,AnswerRightEnding\n"
)


def story_lines(count, first=0):
    numbers = range(first, first + count)
    return "".join(f's{i},One.,"Two, too.",Three.,Four {i}.,Wrong {i}.,Right {i}.,2\n' for i in numbers)


def question(key, answer, *choices):
    stem = {"stem": "Ice is", "choices": [{"text": c, "label": "ABCDE"[i]} for i, c in enumerate(choices)]}
    return {"id": key, "question": stem} | ({"answerKey": answer} if answer else {})


def copa_xml(*items, doctype='<!DOCTYPE copa-corpus SYSTEM "copa.dtd">'):
    body = "".join(
        f'  <item id="{i}" asks-for="{asks}" most-plausible-alternative="{answer}">\n'
        f"    <p>It rained {i} times &amp; more.</p>\n    <a1>Wet.</a1>\n    <a2>Dry.</a2>\n  </item>\n"
        for i, (asks, answer) in enumerate(items, 1)
    )
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{doctype}\n<copa-corpus version="1.0">\n{body}</copa-corpus>\n'


COPA_TEST = copa_xml(("cause", 1))
COPA_TRAIN = copa_xml(*[("cause", 1), ("effect", 2)] * 60)
OWN_QUESTIONS = [
    {"id": f"q{i}", "text": f"Who is number {i} ?", "label": label, "split": split}
    for i, (label, split) in enumerate([("HUM", "train"), ("NUM", "train"), ("LOC", "validation"), ("ABBR", "test")])
]
STORY = {"story": "A. B. C. D.", "ending2": "F."}
OWN_STORIES = [
    STORY | {"id": f"s{i}", "split": split, "ending1": f"E{i}.", "label": i % 2, "twin": i}
    for i, split in enumerate(("train", "validation", "test"))
]
SNLI = {"gold_label": "neutral", "sentence1": "A man eats.", "sentence2": "A man eats lunch.", "pairID": "1"}
FIRST_STORIES = "cloze_test_val__spring2016 - cloze_test_ALL_val.csv"
LAST_STORIES = "cloze_test_test__spring2016 - cloze_test_ALL_test.csv"
ONE_OF_EACH = {"train": 1, "validation": 1, "test": 1}
FORMATS = {
    "questions": (
        {"questions.jsonl": jsonl(*OWN_QUESTIONS)},
        {"id": "q0", "text": "Who is number 0 ?", "label": 3},
        {"train": 2, "validation": 1, "test": 1},
    ),
    "stories": (
        {"stories.jsonl": jsonl(*OWN_STORIES)},
        choice_row("s0", "A. B. C. D.", ["E0.", "F."], 0),
        ONE_OF_EACH,
    ),
    "trec": (
        {
            "train_5500.label": "".join(f"NUM:dist How far is s\xe9n {i} ?\n" for i in range(10)).encode("iso-8859-1"),
            "TREC_10.label": "HUM:ind Who was Galileo ?\n",
        },
        {"id": "0", "text": "How far is sén 0 ?", "label": 5},
        {"train": 9, "validation": 1, "test": 1},
    ),
    "trec50": (
        {
            "train_5500.label": "".join(f"ABBR:exp What is A{i} ?\n" for i in range(10)),
            "TREC_10.label": "NUM:weight What is it ?\n",
        },
        {"id": "0", "text": "What is A0 ?", "label": 1},
        {"train": 9, "validation": 1, "test": 1},
    ),
    "sst2": (
        {
            "train.tsv.gz": 'sentence\tlabel\n"a quote , never closed \t1\nbland \t0\n',
            "dev.tsv.xz": "\ufeffsentence\tlabel\r\nfine \t1\r\n",
            "test.tsv": "index\tsentence\n0\tunknown worth\n",
        },
        {"id": "0", "text": '"a quote , never closed', "label": 1},
        {"train": 2, "validation": 1, "test": 1},
    ),
    "snli": (
        {
            "snli_1.0_train.jsonl": jsonl(SNLI, SNLI | {"gold_label": "-"}),
            "snli_1.0_dev.jsonl": jsonl(SNLI),
            "snli_1.0_test.jsonl": jsonl(SNLI),
        },
        pair_row("1", "A man eats.", "A man eats lunch.", 1),
        ONE_OF_EACH,
    ),
    "copa": (
        {"copa-dev.xml": COPA_TRAIN, "copa-test.xml": COPA_TEST},
        None,
        {"train": 20, "validation": 100, "test": 1},
    ),
    "openbookqa": (
        {
            "train.jsonl": jsonl(question("7-1", "B", "hot", "cold", "dry")),
            "dev.jsonl": jsonl(question("8-1", "A", "wet", "dry")),
            "test.jsonl": jsonl(question("9-1", None, "wet", "dry")),
        },
        choice_row("7-1", "Ice is", ["hot", "cold", "dry"], 1),
        ONE_OF_EACH,
    ),
    "rocstories": (
        {FIRST_STORIES: STORY_HEADER + story_lines(400), LAST_STORIES: STORY_HEADER + story_lines(3, 400)},
        None,
        {"train": 26, "validation": 374, "test": 3},
    ),
}
