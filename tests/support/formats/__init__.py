"""Every task in its publisher's format: name -> (files, first training row, rows of each split)."""

from . import classification, multiple_choice, others, pairs, question_answering, tagging

FORMATS = classification.FORMATS | pairs.FORMATS | multiple_choice.FORMATS | tagging.FORMATS
FORMATS |= question_answering.FORMATS | others.FORMATS
