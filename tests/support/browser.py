"""Pages in a real headless browser."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """
    A page (playwright's), in which nothing may be logged or fetched but itself; the test is skipped where there is no
    browser.
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
        page.on("console", lambda message: heard.append(message.text))
        page.on("pageerror", lambda error: heard.append(str(error)))
        page.on("request", lambda request: heard.append(request.url))
        page.goto(path.resolve().as_uri())
        yield page
        assert heard == [path.resolve().as_uri()]
        browser.close()
