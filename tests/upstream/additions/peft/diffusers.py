"""Stands in for diffusers, which peft's common tests import for models that do not run here."""


class StableDiffusionPipeline:
    pass
