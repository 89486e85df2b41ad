"""Every `hf-gpt` command that README and the documentation print runs as printed, one after the other."""

import json
import random
import re
import shlex
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from hf_gpt import GPT_MINI, GPTConfig, GPTForCausalLM

from .support.formats import FORMATS
from .support.task_files import write

REPOSITORY = Path(__file__).resolve().parents[1]
# Which page makes what another one reads: OpenAI's weights are converted before they are fine-tuned.
FIRST = ("docs/conversion.md", "docs/quickstart.md")
NAMES = [*FIRST, "README.md", *(f"docs/{path.name}" for path in sorted(REPOSITORY.glob("docs/*.md")))]
COMMANDS = [
    (name, line)
    for name in dict.fromkeys(NAMES)
    for block in re.findall(r"```bash\n(.*?)```", (REPOSITORY / name).read_text("utf-8"), flags=re.DOTALL)
    for line in block.replace("\\\n", " ").splitlines()
    if line.startswith("hf-gpt ")
]


def write_files(folder: Path, converted) -> None:
    """What the pages suppose that a reader has: tables, books, the Story Cloze files, and OpenAI's folder."""
    chance = random.Random(0)
    words = ["".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=chance.randint(2, 9))) for _ in range(9000)]
    for book in range(6):
        text = "\n".join(" ".join(chance.choices(words, k=40)) + "." for _ in range(60))
        write(folder / "books", {f"{book}.txt": text})
    messages = [("My bill is wrong again.", "billing"), ("The app crashes at start.", "technical")] * 20
    rows = [f"{number},{text[:-1]} {number}.,{team}" for number, (text, team) in enumerate(messages)]
    write(folder, {"tickets.csv": "\n".join(["id,message,team", *rows]) + "\n"})
    new = [f"{row},It rained." for row in rows[:5]]
    write(folder, {"new.csv": "\n".join(["id,message,team,article", *new]) + "\n"})
    write(folder, {"reviews.csv": "id,text,label\n1,A good film.,1\n2,A bad one.,0\n"})
    articles = [f'{number},"It rained on day {number}. Then it stopped.",rain {number}' for number in range(30)]
    write(folder, {"rows.csv": "\n".join(["id,article,summary", *articles]) + "\n"})
    write(folder / "FOLDER", FORMATS["rocstories"][0])
    tokenizer = AutoTokenizer.from_pretrained(GPT_MINI)
    ids = {"start_token_id": 8000, "delimiter_token_id": 8001, "classify_token_id": 8002, "pad_token_id": 8003}
    config = GPTConfig(vocab_size=8004, n_positions=128, n_embd=64, n_layer=2, n_head=1, bos_token_id=8000, **ids)
    config.untrained_token_ids = [8000, 8001, 8002]
    GPTForCausalLM(config).save_pretrained(folder / "own")
    tokenizer.save_pretrained(folder / "own")
    converted(folder / "own", folder / "finetune-transformer-lm" / "model", "--to", "tf-release")


@pytest.mark.slow
def test_commands_run_as_printed(hf_gpt, converted, tmp_path, monkeypatch, own_datasets_cache):
    assert len(COMMANDS) >= 15
    write_files(tmp_path, converted)
    monkeypatch.chdir(tmp_path)
    ran = []
    for name, line in COMMANDS:
        if line in ran:
            continue
        words = shlex.split(line, comments=True)[1:]
        folder = tmp_path / words[words.index("--output_dir") + 1] if "--output_dir" in words else None
        if folder and folder.exists():  # another page has trained the same in other words
            words += ["--overwrite_output_dir"]
        status, printed, errors = hf_gpt(*words)
        assert status == 0, f"{name}: {line}\n{printed[-2000:]}{errors[-2000:]}"
        ran.append(line)
    assert json.loads((tmp_path / "outputs" / "questions" / "metrics.json").read_text())["metrics"]["test"]
    assert len((tmp_path / "outputs" / "new" / "predictions.tsv").read_text().splitlines()) == 6
