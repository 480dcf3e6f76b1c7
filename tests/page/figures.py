"""What the page takes, measured in a browser: processor time of its main thread, and of the layout in node."""

import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import msgspec
from msgspec import Struct
from playwright.sync_api import Page, expect

from chargehand.engine.plan import needs
from tests.page.big_run import big_plan
from tests.page.proxy import Proxy
from tests.page.shop import Shop
from tests.page.web_tools import run_script

_PAINTED = """seq => new Promise(done => {
    const main = document.querySelector("main.rp");
    const look = () => { if (main.dataset.seq === seq) requestAnimationFrame(() => setTimeout(done, 0)); };
    new MutationObserver(look).observe(main, { attributes: true });
    look();
})"""
"""Waits until the run with this entry is painted."""


class PageFigures(Struct, frozen=True):
    """Seconds."""

    load_500: float
    """From the address to 500 tasks painted, processor time."""
    load_2000: float
    status_change: float
    """One entry that changes the status of a task, among 500."""
    layout_500: float
    """The layout of 500 tasks as cards, which the page itself does for up to 150."""


class _Metric(Struct):
    name: str
    value: float


class _Metrics(Struct):
    metrics: list[_Metric]


class ProcessorTime:
    """The processor time of a page's main thread, in seconds, as its browser counts it."""

    def __init__(self, page: Page) -> None:
        session = page.context.new_cdp_session(page)
        send = session.send  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] - as the library has it
        self._send = cast("Callable[..., object]", send)
        self._send("Performance.enable", {"timeDomain": "threadTicks"})

    def read(self) -> float:
        metrics = msgspec.convert(self._send("Performance.getMetrics"), _Metrics).metrics
        return next(metric.value for metric in metrics if metric.name == "TaskDuration")


def measure_load(page: Page, url: str, run: str, tasks: int) -> float:
    processor = ProcessorTime(page)
    page.goto(f"{url}/runs/{run}")
    expect(page.locator(".wf-cell")).to_have_count(tasks)
    expect(page.locator(".tm-row").first).to_be_visible()
    page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    return processor.read()


def measure_status_change(page: Page, proxy: Proxy, shop: Shop, run: str) -> float:
    """The stream is kept back at the last entry with which an attempt succeeds, and then let go for this entry."""
    entries: list[dict[str, Any]] = shop.client.get(f"/api/runs/{run}/entries?limit=10000").json()["entries"]
    last = max(entry["seq"] for entry in entries if entry["event"]["type"] == "attempt.succeeded")
    processor = ProcessorTime(page)
    first = proxy.hold_at(f"id: {last}\n".encode())
    proxy.hold_at(f"id: {last + 1}\n".encode())
    page.goto(f"{proxy.url}/runs/{run}")
    expect(page.locator("main.rp")).to_have_attribute("data-seq", str(last - 1))
    before = processor.read()
    threading.Timer(0.05, first.release).start()
    page.evaluate(_PAINTED, str(last))  # not with a locator, which asks again and again
    return processor.read() - before


def measure_layout(size: int) -> float:
    tasks = [{"id": task.id, "needs": [name for name, _ in needs(task)]} for task in big_plan(size).tasks]
    with tempfile.TemporaryDirectory() as folder:
        return float(run_script("time_layout.ts", msgspec.json.encode(tasks), Path(folder))) / 1000
