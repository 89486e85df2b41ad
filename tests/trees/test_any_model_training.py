"""Any causal model trained on trees by the plain Trainer: the losses of rows of their own, of ours, and of TRL."""

import copy
import runpy
import sys

import pytest
import torch
import transformers
from datasets import Dataset
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, load_model
from torch.nn.functional import cross_entropy
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments

from hf_gpt import GPT_MINI, GPTForCausalLM, GPTForMultipleChoice
from hf_gpt.trees import collate_choices, path_log_probs, tree_model

from ..support.runs import REPOSITORY, finish, start_launch
from ..support.tensors import assert_close, gradients
from .test_any_model import GPT2, GROUPED, HOLDS, REFUSED, alone, model_of

# Of peft and TRL.
pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")

EXAMPLE = REPOSITORY / "scripts" / "examples" / "any_causal_model.py"
ITEMS = [
    {"context": [5, 6, 7, 8, 9], "choices": [[10, 11], [10, 12, 13], [14]], "label": 1},
    {"context": [3, 4, 11], "choices": [[20, 21, 22], [24]], "label": 0},
    {"context": [7], "choices": [[30], [31, 32], [30, 33]], "label": 2},
    {"context": [1, 2, 3, 4], "choices": [[40, 41], [42]], "label": 1},
]
PAIRS = [{"context": item["context"], "choices": item["choices"][:2]} for item in ITEMS]
KINDS = {"llama": GROUPED, "gpt2": GPT2 | dict.fromkeys(("embd_pdrop", "attn_pdrop", "resid_pdrop"), 0.0)}
OBJECTIVES = {"multiple-choice": {"lm_coef": 0.5}, "log-probs": {"beta": 0.3}, "answers": {}}


def arguments(tmp_path, **settings) -> TrainingArguments:
    fixed = {"max_steps": 1, "optim": "sgd", "learning_rate": 0.5, "max_grad_norm": 0.0, "report_to": "none"}
    fixed |= {"save_strategy": "no", "disable_tqdm": True, "use_cpu": True, "per_device_train_batch_size": 4}
    return TrainingArguments(str(tmp_path), remove_unused_columns=False, logging_steps=1, **fixed | settings)


def train(model, tmp_path, **settings) -> tuple[float, dict[str, torch.Tensor]]:
    """The loss of one step, and what is trained after it."""
    args = arguments(tmp_path, **settings)
    trainer = Trainer(model, args, train_dataset=Dataset.from_list(ITEMS), data_collator=collate_choices)
    trainer.train()
    return trainer.state.log_history[0]["loss"], dict(trainer.model.named_parameters())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("objective", ["choices", "answers"])
def test_losses_are_those_of_rows_of_their_own(kind, objective):
    model, losses = model_of(kind, KINDS[kind]), []
    for item in ITEMS:
        sums = torch.stack([alone(model, item["context"], choice) for choice in item["choices"]])
        lengths = torch.tensor([len(choice) for choice in item["choices"]])
        if objective == "answers":
            losses.append(-(sums / lengths).mean())
        else:
            losses.append(cross_entropy(0.3 * sums, torch.tensor(item["label"])))
    loss = torch.stack(losses).mean()
    expected = gradients(model, loss)
    model = tree_model(model, *("log-probs", 0, 0.3) if objective == "choices" else ["answers"])
    found = model(**collate_choices(ITEMS))
    torch.testing.assert_close(found.loss, loss)
    assert found.logits.isfinite().sum(1).tolist() == [3, 2, 3, 2]
    assert_close(gradients(model, found.loss), expected)


def test_the_joint_loss_is_ours(tiny_model):
    """Of `GPTForMultipleChoice` with the same weights."""
    ours = tiny_model(GPTForMultipleChoice, vocab_size=50, lm_coef=0.5)
    model = tiny_model(GPTForCausalLM, vocab_size=50)
    model.transformer.load_state_dict(ours.transformer.state_dict())
    tree_model(model, "multiple-choice", lm_coef=0.5)
    with torch.no_grad():
        model.score.weight.copy_(ours.score.weight)
    batch = collate_choices(ITEMS)
    found = model(**batch)
    batch.pop("context_length")
    expected = ours(**batch, return_lm_loss=True)
    torch.testing.assert_close(found.loss, expected.loss)
    torch.testing.assert_close(found.logits, expected.logits - ours.score.bias)
    expected = gradients(ours, expected.loss)
    del expected["score.bias"]
    assert_close(gradients(model, found.loss), expected)


@pytest.mark.parametrize("kind", HOLDS)
def test_the_head_reads_the_last_states(kind):
    model = tree_model(model_of(kind, HOLDS[kind], "eager"), "multiple-choice")
    item = ITEMS[0]
    for number, choice in enumerate(item["choices"]):
        states = model.base_model(torch.tensor([[*item["context"], *choice]]), use_cache=False).last_hidden_state
        scores = model(**collate_choices([item])).logits
        torch.testing.assert_close(scores[0, number], model.score(states[0, -1])[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize(
    "settings",
    [{"per_device_train_batch_size": 1, "gradient_accumulation_steps": 4}, {"activation_checkpointing": True}],
    ids=["accumulated", "checkpointed"],
)
def test_a_step_in_parts_or_recomputed_is_the_same_step(objective, settings, tmp_path):
    torch.manual_seed(0)
    model = tree_model(model_of("llama", GROUPED), objective, **OBJECTIVES[objective])
    copied = copy.deepcopy(model)
    before = {name: value.clone() for name, value in model.named_parameters()}
    loss, whole = train(model, tmp_path)
    again, parts = train(copied, tmp_path, **settings)
    assert again == pytest.approx(loss, rel=1e-5)
    assert any(not torch.equal(before[name], whole[name]) for name in before)
    assert_close(parts, whole)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_lora_on_top(objective, tmp_path):
    model = tree_model(model_of("llama", GROUPED), objective, **OBJECTIVES[objective])
    expected = model(**collate_choices(ITEMS)).loss.item()
    saved = ["score"] if objective == "multiple-choice" else None
    config = LoraConfig(task_type="CAUSAL_LM", modules_to_save=saved, target_modules=["q_proj"])
    loss, trained = train(get_peft_model(model, config), tmp_path, activation_checkpointing=True)
    assert loss == pytest.approx(expected, rel=1e-5)
    assert any(value.any() for name, value in trained.items() if "lora_B" in name)


def test_a_saved_model_is_the_users_own_with_its_head(tmp_path):
    model = tree_model(model_of("gpt2", KINDS["gpt2"]), "multiple-choice")
    Trainer(model, arguments(tmp_path), data_collator=collate_choices).save_model()
    plain = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert type(plain) is type(model)
    again = tree_model(plain, "multiple-choice")
    load_model(again, tmp_path / "model.safetensors", strict=False)
    batch = collate_choices(ITEMS)
    assert torch.equal(again(**batch).logits, model(**batch).logits)
    row = torch.tensor([[5, 6, 7]])
    assert torch.equal(model(row).logits, plain(row).logits)
    assert model.generate(row, max_new_tokens=2, do_sample=False).shape == (1, 5)


def test_evaluation_counts_labels(tmp_path):
    """Also of items with fewer choices, whose scores the Trainer fills up."""
    model = tree_model(model_of("llama", GROUPED), "log-probs")
    args = arguments(tmp_path, per_device_eval_batch_size=1)
    found = Trainer(model, args, data_collator=collate_choices).predict(ITEMS)
    with torch.no_grad():
        sums = path_log_probs(model, [item["context"] for item in ITEMS], [item["choices"] for item in ITEMS])
    assert found.predictions.argmax(-1).tolist() == sums.argmax(-1).tolist()
    assert found.label_ids.tolist() == [1, 0, 2, 1]
    loss = cross_entropy(sums, torch.tensor([1, 0, 2, 1])).item()
    assert found.metrics["test_loss"] == pytest.approx(loss, rel=1e-5)


def test_what_does_not_fit_says_why():
    model = model_of("llama", GROUPED)
    with pytest.raises(ValueError, match="Unknown head 'dpo'; choose one of multiple-choice"):
        tree_model(model, "dpo")
    with pytest.raises(ValueError, match="not a PeftModel; add adapters"):
        tree_model(get_peft_model(model, LoraConfig(target_modules=["q_proj"])), "answers")
    with pytest.raises(ValueError, match="cannot hold token trees: it takes no position_ids"):
        tree_model(model_of("bloom", REFUSED["bloom"][0], "eager"), "answers")
    with pytest.raises(ValueError, match="remove_unused_columns=False"):
        collate_choices([{"label": 1}])


@pytest.fixture
def trl(tmp_path, own_datasets_cache):
    """TRL, the settings of its trainers, and a tokenizer that they take."""
    settings = {"output_dir": str(tmp_path), "report_to": "none", "use_cpu": True, "bf16": False}
    settings |= {"activation_checkpointing": False, "per_device_train_batch_size": 4, "remove_unused_columns": False}
    tokenizer = AutoTokenizer.from_pretrained(GPT_MINI, eos_token="_classify_")
    return pytest.importorskip("trl", reason="needs pip install trl"), settings, tokenizer


@pytest.mark.parametrize("kind", KINDS)
def test_pairs_have_the_loss_and_gradients_of_trl(kind, trl):
    library, args, tokenizer = trl
    from trl.trainer.dpo_trainer import DataCollatorForPreference

    settings = KINDS[kind] | {"vocab_size": len(tokenizer)}
    model, reference = model_of(kind, settings), model_of(kind, settings | {"initializer_range": 0.1})
    ours = copy.deepcopy(model)
    text = Dataset.from_list([{"prompt": "She", "chosen": " opened", "rejected": " closed"}])
    args = library.DPOConfig(**args, beta=0.3)
    trainer = library.DPOTrainer(model, reference, args, train_dataset=text, processing_class=tokenizer)
    names = ("prompt_ids", "chosen_ids", "rejected_ids")
    rows = [dict(zip(names, (pair["context"], *pair["choices"]), strict=True)) for pair in PAIRS]
    theirs = trainer.compute_loss(model, DataCollatorForPreference(pad_token_id=0)(rows))
    contexts, choices = [pair["context"] for pair in PAIRS], [pair["choices"] for pair in PAIRS]
    with torch.no_grad():
        sums = path_log_probs(reference, contexts, choices)
    rows = [pair | {"reference": each.tolist()} for pair, each in zip(PAIRS, sums, strict=True)]
    loss = tree_model(ours, "log-probs", beta=0.3)(**collate_choices(rows)).loss
    assert_close(loss, theirs)
    assert_close(gradients(ours, loss), gradients(model, theirs))


@pytest.mark.parametrize("kind", KINDS)
def test_rewards_have_the_loss_and_gradients_of_trl(kind, trl):
    library, args, tokenizer = trl
    settings = KINDS[kind] | {"vocab_size": len(tokenizer)}
    ours = tree_model(model_of(kind, settings), "multiple-choice")
    config = transformers.AutoConfig.for_model(kind, **settings, num_labels=1)
    model = transformers.AutoModelForSequenceClassification.from_config(config).eval()
    model.base_model.load_state_dict(ours.base_model.state_dict())
    model.score.load_state_dict(ours.score.state_dict())
    names = ("chosen_ids", "rejected_ids")
    rows = [dict(zip(names, (pair["context"] + choice for choice in pair["choices"]), strict=True)) for pair in PAIRS]
    args, data = library.RewardConfig(**args), Dataset.from_list(rows)
    trainer = library.RewardTrainer(model, args=args, train_dataset=data, processing_class=tokenizer)
    theirs = trainer.compute_loss(model, trainer.data_collator(rows))
    loss = ours(**collate_choices(PAIRS)).loss
    assert_close(loss, theirs)
    assert_close(gradients(ours, loss), gradients(model, theirs))


def write_example(folder) -> None:
    """A model and rows for the example."""
    rows = ["context,right,wrong,third,label", "She opened,the door,the sky,,0", "He ate,a house,an apple,a tree,1"]
    (folder / "rows.csv").write_text("\n".join(rows) + "\n")
    settings = KINDS["llama"] | {"vocab_size": 8004}
    model_of("llama", settings).save_pretrained(folder / "model")
    AutoTokenizer.from_pretrained(GPT_MINI).save_pretrained(folder / "model")


@pytest.mark.slow
@pytest.mark.whole
@pytest.mark.parametrize("head", ["log-probs", "multiple-choice"])
def test_two_processes_train_as_one(head, tmp_path):
    """One row in each, of unlike lengths and numbers of choices."""
    write_example(tmp_path)
    words = f"{EXAMPLE} --model_name_or_path {tmp_path}/model --train_file {tmp_path}/rows.csv --head {head}"
    words += " --max_steps 2 --lm_coef 0.5 --optim sgd --learning_rate 0.1 --report_to none --save_strategy no"
    launcher = "-m accelerate.commands.launch --config_file scripts/configs/accelerate/two_cpu_processes.yaml"
    for start, size in (("", 2), (launcher, 1)):
        more = f"--per_device_train_batch_size {size} --use_cpu --output_dir {tmp_path}/{size}"
        command = [sys.executable, *f"{start} {words} {more}".split()]
        log = tmp_path / f"{size}.log"
        finish(start_launch(log, command, HF_DATASETS_CACHE=str(tmp_path / "cache")), log)
    one, two = (load_file(tmp_path / name / "model.safetensors") for name in "21")
    before = load_file(tmp_path / "model" / "model.safetensors")
    assert not torch.equal(one["lm_head.weight"], before["lm_head.weight"])
    assert_close(two, one)


def test_the_example_trains_from_a_csv_file(tmp_path, monkeypatch, capsys, own_datasets_cache):
    write_example(tmp_path)
    (tmp_path / "bad.csv").write_text("context,label\nx,0\n")

    def run(file: str) -> None:
        words = f"--model_name_or_path {tmp_path}/model --train_file {tmp_path}/{file}"
        words += f" --validation_file {tmp_path}/rows.csv --output_dir {tmp_path}/out --max_steps 12"
        words += " --learning_rate 0.01 --report_to none --use_cpu"
        monkeypatch.setattr("sys.argv", ["any_causal_model.py", *words.split()])
        runpy.run_path(str(EXAMPLE), run_name="__main__")

    run("rows.csv")
    assert "validation accuracy: 1.0000" in capsys.readouterr().out
    assert (tmp_path / "out" / "model.safetensors").is_file()
    with pytest.raises(SystemExit, match="give the columns context, label and at least two choices"):
        run("bad.csv")
