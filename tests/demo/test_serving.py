"""The requests of docs/serving.md, to servers that its commands start; the site of the documentation."""

import json
import re
import subprocess
import sys
from urllib.request import Request, urlopen

import pytest
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer

from hf_gpt.demo import HEADS, Demo

from ..support.browser import opened
from ..support.runs import REPOSITORY
from ..support.servers import serving

PAGE = (REPOSITORY / "docs/serving.md").read_text(encoding="utf-8")

pytestmark = [pytest.mark.whole, pytest.mark.slow]


def test_greedy_text_of_transformers_serve_is_that_of_generate(tiny_checkpoint, converted, tmp_path):
    for module in ("fastapi", "uvicorn", "openai"):
        pytest.importorskip(module, reason='needs pip install "transformers[serving]"')
    converted(tiny_checkpoint, tmp_path / "OUT", "--to", "openai-gpt")
    route, body = re.search(r"`curl localhost:8000(\S+) .* -d '(.*?)'`", PAGE).groups()
    words = "serve OUT --device cpu"
    assert f"`transformers {words}`" in PAGE
    with serving(tmp_path, "transformers.cli.transformers", *words.split(), "--port", "PORT") as port:
        headers = {"Content-Type": "application/json"}
        with urlopen(Request(f"http://localhost:{port}{route}", body.encode(), headers)) as answer:
            (choice,) = json.load(answer)["choices"]
    model, tokenizer = (kind.from_pretrained(tiny_checkpoint) for kind in (AutoModelForCausalLM, AutoTokenizer))
    request = json.loads(body)
    inputs = tokenizer(request["prompt"], return_tensors="pt")
    greedy = model.generate(**inputs, max_new_tokens=request["max_tokens"], do_sample=False)[0]
    assert choice["text"].strip() == tokenizer.decode(greedy[inputs["input_ids"].shape[1] :]).strip()


def test_the_page_answers_its_client_and_a_browser(tiny_checkpoint, tmp_path):
    pytest.importorskip("gradio", reason='needs pip install -e ".[demo]"')
    gradio_client = pytest.importorskip("gradio_client")
    folder, labels = tmp_path / "classifier", {0: "LOC", 1: "NUM", 2: "HUM"}
    AutoModelForSequenceClassification.from_pretrained(tiny_checkpoint, id2label=labels).save_pretrained(folder)
    AutoTokenizer.from_pretrained(tiny_checkpoint, task_template=True).save_pretrained(folder)
    (request,) = re.findall(r"`(gradio_client\.Client.*?\))`", PAGE)
    expected = Demo(str(folder), HEADS["classifier"]).classify("Who wrote it?")
    with serving(tmp_path, "hf_gpt", "demo", "--classifier", str(folder), "--port", "PORT") as port:
        found = eval(request.replace("7860", str(port)), {"gradio_client": gradio_client})
        with opened(f"http://127.0.0.1:{port}/") as page:
            page.get_by_label("Text", exact=True).fill("Who wrote it?")
            page.get_by_role("button", name="Submit").click()
            page.get_by_test_id("label-output-value").wait_for()
            assert page.get_by_test_id("label-output-value").inner_text() == max(expected, key=expected.get)
    assert {each["label"]: each["confidence"] for each in found["confidences"]} == pytest.approx(expected, abs=1e-5)


def test_the_site_leads_from_page_to_page_and_finds_words(tmp_path):
    """The documentation, built strictly, in a browser."""
    for module in ("mkdocs", "material", "mkdocstrings"):
        pytest.importorskip(module, reason='needs pip install -e ".[docs]"')
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    built = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    with serving(tmp_path, "http.server", "PORT") as port, opened(f"http://localhost:{port}/") as page:
        assert page.title() == "hf_gpt"
        page.get_by_role("link", name="quickstart", exact=True).click()
        page.wait_for_url("**/quickstart/")
        assert page.locator("article pre").first.is_visible()
        page.wait_for_load_state("networkidle")  # or the words come before the page listens
        page.get_by_role("textbox", name="Search").press_sequentially("surprisal")
        page.locator(".md-search-result__link").first.click()
        page.wait_for_url("**/surprisal/**")
