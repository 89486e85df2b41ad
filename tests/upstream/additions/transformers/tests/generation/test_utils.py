"""Stands in where the sdist lacks transformers' tests of generation."""


class GenerationTesterMixin:
    pass
