"""One server, one browser and a page that notes what must not happen: errors, foreign requests, script from data."""

import os
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, expect

from tests.page.big_run import write_big_run
from tests.page.chromium import open_browser
from tests.page.installed import install_wheel
from tests.page.shop import Shop, open_shop
from tests.server.running import TOKEN

WIDE = {"width": 1440, "height": 900}
NARROW = {"width": 390, "height": 844}
_TIMEOUT = 45_000
SCREENS = "PAGE_SCREENS"
"""The folder that pictures are kept in, if this is set."""


class Visitor:
    """A browser at a server. `troubles` are errors on its console and requests that went elsewhere."""

    def __init__(self, browser: Browser, shop: Shop, screens: Path) -> None:
        self.browser = browser
        self.shop = shop
        self.troubles: list[str] = []
        self.expected: tuple[str, ...] = ()
        """Texts of console messages that the test brings about itself."""
        self._screens = screens

    @contextmanager
    def visit(self, path: str = "/", *, scheme: str = "light", size: dict[str, int] = WIDE) -> Generator[Page]:
        options: dict[str, Any] = {"viewport": size, "color_scheme": scheme, "reduced_motion": "reduce"}
        if size == NARROW:
            options |= {"device_scale_factor": 2, "has_touch": True}
        context = self.browser.new_context(**options)
        context.set_default_timeout(_TIMEOUT)
        page = context.new_page()
        page.on("console", self._hear)
        page.on("pageerror", lambda error: self.troubles.append(f"error: {error}"))
        page.on("request", self._watch)
        page.on("dialog", lambda dialog: self.troubles.append(f"dialog: {dialog.message}"))
        page.goto(f"{self.shop.url}{path}#key={TOKEN}")
        try:
            yield page
        finally:
            context.close()

    def picture(self, page: Page, name: str, *, full: bool = False) -> None:
        page.screenshot(path=self._screens / f"page-{name}.png", full_page=full)

    def _hear(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and not any(text in message.text for text in self.expected):
            self.troubles.append(f"{message.type}: {message.text}")

    def _watch(self, request: Request) -> None:
        if not request.url.startswith((self.shop.url, "blob:", "data:")):
            self.troubles.append(f"foreign request: {request.url}")


@pytest.fixture(scope="package")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    python = install_wheel(tmp_path_factory)
    data = tmp_path_factory.mktemp("shop")
    write_big_run(data, "incident-500", 500)
    with open_shop(data, python) as opened:
        yield opened


@pytest.fixture(scope="package")
def browser(shop: Shop) -> Iterator[Browser]:
    """After the server: while a browser is open, its library holds the event loop of this thread."""
    expect.set_options(timeout=_TIMEOUT)
    with open_browser() as opened:
        yield opened


@pytest.fixture
def visitor(browser: Browser, shop: Shop, tmp_path: Path) -> Iterator[Visitor]:
    screens = Path(os.environ[SCREENS]) if SCREENS in os.environ else tmp_path
    screens.mkdir(parents=True, exist_ok=True)
    visitor = Visitor(browser, shop, screens)
    yield visitor
    assert visitor.troubles == []


@pytest.fixture(scope="package")
def ended_run(shop: Shop) -> str:
    """A run that ended with gaps."""
    run = shop.begin()
    shop.wait(run, "needs_input")
    shop.approve(run)
    shop.wait(run, "partial")
    return run
