"""One server, one browser and a page that notes what must not happen: errors, foreign requests, script from data."""

import os
import re
from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Locator, Page, Request, expect

from tests.page.big_run import big_run
from tests.page.chromium import open_browser
from tests.page.installed import install_wheel
from tests.page.png import shrink
from tests.page.proxy import Proxy, open_proxy
from tests.page.recorded_runs import kept_runs, write_runs
from tests.page.shop import Shop, open_shop
from tests.server.running import TOKEN

WIDE = {"width": 1280, "height": 800}
NARROW = {"width": 390, "height": 844}
_TIMEOUT = 30_000
TIMEOUT = pytest.mark.timeout(300)
"""For tests in a browser, on a busy machine."""
SCREENS = "PAGE_SCREENS"
"""The folder that pictures are kept in, if this is set."""


def settled(page: Page) -> None:
    """The run page with all its entries drawn."""
    expect(page.locator("main.rp")).to_have_attribute("data-seq", re.compile(r"[1-9]\d*"))
    expect(page.locator(".tm-row").first).to_be_visible()


def inspector(page: Page) -> Locator:
    return page.get_by_label("Inspector")


class Visitor:
    """A browser at a server. `troubles` are errors on its console and requests that went elsewhere."""

    def __init__(self, browser: Browser, shop: Shop, screens: Path | None) -> None:
        self.browser = browser
        self.shop = shop
        self.troubles: list[str] = []
        self.expected: tuple[str, ...] = ()
        """Texts of console messages that the test brings about itself."""
        self._screens = screens
        self._origins: tuple[str, ...] = ()

    @contextmanager
    def visit(
        self, path: str = "/", *, scheme: str = "light", size: dict[str, int] = WIDE, url: str = "", token: str = TOKEN
    ) -> Generator[Page]:
        """`url`: where the page is, if not at the server itself."""
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
        self._origins = (self.shop.url, url or self.shop.url)
        page.goto(f"{url or self.shop.url}{path}#key={token}")
        try:
            yield page
        finally:
            context.close()

    def proxy(self) -> AbstractContextManager[Proxy]:
        """Something between this browser and its server."""
        return open_proxy(self.shop.port)

    def picture(self, page: Page, name: str, *, full: bool = False) -> None:
        """One of the named pictures, if they are wanted."""
        if self._screens is not None:
            page.evaluate("scrollTo(0, 0)")
            (self._screens / f"page-{name}.png").write_bytes(shrink(page.screenshot(full_page=full)))

    def _hear(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and not any(text in message.text for text in self.expected):
            self.troubles.append(f"{message.type}: {message.text}")

    def _watch(self, request: Request) -> None:
        if not request.url.startswith((*self._origins, "blob:", "data:")):
            self.troubles.append(f"foreign request: {request.url}")


@pytest.fixture(scope="package")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    python = install_wheel(tmp_path_factory)
    data = tmp_path_factory.mktemp("shop")
    big = {name: big_run(name, size) for name, size in (("incident-500", 500), ("incident-2000", 2000))}
    write_runs(data, {**big, **kept_runs()})
    with open_shop(data, python) as opened:
        yield opened


@pytest.fixture(scope="package")
def browser(shop: Shop) -> Iterator[Browser]:
    """After the server: while a browser is open, its library holds the event loop of this thread."""
    expect.set_options(timeout=_TIMEOUT)
    with open_browser() as opened:
        yield opened


@pytest.fixture
def visitor(browser: Browser, shop: Shop) -> Iterator[Visitor]:
    screens = Path(os.environ[SCREENS]) if SCREENS in os.environ else None
    if screens is not None:
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


@pytest.fixture(scope="package")
def waiting_run(shop: Shop) -> str:
    """A run that waits for the approval of a call, with all that can be done without it done."""
    run = shop.begin()
    shop.wait(run, "needs_input")
    shop.wait_for_tasks(run, "t1", "t2", "t3", "t4", "t5", "t6", "t8", "t10")
    return run
