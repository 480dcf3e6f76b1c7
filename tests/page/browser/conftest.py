"""One server, one browser and a page that notes what must not happen: errors, foreign requests, script from data."""

import os
import re
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Dialog, Error, Locator, Page, Request, expect

from tests.page.big_run import big_run
from tests.page.chromium import open_browser
from tests.page.installed import install_wheel
from tests.page.png import shrink
from tests.page.proxy import Proxy, open_proxy
from tests.page.recorded_runs import kept_runs, write_runs
from tests.page.shop import DEMO_PACE, QUICK_PACE, Shop, open_shop
from tests.server.running import TOKEN
from tests.support.hunts import hunt_size

WIDE = {"width": 1280, "height": 800}
NARROW = {"width": 390, "height": 844}
_TIMEOUT = 30_000
TIMEOUT = pytest.mark.timeout(300)
"""For tests in a browser, on a busy machine."""
_FOLLOW_LINK = """path => new Promise(done => {
    history.pushState(null, "", path);
    dispatchEvent(new PopStateEvent("popstate"));
    requestAnimationFrame(() => requestAnimationFrame(done));
})"""
_SHORTEN_WAITS = """() => {
    for (const name of ["setTimeout", "setInterval"]) {
        const original = window[name];
        window[name] = (action, wait, ...rest) => original(action, wait / 10, ...rest);
    }
}"""
SCREENS = "PAGE_SCREENS"
"""The folder that pictures are kept in, if this is set."""


def many_tasks() -> int:
    """Return the size of a run that is a map of cells, as all of more than 150 tasks are."""
    return 500 if SCREENS in os.environ else hunt_size(quick=200, thorough=500)


def most_tasks() -> int:
    return 2000 if SCREENS in os.environ else hunt_size(quick=500, thorough=2000)


def settled(page: Page) -> None:
    """The run page with all its entries drawn."""
    expect(page.locator("main.rp")).to_have_attribute("data-seq", re.compile(r"[1-9]\d*"))
    expect(page.locator(".tm-row").first).to_be_visible()


def follow_link(page: Page, path: str) -> None:
    """Go to another view as a link of the page does, without loading the page anew, and wait until it is painted."""
    page.evaluate(_FOLLOW_LINK, path)


def shorten_waits(page: Page) -> None:
    """Let the page wait a tenth of the time before it tries again, until another page is loaded."""
    page.evaluate(_SHORTEN_WAITS)


def inspector(page: Page) -> Locator:
    return page.get_by_label("Inspector")


class Pages:
    """Pages of a browser, used by one test after the other: a new one takes half a second of processor time."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._idle: dict[tuple[str, int], list[Page]] = {}

    @contextmanager
    def take(self, scheme: str, size: dict[str, int]) -> Generator[Page]:
        """Return a page without storage, routes and permissions for this block; one that failed is not used again."""
        idle = self._idle.setdefault((scheme, size["width"]), [])
        page = idle.pop() if idle else self._open(scheme, size)
        try:
            yield page
            self._clean(page, scheme, size)
        except BaseException:
            page.context.close()
            raise
        idle.append(page)

    @contextmanager
    def open_own(self, scheme: str, size: dict[str, int]) -> Generator[Page]:
        page = self._open(scheme, size)
        try:
            yield page
        finally:
            page.context.close()

    def _open(self, scheme: str, size: dict[str, int]) -> Page:
        options: dict[str, Any] = {"viewport": size, "color_scheme": scheme, "reduced_motion": "reduce"}
        if size == NARROW:
            options |= {"device_scale_factor": 2, "has_touch": True}
        context = self._browser.new_context(**options)
        context.set_default_timeout(_TIMEOUT)
        return context.new_page()

    def _clean(self, page: Page, scheme: str, size: dict[str, int]) -> None:
        page.unroute_all(behavior="ignoreErrors")
        page.context.clear_permissions()
        page.evaluate("sessionStorage.clear(); localStorage.clear()")
        page.goto("about:blank")
        page.emulate_media(media="null", color_scheme="dark" if scheme == "dark" else "light")
        page.set_viewport_size({"width": size["width"], "height": size["height"]})


class Visitor:
    """A browser at a server. `troubles` are errors on its console and requests that went elsewhere."""

    def __init__(self, pages: Pages, shop: Shop, screens: Path | None) -> None:
        self.shop = shop
        self.troubles: list[str] = []
        self.expected: tuple[str, ...] = ()
        """Texts of console messages that the test brings about itself."""
        self._pages = pages
        self._screens = screens
        self._origins: tuple[str, ...] = ()

    @contextmanager
    def visit(
        self,
        path: str = "/",
        *,
        scheme: str = "light",
        size: dict[str, int] = WIDE,
        url: str = "",
        token: str = TOKEN,
        own: bool = False,
    ) -> Generator[Page]:
        """Open the page.

        Args:
            url: where the page is, if not at the server itself.
            own: in a page of its own, whose clock may be changed.
        """
        opened = self._pages.open_own(scheme, size) if own or url else self._pages.take(scheme, size)
        with opened as page:
            handlers: dict[str, Callable[..., None]] = {
                "console": self._hear,
                "pageerror": self._note_error,
                "request": self._watch,
                "dialog": self._note_dialog,
            }
            for event, handler in handlers.items():
                page.on(event, handler)  # pyright: ignore[reportArgumentType, reportCallIssue] - its overloads want literals
            self._origins = (self.shop.url, url or self.shop.url)
            page.goto(f"{url or self.shop.url}{path}#key={token}")
            try:
                yield page
            finally:
                for event, handler in handlers.items():
                    page.remove_listener(event, handler)

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

    def _note_error(self, error: Error) -> None:
        self.troubles.append(f"error: {error}")

    def _note_dialog(self, dialog: Dialog) -> None:
        self.troubles.append(f"dialog: {dialog.message}")

    def _watch(self, request: Request) -> None:
        if not request.url.startswith((*self._origins, "blob:", "data:")):
            self.troubles.append(f"foreign request: {request.url}")


@pytest.fixture(scope="package")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    python = install_wheel(tmp_path_factory)
    data = tmp_path_factory.mktemp("shop")
    big = {f"incident-{size}": big_run(f"incident-{size}", size) for size in (many_tasks(), most_tasks())}
    write_runs(data, {**big, **kept_runs()})
    with open_shop(data, python, pace=DEMO_PACE if SCREENS in os.environ else QUICK_PACE) as opened:
        yield opened


@pytest.fixture(scope="package")
def browser(shop: Shop) -> Iterator[Browser]:
    """After the server: while a browser is open, its library holds the event loop of this thread."""
    expect.set_options(timeout=_TIMEOUT)
    with open_browser() as opened:
        yield opened


@pytest.fixture(scope="package")
def pages(browser: Browser) -> Pages:
    return Pages(browser)


@pytest.fixture
def visitor(pages: Pages, shop: Shop) -> Iterator[Visitor]:
    screens = Path(os.environ[SCREENS]) if SCREENS in os.environ else None
    if screens is not None:
        screens.mkdir(parents=True, exist_ok=True)
    visitor = Visitor(pages, shop, screens)
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
