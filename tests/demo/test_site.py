"""The documentation, built as for its site, in a browser."""

import subprocess
import sys

import pytest

from ..support.browser import opened
from ..support.runs import REPOSITORY
from ..support.servers import serving

pytestmark = [pytest.mark.whole, pytest.mark.slow]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The address of the site, built strictly."""
    for module in ("mkdocs", "material", "mkdocstrings"):
        pytest.importorskip(module, reason='needs pip install -e ".[docs]"')
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    built = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    with serving(folder, "http.server", "PORT") as port:
        yield f"http://localhost:{port}/"


def test_the_first_page_leads_to_the_others(site):
    with opened(site) as page:
        assert page.title() == "hf_gpt"
        links = page.locator("article a:not(.headerlink)")
        addresses = {link.get_attribute("href") for link in links.all()}
        assert {"installation/", "quickstart/", "other-tools/", "serving/"} <= addresses
        page.get_by_role("link", name="quickstart", exact=True).click()
        page.wait_for_url("**/quickstart/")
        assert page.locator("article pre").first.is_visible()


def test_the_search_finds_a_page(site):
    with opened(site) as page:
        page.wait_for_load_state("networkidle")  # or the words come before the page listens
        page.get_by_role("textbox", name="Search").press_sequentially("surprisal")
        found = page.locator(".md-search-result__link").first
        found.wait_for()
        assert "surprisal" in found.inner_text()
        found.click()
        page.wait_for_url("**/surprisal/**")
