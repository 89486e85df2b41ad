"""transformers' common tests of models on hf_gpt's classes, in four configurations."""

import unittest

import torch
from tests.generation.test_utils import GenerationTesterMixin
from tests.test_configuration_common import ConfigTester
from tests.test_modeling_common import ModelTesterMixin, ids_tensor
from tests.test_pipeline_mixin import PipelineTesterMixin
from tests.test_training_mixin import TrainingTesterMixin
from transformers.models.auto import modeling_auto
from transformers.testing_utils import torch_device

import hf_gpt
from hf_gpt import GPTConfig, GPTModel
from hf_gpt.model.modeling_gpt import HEADS

# By these names the tests choose labels and inputs, as for a model inside transformers.
modeling_auto.MODEL_MAPPING_NAMES[GPTConfig.model_type] = GPTModel.__name__
for head, model_class in HEADS.items():
    if model_class is not GPTModel:
        names = getattr(modeling_auto, f"MODEL_FOR_{head.upper().replace('-', '_')}_MAPPING_NAMES")
        names[GPTConfig.model_type] = model_class.__name__


class GPTModelTester:
    """Makes the tiny configurations and inputs that the common tests ask for."""

    base_model_class = GPTModel
    causal_lm_class = hf_gpt.GPTForCausalLM
    sequence_classification_class = hf_gpt.GPTForSequenceClassification
    is_training = True
    batch_size, seq_length, num_choices = 13, 7, 4
    vocab_size, hidden_size, num_hidden_layers, num_attention_heads = 99, 32, 2, 4

    def __init__(self, **config):
        self.config = config

    def get_config(self) -> GPTConfig:
        values = {name: getattr(self, name) for name in ("vocab_size", "hidden_size", "num_hidden_layers")}
        # Not among tokens 1 to 19, which the test of training repeats, nor at the end, which others remove.
        values |= {"bos_token_id": 20, "start_token_id": 20, "delimiter_token_id": 21, "classify_token_id": 22}
        values |= {"num_attention_heads": self.num_attention_heads, "pad_token_id": 98}
        return GPTConfig(**values | self.config)

    def prepare_config_and_inputs_for_common(self):
        """Random tokens and, where the task heads look for it, the classify token."""
        config = self.get_config()
        input_ids = 24 + ids_tensor([self.batch_size, self.seq_length], 70)
        input_ids[:, -1] = config.classify_token_id
        attention_mask = torch.ones_like(input_ids).to(torch_device)
        return config, {"input_ids": input_ids, "attention_mask": attention_mask}


class CommonTests(ModelTesterMixin, PipelineTesterMixin, TrainingTesterMixin):
    all_model_classes = tuple(HEADS[head] for head in HEADS if head != "masked-lm")
    pipeline_model_mapping = {
        "feature-extraction": GPTModel,
        "text-classification": hf_gpt.GPTForSequenceClassification,
        "text-generation": hf_gpt.GPTForCausalLM,
        "token-classification": hf_gpt.GPTForTokenClassification,
        "zero-shot": hf_gpt.GPTForSequenceClassification,
    }
    model_tester = None
    config = {}

    def setUp(self):
        self.model_tester = GPTModelTester(**self.config)

    def test_config(self):
        ConfigTester(self, config_class=GPTConfig, n_embd=36).run_common_tests()


class Default(CommonTests, GenerationTesterMixin, unittest.TestCase):
    pass


class NormFirstScalarMix(CommonTests, GenerationTesterMixin, unittest.TestCase):
    config = {"norm_first": True, "final_norm": True, "head_layers": "mix", "pad_token_id": 0, "eos_token_id": 23}


class ReleaseQuirks(CommonTests, GenerationTesterMixin, unittest.TestCase):
    config = {"release_quirks": True}
    # Dropout falls on the embedding matrix, and the gradient keeps its noise.
    training_grad_norm_reduction_threshold = 0.5


class BothSides(CommonTests, unittest.TestCase):
    """What is not causal generates nothing and has no auxiliary language model."""

    config = {"is_causal": False, "mask_token_id": 23, "lm_coef": 0.0}
    all_model_classes = tuple(HEADS[head] for head in HEADS if head not in ("causal-lm", "multiple-choice"))
    pipeline_model_mapping = {"feature-extraction": GPTModel, "fill-mask": hf_gpt.GPTForMaskedLM}
