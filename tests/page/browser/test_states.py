"""What the page says when there is nothing, not yet, no more, or not allowed."""

import re

import pytest
from playwright.sync_api import Route, expect

from tests.page.browser.conftest import TIMEOUT, Visitor, inspector, settled, shorten_waits
from tests.server.running import TOKEN

pytestmark = TIMEOUT


def test_while_a_list_is_loading_there_are_grey_rows(visitor: Visitor) -> None:
    held: list[Route] = []
    with visitor.visit("/memory") as page:
        page.route("**/api/runs?*", lambda route: held.append(route))  # noqa: PLW0108 - the library marks what it is given
        page.route("**/api/runs/events*", lambda route: route.fulfill(status=204))
        page.get_by_role("link", name="Runs", exact=True).click()
        expect(page.get_by_role("status", name="Loading").locator("i")).to_have_count(8)
        held[0].continue_()
        expect(page.get_by_role("status", name="Loading")).to_have_count(0)


def test_a_server_without_runs_shows_two_examples(visitor: Visitor) -> None:
    with visitor.visit() as page:
        page.route("**/api/runs?*", lambda route: route.fulfill(json={"runs": [], "next": None}))
        page.route("**/api/runs/events*", lambda route: route.fulfill(status=204))
        page.goto(f"{visitor.shop.url}/?again")
        expect(page.get_by_text("Nothing has run here yet")).to_be_visible()
        examples = page.get_by_role("region", name="Examples").get_by_role("link")
        expect(examples).to_have_count(2)
        examples.first.click()
        expect(page.locator(".gr-card")).to_have_count(10)
        expect(inspector(page)).to_contain_text("The slowdown was our own change.")
        expect(page.get_by_role("button", name="Fork")).to_have_count(0)
        page.keyboard.press("j")
        expect(inspector(page)).to_contain_text("Error classes")
        page.goto(f"{visitor.shop.url}/runs/example/cascade")
        expect(page.locator(".gr-card.is-skip")).to_have_count(4)


def test_while_there_is_no_plan_that_is_said(visitor: Visitor) -> None:
    run = visitor.shop.begin()
    with visitor.visit(f"/runs/{run}?at=0.01") as page:
        expect(page.locator(".gr-empty")).to_contain_text("Tasks appear as soon as it is checked.")
        visitor.shop.client.post(f"/api/runs/{run}/cancel", json={})
        page.get_by_role("button", name="back to now").click()
        expect(inspector(page)).to_contain_text("No answer was written.")


def test_without_a_token_the_page_asks_for_one(visitor: Visitor) -> None:
    visitor.expected = ("401",)
    with visitor.visit(token="ch_wrong_0123456789abcdef0123456789abcdef") as page:
        expect(page.get_by_text("chargehand tokens create")).to_be_visible()
        page.get_by_label("Token").fill(TOKEN)
        page.get_by_role("button", name="Open").click()
        expect(page.get_by_role("heading", name="Runs")).to_be_visible()
        assert "key=" not in page.url


@pytest.mark.slow("makes a token in a fresh process and loads the page three times")
def test_a_token_that_may_only_read_has_no_buttons_that_act(visitor: Visitor, ended_run: str, waiting_run: str) -> None:
    printed = visitor.shop.command("tokens", "create", "--scope", "read", "--data", str(visitor.shop.data))
    found = re.search(r"\bch_[\w-]+", printed)
    assert found, printed
    with visitor.visit(f"/runs/{waiting_run}", token=found[0]) as page:
        settled(page)
        expect(page.get_by_role("region", name="Needs you")).to_contain_text("refund")
        for name in ("Approve", "Reject …", "Pause", "Cancel"):
            expect(page.get_by_role("button", name=name)).to_have_count(0)
        page.goto(f"{visitor.shop.url}/runs/{ended_run}?task=t3")
        settled(page)
        for name in ("Fork", "Delete", "Retry", "Skip"):
            expect(page.get_by_role("button", name=name, exact=True)).to_have_count(0)
        page.goto(visitor.shop.url)
        expect(page.locator(".rl-row").first).to_be_visible()
        expect(page.get_by_role("button", name="New run")).to_have_count(0)


def test_a_run_that_is_not_there_is_said_not_to_be(visitor: Visitor) -> None:
    visitor.expected = ("404",)
    with visitor.visit("/runs/no-such-run") as page:
        expect(page.get_by_text("This run is not here")).to_be_visible()
        page.get_by_role("link", name="All runs", exact=True).click()
        expect(page.get_by_role("heading", name="Runs")).to_be_visible()


def test_a_run_that_nobody_carries_says_so_and_can_be_resumed(visitor: Visitor) -> None:
    visitor.expected = ("409",)
    with visitor.visit("/runs/kept-cut") as page:
        expect(page.locator(".rh .chip")).to_have_text("interrupted")
        expect(page.locator(".rh")).to_contain_text(re.compile(r"Nobody carries this run, since 3\d min ago"))
        expect(page.locator(".rh")).to_contain_text("3.0 s")
        expect(page.locator(".gr-card.is-run, .tm-bar.is-open, .tm-ghost")).to_have_count(0)
        page.get_by_role("button", name="Resume").click()
        expect(page.locator(".rh").get_by_role("alert")).to_contain_text("team")  # which is served elsewhere
        page.keyboard.press("j")
        expect(inspector(page)).to_contain_text("Asked for")


def test_what_the_server_refuses_stands_under_what_was_pressed(visitor: Visitor) -> None:
    visitor.expected = ("422",)
    with visitor.visit() as page:
        page.get_by_role("button", name="New run").click()
        dialog = page.get_by_role("dialog", name="New run")
        dialog.get_by_label("Request").fill("What is checkout?")
        dialog.get_by_label("Labels").fill("no colon")
        expect(dialog).to_contain_text("A label is a name, a colon and a value")
        expect(dialog.get_by_role("button", name="Start")).to_be_disabled()
        dialog.get_by_label("Labels").fill(f"long: {'x' * 300}")
        dialog.get_by_role("button", name="Start").click()
        expect(dialog.get_by_role("alert")).to_contain_text("labels")


def test_a_view_without_a_stream_comes_back_with_the_server(visitor: Visitor) -> None:
    visitor.expected = ("ERR_CONNECTION_REFUSED",)
    with visitor.visit("/teams") as page:
        expect(page.get_by_role("row", name=re.compile("archivist"))).to_be_visible()
        shorten_waits(page)
        page.route("**/api/**", lambda route: route.abort("connectionrefused"))
        page.get_by_role("link", name="Memory", exact=True).click()
        expect(page.get_by_text("The server does not answer. Trying again …")).to_be_visible()
        expect(page.get_by_text("No team here remembers anything")).to_have_count(0)
        page.unroute("**/api/**")
        expect(page.get_by_label("known_causes")).to_be_visible()
        expect(page.get_by_text("The server does not answer")).to_have_count(0)
