"""The demonstration: the functions of its tabs, the page, the folder of a Space, and the command."""

import re
import shutil
import subprocess
import sys

import pytest
import torch
import yaml
from transformers import AutoTokenizer

from hf_gpt import (
    GPTForMaskedLM,
    GPTForMultipleChoice,
    GPTForQuestionAnswering,
    GPTForSequenceClassification,
    GPTForTokenClassification,
)
from hf_gpt.demo import HEAD_DEMOS, ClassifierDemo, FillMaskDemo, LanguageModelDemo, MultipleChoiceDemo
from hf_gpt.demo.page import Demos, build_app, export_space
from hf_gpt.generation.strategies import strategies
from hf_gpt.hub.code import add_code

from ..support.runs import REPOSITORY

PROMPT = "She opened the door and"
NEEDS_GRADIO = 'needs pip install -e ".[demo]"'
HEADS = {
    "classifier": (GPTForSequenceClassification, {"id2label": {0: "LOC", 1: "NUM", 2: "HUM"}}),
    "multiple_choice": (GPTForMultipleChoice, {}),
    "tagger": (GPTForTokenClassification, {"id2label": {0: "O", 1: "B-PER", 2: "I-PER"}}),
    "question_answering": (GPTForQuestionAnswering, {}),
    "fill_mask": (GPTForMaskedLM, {"is_causal": False}),
}


@pytest.fixture(scope="module")
def folders(tiny_checkpoint, tmp_path_factory) -> dict[str, str]:
    """A folder for each head, newly initialized on the tiny model, with its tokenizer."""
    targets = {}
    for kind, (model_class, settings) in HEADS.items():
        targets[kind] = str(tmp_path_factory.mktemp(kind))
        torch.manual_seed(0)
        model = model_class.from_pretrained(tiny_checkpoint, **settings)
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


@pytest.fixture(scope="module")
def demos(tiny_checkpoint, folders) -> Demos:
    return Demos.from_pretrained(str(tiny_checkpoint), **folders)


@pytest.fixture(scope="module")
def language_model(demos) -> LanguageModelDemo:
    return demos.language_model


@pytest.fixture
def load(folders):
    """`load(kind)`: the demonstration of a head, which the test may change."""
    return lambda kind: HEAD_DEMOS[kind].from_pretrained(folders[kind])


def logits_of(demo, *texts, **options):
    with torch.no_grad():
        return demo.model(**demo.tokenizer(*texts, return_tensors="pt", **options)).logits


def test_continuations_side_by_side(language_model):
    results = language_model.continuations(PROMPT, 6, seed=3)
    assert [result.strategy.name for result in results] == [strategy.name for strategy in strategies()]
    given = language_model.tokenizer(PROMPT, return_tensors="pt")["input_ids"]
    greedy = language_model.model.generate(given, max_new_tokens=6, do_sample=False)[0]
    assert results[0].text == language_model.tokenizer.decode(greedy)
    assert all(result.new_tokens == 6 and 0 <= result.repetition < 1 for result in results)

    log_probs = language_model.model(greedy[None]).logits[0].log_softmax(-1)
    start = given.shape[1]
    expected = log_probs[range(start - 1, start + 5), greedy[start:]].mean().item()
    assert results[0].mean_log_probability == pytest.approx(expected, abs=1e-5)


def test_next_tokens_are_those_of_the_model_but_what_generation_suppresses(tiny_checkpoint):
    demo = LanguageModelDemo.from_pretrained(str(tiny_checkpoint))
    likeliest, settings = demo.next_tokens(PROMPT), demo.model.generation_config
    expected, indices = logits_of(demo, PROMPT)[0, -1].softmax(-1).topk(10)
    assert [token.probability for token in likeliest] == pytest.approx(expected.tolist(), abs=1e-6)
    texts = [token.text + "</w>" * token.ends_word for token in likeliest]
    assert texts == demo.tokenizer.convert_ids_to_tokens(indices.tolist())
    settings.suppress_tokens = [*settings.suppress_tokens, int(indices[0])]
    assert [token.text for token in demo.next_tokens(PROMPT, 2)] == [token.text for token in likeliest[1:3]]


# A request, and the error.
WRONG = {
    "empty prompt": (lambda demos: demos.next_tokens("  \n"), "The prompt is empty"),
    "context": (
        lambda demos: demos.language_model.continuations("yes " * 60, 5),
        "60 tokens of prompt and 5 more are needed",
    ),
    "long prompt": (lambda demos: demos.next_tokens("yes " * 65), "65 tokens of prompt, for a context of 64"),
    "characters": (lambda demos: demos.next_tokens("(" * 5000), "at most 1,024 are taken"),
    "many choices": (lambda demos: demos.score_choices("It rained.", "", "a\n" * 21), "at most 20"),
    "long choices": (lambda demos: demos.score_choices("'" * 5000, "", "a\nb"), "at most 1,024 are taken"),
    "one choice": (lambda demos: demos.score_choices("It rained.", "", "a"), "at least two choices"),
    "no context": (lambda demos: demos.score_choices(" ", "", "a\nb"), "a context, a question or both"),
    "beams": (lambda demos: demos.generate("yes", 5, 500, 0, 40, 0.9, 0.95, 1.0), "at most 10 are searched"),
    "empty text": (lambda demos: demos.classify("", "", False), "The text is empty"),
    "one of two": (lambda demos: demos.classify("a", "", True), "second one"),
    "long text": (lambda demos: demos.classify("yes " * 63, "", False), "63 tokens of text and 2 more"),
    "long pair": (lambda demos: demos.classify("yes " * 32, "no " * 30, False), "text and second text"),
    "long tags": (lambda demos: demos.tagger.tag("yes " * 63), "63 tokens of text and 2 more"),
    "no mask": (lambda demos: demos.guesses("No mask."), "Write <mask> once"),
    "long passage": (lambda demos: demos.answer("Who?", "yes " * 70), "question and passage"),
    "no question": (lambda demos: demos.answer("", "yes"), "The question is empty"),
    "one token": (lambda demos: demos.language_model.expectation_page("yes"), "fewer than two tokens"),
    "empty page": (lambda demos: demos.language_model.attention_page(" "), "text is empty"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_with_a_request(demos, what):
    ask, message = WRONG[what]
    with pytest.raises(ValueError, match=message):
        ask(demos)


def test_choices(language_model, demos):
    context, choices = "The rain fell all night.", ["The streets were wet.", "yes"]
    expected = []
    for choice in choices:
        given, new = (language_model.tokenizer(text)["input_ids"] for text in (context, choice))
        log_probs = language_model.model(torch.tensor([[*given, *new]])).logits[0].log_softmax(-1)
        expected.append(log_probs[range(len(given) - 1, len(given) + len(new) - 1), new].mean().item())
    assert language_model.score_choices(context, "", choices) == pytest.approx(expected, abs=1e-5)
    demo = demos.multiple_choice
    encoded = demo.tokenizer([context] * 2, choices, padding=True, return_tensors="pt")
    with torch.no_grad():
        expected = demo.model(**{name: values[None] for name, values in encoded.items()}).logits[0].tolist()
    assert demo.score_choices(context, "", choices) == pytest.approx(expected, abs=1e-5)


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
    demo.model.config.problem_type = "ordinal"
    expected = (one.softmax(-1) * torch.arange(3)).sum().item()
    assert demo.classify(texts[0])["score"] == pytest.approx(expected, abs=1e-5)


def test_tags_of_words(demos):
    """The parts are the text; a word's label is the one at its last token, and `O` is none."""
    demo, text = demos.tagger, "  Mr. Darcy didn't\nextemporize! "
    parts = demo.tag(text)
    assert "".join(part for part, _ in parts) == text
    assert [part for part, _ in parts if part.strip()] == ["Mr.", "Darcy", "did", "n't", "extemporize", "!"]
    labels, encoded = logits_of(demo, text)[0].argmax(-1).tolist(), demo.tokenizer(text)
    for part, label in parts:
        last = encoded.char_to_token(text.index(part) + len(part) - 1)
        name = demo.model.config.id2label[labels[last]] if part.strip() else "O"
        assert label == (None if name == "O" else name)
    assert any(label for _, label in parts)


def test_guesses_of_a_masked_word(demos):
    demo, text = demos.fill_mask, "She opened the <mask> and looked out."
    found, ids = demo.guesses(text, 5), demo.tokenizer(text)["input_ids"]
    scores, tokens = logits_of(demo, text)[0, ids.index(demo.tokenizer.mask_token_id)].softmax(-1).topk(5)
    assert [guess["token"] for guess in found] == tokens.tolist()
    assert [guess["score"] for guess in found] == pytest.approx(scores.tolist(), rel=1e-4)


def test_answers_are_spans_of_the_passage(demos):
    """The likeliest pair of beginning and end among all that there are."""
    demo = demos.question_answering
    question, passage = "Who opened the door?", "Mary did, in the old house. John looked out."
    answer, probability = demo.answer(question, passage)
    encoded = demo.tokenizer(question, passage, return_offsets_mapping=True)
    tokens = [index for index, part in enumerate(encoded.sequence_ids()) if part == 1]
    output = demo.output(question, passage)
    starts, ends = output.start_logits[0, tokens].softmax(0), output.end_logits[0, tokens].softmax(0)
    pairs = {(i, j): starts[i] * ends[j] for i in range(len(tokens)) for j in range(i, min(len(tokens), i + 30))}
    first, last = max(pairs, key=pairs.get)
    places = [encoded["offset_mapping"][index] for index in tokens]
    assert answer == passage[places[first][0] : places[last][1]].strip()
    assert probability == pytest.approx(pairs[first, last].item(), rel=1e-4)
    assert demos.answer(question, passage) == (answer, f"{probability:.1%}")


@pytest.mark.parametrize(
    ("demo", "kind", "message"),
    [
        (ClassifierDemo, "multiple_choice", "holds GPTForMultipleChoice; a GPTForSequenceClassification"),
        (MultipleChoiceDemo, "classifier", "holds GPTForSequenceClassification; a GPTForMultipleChoice"),
        (FillMaskDemo, "classifier", r"a GPTForMaskedLM of scripts/pretrain\.py --masked true is needed"),
    ],
)
def test_a_model_of_another_kind_is_refused(folders, demo, kind, message):
    with pytest.raises(ValueError, match=message):
        demo.from_pretrained(folders[kind])


def test_rows_of_the_page(demos):
    table = demos.generate(PROMPT, 5.0, 2.0, 0.0, 7.0, 0.5, 0.2, 1.0)
    assert all(row[1].startswith("she opened the door and") for row in table)
    assert [row[5] for row in table] == ["no"] * 2 + ["yes"] * 4
    assert table[1][0] == "Beam search (num_beams=2, no_repeat_ngram_size=2)"
    for rows in (demos.next_tokens(PROMPT), demos.guesses("She opened the <mask>.")):
        assert len(rows) == 10
        assert not any("</w>" in row[0] for row in rows)
    rows = demos.score_choices("It rained.", "", "It was wet.\n\n It was dry. \n")
    assert {row[0] for row in rows} == {"It was wet.", "It was dry."}
    assert float(rows[0][1]) >= float(rows[1][1])
    assert demos.classify("Who wrote it?", "", False).keys() == {"LOC", "NUM", "HUM"}


LANGUAGE_TABS = {
    "Generation": "generate",
    "Next token": "next_tokens",
    "Each position": "expectation_page",
    "Attention": "attention_page",
    "Importance": "importance_page",
    "Multiple choice": "score_choices",
}
HEAD_TABS = {"Classification": "classify", "Tagging": "tag", "Masked word": "guesses", "Questions": "answer"}


def test_the_page_has_a_tab_for_everything(demos, language_model):
    gradio = pytest.importorskip("gradio", reason=NEEDS_GRADIO)
    for shown, tabs in ((demos, LANGUAGE_TABS | HEAD_TABS), (Demos("model", language_model), LANGUAGE_TABS)):
        app = build_app(shown)
        assert [block.label for block in app.blocks.values() if isinstance(block, gradio.Tab)] == [*tabs]
        names = {function.api_name for function in app.fns.values()}
        assert names & {*LANGUAGE_TABS.values(), *HEAD_TABS.values()} == {*tabs.values()}


def test_pages_of_what_is_inside(language_model):
    """Each stands alone."""
    model = language_model
    pages = [model.expectation_page(PROMPT), model.attention_page(PROMPT), model.importance_page(PROMPT, "ran")]
    for page in pages:
        assert page.startswith("<!DOCTYPE html>")
        assert not re.search(r"(src|href)=.http", page)
    assert all(word in pages[2] for word in ("gradient", "integrated", "occlusion", "phrases", "next: ran"))
    assert "next: " in model.importance_page(PROMPT)


def test_without_gradio_there_is_a_hint(demos, monkeypatch):
    monkeypatch.setitem(sys.modules, "gradio", None)
    with pytest.raises(ValueError, match=r"pip install -e .*demo"):
        build_app(demos)


def test_the_folder_of_a_space(tmp_path):
    pytest.importorskip("gradio", reason=NEEDS_GRADIO)
    space = tmp_path / "space"
    written = export_space(space, "user/gpt-mini", classifier="user/questions")
    assert sorted(written) == sorted(path for path in space.rglob("*") if path.is_file())
    header = yaml.safe_load((space / "README.md").read_text().split("---")[1])
    found = (header["sdk"], header["app_file"], header["models"])
    assert found == ("gradio", "app.py", ["user/gpt-mini", "user/questions"])
    app = (space / "app.py").read_text()
    assert 'Demos.from_pretrained(model_name_or_path="user/gpt-mini", classifier="user/questions")' in app
    requirements = (space / "requirements.txt").read_text().splitlines()
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]+==[\w.]+", line) for line in requirements)
    assert any(line.startswith("transformers==") for line in requirements)
    assert not any(line.startswith(("gradio", "pytest")) for line in requirements)
    with pytest.raises(ValueError, match="Name an empty folder"):
        export_space(space, "user/gpt-mini")


@pytest.mark.parametrize("name", ["gpt-mini", "a/b/c", "model_cards/gpt-mini", "user/spaces are not allowed"])
def test_a_space_wants_hub_ids(tmp_path, monkeypatch, name):
    monkeypatch.chdir(REPOSITORY)
    with pytest.raises(ValueError, match=r"--classifier .* loads its models from the Hub"):
        export_space(tmp_path / "space", "user/gpt-mini", classifier=name)
    assert not (tmp_path / "space").exists()


@pytest.mark.slow
def test_a_space_runs_on_its_own_copy(tiny_checkpoint, tmp_path):
    """Its code is the copy next to it, not what a model's own repository holds; its models are those named."""
    pytest.importorskip("gradio", reason=NEEDS_GRADIO)
    space = tmp_path / "space"
    export_space(space, "user/model")
    shutil.copytree(tiny_checkpoint, space / "user" / "model")
    add_code(space / "user" / "model")
    check = "import hf_gpt, app; print(hf_gpt.__file__, len(app.demos.next_tokens('yes')))"
    done = subprocess.run([sys.executable, "-c", check], cwd=space, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == f"{space / 'hf_gpt' / '__init__.py'} 10"


@pytest.mark.slow
def test_the_page_answers_requests(demos):
    gradio_client = pytest.importorskip("gradio_client", reason=NEEDS_GRADIO)
    app = build_app(demos)
    _, address, _ = app.launch(prevent_thread_lock=True, quiet=True)
    client = gradio_client.Client(address, verbose=False)
    assert len(client.predict(PROMPT, 5, 2, 0, 10, 0.9, 0.95, 1.0, api_name="/generate")["data"]) == 6
    assert len(client.predict(PROMPT, api_name="/next_tokens")["data"]) == 10
    table = client.predict("It rained.", "", "It was wet.\nIt was dry.", api_name="/score_choices")
    assert table["data"][0][0] in ("It was wet.", "It was dry.")
    found = client.predict("Who wrote it?", "", False, api_name="/classify")
    assert sum(entry["confidence"] for entry in found["confidences"]) == pytest.approx(1, abs=1e-4)
    with pytest.raises(Exception, match="The prompt is empty"):
        client.predict("", api_name="/next_tokens")
    app.close()


def test_wrong_input_ends_with_one_line(tiny_checkpoint, hf_gpt):
    for flags in (("--classifier", tiny_checkpoint), ("--export_space", tiny_checkpoint)):
        status, _, errors = hf_gpt("demo", "--model_name_or_path", tiny_checkpoint, *flags)
        assert (status, errors.splitlines()[-1][:13]) == (2, "hf-gpt demo: ")
