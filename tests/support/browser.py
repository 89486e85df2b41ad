"""Pages in a real headless browser."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest


@contextmanager
def opened(place: Path | str) -> Iterator[Any]:
    """
    A page (playwright's) of a file or at an address, in which nothing may be logged, and nothing fetched but the file
    or what lies below the address; the test is skipped where there is no browser.
    """
    sync_api = pytest.importorskip("playwright.sync_api", reason="pages are opened by playwright")
    with sync_api.sync_playwright() as playwright:
        own = Path(playwright.chromium.executable_path)
        names = ("chromium", "chromium-browser", "google-chrome")
        program = str(own) if own.is_file() else next(filter(None, map(shutil.which, names)), None)
        if program is None:
            pytest.skip("no browser: install chromium, or run playwright install chromium")
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page, heard = browser.new_page(viewport={"width": 1150, "height": 900}), []
        address = place if isinstance(place, str) else place.resolve().as_uri()
        page.on("console", lambda message: heard.append(message.text))
        page.on("pageerror", lambda error: heard.append(str(error)))
        page.on("request", lambda request: request.url.startswith(address) or heard.append(request.url))
        page.goto(address)
        yield page
        assert heard == []
        browser.close()
