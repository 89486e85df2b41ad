"""Continuations by several strategies, and the command that shows and compares them."""

import json
import math

import pytest
import torch

from hf_gpt.generation.scoring import perplexity, score_texts
from hf_gpt.generation.strategies import compare, continue_prompts, distinct, passages, self_bleu, strategies

PROMPTS = ["She opened the door and", "He", "They ran to the door"]
STORY = "The door was open, and she ran. He slept under the tree until it rained; nobody came. " * 30


@pytest.fixture
def prompts(loaded):
    return [loaded[1](text)["input_ids"] for text in PROMPTS]


def test_strategies_are_named_with_their_settings():
    assert list(map(str, strategies(top_k=7, typical_p=0.3, temperature=0.5))) == [
        "Greedy",
        "Beam search (num_beams=4, no_repeat_ngram_size=2)",
        "Temperature sampling (temperature=0.5)",
        "Top-k sampling (top_k=7, temperature=0.5)",
        "Nucleus sampling (top_p=0.9, temperature=0.5)",
        "Typical sampling (typical_p=0.3, temperature=0.5)",
    ]
    for name, value in {"num_beams": 1, "top_k": 0, "top_p": 0.0, "typical_p": 1.5, "temperature": 1e-45}.items():
        with pytest.raises(ValueError, match="give 2 to 1,000 beams"):
            strategies(**{name: value})


def test_beyond_the_context(loaded, prompts):
    """Where the context of 64 is full, its last 32 tokens are the prompt."""
    (model, tokenizer), ids = loaded, prompts[0]
    (sampled,), (found,) = continue_prompts(model, tokenizer, [ids], [strategies()[4], strategies()[0]], 130, seed=3)
    assert sampled.new_tokens == 130
    written, total = list(ids), 0.0
    specials = torch.tensor(model.generation_config.suppress_tokens)
    with torch.no_grad():
        while len(written) < len(ids) + 130:
            begin = 0 if len(written) < 64 else (len(written) - 32) // 32 * 32
            logits = model(torch.tensor([written[begin:]])).logits[0, -1]
            written.append(logits.index_fill(0, specials, -1e9).argmax().item())
            total += logits.log_softmax(-1)[written[-1]].item()
    assert list(found.ids) == written[len(ids) :]
    assert found.mean_log_probability == pytest.approx(total / 130, rel=1e-4)


def test_batches_of_prompts_are_read_as_alone(loaded, prompts):
    """In their own order, whatever their lengths."""
    for strategy in strategies()[:2]:
        (together,) = continue_prompts(*loaded, [*prompts, prompts[0]], [strategy], 8, batch_size=2)
        alone = [continue_prompts(*loaded, [ids], [strategy], 8)[0][0] for ids in [*prompts, prompts[0]]]
        assert [each.ids for each in together] == [each.ids for each in alone]


def test_samples_of_each_prompt(loaded, prompts):
    model, tokenizer = loaded
    results = continue_prompts(model, tokenizer, prompts, strategies(), 8, num_samples=4, seed=3)
    assert [len(continuations) for continuations in results] == [3, 3, 12, 12, 12, 12]
    assert len({each.ids for each in results[2]}) == 12
    for place, each in enumerate(results[2]):
        prompt = prompts[place // 4]
        ids = [*prompt, *each.ids]
        with torch.no_grad():
            log_probs = model(torch.tensor([ids])).logits[0, len(prompt) - 1 : -1].log_softmax(-1)
        expected = log_probs[range(8), each.ids].mean().item()
        assert each.mean_log_probability == pytest.approx(expected, abs=1e-5)
        assert each.text == tokenizer.decode(ids)
        assert not each.generated.startswith(" ")
        assert each.text.endswith(each.generated)


def test_a_text_ends_where_the_model_ends_it(loaded, prompts):
    (greedy,) = continue_prompts(*loaded, prompts[:1], strategies()[:1], 8)[0]
    end = greedy.ids[4]
    loaded[0].config.eos_token_id = loaded[0].generation_config.eos_token_id = end
    (ended,) = continue_prompts(*loaded, prompts[:1], strategies()[:1], 8)[0]
    assert ended.ids == greedy.ids[: greedy.ids.index(end)]


@pytest.mark.parametrize("untrained", [True, False])
def test_special_tokens_never_appear(loaded, prompts, untrained):
    """Even where their rows are the likeliest ones: by the configuration, or by the generation settings."""
    model, tokenizer = loaded
    specials = [tokenizer.bos_token_id, tokenizer.sep_token_id, tokenizer.cls_token_id]
    if untrained:
        model.config.untrained_token_ids = specials
        model.generation_config.suppress_tokens = None
    with torch.no_grad():
        for ids in prompts:
            state = model.transformer(torch.tensor([ids])).last_hidden_state[0, -1]
            model.lm_head.weight[specials] = 100 * state
    results = continue_prompts(model, tokenizer, prompts, strategies(), 12, num_samples=3)
    seen = {token for continuations in results for each in continuations for token in each.ids}
    assert not seen & {*specials, tokenizer.pad_token_id}


def test_generation_by_command(read, tmp_path):
    (tmp_path / "prompts.txt").write_text("\n".join([*PROMPTS, "yes " * 70]))
    flags = ("--seed", 2, "--max_new_tokens", 9, "--num_samples", 2, "--output_file", tmp_path / "out.json")
    flags += ("--file", tmp_path / "prompts.txt")
    printed, warned = read("generate", *flags)
    assert "has 70 tokens; the model reads its last 55" in warned
    lines = printed.splitlines()
    assert (lines[0], lines[2]) == ("Prompt: she opened the door and", "Greedy")
    record = json.loads((tmp_path / "out.json").read_text())
    assert [len(each["continuations"]) for each in record["strategies"]] == [4, 4, 8, 8, 8, 8]
    for each in record["strategies"]:
        assert each["strategy"] in lines
        for row in each["continuations"]:
            assert f"    [9 tokens, mean log-probability {row['mean_log_probability']:.2f}, repeated" in printed
    assert read("generate", *flags, "--overwrite")[0] == printed


def bleu(precisions: list[float], brevity: float = 0.0) -> float:
    return math.exp(sum(map(math.log, precisions)) / 4 + brevity)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (distinct([[1, 2, 1, 2], [1, 2, 3]], 1), 3 / 7),
        (distinct([[1, 2, 1, 2], [1, 2, 3]], 2), 3 / 5),
        (distinct([[1]], 2), 0),
        (self_bleu([[1, 2, 3, 4, 5]] * 3), 1),
        # Nothing in common: every precision is smoothed, 0.1 of 5, 4, 3 and 2 n-grams.
        (self_bleu([list(range(start, start + 5)) for start in (0, 10, 20)]), bleu([0.1 / n for n in (5, 4, 3, 2)])),
        # Counts clipped to the most that another text has (the second 1 has no partner), and brevity.
        (
            3 * self_bleu([[1, 1, 2, 3, 4], [1, 2, 3, 4], [9] * 6]),
            bleu([4 / 5, 3 / 4, 2 / 3, 1 / 2]) + bleu([1] * 4, 1 - 5 / 4) + bleu([0.1 / n for n in (6, 5, 4, 3)]),
        ),
        (compare([[token] * round(10_000 / (token + 1)) for token in range(50)])["zipf"], 1),
        (compare([[1, 2, 3, 4]])["zipf"], 0),
        (compare([[1, 1, 1]])["zipf"], None),
        (compare([[1, 1, 1]])["self_bleu_4"], None),
        (compare([[5, 1, 2, 1, 2, 1, 2], [1, 2, 3] * 3, [4, *[7] * 6], [1, 2, 1, 2, 1, 2, 99]])["looping"], 3 / 4),
    ],
)
def test_measures_by_hand(found, expected):
    assert found == pytest.approx(expected, abs=1e-3)


def test_passages_are_spread_and_do_not_overlap():
    found = passages(list(range(100)), count=3, given=4, length=10)
    assert [given[0] for given, _ in found] == [0, 33, 66]
    assert all(given + new == list(range(given[0], given[0] + 14)) and len(given) == 4 for given, new in found)


def test_comparison_by_command(read, loaded, tmp_path):
    model, tokenizer = loaded
    (tmp_path / "human.txt").write_text(STORY)
    flags = ("--max_new_tokens", 12, "--passages", 5, "--prompt_tokens", 6, "--output_file", tmp_path / "out.json")
    printed, _ = read("generate", "--compare", tmp_path / "human.txt", *flags)
    record = json.loads((tmp_path / "out.json").read_text())
    human, greedy, *_ = rows = record["comparison"]
    assert [row["of"] for row in rows] == ["Human text", *map(str, strategies())]
    assert {row["texts"] for row in rows} == {5}
    parts = passages(tokenizer(STORY)["input_ids"], 5, 6, 12)
    assert human.items() >= compare([new for _, new in parts]).items()
    scores = score_texts(model, [new for _, new in parts], given=[given for given, _ in parts])
    assert human["perplexity"] == pytest.approx(perplexity(sum(each.log_probability for each in scores), 60))
    assert greedy["perplexity"] < human["perplexity"]
    texts = [each["text"] for each in record["strategies"][0]["continuations"]]
    assert all(text.startswith(tokenizer.decode(given)) for text, (given, _) in zip(texts, parts, strict=True))
    assert f"{human['perplexity']:.3f}" in printed
