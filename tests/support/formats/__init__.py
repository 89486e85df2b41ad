"""Every task in its publisher's format: name -> (files, first training row if it is known, rows of each split)."""

from pathlib import Path

import yaml

from ..task_files import choice_row
from . import question_answering

_DATA = Path(__file__).parents[2] / "data" / "formats.yaml"
_PUBLISHED = yaml.safe_load(_DATA.read_text(encoding="utf-8"))
FORMATS = {name: (entry["files"], entry["first"], entry["rows"]) for name, entry in _PUBLISHED.items()}
FORMATS |= question_answering.FORMATS
for name in ("trec", "trec50"):
    FORMATS[name][0].update({file: text.encode("iso-8859-1") for file, text in FORMATS[name][0].items()})

# Those of which fixed numbers of rows are held out.
STORY_HEADER = (
    "InputStoryid,InputSentence1,InputSentence2,InputSentence3,InputSentence4,"
    "RandomFifthSentenceQuiz1,RandomFifthSentenceQuiz2,AnswerRightEnding\n"
)


def stories(*numbers):
    rows = (f's{i},One.,"Two, too.",Three.,Four {i}.,Wrong {i}.,Right {i}.,2\n' for i in numbers)
    return STORY_HEADER + "".join(rows)


def copa_xml(*items, doctype='<!DOCTYPE copa-corpus SYSTEM "copa.dtd">'):
    body = "".join(
        f'  <item id="{i}" asks-for="{asks}" most-plausible-alternative="{answer}">\n'
        f"    <p>It rained {i} times &amp; more.</p>\n    <a1>Wet.</a1>\n    <a2>Dry.</a2>\n  </item>\n"
        for i, (asks, answer) in enumerate(items, 1)
    )
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{doctype}\n<copa-corpus version="1.0">\n{body}</copa-corpus>\n'


STORY_FILES = {
    "cloze_test_val__spring2016 - cloze_test_ALL_val.csv": stories(*range(400)),
    "cloze_test_test__spring2016 - cloze_test_ALL_test.csv": stories(400, 401, 402),
}
COPA_FILES = {
    "copa-dev.xml": copa_xml(*[("cause", 1), ("effect", 2)] * 60),
    "copa-test.xml": copa_xml(("cause", 1)),
}
FORMATS["rocstories"] = (STORY_FILES, None, {"train": 26, "validation": 374, "test": 3})
FORMATS["copa"] = (COPA_FILES, None, {"train": 20, "validation": 100, "test": 1})

OTHER_STORIES = {
    "cloze_test_val__winter2018-cloze_test_ALL_val - 1 - 1.csv": stories(*range(400)),
    "cloze_test_test__winter2018-x.csv.xz": STORY_HEADER.replace(",AnswerRightEnding", "")
    + "t1,One.,Two.,Three.,Four.,X.,Y.\n",
}
# Other names of the same files: files, a split, its first row, and how many rows that has.
OTHER_NAMES = {name: (*entry["other"].values(),) for name, entry in _PUBLISHED.items() if "other" in entry}
FIRST_STORY = choice_row("t1", "One. Two. Three. Four.", ["X.", "Y."], -100)
OTHER_NAMES["rocstories"] = (OTHER_STORIES, "test", FIRST_STORY, 1)
