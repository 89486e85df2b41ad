"""The demonstration: the functions of its tabs, the page, and the command."""

import re
import sys

import pytest
import torch
from transformers import AutoTokenizer

from hf_gpt.demo import HEADS, Demo, build_app
from hf_gpt.generation.strategies import continue_prompts, strategies

PROMPT = "She opened the door and"
SETTINGS = (40, 0.9, 0.95, 1.0)
SPECIAL = {
    "classifier": {"id2label": {0: "LOC", 1: "NUM", 2: "HUM"}},
    "tagger": {"id2label": {0: "O", 1: "B-PER", 2: "I-PER"}},
    "fill_mask": {"is_causal": False},
}


@pytest.fixture(scope="module")
def folders(tiny_checkpoint, tmp_path_factory) -> dict[str, str]:
    """A folder for each head, newly initialized on the tiny model, with its tokenizer."""
    targets = {}
    for kind, model_class in HEADS.items():
        targets[kind] = str(tmp_path_factory.mktemp(kind))
        torch.manual_seed(0)
        model = model_class.from_pretrained(tiny_checkpoint, **SPECIAL.get(kind, {}))
        options = {"mask_token": "<mask>"} if kind == "fill_mask" else {"task_template": True}
        tokenizer = AutoTokenizer.from_pretrained(tiny_checkpoint, **options)
        if kind == "fill_mask":
            model.resize_token_embeddings(len(tokenizer))
            model.config.mask_token_id = tokenizer.mask_token_id
        else:
            torch.nn.init.normal_(model.score.weight)
        for part in (model, tokenizer):
            part.save_pretrained(targets[kind])
    return targets


@pytest.fixture
def load(tiny_checkpoint, folders):
    """`load(kind)`: the demonstration of a head, or of the language model."""
    return lambda kind: Demo(folders[kind], HEADS[kind]) if kind in folders else Demo(str(tiny_checkpoint))


@pytest.fixture
def language_model(load) -> Demo:
    return load("language_model")


def logits_of(demo, *texts, **options):
    with torch.no_grad():
        return demo.model(**demo.tokenizer(*texts, return_tensors="pt", **options)).logits


def test_strategies_side_by_side(language_model):
    rows = language_model.generate(PROMPT, 6.0, 2.0, 3.0, *SETTINGS)
    assert [row[0] for row in rows] == list(map(str, strategies(2)))
    assert [row[5] for row in rows] == ["no"] * 2 + ["yes"] * 4
    (prompt,) = language_model.encoded(prompt=PROMPT)
    (greedy,) = continue_prompts(language_model.model, language_model.tokenizer, [prompt], strategies()[:1], 6)[0]
    assert rows[0][1:4] == [greedy.text, 6, f"{greedy.mean_log_probability:.2f}"]


def test_next_tokens_are_those_of_the_model_but_what_generation_suppresses(language_model):
    demo, likeliest = language_model, language_model.next_tokens(PROMPT)
    expected, indices = logits_of(demo, PROMPT)[0, -1].softmax(-1).topk(10)
    assert [share for _, share in likeliest] == [f"{share:.2%}" for share in expected.tolist()]
    texts = [text.replace("…", "") + "</w>" * (not text.endswith("…")) for text, _ in likeliest]
    assert texts == demo.tokenizer.convert_ids_to_tokens(indices.tolist())
    settings = demo.model.generation_config
    settings.suppress_tokens = [*settings.suppress_tokens, int(indices[0])]
    assert [text for text, _ in demo.next_tokens(PROMPT, 2)] == [text for text, _ in likeliest[1:3]]


# A request to a demonstration, and what the error says.
WRONG = [
    ("language_model", "next_tokens", ("  \n",), "The prompt is empty"),
    ("language_model", "next_tokens", ("(" * 5000,), "5,000 characters of prompt"),
    ("language_model", "generate", ("yes " * 60, 5, 4, 0, *SETTINGS), "65 tokens with prompt"),
    ("language_model", "generate", ("yes", 5, 500, 0, *SETTINGS), "at most 10 are searched"),
    ("language_model", "score_choices", ("It rained.", "a\n" * 21), "at most 20"),
    ("multiple_choice", "score_choices", ("It rained.", "a"), "at least two choices"),
    ("multiple_choice", "score_choices", (" ", "a\nb"), "The context is empty"),
    ("language_model", "expectation_page", ("yes",), "fewer than two tokens"),
    ("language_model", "attention_page", (" ",), "The text is empty"),
    ("language_model", "importance_page", ("yes " * 60, "no " * 5), "65 tokens with text and next word"),
    ("classifier", "classify", ("a", "", True), "The second text is empty"),
    ("classifier", "classify", ("yes " * 32, "no " * 30, False), "65 tokens with text and second text"),
    ("tagger", "tag", ("yes " * 63,), "65 tokens with text"),
    ("fill_mask", "guesses", ("No mask.",), "Write <mask> once"),
    ("question_answering", "answer", ("Who?", "yes " * 70), "question and passage"),
]


@pytest.mark.parametrize(("kind", "method", "inputs", "message"), WRONG)
def test_what_is_wrong_with_a_request(load, kind, method, inputs, message):
    with pytest.raises(ValueError, match=message):
        getattr(load(kind), method)(*inputs)


def test_choices(language_model, load):
    context, texts, expected = "The rain fell all night.", ["The streets were wet.", "yes"], []
    for text in texts:
        given, new = (language_model.tokenizer(each)["input_ids"] for each in (context, text))
        log_probs = language_model.model(torch.tensor([[*given, *new]])).logits[0].log_softmax(-1)
        expected.append(log_probs[range(len(given) - 1, len(given) + len(new) - 1), new].mean().item())
    demo = load("multiple_choice")
    encoded = demo.tokenizer([context] * 2, texts, padding=True, return_tensors="pt")
    with torch.no_grad():
        logits = demo.model(**{name: values[None] for name, values in encoded.items()}).logits[0].tolist()
    for each, scores in ((language_model, expected), (demo, logits)):
        rows = each.score_choices(f" {context}", "\n\n".join(texts))
        assert rows == [[text, f"{score:.3f}"] for score, text in sorted(zip(scores, texts, strict=True))[::-1]]


def test_classification(load):
    demo, texts = load("classifier"), ("Who wrote it?", "A woman did.")
    one, two = logits_of(demo, texts[0])[0], logits_of(demo, *texts)[0]
    expected = dict(zip(["LOC", "NUM", "HUM"], one.softmax(-1).tolist(), strict=True))
    assert demo.classify(texts[0]) == pytest.approx(expected, abs=1e-5)
    assert list(demo.classify(*texts).values()) == pytest.approx(two.softmax(-1).tolist(), abs=1e-5)
    both = demo.classify(*texts, both_orders=True)
    assert both == pytest.approx(demo.classify(*reversed(texts), both_orders=True), abs=1e-5)
    demo.model.config.problem_type = "multi_label_classification"
    assert list(demo.classify(texts[0]).values()) == pytest.approx(one.sigmoid().tolist(), abs=1e-5)
    for kind, score in (("ordinal", one.softmax(-1) @ torch.arange(3.0)), ("regression", one[0])):
        demo.model.config.problem_type = kind
        assert float(demo.classify(texts[0])) == pytest.approx(score.item(), abs=1e-3)


def test_tags_of_words(load):
    """The parts are the text; a word's label is the one at its last token, and `O` is none."""
    demo, text = load("tagger"), "  Mr. Darcy didn't\nextemporize! "
    parts = demo.tag(text)
    assert "".join(part for part, _ in parts) == text
    assert [part for part, _ in parts if part.strip()] == ["Mr.", "Darcy", "did", "n't", "extemporize", "!"]
    labels, encoded = logits_of(demo, text)[0].argmax(-1).tolist(), demo.tokenizer(text)
    for part, label in parts:
        last = encoded.char_to_token(text.index(part) + len(part) - 1)
        name = demo.model.config.id2label[labels[last]] if part.strip() else "O"
        assert label == (None if name == "O" else name)
    assert any(label for _, label in parts)


def test_guesses_of_a_masked_word(load):
    demo, text = load("fill_mask"), "She opened the <mask> and looked out."
    ids = demo.tokenizer(text)["input_ids"]
    scores = logits_of(demo, text)[0, ids.index(demo.tokenizer.mask_token_id)].softmax(-1).topk(10).values
    found = demo.guesses(text)
    assert [share for _, share in found] == [f"{score:.2%}" for score in scores.tolist()]


def test_answers_are_spans_of_the_passage(load):
    """The likeliest pair of beginning and end among all that there are."""
    demo, texts = load("question_answering"), ("Who opened the door?", "Mary did, in the old house. John looked out.")
    encoded, output = demo.tokenizer(*texts, return_offsets_mapping=True), demo.output(*texts)
    tokens = [index for index, part in enumerate(encoded.sequence_ids()) if part == 1]
    starts, ends = output.start_logits[0, tokens].softmax(0), output.end_logits[0, tokens].softmax(0)
    pairs = {(i, j): starts[i] * ends[j] for i in range(len(tokens)) for j in range(i, min(len(tokens), i + 30))}
    first, last = max(pairs, key=pairs.get)
    (begin, _), (_, end) = (encoded["offset_mapping"][tokens[index]] for index in (first, last))
    assert demo.answer(*texts) == (texts[1][begin:end].strip(), f"{pairs[first, last]:.1%}")


@pytest.mark.parametrize(("kind", "other"), [("classifier", "multiple_choice"), ("fill_mask", "classifier")])
def test_a_model_of_another_kind_is_refused(folders, kind, other):
    with pytest.raises(ValueError, match=f"holds {HEADS[other].__name__}; a {HEADS[kind].__name__} is needed"):
        Demo(folders[other], HEADS[kind])


def test_pages_of_what_is_inside(language_model):
    """Each stands alone."""
    model = language_model
    pages = [model.expectation_page(PROMPT), model.attention_page(PROMPT), model.importance_page(PROMPT, "ran")]
    assert all(page.startswith("<!DOCTYPE html>") and not re.search(r"(src|href)=.http", page) for page in pages)
    assert all(word in pages[2] for word in ("gradient", "integrated", "occlusion", "next: ran"))
    assert "next: " in model.importance_page(PROMPT)


LANGUAGE_TABS = {"generate", "next_tokens", "expectation_page", "attention_page", "importance_page", "score_choices"}
HEAD_TABS = {"classify", "tag", "guesses", "answer"}


def test_the_page_has_a_tab_for_everything(tiny_checkpoint, folders):
    gradio = pytest.importorskip("gradio", reason='needs pip install -e ".[demo]"')
    one = {"classifier": folders["classifier"]}
    wanted = [(tiny_checkpoint, folders, LANGUAGE_TABS | HEAD_TABS), (tiny_checkpoint, {}, LANGUAGE_TABS)]
    for model, heads, tabs in [*wanted, (None, one, {"classify"})]:
        app = build_app(model and str(model), **heads)
        assert sum(isinstance(block, gradio.Tab) for block in app.blocks.values()) == len(tabs)
        assert {function.api_name for function in app.fns.values()} & (LANGUAGE_TABS | HEAD_TABS) == tabs
    with pytest.raises(ValueError, match="--model_name_or_path, or --classifier"):
        build_app()


def test_without_gradio_there_is_one_line(tiny_checkpoint, hf_gpt, monkeypatch):
    monkeypatch.setitem(sys.modules, "gradio", None)
    status, _, errors = hf_gpt("demo", "--model_name_or_path", tiny_checkpoint)
    assert (status, "pip install" in errors.splitlines()[-1]) == (2, True)
