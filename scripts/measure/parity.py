"""
Measure how far our numbers are from those of the OpenAI TensorFlow release, our token ids from its encoder's, and
bfloat16's numbers from float32's.

    python scripts/measure/parity.py --output_file scripts/measure/results/parity.json

Reads what the tests read: the recorded values in tests/data/golden, or all of them in the folder HF_GPT_GOLDEN. Token
ids need the release's vocabulary (folder HF_GPT_DATA/gpt_bpe) and are left out without it.
"""

import hashlib
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from harness import markdown
from tqdm import tqdm
from transformers import AutoModelForMultipleChoice, AutoTokenizer, OpenAIGPTTokenizer

from hf_gpt import TokenTreeCollator, token_trees
from hf_gpt.commands import command, parse_arguments
from hf_gpt.conversion.tokenizers import release_tokenizer
from hf_gpt.files import flag, write_json
from hf_gpt.tasks import load_task
from hf_gpt.training.optimization import ReleaseAdam, get_release_schedule

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.support import golden, texts

MODEL = golden.REPOSITORY / "model_cards" / "gpt-mini"


@dataclass
class ParityArguments:
    """Where the result goes."""

    output_file: str | None = flag(None, "A .json file of all numbers; the tables are printed in any case.")


def largest(ours, recorded) -> float:
    """The largest absolute difference."""
    ours = ours.detach().numpy() if isinstance(ours, torch.Tensor) else np.asarray(ours)
    return float(np.abs(ours.astype(np.float64).reshape(recorded.shape) - recorded).max())


def model_differences(name: str) -> dict[str, float | None]:
    """Largest differences of one recorded model, by what is compared."""
    batch, trained = golden.arrays(name, "roc_eval"), golden.arrays(name, "roc_train")
    inputs, model = golden.with_recorded_weights(batch), golden.load_variables(name, "roc")
    outputs = model(**inputs, output_hidden_states=True, return_lm_loss=True)
    outputs.loss.backward()
    states = [largest(state, batch[f"h_block_{layer}"]) for layer, state in enumerate(outputs.hidden_states[1:])]
    token_logits = golden.load_variables(name, "lm")(inputs["input_ids"].flatten(0, 1)).logits[:, :-1]
    gradients = golden.as_release(model, lambda parameter: parameter.grad)
    updated = "parameters after 5 updates, lr {} (root mean square)".format
    return {
        "hidden states of every block": max(states),
        "token logits": largest(token_logits, batch["lm_logits"][..., : model.config.vocab_size]),
        "choice logits": largest(outputs.logits, batch["clf_logits"]),
        "task loss": largest(outputs.task_loss, batch["clf_losses"].mean()),
        "language-model loss": largest(outputs.lm_loss, batch["lm_losses"].mean()),
        "gradients": max(largest(value, trained[f"grads/{key}"]) for key, value in gradients.items()),
        updated("6.25e-5"): parameter_difference(name, "linear_lr6.25e-05_wu0.002_novl2"),
        updated("1e-3"): parameter_difference(name, "linear_lr0.001_wu0.002_novl2"),
    }


def parameter_difference(name: str, run: str) -> float | None:
    """Root mean square over the parameters that have a gradient but for rounding; `None` where nothing is recorded."""
    recorded = {key: value for key, value in golden.arrays(name, "roc_opt").items() if key.startswith(f"{run}/step5/")}
    if not recorded or any("[" in key for key in recorded):
        return None
    hp = golden.golden_config(name)["roc_runs"][run]["hp"]
    model = golden.load_variables(name, "roc").train()
    optimizer = ReleaseAdam(model.parameters(), lr=hp["lr"], weight_decay=hp["l2"])
    scheduler = get_release_schedule(optimizer, hp["lr_schedule"], hp["n_updates_total"], hp["lr_warmup"])
    inputs = golden.with_recorded_weights(golden.arrays(name, "roc_eval"))
    for _ in range(5):
        optimizer.zero_grad()
        model(**inputs).loss.backward()
        optimizer.step()
        scheduler.step()
    values = golden.as_release(model, lambda parameter: parameter)
    squares, width = [], model.config.n_embd
    for key, expected in recorded.items():
        variable = key.removeprefix(f"{run}/step5/")
        difference = values[variable].astype(np.float64).reshape(expected.shape) - expected
        if variable.endswith("attn/c_attn/b"):
            difference = np.delete(difference, np.s_[width : 2 * width])
        if variable != "model/clf/b":
            squares.append((difference**2).ravel())
    return float(np.sqrt(np.concatenate(squares).mean()))


def token_agreement() -> dict[str, dict[str, int]] | None:
    """Number of texts, and of those whose ids by ours and by transformers' own tokenizer are not the release's."""
    if not texts.RELEASE.is_dir() or not texts.ALL_GOLDEN.is_file():
        print("Token ids: the release's vocabulary or its encoder's ids are not at hand, so nothing was compared.")
        return None
    rows, folder = texts.read_golden(texts.ALL_GOLDEN), texts.RELEASE
    stock = OpenAIGPTTokenizer(str(folder / "encoder_bpe_40000.json"), str(folder / "vocab_40000.bpe"))
    sources = ("corrupted", "hand", "spacy")
    plain = [row for row in rows if not row["source"].startswith(sources) and "\n" not in row["text"]]
    groups = {"all, corrupted and multilingual ones included": rows, "English sentences on one line": plain}
    found: dict[str, dict[str, int]] = {title: {"number": len(group)} for title, group in groups.items()}
    for name, tokenizer in {"hf_gpt": release_tokenizer(folder), "openai-gpt": stock}.items():
        for title, group in groups.items():
            ids = (tokenizer(row["text"], add_special_tokens=False)["input_ids"] for row in tqdm(group, leave=False))
            found[title][name] = sum(ours != row["ids"] for ours, row in zip(ids, group, strict=True))
    return found


def bfloat16_agreement() -> dict[str, float]:
    """Both losses and all gradients of fine-tuning batches of gpt-mini, under bfloat16 autocast and in float32."""
    tokenizer = AutoTokenizer.from_pretrained(MODEL, task_template=True)
    torch.manual_seed(0)
    model = AutoModelForMultipleChoice.from_pretrained(MODEL, embd_pdrop=0, attn_pdrop=0, resid_pdrop=0, clf_pdrop=0)
    trees = list(token_trees(load_task("stories", splits=["train"]).splits["train"], tokenizer))
    found = []
    for start in range(0, 256, 32):
        batch, runs = TokenTreeCollator(tokenizer.pad_token_id)(trees[start : start + 32]), []
        for low in (False, True):
            model.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=low):
                outputs = model(**batch, return_lm_loss=True)
            outputs.loss.backward()
            gradient = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
            runs.append((outputs.task_loss.detach(), outputs.lm_loss.detach(), gradient))
        found.append([((low - full).norm() / full.norm()).item() for full, low in zip(*runs, strict=True)])
    titles = ("task loss", "language-model loss", "all gradients")
    return {f"{title}, relative": max(values) for title, values in zip(titles, zip(*found, strict=True), strict=True)}


def digest() -> str:
    """SHA-256 of gpt-mini's weights."""
    return hashlib.sha256((MODEL / "model.safetensors").read_bytes()).hexdigest()


def tables(results: dict[str, Any]) -> list[str]:
    """Three tables: the release's numbers, its tokens, and bfloat16."""
    models, rows = results["models"], []
    for name in next(iter(models.values())):
        values = [found[name] for found in models.values()]
        rows.append([name, *("not recorded" if value is None else f"{value:.1e}" for value in values)])
    made = [markdown(["largest absolute difference", *models], rows)]
    if results["tokens"]:
        rows = []
        for title, (number, *wrong) in ((title, found.values()) for title, found in results["tokens"].items()):
            rows.append([title, f"{number:,}", *(f"{count:,} ({count / number:.1%})" for count in wrong)])
        stock = f"`openai-gpt` in transformers {results['transformers'].rpartition('.')[0]} differs"
        made.append(markdown(["texts", "number", "hf_gpt differs", stock], rows))
    rows = [[name, f"{value:.1e}"] for name, value in results["bfloat16"].items()]
    title = "bfloat16 autocast against float32, gpt-mini, largest of 8 batches of 32 stories"
    return [*made, markdown([title, "difference"], rows)]


@command()
def main() -> None:
    """Measure and print the tables."""
    (args,) = parse_arguments((ParityArguments,), doc=__doc__)
    results = {
        "transformers": transformers.__version__,
        "models": {name.partition("_")[0]: model_differences(name) for name in golden.models()},
        "tokens": token_agreement(),
        "bfloat16": bfloat16_agreement(),
        "gpt-mini": digest(),
    }
    print(*tables(results), sep="\n\n")
    if args.output_file:
        write_json(Path(args.output_file), results)


if __name__ == "__main__":
    main()
