"""A few lines of tasks of words, as their publishers write them: files, first row, rows of each split."""


def treebank_line(index, form, tag):
    return "\t".join([index, form, form.lower(), tag, "_", "_", "0", "root", "_", "_"]) + "\n"


# A range of two words, and a word that is not written.
SENTENCE = "".join(
    treebank_line(*line)
    for line in [
        ("1", "She", "PRON"),
        ("2-3", "don't", "_"),
        ("2", "do", "AUX"),
        ("3", "n't", "PART"),
        ("3.1", "do", "VERB"),
        ("4", "#1", "NUM"),
    ]
)
TREEBANK = f"# newdoc\n# sent_id = weblog-1\n# text = She don't #1\n{SENTENCE}\n# sent_id = weblog-2\n{SENTENCE}\n"
NEWS = (
    "-DOCSTART- -X- -X- O\n\nU.N. NNP I-NP I-ORG\nofficial NN I-NP O\nRolf NNP I-NP I-PER\nEkeus NNP I-NP I-PER\n"
    "\nSouth NNP I-NP I-LOC\nKorea NNP I-NP I-LOC\nJapan NNP I-NP B-LOC\n# # I-NP O\n\n"
)
FORMATS = {
    "ud_pos": (
        {"en_ewt-ud-train.conllu.xz": TREEBANK, "en_ewt-ud-dev.conllu": TREEBANK, "en_ewt-ud-test.conllu": TREEBANK},
        {"id": "weblog-1", "words": ["She", "do", "n't", "#1"], "label": [10, 3, 9, 8]},
        {"train": 2, "validation": 2, "test": 2},
    ),
    "conll2003": (
        {"eng.train": NEWS, "eng.testa": NEWS, "eng.testb": NEWS.rstrip("\n")},
        {"id": "0", "words": ["U.N.", "official", "Rolf", "Ekeus"], "label": [3, 0, 1, 2]},
        {"train": 2, "validation": 2, "test": 2},
    ),
}
