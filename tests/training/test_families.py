"""
What every kind of run has in common, family by family and with what is trained of a model: it learns, adds up, resumes
to the same bits, gives the same numbers in several processes, is evaluated, saved and loaded.
"""

import json
import shutil
from pathlib import Path

import pytest
import torch
import yaml
from huggingface_hub import ModelCard
from safetensors.torch import load_file
from transformers import AutoTokenizer, pipeline

import hf_gpt
from hf_gpt.adapters import load_adapter

from ..support import runs
from ..support.formats.question_answering import QUESTIONS, squad
from ..support.runs import evaluation, files_of, finetune, predictions, training_lines
from ..support.task_files import jsonl, write

pytestmark = pytest.mark.whole

WORDS = {"Ada": "B-PER", "Lovelace": "I-PER", "met": "O", "Bob": "B-PER", "in": "O", "Rome": "B-LOC", ".": "O"}
TEXTS = [f"{a} {b} in Rome {c}." for a in ("Ada", "Bob") for b in ("met", "saw", "left") for c in "abc "]
# The last one is longer than the context of 64.
SENTENCES = [*(text.split() for text in TEXTS), " ".join(TEXTS[:16]).split()]
PAIR = "--premise_column text --hypothesis_column one"
# By family: the label of a text, or of words, and flags.
FAMILIES = {
    "classification": (lambda text: "yes" if "met" in text else "no", "--text_column text"),
    "entailment": (lambda text: "yes" if "met" in text else "no", PAIR),
    "regression": (lambda text: float("met" in text), f"{PAIR} --task_family similarity --problem_type regression"),
    "multiple choice": (lambda text: int("met" not in text), "--context_column text --choice_columns one two"),
    "tagging": (lambda words: [WORDS.get(word, "O") for word in words], "--words_column text"),
    "question answering": (None, ""),
    "text-to-text": (lambda text: text.split()[1], "--text_column text --target_column label --max_new_tokens 8"),
}
RARELY = "--save_strategy steps --save_steps 80 --eval_strategy steps --eval_steps 80"
# Other kinds of runs: their family, and further flags.
KINDS = {family: (family, []) for family in FAMILIES} | {
    "question answering": ("question answering", f"--num_train_epochs 30 {RARELY}".split()),
    "lora": ("classification", ["--adaptation", "lora"]),
    "houlsby": ("multiple choice", ["--adaptation", "houlsby"]),
    # Texts are truncated to the context that the virtual tokens leave.
    "prefix": ("classification", ["--adaptation", "prefix", "--adapter_size", 56]),
    "frozen": ("classification", ["--adaptation", "frozen"]),
    "masked": ("tagging", []),
    "masked choice": ("multiple choice", ["--adaptation", "frozen"]),
    "smoothed": ("classification", ["--label_smoothing_factor", 0.4]),
    "frozen mix": ("multiple choice", ["--adaptation", "frozen", "--layers", "mix", "--label_smoothing_factor", 0.4]),
    "frozen tagging": ("tagging", ["--adaptation", "frozen", "--layers", "1"]),
    "bf16": ("classification", ["--bf16", "true"]),
    "chain-thaw": ("classification", ["--unfreeze", "chain_thaw", "--unfreeze_every", 1, "--layer_decay", 0.8]),
    "several tasks": ("tagging", ["--max_train_rows", 18, "--max_eval_rows", 18]),
}
SETTINGS = ["--learning_rate", "1e-2", "--per_device_train_batch_size", "6", "--dropout", "0", "--warmup", "0"]
SETTINGS += ["--save_total_limit", "9", "--num_train_epochs", 6]
EXACT = [kind for kind in KINDS if kind != "bf16"]
# Texts that are written are compared in `test_text_to_text.py`.
ANSWERING = [kind for kind in KINDS if kind != "text-to-text"]


@pytest.fixture(scope="module")
def data_of(tmp_path_factory):
    """`data_of(family)`: flags of the same rows to learn, to choose by and to predict."""
    folder = tmp_path_factory.mktemp("families")

    def flags(family: str) -> list:
        label, columns = FAMILIES[family]
        if label is None:
            write(folder, {f"{name}-v1.1.json": squad(QUESTIONS) for name in ("train", "dev", "test")})
            return ["--task", "squad", "--data_dir", folder]
        new = [{"text": text, "one": "they met", "two": "they did not"} for text in TEXTS]
        new = [{"text": words} for words in SENTENCES] if family == "tagging" else new
        labelled = [row | {"label": label(row["text"])} for row in new]
        write(folder, {f"{family}.jsonl": jsonl(*labelled), f"{family} without labels.jsonl": jsonl(*new)})
        file = folder / f"{family}.jsonl"
        files = [word for split in ("train", "validation", "test") for word in (f"--{split}_file", file)]
        return ["--task", "custom", *columns.split(), *files]

    return flags


@pytest.fixture(scope="module")
def flags_of(tiny_checkpoint, data_of, tmp_path_factory):
    """`flags_of(kind, output)`: of a run into a folder."""
    masked, tokenizer = tmp_path_factory.mktemp("masked"), AutoTokenizer.from_pretrained(tiny_checkpoint)
    hf_gpt.GPTForMaskedLM.from_pretrained(tiny_checkpoint, is_causal=False).save_pretrained(masked)
    tokenizer.save_pretrained(masked)

    def flags(kind: str, output: Path) -> list:
        family, more = KINDS[kind]
        data = data_of(family)
        if kind == "several tasks":
            folder = data_of("question answering")[-1]
            data = ["--tasks", "questions", "custom", "squad", "--data_dirs", f"squad={folder}", *data[2:]]
        start = masked if kind.startswith("masked") else tiny_checkpoint
        return ["--model_name_or_path", start, "--output_dir", output, *data, *SETTINGS, *more]

    return flags


@pytest.fixture(scope="module")
def run_of(flags_of, tmp_path_factory):
    """`run_of(kind)`: folder and record of a run of 12 steps or more, made once."""
    made = {}

    def run(kind: str) -> tuple[Path, dict]:
        if kind not in made:
            output = tmp_path_factory.mktemp("run") / "out"
            made[kind] = output, finetune(*flags_of(kind, output))
        return made[kind]

    return run


@pytest.mark.parametrize("kind", ANSWERING)
def test_it_learns(kind, run_of):
    """Its loss falls, both terms are logged, and the files say the same as the record."""
    output, record = run_of(kind)
    lines = training_lines(output / f"checkpoint-{record['steps']}")
    count = len(lines) // 3
    assert sum(line[1] for line in lines[-count:]) < sum(line[1] for line in lines[:count])
    assert all(line[0] == pytest.approx(line[1] + 0.5 * line[2], abs=1e-4) for line in lines)
    assert any(line[2] for line in lines) != kind.startswith(("frozen", "masked"))
    assert json.loads((output / "metrics.json").read_text()) == record
    if kind in ("tagging", "question answering"):
        assert record["metrics"]["test"][record["main_metric"]] > 0.8
    for task, own in record.get("tasks", {"": record}).items():
        assert own["metrics"]["test"].keys() == own["metrics"]["validation"].keys()
        assert ModelCard.load(output / task / "README.md").data.eval_results
        assert not [*output.rglob("*.bin"), *output.glob("features"), *output.glob("unfinished")]
        found = predictions(output / task)
        if "accuracy" in own["metrics"]["test"]:
            right = sum(line["label"] == line["prediction"] for line in found) / len(found)
            assert right == pytest.approx(own["metrics"]["test"]["accuracy"])


def test_smoothed_labels_change_the_loss_of_the_task_alone(run_of):
    (plain, record), (smoothed, _) = (run_of(kind) for kind in ("classification", "smoothed"))
    ours, theirs = (training_lines(output / f"checkpoint-{record['steps']}") for output in (smoothed, plain))
    assert ours[0][2] == theirs[0][2]
    assert ours[0][1] != theirs[0][1]
    assert "label smoothing" in (smoothed / "README.md").read_text()


def test_bfloat16_keeps_float32_weights(run_of):
    """Its first losses are those of float32 to a hundredth."""
    (plain, record), (output, _) = (run_of(kind) for kind in ("classification", "bf16"))
    theirs, ours = (training_lines(each / f"checkpoint-{record['steps']}")[:8] for each in (plain, output))
    assert ours != theirs
    assert [line[:3] for line in ours] == [pytest.approx(line[:3], rel=0.02) for line in theirs]
    assert {weight.dtype for weight in load_file(output / "model.safetensors").values()} == {torch.float32}


@pytest.mark.parametrize(("kind", "reads"), {"frozen": "last layer", "frozen mix": "mix", "frozen tagging": 1}.items())
def test_a_frozen_body_is_saved_with_its_head(kind, reads, run_of, flags_of, tiny_checkpoint, tmp_path):
    output, record = run_of(kind)
    saved, before = (load_file(folder / "model.safetensors") for folder in (output, tiny_checkpoint))
    assert all(torch.equal(saved[name], value) for name, value in before.items())
    assert load_file(output / f"checkpoint-{record['steps']}/model.safetensors").keys() == saved.keys() - before.keys()
    head = [value.numel() for name, value in saved.items() if name not in before]
    assert record["trained_parameters"] == sum(head)
    card = (output / "README.md").read_text()
    assert f"| trained parameters | {sum(head)} |" in card
    lines = {"mix": "a learnt mix of all layers", 1: "layer 1 of 2"}
    assert f"| head reads | {lines.get(reads, 'the last layer')} |" in card
    assert ("layer_mix" in record) == (reads == "mix")
    if reads == "mix":
        mix, scalars = record["layer_mix"], saved["head_mix.scalars"]
        expected = [*(scalars.exp() / scalars.exp().sum()).tolist(), saved["head_mix.gamma"].item()]
        assert [*mix["weights"], mix["gamma"]] == pytest.approx(expected)
        assert len({*mix["weights"]}) == 3  # they were trained
        assert "| {:.2f}, {:.2f}, {:.2f}; times {:.2f} |".format(*expected) in card
    if reads == 1:
        flags = [*flags_of("tagging", tmp_path / "out"), "--model_name_or_path", output, "--keep_head", "true"]
        with pytest.raises(ValueError, match="nothing would train the layers above"):
            finetune(*flags, "--lm_coef", 0)


@pytest.mark.parametrize("kind", EXACT)
def test_parts_of_a_batch_give_the_losses_of_the_whole(kind, flags_of, tmp_path, capsys):
    """The last batch of an epoch is not full; and where the language model's loss is left out, a line says so."""
    flags = ["--train_sampling_strategy", "random", "--eval_strategy", "no", "--load_best_model_at_end", "false"]
    flags += ["--save_strategy", "steps", "--save_steps", 4, "--max_steps", 4]
    lines = []
    for size, parts in ((7, 1), (1, 7)):
        output = tmp_path / str(size)
        sizes = ["--per_device_train_batch_size", size, "--gradient_accumulation_steps", parts]
        finetune(*flags_of(kind, output), *flags, *sizes)
        lines.append(training_lines(output / "checkpoint-4"))
    said = "language-model loss is left out (lm_coef 0, not 0.5): " in capsys.readouterr().out
    assert said == kind.startswith(("frozen", "masked"))
    assert lines[0] == [pytest.approx(line, rel=1e-3, abs=1e-5) for line in lines[1]]


@pytest.mark.parametrize("kind", KINDS)
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
    "kind", [pytest.param(kind, marks=[pytest.mark.slow] * (kind != "tagging")) for kind in EXACT]
)
def test_two_processes_give_the_numbers_of_one(kind, flags_of, tmp_path):
    """The last batch of an epoch, of 4 or 5 rows, leaves nothing to the second process."""
    flags = ["--per_device_train_batch_size", 20, "--max_steps", 4, "--logging_steps", 1, "--learning_rate", 1e-3]
    finetune(*flags_of(kind, tmp_path / "one"), *flags)
    flags += ["--per_device_train_batch_size", 5, "--gradient_accumulation_steps", 2, "--disable_tqdm", "true"]
    command = runs.launch_command("two_cpu_processes", *flags_of(kind, tmp_path / "two"), *flags)
    runs.finish(runs.start_launch(tmp_path / "log", command), tmp_path / "log")
    runs.assert_same_training(tmp_path / "two", tmp_path / "one", 4)
    if kind == "text-to-text":  # each wrote some of them
        assert predictions(tmp_path / "two") == predictions(tmp_path / "one")


@pytest.mark.parametrize("kind", [kind for kind in ANSWERING if kind != "several tasks"])
def test_evaluation_agrees(kind, run_of, data_of, tmp_path):
    """Rows without labels are predicted as those with labels are."""
    output, record = run_of(kind)
    data, of_kind = data_of(KINDS[kind][0]), float if kind == "regression" else str

    def answers_in(folder: Path) -> list:
        return [of_kind(line["prediction"]) for line in predictions(folder)]

    flags = ["--model_name_or_path", output, "--output_dir", tmp_path / "evaluated", *data]
    evaluated = evaluation(*flags, "--per_device_eval_batch_size", 3)
    assert evaluated["metrics"] == pytest.approx(record["metrics"]["test"], abs=1e-6)
    assert answers_in(tmp_path / "evaluated") == pytest.approx(answers_in(output), abs=1e-5)
    if "custom" in data:
        new = data[-1].with_stem(f"{data[-1].stem} without labels")
        flags = [*flags[:-6], "--test_file", new, "--output_dir", tmp_path / "new"]  # that file alone
        assert evaluation(*flags)["metrics"] == {}
        assert answers_in(tmp_path / "new") == pytest.approx(answers_in(output), abs=1e-5)
        assert {line["label"] for line in predictions(tmp_path / "new")} == {""}


@pytest.mark.parametrize("kind", ANSWERING)
def test_the_model_that_is_saved_loads_and_answers(kind, run_of, tiny_checkpoint):
    """Through the class that its configuration names, and through pipelines or the code of the card."""
    output, _ = run_of(kind)
    family, _ = KINDS[kind]
    if kind == "several tasks":
        squads, folder = output / "squad", output / "custom"
        ours, theirs = (hf_gpt.GPTModel.from_pretrained(each).state_dict() for each in (squads, folder))
        assert all(torch.equal(value, theirs[name]) for name, value in ours.items())
        output = folder
    assert kind == "prefix" or runs.answers_of_card(output)  # whose example is longer than what is left of the context
    found, tokenizer = predictions(output), AutoTokenizer.from_pretrained(output)
    if family == "classification" and kind != "prefix":
        answers = pipeline("text-classification", model=str(output), device="cpu")(TEXTS)
        assert [answer["label"] for answer in answers] == [line["prediction"] for line in found]
        scores = [float(line[f"p({line['prediction']})"]) for line in found]
        assert [answer["score"] for answer in answers] == pytest.approx(scores, abs=1e-4 if kind in EXACT else 0.01)
    if kind in ("lora", "houlsby", "prefix"):
        assert load_adapter(output).active_peft_config.base_model_name_or_path == str(tiny_checkpoint)
        assert ModelCard.load(output / "README.md").data.library_name == "peft"
        assert not {path.name for path in output.iterdir()} & {"config.json", "model.safetensors", "training_args.bin"}
        return
    (model_class,) = json.loads((output / "config.json").read_text())["architectures"]
    model = getattr(hf_gpt, model_class).from_pretrained(output).eval()
    assert (model.config.lm_coef == 0) == kind.startswith(("frozen", "masked"))
    assert model.config.is_causal != kind.startswith("masked")
    for text, line in zip(TEXTS, found if family == "multiple choice" else [], strict=False):
        inputs = [tokenizer(text, ending, return_tensors="pt")["input_ids"] for ending in ("they met", "they did not")]
        logits = torch.cat([model(ids[None]).logits for ids in inputs], dim=-1)
        scores = [float(value) for name, value in line.items() if name.startswith("p(")]
        assert scores == pytest.approx(logits.softmax(-1)[0].tolist(), abs=1e-4)


def windows(tokens: list[int], length: int) -> list[list[int]]:
    """Of each token what is read before it: windows of so many tokens, each half a window further."""
    starts = (max(0, -(-(end - length) // (length // 2))) * (length // 2) for end in range(1, len(tokens) + 1))
    return [tokens[start:end] for end, start in enumerate(starts, 1)]


@torch.no_grad()
@pytest.mark.parametrize("kind", ["tagging", "frozen tagging", "masked"])
def test_windows_of_words_give_what_each_gives_alone(kind, run_of):
    """A masked model reads a word from both sides, here of a sentence that is one window."""
    output, _ = run_of(kind)
    model = hf_gpt.GPTForTokenClassification.from_pretrained(output)
    lines, tokenizer = predictions(output), AutoTokenizer.from_pretrained(output)
    assert [line["word"] for line in lines] == [word for words in SENTENCES for word in words]
    for words in SENTENCES[:1] if kind == "masked" else (SENTENCES[0], SENTENCES[-1]):
        tokens = tokenizer(words, add_special_tokens=False)["input_ids"]
        together = [token for ids in tokens for token in ids]
        before = windows(together, 62)
        found = lines[: len(words)] if words is SENTENCES[0] else lines[-len(words) :]
        for end, line in zip(torch.tensor([len(ids) for ids in tokens]).cumsum(0), found, strict=True):
            read = [*together, tokenizer.cls_token_id] if kind == "masked" else before[end - 1]
            logits = model(torch.tensor([[tokenizer.bos_token_id, *read]])).logits[0, end if kind == "masked" else -1]
            label = logits.softmax(-1)[model.config.label2id[line["prediction"]]].item()
            assert float(line[f"p({line['prediction']})"]) == pytest.approx(label, abs=1e-4)


def test_questions_without_answers_are_predicted(run_of, data_of, tmp_path):
    folder = shutil.copytree(data_of("question answering")[-1], tmp_path / "data")
    (folder / "test-v1.1.json").write_text(squad({next(iter(QUESTIONS)): {}}, one=[], two=[]))
    flags = ["--model_name_or_path", run_of("question answering")[0], "--task", "squad", "--data_dir", folder]
    assert evaluation(*flags, "--output_dir", tmp_path / "new")["metrics"] == {}
    found = [(line["id"], line["label"], bool(line["prediction"])) for line in predictions(tmp_path / "new")]
    assert found == [("one", "", True), ("two", "", True)]
    with pytest.raises(ValueError, match="no zero-shot rule for squad"):
        evaluation(*flags, "--zero_shot", "true", "--output_dir", tmp_path / "zero")


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
        said = yaml.safe_load((output / task / "card.yaml").read_text())["hyperparameters"]["starts from"]
        assert said == record["starts_from"] == "GPTForCausalLM; the head is newly initialized"
        assert f"| trained together with | {', '.join(others)} |" in (output / task / "README.md").read_text()
