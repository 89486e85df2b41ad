"""OpenAI's fine-tuned parameters: joblib's file of arrays, and the model that it holds."""

import pickle
import re

import joblib
import numpy as np
import pytest
import torch
from transformers import AutoTokenizer

from hf_gpt import GPTForMultipleChoice, GPTForSequenceClassification
from hf_gpt.conversion.joblib_arrays import read_arrays
from hf_gpt.conversion.release import release_arrays

from ..support.golden import arrays, golden_config, models, roc_inputs
from ..support.stock_models import ROWS, Trap, own_model, write_vocabulary
from .test_convert import PLAIN, assert_same_model


@pytest.mark.parametrize("model", models())
@torch.no_grad()
def test_the_recorded_scores(model, tmp_path, converted):
    recorded, variables = golden_config(model)["config"], arrays(model, "params")
    path = tmp_path / "best_params.jl"
    joblib.dump([variables[name] for name in variables["order"]], path)
    flags = ("--n_positions", recorded["n_ctx"], "--n_head", recorded["n_head"], *PLAIN)
    assert "fine-tuned by OpenAI's code" in converted(path, tmp_path / "ours", *flags)
    batch = arrays(model, "roc_eval")
    logits = GPTForMultipleChoice.from_pretrained(tmp_path / "ours")(**roc_inputs(batch)).logits
    np.testing.assert_allclose(logits.numpy(), batch["clf_logits"], atol=1e-5)
    # And on to the stock model and back.
    converted(tmp_path / "ours", tmp_path / "theirs", "--to", "openai-gpt", *PLAIN)
    converted(tmp_path / "theirs", tmp_path / "again", *PLAIN)
    assert_same_model(tmp_path / "ours", tmp_path / "again")


def test_six_classes_and_a_vocabulary(tmp_path, converted):
    source = own_model(GPTForSequenceClassification, num_labels=6)
    state = {name.removeprefix("transformer."): value for name, value in source.state_dict().items()}
    blocks = list(release_arrays(state, 2).values())[2:]
    rows = torch.cat([state["embed_tokens.weight"][: ROWS + 3], state["embed_positions.weight"]]).numpy()
    head = [state["score.weight"].numpy().T, state["score.bias"].numpy()]
    write_vocabulary(tmp_path, "encoder_bpe_40000.json", "vocab_40000.bpe")
    joblib.dump([rows, *blocks, *head], tmp_path / "best_params.jl")
    converted(tmp_path, tmp_path / "ours", "--n_head", 2)
    found = GPTForSequenceClassification.from_pretrained(tmp_path / "ours").state_dict()
    for name, value in source.state_dict().items():
        rows = slice(ROWS + 3) if "embed_tokens" in name else slice(None)
        assert torch.equal(found[name][rows], value[rows]), name
    assert len(AutoTokenizer.from_pretrained(tmp_path / "ours")) == ROWS + 4


def test_parameters_that_do_not_fit(tmp_path, converted):
    variables = arrays("tiny_seed0", "params")
    whole = [variables[name] for name in variables["order"]]
    path = tmp_path / "best_params.jl"
    for content, flags, message in (
        (whole, (), "--n_positions"),
        (whole, ("--n_positions", 235), "do not fit"),
        (whole[:-1], ("--n_positions", 24), "one embedding matrix, 12 per block"),
        ([*whole[:2], whole[3], whole[2], *whole[4:]], ("--n_positions", 24), "block 0, attn/c_attn/b"),
    ):
        joblib.dump(content, path)
        assert message in converted(path, tmp_path / "ours", "--n_head", 4, *flags, *PLAIN, status=2)
    assert not (tmp_path / "ours").exists()


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_arrays_of_joblib(protocol, tmp_path):
    generator = np.random.default_rng(0)
    expected = [
        generator.standard_normal((3, 4)).astype(np.float32),
        np.asfortranarray(generator.standard_normal((2, 5))),
        np.arange(7, dtype=np.int16),
        np.arange(3, dtype=">f4"),
        np.array(2, np.float32),
        np.zeros((0, 3), np.float32),
    ]
    expected.append(expected[0])
    joblib.dump(expected, tmp_path / "arrays.jl", protocol=protocol)
    for ours, theirs in zip(read_arrays(tmp_path / "arrays.jl"), expected, strict=True):
        np.testing.assert_array_equal(ours, theirs, strict=theirs.dtype.isnative)


def test_files_that_are_no_arrays_of_joblib(tmp_path):
    joblib.dump([np.ones(5, np.float32)], tmp_path / "good")
    joblib.dump([np.array([Trap(tmp_path / "sprung")], dtype=object)], tmp_path / "objects")
    joblib.dump([np.ones(5, np.float32)], tmp_path / "compressed", compress=3)
    whole, path = (tmp_path / "good").read_bytes(), tmp_path / "broken.jl"
    for content, message in (
        (pickle.dumps([Trap(tmp_path / "sprung")]), r"names .*open, and only arrays of numbers"),
        ((tmp_path / "objects").read_bytes(), "no numbers"),
        (whole[:-8], "ends within an array"),
        (whole[:20], "read as arrays"),
        (b"", "read as arrays"),
        ((tmp_path / "compressed").read_bytes(), "without compression"),
        (b"404: Not Found", "read as arrays"),
        (pickle.dumps({"a": 1}), "something else than a list"),
        (pickle.dumps([1, 2]), "something else than a list"),
        (pickle.dumps([np.float32(1)]), "names numpy"),
    ):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=f"{re.escape(str(path))}.*{message}"):
            read_arrays(path)
        assert not (tmp_path / "sprung").exists(), message
