"""One whole fine-tuning of the original TensorFlow code, followed loss by loss, and by `finetune` from its files."""

import csv
import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import set_seed

from hf_gpt import GPTForMultipleChoice
from hf_gpt.conversion.release import load_release
from hf_gpt.conversion.tokenizers import release_tokenizer
from hf_gpt.model.configuration_gpt import DROPOUTS
from hf_gpt.tasks import load_task
from hf_gpt.training.optimization import ReleaseAdam, get_release_schedule
from hf_gpt.trees.collators import LengthGroupedSampler

from ..support.golden import REPOSITORY, arrays, golden_directory, recorded_lm_weights
from ..support.runs import finetune, predictions

WIDTH, LAYERS, HEADS, VOCABULARY, POSITIONS = 48, 3, 4, 40478, 512
RECORDED = golden_directory() / "whole_run" / "seed0"
RELEASE_VOCABULARY = Path(os.environ.get("HF_GPT_DATA", REPOSITORY.parent / "shared" / "data")) / "gpt_bpe"


def run_values() -> dict[str, np.ndarray]:
    return arrays("whole_run/seed0" if RECORDED.is_dir() else "whole_run", "run")


@pytest.fixture(scope="module")
def release(tmp_path_factory) -> Path:
    """The run's checkpoint in the released format: seeded normal numbers, so they need not be stored."""
    random, width, folder = np.random.default_rng(0), WIDTH, tmp_path_factory.mktemp("release")
    attention = [[1, width, 3 * width], [3 * width], [1, width, width], [width], [width], [width]]
    feed_forward = [[1, width, 4 * width], [4 * width], [1, 4 * width, width], [width], [width], [width]]
    shapes = [[POSITIONS, width], [VOCABULARY, width]] + (attention + feed_forward) * LAYERS
    pieces = []
    for index, shape in enumerate(shapes):
        is_gain = index >= 2 and (index - 2) % 12 in (4, 10)
        values = random.standard_normal(shape)
        values = 1 + 0.1 * values if is_gain else values * (0.05 if len(shape) == 1 else 0.1)
        pieces.append(values.astype(np.float32).ravel())
    (folder / "params_shapes.json").write_text(json.dumps(shapes))
    for index, part in enumerate(np.array_split(np.concatenate(pieces), 10)):
        np.save(folder / f"params_{index}.npy", part)
    return folder


def recorded_model(release: Path, n_positions: int) -> GPTForMultipleChoice:
    """The model before the first update, with the special rows and the head that the original drew."""
    recorded, zero = run_values(), dict.fromkeys(DROPOUTS, 0.0)
    model = load_release(
        release, GPTForMultipleChoice, n_head=HEADS, n_positions=n_positions, release_quirks=True, **zero
    )
    with torch.no_grad():
        special = torch.from_numpy(recorded["special_rows"])
        model.transformer.embed_tokens.weight[VOCABULARY : VOCABULARY + 3] = special
        model.score.weight.copy_(torch.from_numpy(recorded["init/model/clf/w"]).T)
        model.score.bias.copy_(torch.from_numpy(recorded["init/model/clf/b"]))
    return model


@pytest.mark.parametrize("updates", [40, pytest.param(120, marks=pytest.mark.slow)])
def test_losses_of_every_update(release, updates):
    recorded = run_values()
    model = recorded_model(release, n_positions=57)
    optimizer = ReleaseAdam(model.parameters(), lr=1e-3)
    schedule = get_release_schedule(optimizer, "warmup_linear", len(recorded["batch_rows"]))
    model.train()
    found = {"clf_loss": [], "lm_loss": [], "global_norm": []}
    for rows in recorded["batch_rows"][:updates]:
        outputs = model(
            input_ids=torch.from_numpy(recorded["train/X"][rows][..., 0]).long(),
            labels=torch.from_numpy(recorded["train/Y"][rows]).long(),
            lm_weights=recorded_lm_weights(recorded["train/M"][rows]),
        )
        outputs.loss.backward()
        norms = [parameter.grad.double().norm() for parameter in model.parameters()]
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        for name, value in zip(found, (outputs.task_loss, outputs.lm_loss, torch.stack(norms).norm()), strict=True):
            found[name].append(value.item())
    for name, tolerance in (("clf_loss", 1e-5), ("lm_loss", 3e-5), ("global_norm", 1e-4)):
        np.testing.assert_allclose(found[name], recorded[name][:updates], rtol=0, atol=tolerance, err_msg=name)


@pytest.mark.slow
@pytest.mark.skipif(not (RECORDED.is_dir() and RELEASE_VOCABULARY.is_dir()), reason="needs the run and its vocabulary")
def test_finetune_writes_the_predictions_of_the_original(release, tmp_path, monkeypatch):
    recorded, model = run_values(), tmp_path / "model"
    set_seed(0)
    recorded_model(release, n_positions=88).save_pretrained(model)
    release_tokenizer(RELEASE_VOCABULARY).save_pretrained(model)
    with next((RECORDED / "data").glob("*val*")).open(newline="") as file:
        ids = [row["InputStoryid"] for row in csv.DictReader(file)]

    # The rows of every epoch as the original drew them.
    train = load_task("rocstories", RECORDED / "data").splits["train"]
    places = {name: place for place, name in enumerate(train["id"])}
    order = [places[ids[row]] for row in recorded["train/csv_rows"][recorded["batch_rows"].ravel()]]
    epochs = np.reshape(order, (3, -1)).tolist()
    monkeypatch.setattr(LengthGroupedSampler, "__iter__", lambda sampler: iter(epochs[sampler.epoch]))
    flags = ["--task", "rocstories", "--data_dir", RECORDED / "data", "--model_name_or_path", model]
    flags += ["--keep_head", "--release_quirks", "--dropout", 0, "--truncation", "half", "--learning_rate", 1e-3]
    flags += ["--per_device_train_batch_size", 4, "--num_train_epochs", 3, "--output_dir", tmp_path / "out"]
    record = finetune(*flags)
    assert record["metrics"]["validation"]["accuracy"] == pytest.approx(0.8075, abs=5e-5)
    assert record["metrics"]["test"]["accuracy"] == pytest.approx(0.8)
    ours = [int(row["prediction"]) for row in predictions(tmp_path / "out")]
    assert ours == recorded["predictions"].tolist()
