"""Readers of files (`read_...`), and what makes items of a publisher's records; `catalogue.yaml` names both.

A reader gives a file's records one at a time, plain or `.gz` or `.xz`; a `ValueError` names the file and the place.
"""

import csv
import json
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain, compress
from pathlib import Path, PurePosixPath
from typing import Any
from xml.etree import ElementTree

from ..files import COMPRESSIONS, LARGEST_TEXT, open_bytes, read_text_lines, reading

TREEBANK_COLUMNS = ("index", "form", "lemma", "upos", "xpos", "features", "head", "relation", "enhanced", "other")


Fields = dict[str, Any]
# One item of a file: where it stands, and its fields by name.
Record = tuple[str, Fields]


def field_of(fields: Fields, column: str) -> Any:
    """A field of a record; a `ValueError` with the columns there are, if this is none."""
    if column not in fields:
        raise ValueError(f"there is no column {column!r}; the columns are {', '.join(map(str, fields))}")
    return fields[column]


def read_table(
    path: Path,
    delimiter: str = ",",
    names: Sequence[str] | None = None,
    quoted: bool = True,
    ragged: bool = False,
    encoding: str = "utf-8",
) -> Iterator[Record]:
    """Rows of a CSV or TSV file; `names` are the columns without a header, `ragged` rows longer, or shorter (None)."""
    number, columns = 0, None

    def lines() -> Iterator[str]:
        nonlocal number
        for number, line in read_text_lines(path, encoding):  # noqa: B007 read where a row is named
            yield f"{line}\n"

    csv.field_size_limit(2**27)  # its own limit is shorter than some documents
    try:
        unquoted = (line.removesuffix("\n").split(delimiter) for line in lines())
        for row in csv.reader(lines(), delimiter=delimiter, strict=True) if quoted else unquoted:
            if len(row) < 2 and not "".join(row).strip():
                continue
            if columns is None:
                columns = [name.strip() for name in row]
                if names is None and len(set(columns)) < len(columns):
                    raise csv.Error(f"the header names a column twice ({', '.join(columns)})")
                if names is None or set(columns) & set(names):
                    continue
                columns = names
            if len(row) != len(columns) and not ragged:
                raise csv.Error(f"{len(row)} fields where {len(columns)} were expected ({', '.join(columns)})")
            row += [None] * (len(columns) - len(row))
            yield f"{path}, line {number}", dict(zip(columns, row, strict=False))
    except (csv.Error, TypeError) as error:
        raise ValueError(f"{path}, line {number}: {error}.") from error


def read_jsonl(path: Path, encoding: str = "utf-8", **of_tables: Any) -> Iterator[Record]:
    """Objects of a JSON lines file, one per line; blank lines are passed over."""
    for number, line in read_text_lines(path, encoding):
        if line.strip():
            with reading(where := f"{path}, line {number}"):
                fields = json.loads(line)
                if not isinstance(fields, dict):
                    raise ValueError(f"a JSON object was expected, a {type(fields).__name__} was found")
                if "\\ud" in line or "\\uD" in line:  # half of a surrogate pair cannot be written
                    json.dumps(fields, ensure_ascii=False).encode()
            yield where, fields


def read_text(path: Path, encoding: str = "utf-8", keep_blank: bool = False) -> Iterator[Record]:
    """Lines of a text file, each a record with the field `text`; blank ones are passed over unless they are kept."""
    for number, line in read_text_lines(path, encoding):
        if keep_blank or line.strip():
            yield f"{path}, line {number}", {"text": line}


def read_document(path: Path) -> Iterator[Record]:
    """A whole text file as one record with the fields `path` and `text`."""
    text = "\n".join(line for _, line in read_text_lines(path))
    yield f"{path}, item 1", {"path": path.as_posix(), "text": text}


def read_sentences(path: Path, names: Sequence[str], delimiter: str | None = None) -> Iterator[Record]:
    """CoNLL: a line per word, a blank one between sentences, whose fields are lists; CoNLL-U has `# name = value`."""
    fields: dict[str, Any] = {}
    first = 0
    for number, line in chain(read_text_lines(path), [(0, "")]):
        if not line.strip():
            if first:
                yield f"{path}, line {first}", fields
            fields, first = {}, 0
        elif delimiter == "\t" and line.startswith("#"):
            name, equals, value = line[1:].partition("=")
            fields |= {name.strip(): value.strip()} if equals else {}
        else:
            first, cells = first or number, line.split(delimiter)
            if len(cells) != len(names):
                raise ValueError(f"{path}, line {number}: {len(cells)} columns where {len(names)} were expected.")
            for name, cell in zip(names, cells, strict=True):
                fields.setdefault(name, []).append(cell)


def read_parquet(path: Path, **of_tables: Any) -> Iterator[Record]:
    """Rows of a Parquet file, read in batches."""
    from pyarrow import parquet

    with reading(path), parquet.ParquetFile(path) as file:
        rows = (fields for batch in file.iter_batches(batch_size=1024) for fields in batch.to_pylist())
        for number, fields in enumerate(rows, 1):
            yield f"{path}, row {number}", fields


def read_xml(path: Path, item: str) -> Iterator[Record]:
    """Elements named `item` of an XML file: their attributes and the text of their children, as fields."""
    with open_bytes(path) as file:
        root = ElementTree.fromstring(file.read(LARGEST_TEXT))
    for number, element in enumerate(root.iter(item), 1):
        yield f"{path}, {item} {number}", element.attrib | {child.tag: child.text for child in element}


def read_squad(path: Path) -> Iterator[Record]:
    """Questions of a JSON file as SQuAD 1.1 nests them, with the fields of the Hub's copy."""
    with reading(path):
        articles = json.loads("\n".join(line for _, line in read_text_lines(path)))["data"]
        paragraphs = (paragraph for article in articles for paragraph in article["paragraphs"])
        items = ((paragraph["context"], item) for paragraph in paragraphs for item in paragraph["qas"])
        for number, (context, item) in enumerate(items, 1):
            answers = item.get("answers") or ()
            lists = {name: [answer[name] for answer in answers] for name in ("text", "answer_start")}
            fields = {"id": item["id"], "question": item["question"], "context": context, "answers": lists}
            yield f"{path}, question {number}", fields


# Tab-separated where a quote is a character like any other, as in GLUE; CoNLL-U.
read_plain_tsv = partial(read_table, delimiter="\t", quoted=False)
read_treebank = partial(read_sentences, names=TREEBANK_COLUMNS, delimiter="\t")
READERS_BY_SUFFIX: dict[str, Callable[..., Iterator[Record]]] = {
    ".csv": read_table,
    ".tsv": partial(read_table, delimiter="\t"),
    **dict.fromkeys((".jsonl", ".ndjson", ".json"), read_jsonl),
    ".parquet": read_parquet,
}


def read_by_suffix(path: Path, **of_tables: Any) -> Iterator[Record]:
    """The records of a file in the format that its name says; `of_tables` are further arguments of `read_table`."""
    suffixes = [suffix.lower() for suffix in path.suffixes if suffix.lower() not in COMPRESSIONS]
    reader = READERS_BY_SUFFIX.get(suffixes[-1]) if suffixes else None
    if reader is None:
        raise ValueError(f"{path}: the name must end in {', '.join(READERS_BY_SUFFIX)}, or that and .gz or .xz.")
    return reader(path, **of_tables)


# From a publisher's record to the fields of one or more items.


def typed_question(fields: Fields) -> Iterator[Fields]:
    """A line of TREC: class and subclass with a colon between them, a space, the question."""
    label, _, text = fields["text"].partition(" ")
    yield {"label": label, "class": label.partition(":")[0], "text": text}


def sentence_of_tree(fields: Fields) -> Iterator[Fields]:
    """A line such as `(3 (2 It) (4 works))`: the score of the whole and the words; all parts have scores."""
    tree = fields["text"].strip()
    if not re.fullmatch(r"\([0-4] .*\)", tree) or tree.count("(") != tree.count(")"):
        raise ValueError(f"{tree[:40]!r} is no tree in brackets with a score from 0 to 4")
    text = " ".join(re.findall(r"\([0-4] ([^\s()]+)\)", tree))
    for written, meant in {"-LRB-": "(", "-RRB-": ")", "\\/": "/", "\\*": "*"}.items():
        text = text.replace(written, meant)
    yield {"label": tree[1], "text": text}


def review(fields: Fields) -> Iterator[Fields]:
    """A review of aclImdb: its folders are the split and the label."""
    if "path" in fields:
        split, label, name = PurePosixPath(fields["path"]).parts[-3:]
        fields = {"id": f"{split}/{label}/{PurePosixPath(name).stem}", "label": label, "text": fields["text"]}
    yield {**fields, "text": fields["text"].replace("<br />", "\n")}


def news(fields: Fields) -> Iterator[Fields]:
    """A row of AG News, on the Hub with its text, in the makers' files with title and description."""
    text = fields["text"] if "text" in fields else f"{fields['title']} {fields['description']}"
    yield {**fields, "text": text.replace("\\", " ")}  # which the set's makers wrote for line ends


def copa_item(fields: Fields) -> Iterator[Fields]:
    """The question as the authors put it to people (Roemmele et al., 2011)."""
    questions = {"cause": "What was the cause of this?", "effect": "What happened as a result?"}
    yield {**fields, "question": questions[fields["asks-for"] if "asks-for" in fields else fields["question"]]}


def lettered_question(fields: Fields) -> Iterator[Fields]:
    """OpenBookQA, CommonsenseQA and ARC: choices labelled by letters (in some exams numbers); lists on the Hub."""
    question, answer = fields.get("question"), fields.get("answerKey")
    if isinstance(question, dict):
        choices = sorted(question["choices"], key=lambda choice: choice["label"])
        fields = {**fields, "stem": question["stem"], "choices": {"text": [choice["text"] for choice in choices]}}
    if answer and answer in "123456789":
        answer = "ABCDEFGHI"[int(answer) - 1]
    yield {**fields, "choices": fields["choices"]["text"], "answerKey": answer}


def passage(fields: Fields) -> Iterator[Fields]:
    """A file of RACE: a passage with several questions."""
    passage = json.loads(fields["text"])
    items = zip(passage["questions"], passage["options"], passage["answers"], strict=True)
    for number, (question, options, answer) in enumerate(items):
        item = {"article": passage["article"], "question": question, "options": options, "answer": answer}
        yield {"id": f"{passage['id']}-{number}", **item}


def activity(fields: Fields) -> Iterator[Fields]:
    """HellaSwag's context behind the name of its activity; WikiHow's mark-up is no text."""
    context = re.sub(r"\s*\[title\]\s*", ". ", f"{fields['activity_label']}: {fields['ctx']}")
    marks = re.compile(r"\s*\[(?:header|title|step|substeps)\]\s*")
    context, *endings = (marks.sub(" ", text).strip() for text in (context, *fields["endings"]))
    yield {**fields, "context": context, "endings": endings}


def words_of_treebank(fields: Fields) -> Iterator[Fields]:
    """
    Without the ranges (2-3; on the Hub of the tag _), which are several words as they are written, and without words
    that are not written (2.1).
    """
    is_word = [*map(str.isdecimal, fields["index"])] if "index" in fields else [tag != "_" for tag in fields["upos"]]
    words = fields["form"] if "form" in fields else fields["tokens"]
    yield {**fields, "words": [*compress(words, is_word)], "tags": [*compress(fields["upos"], is_word)]}


def entities(fields: Fields) -> Iterator[Fields]:
    """A sentence with B- before every entity; the publisher has it only where two of a kind meet."""
    if fields["word"] == ["-DOCSTART-"]:
        return
    pairs = zip(["O", *fields["entity"]], fields["entity"], strict=False)
    tags = [f"B-{tag[2:]}" if tag.startswith("I-") and before[1:] != tag[1:] else tag for before, tag in pairs]
    yield {**fields, "entity": tags}
