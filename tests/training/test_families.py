"""
What every kind of run has in common, family by family and with what is trained of a model: it learns, adds up, resumes
to the same bits, gives the same numbers in several processes, is evaluated, saved and loaded.
"""

import json
import shutil
from pathlib import Path

import pytest
import torch
from huggingface_hub import ModelCard
from transformers import AutoTokenizer, pipeline

import hf_gpt
from hf_gpt.adapters import load_adapter

from ..support.formats.question_answering import QUESTIONS, squad
from ..support.runs import (
    answers_of_card,
    assert_same_training,
    evaluation,
    files_of,
    finetune,
    finish,
    launch_command,
    predictions,
    start_launch,
    training_lines,
)

pytestmark = [
    pytest.mark.whole,
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"),  # of peft
]

WORDS = {"Ada": "B-PER", "Lovelace": "I-PER", "met": "O", "Bob": "B-PER", "in": "O", "Rome": "B-LOC", ".": "O"}
TEXTS = [
    f"{one} {two} in Rome {three}." for one in ("Ada", "Bob") for two in ("met", "saw", "left") for three in "abc "
]
# By family: what the task's files hold, flags, and the class that the result loads with.
FAMILIES = {
    "classification": (
        [{"text": text, "label": "yes" if "met" in text else "no"} for text in TEXTS],
        "--text_column text",
        "GPTForSequenceClassification",
    ),
    "entailment": (
        [{"a": text, "b": "they met", "label": "yes" if "met" in text else "no"} for text in TEXTS],
        "--premise_column a --hypothesis_column b",
        "GPTForSequenceClassification",
    ),
    "regression": (
        [{"text": text, "label": float("met" in text)} for text in TEXTS],
        "--text_column text --problem_type regression",
        "GPTForSequenceClassification",
    ),
    "multiple choice": (
        [{"a": text, "one": "they met", "two": "they did not", "label": int("met" not in text)} for text in TEXTS],
        "--context_column a --choice_columns one two",
        "GPTForMultipleChoice",
    ),
    "tagging": (
        [{"words": text.split(), "label": [WORDS.get(word, "O") for word in text.split()]} for text in TEXTS],
        "--words_column words",
        "GPTForTokenClassification",
    ),
    "question answering": (None, "", "GPTForQuestionAnswering"),
}
# Other kinds of runs: their family, and further flags.
KINDS = {family: (family, []) for family in FAMILIES} | {
    "lora": ("classification", ["--adaptation", "lora"]),
    "houlsby": ("multiple choice", ["--adaptation", "houlsby"]),
    "frozen": ("classification", ["--adaptation", "frozen"]),
    "frozen mix": ("multiple choice", ["--adaptation", "frozen", "--layers", "mix"]),
    "frozen tagging": ("tagging", ["--adaptation", "frozen", "--layers", "1"]),
    "chain-thaw": ("classification", ["--unfreeze", "chain_thaw", "--unfreeze_every", 1, "--layer_decay", 0.8]),
    "several tasks": ("tagging", ["--max_train_rows", 18, "--max_eval_rows", 18]),
}
SETTINGS = ["--learning_rate", "1e-2", "--per_device_train_batch_size", "6", "--dropout", "0", "--warmup", "0"]
SETTINGS += ["--save_total_limit", "9"]
ALL = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(scope="module")
def data_of(tmp_path_factory):
    """`data_of(family)`: flags of the same rows to learn, to choose by and to predict."""
    folder = tmp_path_factory.mktemp("families")

    def flags(family: str) -> list:
        rows, columns, _ = FAMILIES[family]
        if rows is None:
            for name in ("train", "dev", "test"):
                (folder / f"{name}-v1.1.json").write_text(squad(QUESTIONS))
            return ["--task", "squad", "--data_dir", folder]
        file = folder / f"{family}.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        files = [word for split in ("train", "validation", "test") for word in (f"--{split}_file", file)]
        return ["--task", "custom", *columns.split(), *files]

    return flags


@pytest.fixture(scope="module")
def flags_of(tiny_checkpoint, data_of):
    """`flags_of(kind, output)`: of a run into a folder."""

    def flags(kind: str, output: Path) -> list:
        family, more = KINDS[kind]
        data = data_of(family)
        if kind == "several tasks":
            folder = data_of("question answering")[-1]
            data = ["--tasks", "questions", "custom", "squad", "--data_dirs", f"squad={folder}", *data[2:]]
        return ["--model_name_or_path", tiny_checkpoint, "--output_dir", output, *data, *SETTINGS, *more]

    return flags


@pytest.fixture(scope="module")
def run_of(flags_of, tmp_path_factory):
    """`run_of(kind)`: folder and record of a run of 12 steps or more, made once."""
    made = {}

    def run(kind: str) -> tuple[Path, dict]:
        if kind not in made:
            output = tmp_path_factory.mktemp("run") / "out"
            made[kind] = output, finetune(*flags_of(kind, output), "--num_train_epochs", 6)
        return made[kind]

    return run


@ALL
def test_it_learns(kind, run_of):
    """Its loss falls, both terms are logged, and the files say the same as the record."""
    output, record = run_of(kind)
    lines = training_lines(output / f"checkpoint-{record['steps']}")
    count = len(lines) // 3
    assert sum(line[1] for line in lines[-count:]) < sum(line[1] for line in lines[:count])
    assert all(line[0] == pytest.approx(line[1] + 0.5 * line[2], abs=1e-4) for line in lines)
    assert any(line[2] for line in lines) != kind.startswith("frozen")
    assert json.loads((output / "metrics.json").read_text()) == record
    for task, own in record.get("tasks", {"": record}).items():
        assert own["metrics"]["test"].keys() == own["metrics"]["validation"].keys()
        assert ModelCard.load(output / task / "README.md").data.eval_results
        assert not [*output.rglob("*.bin"), *output.glob("features"), *output.glob("unfinished")]
        found = predictions(output / task)
        if "accuracy" in own["metrics"]["test"]:
            right = sum(line["label"] == line["prediction"] for line in found) / len(found)
            assert right == pytest.approx(own["metrics"]["test"]["accuracy"])


@ALL
def test_parts_of_a_batch_give_the_losses_of_the_whole(kind, flags_of, tmp_path):
    """The last batch of an epoch is not full."""
    flags = ["--train_sampling_strategy", "random", "--eval_strategy", "no", "--load_best_model_at_end", "false"]
    flags += ["--save_strategy", "steps", "--save_steps", 4, "--max_steps", 4]
    lines = []
    for size, parts in ((7, 1), (1, 7)):
        output = tmp_path / str(size)
        sizes = ["--per_device_train_batch_size", size, "--gradient_accumulation_steps", parts]
        finetune(*flags_of(kind, output), *flags, *sizes)
        lines.append(training_lines(output / "checkpoint-4"))
    assert lines[0] == [pytest.approx(line, rel=1e-3, abs=1e-5) for line in lines[1]]


@ALL
def test_it_resumes_to_the_same_bits(kind, flags_of, tmp_path):
    """Every file of the folder, resumed in the middle, or where all that was left is to write the record."""
    output = tmp_path / "run" / "out"
    flags = [*flags_of(kind, output), "--max_steps", 4, "--save_strategy", "steps", "--save_steps", 2]
    flags += ["--dropout", 0.1, "--eval_strategy", "steps", "--eval_steps", 2]
    finetune(*flags)
    whole = output.rename(tmp_path / "whole")
    for left in (["checkpoint-2"], ["checkpoint-2", "checkpoint-4"]):
        for name in left:
            shutil.copytree(whole / name, output / name)
        assert finetune(*flags, "--resume_from_checkpoint", "last")["resumed"]
        found, expected = files_of(output), files_of(whole)
        assert found.keys() == expected.keys()
        assert not [name for name, content in found.items() if content != expected[name]]
        shutil.rmtree(output)


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[pytest.mark.slow] * (kind != "tagging")) for kind in KINDS]
)
def test_two_processes_give_the_numbers_of_one(kind, flags_of, tmp_path):
    """The last batch of an epoch, of 4 rows, leaves nothing to the second process."""
    flags = ["--per_device_train_batch_size", 20, "--max_steps", 4, "--logging_steps", 1, "--learning_rate", 1e-3]
    finetune(*flags_of(kind, tmp_path / "one"), *flags)
    flags += ["--per_device_train_batch_size", 5, "--gradient_accumulation_steps", 2, "--disable_tqdm", "true"]
    command = launch_command("two_cpu_processes", *flags_of(kind, tmp_path / "two"), *flags)
    finish(start_launch(tmp_path / "log", command), tmp_path / "log")
    assert_same_training(tmp_path / "two", tmp_path / "one", 4)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "several tasks"])
def test_evaluation_agrees(kind, run_of, data_of, tmp_path):
    output, record = run_of(kind)
    flags = ["--model_name_or_path", output, *data_of(KINDS[kind][0]), "--output_dir", tmp_path / "evaluated"]
    evaluated = evaluation(*flags, "--per_device_eval_batch_size", 3)
    assert evaluated["metrics"] == pytest.approx(record["metrics"]["test"], abs=1e-6)
    ours, theirs = predictions(tmp_path / "evaluated"), predictions(output)
    assert [line["prediction"] for line in ours] == [line["prediction"] for line in theirs]


@ALL
def test_the_model_that_is_saved_loads_and_answers(kind, run_of):
    """Through the class that its card names, and through pipelines or the code of the card."""
    output, _ = run_of(kind)
    family, _ = KINDS[kind]
    if kind == "several tasks":
        squads, folder = output / "squad", output / "custom"
        ours, theirs = (hf_gpt.GPTModel.from_pretrained(each).state_dict() for each in (squads, folder))
        assert all(torch.equal(value, theirs[name]) for name, value in ours.items())
        output = folder
    if kind in ("lora", "houlsby"):
        assert load_adapter(output).peft_config
        return
    model = getattr(hf_gpt, FAMILIES[family][2]).from_pretrained(output).eval()
    assert type(model).__name__ in model.config.architectures
    assert (model.config.lm_coef == 0) == kind.startswith("frozen")
    tokenizer, found = AutoTokenizer.from_pretrained(output), predictions(output)
    if family == "classification":
        classify = pipeline("text-classification", model=str(output), device="cpu")
        assert [answer["label"] for answer in classify(TEXTS)] == [line["prediction"] for line in found]
    elif family == "tagging":
        for text in dict.fromkeys([" ".join(line["word"] for line in found if line["id"] == found[0]["id"])]):
            inputs = tokenizer(text.split(), is_split_into_words=True, return_tensors="pt")
            with torch.no_grad():
                labels = dict(zip(inputs.word_ids(), model(**inputs).logits[0].argmax(-1).tolist(), strict=True))
            expected = [line["prediction"] for line in found[: len(text.split())]]
            assert [model.config.id2label[labels[number]] for number in range(len(expected))] == expected
    else:
        assert answers_of_card(output)


def test_several_tasks_have_a_folder_and_a_metric_each(run_of):
    output, record = run_of("several tasks")
    mains = {task: own["main_metric"] for task, own in record["tasks"].items()}
    assert mains == {"custom": "entity_f1", "questions": "accuracy", "squad": "exact_match"}
    for split, means in record["metrics"].items():
        scores = [own["metrics"][split][mains[task]] for task, own in record["tasks"].items()]
        assert means["task_mean"] == pytest.approx(sum(scores) / 3)
    for task, own in record["tasks"].items():
        assert json.loads((output / task / "metrics.json").read_text()) == own
        others = sorted(mains.keys() - {task})
        assert own["trained_with"] == others
        assert f"| trained together with | {', '.join(others)} |" in (output / task / "README.md").read_text()
