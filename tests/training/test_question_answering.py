"""Fine-tuning on questions and passages, from files to predictions, in every way in which a model is trained."""

import shutil

import pytest
import torch
from huggingface_hub import ModelCard
from transformers import AutoModelForQuestionAnswering, AutoTokenizer

from hf_gpt import TokenTreeCollator, token_trees
from hf_gpt.commands import parse_arguments
from hf_gpt.evaluation import EvaluationArguments, evaluate
from hf_gpt.tasks import load_task
from hf_gpt.training.arguments import DataArguments, ModelArguments

from ..support.formats.question_answering import QUESTIONS, squad
from ..support.runs import finetune, predictions
from ..support.task_files import write

pytestmark = pytest.mark.whole


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The same twenty questions to learn, to choose by and to predict; some do not fit into one window."""
    known = squad(QUESTIONS)
    names = ("train", "dev", "test")
    return write(tmp_path_factory.mktemp("squad"), {f"{name}-v1.1.json": known for name in names})


def flags_of(model, files, output):
    return [
        *("--model_name_or_path", model, "--task", "squad", "--data_dir", files, "--output_dir", output),
        *("--learning_rate", 1e-2, "--per_device_train_batch_size", 10, "--num_train_epochs", 50, "--dropout", 0),
    ]


@pytest.fixture(scope="module")
def learnt(tiny_checkpoint, files, tmp_path_factory):
    output = tmp_path_factory.mktemp("answers") / "out"
    flags = ["--lm_coef", 0, "--eval_strategy", "no", "--save_strategy", "no", "--load_best_model_at_end", "false"]
    return output, finetune(*flags_of(tiny_checkpoint, files, output), *flags)


def test_twenty_questions_are_learnt(learnt):
    output, record = learnt
    assert record["main_metric"] == "exact_match"
    assert record["metrics"]["test"]["exact_match"] > 0.9
    assert record["metrics"]["test"]["answer_f1"] > 0.9
    lines = predictions(output)
    assert [line["label"] for line in lines] == [text for answers in QUESTIONS.values() for text in answers.values()]
    assert sum(line["label"] == line["prediction"] for line in lines) >= 18
    assert all(0 < float(line["probability"]) <= 1 for line in lines)
    card = ModelCard.load(output / "README.md")
    assert card.data.pipeline_tag == "question-answering"
    assert {result.metric_type for result in card.data.eval_results} == {"squad"}


def test_the_card_gives_the_predictions(learnt, capsys):
    """As long as question and passage fit into one window."""
    output, _ = learnt
    code = ModelCard.load(output / "README.md").text.split("```python\n")[1].split("```")[0]
    (passage, answers), number = list(QUESTIONS.items())[2], len(QUESTIONS) - 3
    line = predictions(output)[-len(answers) + number]
    code = code.replace('"Where did it rain?"', repr(list(answers)[number])).replace(
        'folder = "."', f"folder = {str(output)!r}"
    )
    exec(code.replace('"It rained in Paris, and snowed in Rome."', repr(passage)), {})
    assert capsys.readouterr().out.strip() == line["prediction"]


def test_windows_and_batches_change_nothing(learnt, files):
    """The span that is best in one softmax over the windows of a passage, each read as a sequence of its own."""
    output, _ = learnt
    model = AutoModelForQuestionAnswering.from_pretrained(output).eval()
    tokenizer = AutoTokenizer.from_pretrained(output)
    rows = load_task("squad", files).splits["test"]
    trees = token_trees(rows.remove_columns("label"), tokenizer, max_length=64)
    batch = TokenTreeCollator(tokenizer.pad_token_id)(list(trees))
    with torch.no_grad():
        together = model(**batch)
    assert sum(tree["input_ids"].count(tokenizer.cls_token_id) > 1 for tree in trees) > 10
    room = model.config.n_positions
    for number, row in enumerate(rows):
        question = tokenizer(row["question"], add_special_tokens=False)["input_ids"]
        passage = tokenizer(row["passage"], add_special_tokens=False)["input_ids"]
        begin = [tokenizer.bos_token_id, *question, tokenizer.sep_token_id]
        step = (room - len(begin) - 1) // 2
        for place in range(0, len(passage), 7):
            first = max(0, -(-(place + 1 - (room - len(begin) - 1)) // step)) * step
            with torch.no_grad():
                alone = model(torch.tensor([[*begin, *passage[first : place + 1]]]))
            torch.testing.assert_close(
                together.start_logits[number, place], alone.start_logits[0, -1], rtol=1e-4, atol=1e-4
            )
            torch.testing.assert_close(
                together.end_logits[number, place], alone.end_logits[0, -1], rtol=1e-4, atol=1e-4
            )
        assert torch.isneginf(together.start_logits[number, len(passage) :]).all()


def test_finished_models_are_measured_and_predict(learnt, files, tmp_path):
    output, record = learnt
    arguments = (ModelArguments, DataArguments, EvaluationArguments)
    write(tmp_path, {"test-v1.1.json": squad({next(iter(QUESTIONS)): {}}, one=[], two=[])})
    flags = ["--model_name_or_path", output, "--task", "squad", "--use_cpu", "true", "--disable_tqdm", "true"]

    def measured(data, name, *more):
        flags_of_one = ["--data_dir", data, "--output_dir", tmp_path / name, "--per_device_eval_batch_size", 3, *more]
        return evaluate(*parse_arguments(arguments, list(map(str, [*flags, *flags_of_one]))))["metrics"]

    assert measured(files, "known") == pytest.approx(record["metrics"]["test"])
    assert predictions(tmp_path / "known") == predictions(output)
    assert measured(files, "dev", "--split", "validation") == pytest.approx(record["metrics"]["validation"])
    with pytest.raises(FileNotFoundError, match=r"there is no train-v1\.1\.json"):
        measured(tmp_path, "new")
    for name in ("train", "dev"):
        shutil.copy(files / f"{name}-v1.1.json", tmp_path)
    assert measured(tmp_path, "new") == {}
    assert [(line["id"], line["label"], bool(line["prediction"])) for line in predictions(tmp_path / "new")] == [
        ("one", "", True),
        ("two", "", True),
    ]
    with pytest.raises(ValueError, match="no zero-shot rule for squad"):
        measured(files, "zero", "--zero_shot", "true")
