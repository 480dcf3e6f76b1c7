"""Several calls and effects in doubt, in a real browser: each is shown with its arguments and has its own verdict."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.page.browser.conftest import TIMEOUT
from tests.server.api import Garden
from tests.server.door_teams import cases
from tests.server.running import TOKEN, running, settings_in

pytestmark = TIMEOUT


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Garden]:
    folder = tmp_path_factory.mktemp("verdicts")
    teams = cases()
    settings = settings_in(folder / "data", teams=(teams["calls"].team, teams["doubt"].team), grace=0.2)
    with (
        running(settings) as server,
        httpx.Client(base_url=server.url, headers=server.headers, timeout=30) as client,
    ):
        yield Garden(server, client, folder)


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    try:
        yield context.new_page()
    finally:
        context.close()


def asking(home: Garden, page: Page, team: str) -> tuple[str, Locator]:
    """A run of a team that waits, and where the page asks."""
    run = home.begin("Do it.", team=team)
    home.wait(run, "needs_input")
    page.goto(f"{home.server.url}/runs/{run}#key={TOKEN}")
    return run, page.get_by_role("region", name="Needs you")


def test_each_of_two_calls_gets_its_own_verdict(home: Garden, page: Page) -> None:
    run, needs = asking(home, page, "calls")
    expect(needs).to_contain_text("clerk wants to make 2 calls")
    send = needs.get_by_role("button", name="Send all verdicts")
    first, second = (needs.get_by_role("group").nth(place) for place in (0, 1))
    expect(first).to_contain_text("Ott")
    expect(second).to_contain_text("Bob")
    first.get_by_label("Approve").check()
    expect(send).to_be_disabled()
    second.get_by_label("Reject").check()
    second.get_by_label("Why not?").fill("too dear")
    send.click()
    shown: Any = home.wait(run, "partial")
    (gap,) = shown["gaps"]
    assert (gap["status"], gap["arguments"]) == ("refused", {"payee": "Bob"})
    assert "too dear" in gap["message"]
    expect(needs).to_have_count(0)


def test_an_effect_in_doubt_is_said_to_be_done_with_its_result(home: Garden, page: Page) -> None:
    run, needs = asking(home, page, "doubt")
    expect(needs).to_contain_text("Nobody knows whether this call happened")
    expect(needs).to_contain_text("Ute")
    expect(needs).to_contain_text("idempotency key")
    needs.get_by_label("It was done").check()
    send = needs.get_by_role("button", name="Send")
    expect(send).to_be_disabled()
    needs.get_by_label("What did it return?").fill('{"mail": 7}')
    send.click()
    shown: Any = home.wait(run, "complete")
    assert shown["answer"] == "Sent."
    entries: Any = home.client.get(f"/api/runs/{run}/entries").json()["entries"]
    (answer,) = [entry["event"] for entry in entries if entry["event"]["type"] == "input.answered"]
    assert (answer["verdict"], answer["result"]) == ("done", {"mail": 7})
