"""
Print how far our numbers are from those of the OpenAI TensorFlow release, our token ids from its encoder's, and
bfloat16's numbers from float32's.

    python scripts/measure/parity.py

Reads what the tests read: the recorded values in tests/data/golden, or all of them in the folder HF_GPT_GOLDEN. Token
ids need the release's vocabulary (folder HF_GPT_DATA/gpt_bpe) and are left out without it.
"""

import json
import os
import sys
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm
from transformers import AutoModelForMultipleChoice, AutoTokenizer, OpenAIGPTTokenizer

from hf_gpt import TokenTreeCollator, token_trees
from hf_gpt.commands import REPOSITORY, command, parse_arguments
from hf_gpt.conversion.tokenizers import release_tokenizer
from hf_gpt.tasks import load_task
from hf_gpt.training.optimization import ReleaseAdam, get_release_schedule

sys.path.insert(0, str(REPOSITORY))

from tests.support import golden


def largest(ours, recorded) -> float:
    """The largest absolute difference."""
    ours = ours.detach().numpy() if isinstance(ours, torch.Tensor) else np.asarray(ours)
    return float(np.abs(ours.astype(np.float64).reshape(recorded.shape) - recorded).max())


def model_differences(name: str) -> dict[str, float]:
    """Largest differences of one recorded model, by what is compared."""
    batch, trained = golden.arrays(name, "roc_eval"), golden.arrays(name, "roc_train")
    inputs = {**golden.roc_inputs(batch), "lm_weights": golden.recorded_lm_weights(batch["M"])}
    model = golden.load_variables(name, "roc")
    outputs = model(**inputs, output_hidden_states=True, return_lm_loss=True)
    outputs.loss.backward()
    states = [largest(state, batch[f"h_block_{layer}"]) for layer, state in enumerate(outputs.hidden_states[1:])]
    token_logits = golden.load_variables(name, "lm")(inputs["input_ids"].flatten(0, 1)).logits[:, :-1]
    gradients = golden.as_release(model, lambda parameter: parameter.grad)
    return {
        "hidden states of every block": max(states),
        "token logits": largest(token_logits, batch["lm_logits"][..., : model.config.vocab_size]),
        "choice logits": largest(outputs.logits, batch["clf_logits"]),
        "task loss": largest(outputs.task_loss, batch["clf_losses"].mean()),
        "language-model loss": largest(outputs.lm_loss, batch["lm_losses"].mean()),
        "gradients": max(largest(value, trained[f"grads/{key}"]) for key, value in gradients.items()),
        "parameters after 5 updates (lr 6.25e-5)": parameter_difference(name, "linear_lr6.25e-05_wu0.002_novl2"),
        "parameters after 5 updates (lr 1e-3)": parameter_difference(name, "linear_lr0.001_wu0.002_novl2"),
    }


def parameter_difference(name: str, run: str) -> float:
    """Root mean square over the parameters that have a gradient but for rounding; NaN where the run is not at hand."""
    recorded = {key: value for key, value in golden.arrays(name, "roc_opt").items() if key.startswith(f"{run}/step5/")}
    if not recorded or any("[" in key for key in recorded):
        return float("nan")
    hp = golden.golden_config(name)["roc_runs"][run]["hp"]
    model = golden.load_variables(name, "roc").train()
    optimizer = ReleaseAdam(model.parameters(), lr=hp["lr"], weight_decay=hp["l2"])
    scheduler = get_release_schedule(optimizer, hp["lr_schedule"], hp["n_updates_total"], hp["lr_warmup"])
    batch = golden.arrays(name, "roc_eval")
    inputs = {**golden.roc_inputs(batch), "lm_weights": golden.recorded_lm_weights(batch["M"])}
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


def token_agreement() -> None:
    """Texts on which our ids, and those of transformers' own tokenizer, equal the release's."""
    data = Path(os.environ.get("HF_GPT_DATA", REPOSITORY.parent / "shared" / "data")) / "gpt_bpe"
    texts = golden.golden_directory() / "tokenizer.jsonl"
    if not data.is_dir() or not texts.is_file():
        print("\nToken ids: the release's vocabulary or its encoder's ids are not at hand, so nothing was compared.")
        return
    rows = [json.loads(line) for line in texts.read_text(encoding="utf-8").split("\n") if line]
    ours = release_tokenizer(data)
    stock = OpenAIGPTTokenizer(vocab=str(data / "encoder_bpe_40000.json"), merges=str(data / "vocab_40000.bpe"))
    print("\n| texts | number | hf_gpt differs | transformers' openai-gpt differs |\n|---|---|---|---|")
    groups = {
        "all": rows,
        "English sentences on one line": [
            row
            for row in rows
            if not row["source"].startswith(("corrupted", "hand", "spacy")) and "\n" not in row["text"]
        ],
    }
    for title, group in groups.items():
        wrong = [0, 0]
        for row in tqdm(group, desc=title, leave=False, disable=not sys.stderr.isatty()):
            for index, tokenizer in enumerate((ours, stock)):
                wrong[index] += tokenizer(row["text"], add_special_tokens=False)["input_ids"] != row["ids"]
        cells = " | ".join(f"{count:,} ({count / len(group):.1%})" for count in wrong)
        print(f"| {title} | {len(group):,} | {cells} |")


def bfloat16_agreement() -> None:
    """Both losses and all gradients of a fine-tuning batch of gpt-mini, under bfloat16 autocast and in float32."""
    folder = REPOSITORY / "model_cards" / "gpt-mini"
    tokenizer = AutoTokenizer.from_pretrained(folder, task_template=True)
    torch.manual_seed(0)
    model = AutoModelForMultipleChoice.from_pretrained(folder, embd_pdrop=0, attn_pdrop=0, resid_pdrop=0, clf_pdrop=0)
    rows = load_task("stories", splits=["train"]).splits["train"].select(range(32))
    batch = TokenTreeCollator(tokenizer.pad_token_id)(list(token_trees(rows, tokenizer)))
    runs = {}
    for dtype in (torch.float32, torch.bfloat16):
        model.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
            outputs = model(**batch, return_lm_loss=True)
        outputs.loss.backward()
        gradient = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
        runs[dtype] = outputs.task_loss.item(), outputs.lm_loss.item(), gradient
    (task, text, gradient), (low_task, low_text, low_gradient) = runs.values()
    print("\n| bfloat16 autocast against float32, gpt-mini, 32 stories | difference |\n|---|---|")
    print(f"| task loss, relative | {abs(low_task / task - 1):.1e} |")
    print(f"| language-model loss, relative | {abs(low_text / text - 1):.1e} |")
    difference = (low_gradient - gradient).norm() / gradient.norm()
    print(f"| all gradients, norm of the difference over the norm | {difference:.1e} |")


@command()
def main() -> None:
    """Print the tables."""
    parse_arguments((), description=__doc__)
    table = {name: model_differences(name) for name in golden.models()}
    print("Largest absolute difference (parameters: root mean square), fp32\n")
    print(f"| compared | {' | '.join(table)} |\n|---|{'---|' * len(table)}")
    for row in next(iter(table.values())):
        cells = [f"{values[row]:.1e}" if values[row] == values[row] else "not recorded" for values in table.values()]
        print(f"| {row} | {' | '.join(cells)} |")
    token_agreement()
    bfloat16_agreement()


if __name__ == "__main__":
    main()
