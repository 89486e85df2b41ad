"""Every family of tasks: learns, accumulates as the whole batch, resumes, is evaluated and loaded, and adapts."""

import json
from pathlib import Path

import pytest
import torch
from huggingface_hub import ModelCard
from transformers import AutoTokenizer, pipeline

import hf_gpt
from hf_gpt import load_adapter
from hf_gpt.commands import parse_arguments
from hf_gpt.evaluation import EvaluationArguments, evaluate
from hf_gpt.training.arguments import DataArguments, ModelArguments

from ..support.formats.question_answering import QUESTIONS, squad
from ..support.runs import assert_resumption, finetune, predictions, training_lines

pytestmark = pytest.mark.whole

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
    "question answering": (None, "--task squad", "GPTForQuestionAnswering"),
}
SETTINGS = ["--learning_rate", "1e-2", "--per_device_train_batch_size", "6", "--dropout", "0", "--warmup", "0"]
SETTINGS += ["--save_total_limit", "9"]


@pytest.fixture(scope="module")
def flags_of(tiny_checkpoint, tmp_path_factory):
    """`flags_of(family, output)`: the same rows to learn, to choose by and to predict."""
    folder = tmp_path_factory.mktemp("families")

    def flags(family: str, output: Path) -> list:
        rows, columns, _ = FAMILIES[family]
        files = folder / family
        files.mkdir(exist_ok=True)
        if rows is None:
            for name in ("train", "dev"):
                (files / f"{name}-v1.1.json").write_text(squad(QUESTIONS))
            (files / "test-v1.1.json").write_text(squad(QUESTIONS))
            data = ["--data_dir", files]
        else:
            (files / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
            data = ["--task", "custom"]
            data += [
                word for split in ("train", "validation", "test") for word in (f"--{split}_file", files / "rows.jsonl")
            ]
        return ["--model_name_or_path", tiny_checkpoint, "--output_dir", output, *columns.split(), *data, *SETTINGS]

    return flags


@pytest.fixture(scope="module")
def run_of(flags_of, tmp_path_factory):
    """`run_of(family)`: folder and record of a run of 12 steps or more, made once."""
    made = {}

    def run(family: str) -> tuple[Path, dict]:
        if family not in made:
            output = tmp_path_factory.mktemp("run") / "out"
            made[family] = output, finetune(*flags_of(family, output), "--num_train_epochs", 6)
        return made[family]

    return run


@pytest.mark.parametrize("family", FAMILIES)
def test_it_learns(family, run_of):
    """Its loss falls, both terms are logged, and the files say the same as the record."""
    output, record = run_of(family)
    lines = training_lines(output / f"checkpoint-{record['steps']}")
    assert sum(line[1] for line in lines[-3:]) < sum(line[1] for line in lines[:3])
    assert all(line[0] == pytest.approx(line[1] + 0.5 * line[2], abs=1e-4) for line in lines)
    assert json.loads((output / "metrics.json").read_text()) == record
    assert record["metrics"]["test"].keys() == record["metrics"]["validation"].keys()
    card = ModelCard.load(output / "README.md")
    assert card.data.eval_results
    found = predictions(output)
    if "accuracy" in record["metrics"]["test"]:
        right = sum(line["label"] == line["prediction"] for line in found) / len(found)
        assert right == pytest.approx(record["metrics"]["test"]["accuracy"])


@pytest.mark.parametrize("family", FAMILIES)
def test_parts_of_a_batch_give_the_losses_of_the_whole(family, flags_of, tmp_path):
    flags = ["--train_sampling_strategy", "random", "--eval_strategy", "no", "--load_best_model_at_end", "false"]
    flags += ["--save_strategy", "steps", "--save_steps", 3, "--max_steps", 3]
    lines = []
    for size, parts in ((7, 1), (1, 7)):
        output = tmp_path / str(size)
        sizes = ["--per_device_train_batch_size", size, "--gradient_accumulation_steps", parts]
        finetune(*flags_of(family, output), *flags, *sizes)
        lines.append(training_lines(output / "checkpoint-3"))
    assert lines[0] == [pytest.approx(line, rel=1e-3, abs=1e-5) for line in lines[1]]


@pytest.mark.parametrize("family", FAMILIES)
def test_it_resumes_to_the_same_bits(family, flags_of, tmp_path):
    assert_resumption(lambda output: flags_of(family, output), tmp_path)


@pytest.mark.parametrize("family", FAMILIES)
def test_evaluation_agrees(family, run_of, flags_of, tmp_path):
    output, record = run_of(family)
    flags = flags_of(family, tmp_path / "measured")[2:]
    flags = [*flags[: len(flags) - len(SETTINGS)], "--use_cpu", "true", "--disable_tqdm", "true"]
    arguments = (ModelArguments, DataArguments, EvaluationArguments)
    flags += ["--model_name_or_path", output, "--per_device_eval_batch_size", 3]
    measured = evaluate(*parse_arguments(arguments, list(map(str, flags))))
    assert measured["metrics"] == pytest.approx(record["metrics"]["test"], abs=1e-6)
    ours, theirs = predictions(tmp_path / "measured"), predictions(output)
    assert [line["prediction"] for line in ours] == [line["prediction"] for line in theirs]


@pytest.mark.parametrize("family", FAMILIES)
def test_the_model_that_is_saved_loads_and_answers(family, run_of, capsys):
    """Through the class that its card names, and through pipelines."""
    output, _ = run_of(family)
    model = getattr(hf_gpt, FAMILIES[family][2]).from_pretrained(output)
    assert type(model).__name__ in model.config.architectures
    tokenizer = AutoTokenizer.from_pretrained(output)
    found = predictions(output)
    if family == "classification":
        classify = pipeline("text-classification", model=str(output), device="cpu")
        assert [answer["label"] for answer in classify(TEXTS)] == [line["prediction"] for line in found]
    elif family == "tagging":
        words = TEXTS[0].split()
        inputs = tokenizer(words, is_split_into_words=True, return_tensors="pt")
        with torch.no_grad():
            labels = dict(zip(inputs.word_ids(), model.eval()(**inputs).logits[0].argmax(-1).tolist(), strict=True))
        expected = [line["prediction"] for line in found[: len(words)]]
        assert [model.config.id2label[labels[number]] for number in range(len(words))] == expected
    else:
        code = ModelCard.load(output / "README.md").text.split("```python\n")[1].split("```")[0]
        exec(code.replace('folder = "."', f"folder = {str(output)!r}"), {})
        assert capsys.readouterr().out.strip()


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")  # of peft
@pytest.mark.parametrize("adaptation", ["lora", pytest.param("prefix", marks=pytest.mark.slow), "frozen"])
@pytest.mark.parametrize("family", ["classification", "multiple choice", "tagging", "question answering"])
def test_adapters_and_heads_alone(family, adaptation, flags_of, tmp_path):
    """What is saved loads by itself and gives the predictions that were written."""
    output = tmp_path / "out"
    record = finetune(*flags_of(family, output), "--adaptation", adaptation, "--max_steps", 4)
    assert record["trained_parameters"] < 30_000
    before = predictions(output)
    for name in ("metrics.json", "predictions.tsv"):
        (output / name).unlink()
    finetune(
        *flags_of(family, output), "--adaptation", adaptation, "--max_steps", 4, "--resume_from_checkpoint", "last"
    )
    assert predictions(output) == before
    if adaptation != "frozen":
        assert load_adapter(output).peft_config
    else:
        assert getattr(hf_gpt, FAMILIES[family][2]).from_pretrained(output).config.lm_coef == 0


def test_several_tasks_of_unlike_families(flags_of, tmp_path):
    """Words, questions and sentences share a transformer, and each has a folder of its own."""
    flags = [flag for flag in flags_of("tagging", tmp_path / "out") if flag not in ("--task", "custom")]
    others = flags_of("question answering", tmp_path)
    squad_files = others[others.index("--data_dir") + 1]
    flags += [
        "--tasks",
        "questions",
        "custom",
        "squad",
        "--data_dirs",
        f"squad={squad_files}",
        "--num_train_epochs",
        1,
    ]
    record = finetune(*flags, "--max_train_rows", 18, "--max_eval_rows", 18)
    mains = {task: own["main_metric"] for task, own in record["tasks"].items()}
    assert mains == {"custom": "entity_f1", "questions": "accuracy", "squad": "exact_match"}
    assert all(predictions(tmp_path / "out" / task) for task in mains)
