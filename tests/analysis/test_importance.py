"""Every method finds the words that matter in models built by hand, on trees as on sequences alone."""

import copy

import pytest
import torch
from transformers import AutoTokenizer

from hf_gpt import GPTForCausalLM, GPTForMultipleChoice, GPTForSequenceClassification
from hf_gpt.analysis.importance import (
    METHODS,
    Passage,
    class_score,
    faithfulness,
    next_ids_score,
    perturbation,
    word_scores,
)
from hf_gpt.trees.token_tree import TokenTree

from ..support.tiny import CLASSIFY, DELIMITER, START, build_model

KEY = 7  # the token that matters
QUICK = {"steps": 100, "learning_rate": 0.1, "draws": 2}


def passage_of(*paths: list[int], is_causal: bool = True) -> Passage:
    """Each ordinary token is a word, which paths that begin alike share."""
    tree = TokenTree.from_paths(paths, None if is_causal else 0)
    places = [place for place, token in enumerate(tree.input_ids) if token < START]
    return Passage(tree, [str(tree.input_ids[place]) for place in places], [[place] for place in places])


def attending(model_class, **settings):
    """A model whose state is mostly what stands at `KEY`, which it attends to and which the head looks for."""
    model = build_model(model_class, n_layer=1, n_head=1, **settings)
    width = model.config.n_embd
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "embed_tokens" in name:
                parameter.mul_(0.2)
                parameter[:, :2] = 0
                parameter[KEY, 0], parameter[KEY, 1] = 1, -1
            elif ".ln_" not in name or name.endswith("bias"):
                parameter.zero_()
            else:
                parameter.fill_(1)
        attention = model.base_model.h[0].attn
        attention.c_attn.weight[2 * width :] = torch.eye(width)
        attention.c_proj.weight.copy_(20 * torch.eye(width))
        attention.c_attn.bias[0] = 4  # of each query
        attention.c_attn.weight[width, :2] = torch.tensor([4.0, -4.0])  # of the keys
        if hasattr(model, "score"):
            model.score.weight[-1, 0], model.score.weight[-1, 1] = 3, -3
    return model.eval()


def toy(read, embeds, spans):
    """A function with what perturbation needs of a score."""
    read.embeds, read.spans, read.scale = embeds, spans, 10.0
    return read


def test_perturbation_ranks_the_words_of_a_sum_by_the_size_of_their_weights():
    """A toy whose sigma is known: 2 sigma_i^2 width W_i^2 = rate x variance."""
    weights, width = torch.tensor([10.0, 20.0, 5.0, -20.0, -10.0]), 16
    variance = width * weights.pow(2).sum().item()
    score = toy(lambda x: torch.einsum("w,bwd->bd", weights, x), torch.randn(5, width), [[word] for word in range(5)])
    found = perturbation(score, variance, steps=2000)
    expected = (0.1 * variance / (2 * width * weights.pow(2))).sqrt()
    torch.testing.assert_close(torch.tensor(found["sigma"]), expected, rtol=0.1, atol=0)
    assert found["losses"][-1] < found["losses"][0]
    order = torch.tensor(perturbation(score, variance)["scores"]).argsort().tolist()  # by the defaults
    assert (order[0], set(order[1:3]), set(order[3:])) == (2, {0, 4}, {1, 3})
    # Tokens of one word share its noise.
    found = perturbation(toy(lambda x: x[:, 3], torch.randn(4, 8), [[0, 1], [2, 3]]), 8, **QUICK)
    assert found["sigma"][1] < found["sigma"][0]


@pytest.mark.parametrize(
    ("weights", "steps", "learnt"), [([1, 1, 1], 2, False), ([1, 1, 1], 500, False), ([1, 2, 8], 500, True)]
)
def test_where_nothing_was_learnt_that_is_reported(weights, steps, learnt):
    """In too few steps, or of three words that matter alike."""
    weights = torch.tensor(weights).float()
    score = toy(lambda x: torch.einsum("w,bwd->b", weights, x), torch.randn(3, 4), [[0], [1], [2]])
    assert perturbation(score, 12.0, steps)["learnt"] is learnt


@torch.no_grad()
def test_the_next_words_score_is_its_log_probability():
    model = build_model(GPTForCausalLM)
    score = next_ids_score(model, passage_of([3, 5, 8]), [4, 2])
    log_probs = model(torch.tensor([[3, 5, 8, 4, 2]])).logits[0].log_softmax(-1)
    torch.testing.assert_close(score(score.embeds[None])[0], log_probs[2, 4] + log_probs[3, 2])


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("place", [1, 4])
def test_every_method_finds_the_word_that_matters(method, place):
    path = [3, 5, 8, 1, 2, 4]
    path[place] = KEY
    language = next_ids_score(attending(GPTForCausalLM), passage_of(path), [KEY])
    model = attending(GPTForSequenceClassification, num_labels=2)
    before = copy.deepcopy(model.state_dict())
    for score in (language, class_score(model, passage_of([START, *path, CLASSIFY]), 1)[0]):
        scores, _ = word_scores(score, method, **QUICK)
        assert max(range(6), key=lambda word: scores[word]) == place
        assert scores[place] > 0
    # The model stays as it was.
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None and parameter.requires_grad for parameter in model.parameters())


@pytest.mark.parametrize("method", METHODS[1:])
def test_a_choices_words_on_the_tree_matter_as_on_the_choice_alone(method):
    """Of one choice alone the score is its logit, of two it is their difference."""
    model = build_model(GPTForMultipleChoice)
    paths = [START, 3, 5, DELIMITER, 8, 1, CLASSIFY], [START, 3, 5, DELIMITER, 2, 9, 4, CLASSIFY]
    scores = [class_score(model, passage_of(*some), 0)[0] for some in (paths, paths[:1], paths[1:])]
    on_tree, one, two = (torch.tensor(word_scores(score, method)[0]) for score in scores)
    torch.testing.assert_close(on_tree, torch.cat([one[:2] - two[:2], one[2:], -two[2:]]), atol=1e-5, rtol=0)


@pytest.mark.parametrize("is_causal", [True, False])
def test_a_choice_against_the_others(is_causal):
    """A model that reads from both sides reads each choice alone; by default the likeliest choice is explained."""
    model = build_model(GPTForMultipleChoice, is_causal=is_causal, lm_coef=0.0)
    paths = [START, 3, DELIMITER, 8, CLASSIFY], [START, 3, DELIMITER, 2, CLASSIFY], [START, 3, 9, DELIMITER, CLASSIFY]

    @torch.no_grad()
    def value(*paths: list[int], wanted: int | None = None) -> tuple[float, int]:
        score, wanted = class_score(model, passage_of(*paths, is_causal=is_causal), wanted)
        return score(score.embeds[None]).item(), wanted

    logits = torch.tensor([value(path)[0] for path in paths])
    expected = logits[1] - logits[[0, 2]].logsumexp(0)
    assert value(*paths, wanted=1) == (pytest.approx(expected.item(), abs=1e-5), 1)
    assert value(*paths)[1] == logits.argmax()


def test_curves_show_the_right_order():
    model = attending(GPTForSequenceClassification, num_labels=2)
    score, _ = class_score(model, passage_of([START, 3, KEY, 8, 1, 2, CLASSIFY]), 1)
    right, _ = word_scores(score, "occlusion")
    found = faithfulness(score, {"right": right, "wrong": [-value for value in right]})
    right_one, random, wrong = (found[name] for name in ("right", "random", "wrong"))
    assert right_one["deletion_area"] < random["deletion_area"] < wrong["deletion_area"]
    assert right_one["insertion_area"] > random["insertion_area"] > wrong["insertion_area"]
    ends = [[each[0], each[-1]] for each in (right_one["deletion"], right_one["insertion"][::-1])]
    assert ends[0] == pytest.approx(ends[1], abs=1e-5)


def test_texts_become_passages(tiny_checkpoint):
    tokenizer = AutoTokenizer.from_pretrained(tiny_checkpoint, task_template=True)
    choices = ["He was wet.", "He was dry."]
    passage = Passage.read(tokenizer, "It rained on Tom.", choices)
    assert passage.words == ["It", "rained", "on", "Tom", ".", "He", "was", "wet", ".", "He", "was", "dry", "."]
    # What the choices share is read once: the first text, and after the delimiter what they begin with.
    assert passage.spans[5] == passage.spans[9]
    assert not {*passage.spans[7]} & {*passage.spans[11]}
    alone = Passage.read(tokenizer, "It rained on Tom.", choices, is_causal=False)
    first, second = (tokenizer("It rained on Tom.", other)["input_ids"] for other in choices)
    assert list(alone.tree.input_ids) == [*first, *second]
    assert [alone.tree.input_ids[place] for place in alone.spans[0]] == [first[1]] * 2
    tokenizer.task_template = False
    assert list(Passage.read(tokenizer, "It rained.").tree.input_ids) == tokenizer("It rained.")["input_ids"]
    with pytest.raises(ValueError, match="has no word"):
        Passage.read(tokenizer, " ")


@pytest.mark.parametrize(
    ("head", "flags", "target"),
    [
        (None, ("--next_word", "slowly"), "next: slowly"),
        (GPTForSequenceClassification, ("--class_name", "LABEL_1"), "for: LABEL_1"),
        (GPTForSequenceClassification, ("--second_text", "He ran."), "for: LABEL_"),
        (GPTForMultipleChoice, ("--choices", "He ran.", "He sat.", "--class_name", "He sat."), "for: He sat."),
    ],
)
def test_importance_by_command(head, flags, target, analyzed, tiny_checkpoint, tmp_path):
    """What is explained follows from the model; every file is there."""
    folder = tiny_checkpoint
    if head is not None:
        folder = tmp_path / "model"
        head.from_pretrained(tiny_checkpoint).save_pretrained(folder)
        AutoTokenizer.from_pretrained(tiny_checkpoint, task_template=True).save_pretrained(folder)
    flags += ("--text", "It rained on Tom.", "--steps", 3)
    found, printed = analyzed("importance", *flags, model=folder)
    assert f"\n{target}" in printed
    (record,) = found["details"]
    assert list(record["methods"]) == list(METHODS)
    assert all(len(each["scores"]) == len(record["words"]) for each in record["methods"].values())
    assert "nothing was learnt in 3 steps" in printed
    shown = found["importance"]["texts"]
    assert [text["label"].split(", ")[-1] for text in shown] == [*METHODS[1:]]
    integrated = record["methods"]["integrated"]
    assert sum(integrated["scores"]) == pytest.approx(integrated["difference"], abs=1e-2)


def test_mistakes_are_named():
    model, passage = build_model(GPTForMultipleChoice), passage_of([START, 3, CLASSIFY], [START, 4, CLASSIFY])
    with pytest.raises(ValueError, match="training mode"):
        class_score(model.train(), passage, 0)
    with pytest.raises(ValueError, match="the same for all sampled inputs"):
        perturbation(toy(lambda x: x.sum(), torch.ones(2, 2), [[0]]), 0)
