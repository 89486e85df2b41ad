"""peft's tests of decoders and of sequence classifiers on GPTForCausalLM and GPTForSequenceClassification."""

from pathlib import Path

from transformers import AutoTokenizer, set_seed

from hf_gpt import GPTConfig, GPTForCausalLM, GPTForSequenceClassification
from tests import test_decoder_models, test_seq_classifier

GPT_MINI = Path(__file__).resolve().parents[2] / "model_cards" / "gpt-mini"


def save_tiny_model(model_class, name: str, **overrides) -> str:
    """Save a model with gpt-mini's vocabulary; peft's tests find it by its relative path, as they would on the Hub."""
    set_seed(0)
    # Weights as large as those of trained models: peft's tests compare with tolerances.
    config = GPTConfig.from_pretrained(
        GPT_MINI, n_embd=32, n_inner=None, n_layer=2, n_head=4, initializer_range=0.2, **overrides
    )
    model_class(config).save_pretrained(name)
    AutoTokenizer.from_pretrained(GPT_MINI).save_pretrained(name)
    return name


DECODER = save_tiny_model(GPTForCausalLM, "hf-gpt-decoder")
# The inputs of peft's tests contain the token 1, and a task head needs a classify token.
CLASSIFIER = save_tiny_model(GPTForSequenceClassification, "hf-gpt-classifier", classify_token_id=1)

# The tests are parametrized by these very lists.
test_decoder_models.PEFT_DECODER_MODELS_TO_TEST[:] = [DECODER]
test_decoder_models.SMALL_GRID_MODELS[:] = [DECODER]
test_seq_classifier.PEFT_SEQ_CLS_MODELS_TO_TEST[:] = [CLASSIFIER]


class TestDecoder(test_decoder_models.TestDecoderModels):
    pass


class TestClassifier(test_seq_classifier.TestSequenceClassificationModels):
    pass
