"""Watching a run and understanding it, in a real browser: each interaction on a live run and on an ended one."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.page.browser.conftest import TIMEOUT, Visitor, follow_link, inspector, many_tasks, settled
from tests.page.shop import CASCADE, LONG_TASK, SLOW
from tests.support.hunts import hunt_size

pytestmark = TIMEOUT


def places(page: Page) -> list[str]:
    """Where the cards are."""
    return page.locator(".gr-card").evaluate_all("cards => cards.map(card => card.getAttribute('transform'))")


@pytest.mark.slow("watches a whole run in a browser")
def test_a_run_from_the_request_to_the_answer(visitor: Visitor) -> None:
    with visitor.visit("/?team=incident") as page:
        expect(page.get_by_role("button", name="New run")).to_be_visible()
        page.keyboard.press("n")
        dialog = page.get_by_role("dialog", name="New run")
        expect(dialog.get_by_role("button", name="Start")).to_be_disabled()
        dialog.get_by_label("Request").fill(SLOW)
        dialog.get_by_label("Labels").fill("customer: 1041")
        dialog.get_by_role("button", name="What will it take?").click()
        expect(dialog.get_by_role("region", name="The plan")).to_contain_text("10 tasks")
        visitor.picture(page, "new")
        dialog.get_by_role("button", name="Start").click()
        needs = page.get_by_role("region", name="Needs you")
        expect(needs).to_contain_text("May this plan be carried out?")
        expect(needs).to_contain_text("10 tasks for 8 workers")
        for text in ("What it will take", "Times are UTC", "What nobody can do", "Who does what"):
            expect(inspector(page)).to_contain_text(text)
        expect(inspector(page).get_by_role("row", name=re.compile("billing"))).to_contain_text("refund acts")
        expect(page.locator(".gr-card.is-ready")).to_have_count(4)
        expect(page.locator(".tm-ghost").first).to_be_attached()
        visitor.picture(page, "plan")
        before = places(page)
        analysis = visitor.shop.model.hold(LONG_TASK)
        page.keyboard.press("a")
        expect(page.locator(".gr-card.is-run").first).to_be_visible()
        expect(page.locator(".tm-bar.is-open").first).to_be_attached()
        expect(page.locator(".tm-path line").first).to_be_attached()
        expect(needs).to_contain_text("billing wants to call refund")
        expect(needs).to_contain_text("C-1041, C-2210, C-0073")
        expect(page.locator('[data-task="t7"]')).to_have_class(re.compile("is-ask"))
        visitor.picture(page, "live")
        with visitor.visit(page.url.removeprefix(visitor.shop.url)) as late:
            expect(late.locator('[data-task="t7"]')).to_have_class(re.compile("is-ask"))
            assert places(late) == before
        analysis.release()
        needs.get_by_role("button", name="Approve").click()
        expect(needs).to_have_count(0)
        expect(page.locator(".rh .chip")).to_have_text("partial")
        assert places(page) == before
        expect(page.locator(".rh")).to_contain_text("customer: 1041")
        expect(inspector(page)).to_contain_text("The slowdown was our own change.")
        expect(inspector(page).locator("section", has_text="Missing").first).to_contain_text("t4")
        visitor.picture(page, "run")


def check_task(page: Page) -> None:
    """All that the inspector says about a task that was retried."""
    side = inspector(page)
    page.locator('[data-task="t3"]').click()
    expect(page).to_have_url(re.compile("task=t3"))
    expect(page.locator('[data-task="t2"]')).to_have_class(re.compile("is-far"))
    expect(side).to_contain_text("4.18.0")
    page.keyboard.press("2")
    expect(side).to_contain_text("What the supervisor changed")
    expect(side.locator("ins")).to_contain_text("one service per query")
    expect(side.locator(".attempt")).to_have_count(2)
    expect(side.locator(".attempt .failure")).to_contain_text("one service per query")
    page.keyboard.press("3")
    expect(side.locator(".call").first).to_contain_text("services")
    expect(side.locator(".call table")).to_contain_text("roll-back")
    page.keyboard.press("4")
    expect(side).to_contain_text("memory block known_causes")
    expect(side).not_to_contain_text("</data")
    page.keyboard.press("5")
    expect(side).to_contain_text("attempt.started")


def test_a_live_run_tells_what_was_retried_and_what_was_changed(visitor: Visitor, waiting_run: str) -> None:
    with visitor.visit(f"/runs/{waiting_run}") as page:
        settled(page)
        check_task(page)
        page.keyboard.press("Escape")
        for text in ("Where the time went", "waiting for a person", "Critical path", "attempts that failed"):
            expect(inspector(page)).to_contain_text(text)
        expect(page.locator(".rh-budget")).to_contain_text("of $0.250")
        expect(page.locator(".tm-bar.is-person")).not_to_have_count(0)
        page.locator('[data-task="t7"]').click()
        page.keyboard.press("2")
        expect(inspector(page).locator(".attempt")).to_contain_text("billing")


def test_an_ended_run_tells_what_was_retried_and_what_was_changed(visitor: Visitor, ended_run: str) -> None:
    with visitor.visit(f"/runs/{ended_run}") as page:
        settled(page)
        side = inspector(page)
        for text in (
            "Answer",
            "Missing",
            "Where the time went",
            "Critical path",
            "Where the money went",
            "that failed",
        ):
            expect(side).to_contain_text(text)
        expect(page.locator(".rh-budget")).to_contain_text("of $0.250")
        expect(page.locator(".tm-bar.is-failed")).not_to_have_count(0)
        expect(page.locator(".tm-path line")).not_to_have_count(0)
        side.locator(".pn-answer .ref", has_text="t3").first.hover()
        expect(page.locator('[data-task="t3"]')).to_have_class(re.compile("is-pointed"))
        check_task(page)
        page.keyboard.press("2")
        visitor.picture(page, "task")
        page.locator(".tm-row", has_text="plan").first.click()
        expect(side).to_contain_text("tokens in")
        page.goto(f"{visitor.shop.url}/runs/{ended_run}?task=t5&tab=prompt")
        expect(side).to_contain_text("input from t1")
        visitor.picture(page, "prompt")


def test_the_past_of_an_ended_run_can_be_looked_at(visitor: Visitor, ended_run: str) -> None:
    with visitor.visit(f"/runs/{ended_run}") as page:
        settled(page)
        done = page.locator(".gr-card.is-done").count()
        page.keyboard.press("[")
        expect(page.locator(".rh-past")).to_contain_text("as it was at")
        axis = page.locator(".tm-axis").bounding_box()
        head = page.locator(".tm-head").bounding_box()
        assert axis is not None
        assert head is not None
        middle = axis["x"] + 212 + (head["x"] - axis["x"] - 212) * 0.45
        page.mouse.click(middle, axis["y"] + 12)
        expect(page.locator(".gr-card.is-done")).not_to_have_count(done)
        expect(page).to_have_url(re.compile(r"at=\d"))
        expect(inspector(page)).not_to_contain_text("The slowdown was our own change.")
        visitor.picture(page, "scrub")
        page.get_by_role("button", name="back to now").click()
        expect(page.locator(".rh-past")).to_have_count(0)
        expect(page.locator(".gr-card.is-done")).to_have_count(done)


def test_the_past_of_a_live_run_can_be_looked_at(visitor: Visitor, waiting_run: str) -> None:
    with visitor.visit(f"/runs/{waiting_run}?at=0.02") as page:
        expect(page.locator(".rh-past")).to_contain_text("as it was at")
        expect(page.locator(".gr-empty")).to_contain_text("The supervisor is making a plan.")
        expect(page.locator(".rh .chip")).to_have_text("planning")
        page.keyboard.press("]")
        expect(page).not_to_have_url(re.compile(r"at=0\.02$"))
        page.get_by_role("button", name="back to now").click()
        expect(page.locator('[data-task="t7"]')).to_have_class(re.compile("is-ask"))


@pytest.mark.slow("watches a whole run in a browser")
def test_what_fell_with_a_failed_task_is_red_and_named_once(visitor: Visitor) -> None:
    run = visitor.shop.begin(CASCADE)
    with visitor.visit("/memory", own=True) as page:
        page.clock.install()
        page.goto(f"{visitor.shop.url}/runs/{run}")
        expect(page.locator(".gr-card.is-skip")).to_have_count(4)
        expect(page.locator(".gr-edge.is-cut")).not_to_have_count(0)
        expect(inspector(page)).to_contain_text("and so t5")
        expect(page.get_by_role("region", name="Needs you")).to_be_visible()
        page.clock.fast_forward(5000)  # a wait is torn out of the axis after 2 s
        expect(page.locator(".tm-torn-word")).to_have_text("waiting for you")
        visitor.picture(page, "cascade")
        page.get_by_role("button", name="Reject …").click()
        page.get_by_label("Why not?").fill("not before the review")
        page.get_by_role("button", name="Reject", exact=True).click()
        expect(page.locator(".rh .chip")).to_have_text("partial")
        expect(inspector(page)).to_contain_text("rejected by operator")
        expect(inspector(page)).to_contain_text("not before the review")


def test_a_run_says_which_cap_ended_it_and_warns_before(visitor: Visitor) -> None:
    run = visitor.shop.begin(budget={"calls": 8})
    with visitor.visit(f"/runs/{run}") as page:
        expect(page.locator(".is-near-cap")).to_have_text("8 of 8")
        expect(page.locator(".rh-cap")).to_contain_text("The budget ended this run: the cap of 8 calls: ")
        expect(page.locator(".rh .chip")).to_have_text(re.compile("partial|failed"))


def test_hundreds_of_tasks_are_a_map_of_cells(visitor: Visitor) -> None:
    with visitor.visit(f"/runs/incident-{many_tasks()}") as page:
        expect(page.locator(".wf-cell")).to_have_count(many_tasks())
        expect(page.locator(".tm-row")).not_to_have_count(0)
        assert page.locator(".tm-row").count() < 100
        expect(inspector(page)).to_contain_text("no such ledger")
        page.locator(".wf-cell.is-fail").click()
        expect(page.locator(".wf-cell.is-far").first).to_be_attached()
        visitor.picture(page, "big-500")
        page.get_by_label("Rows").select_option("critical path")
        expect(page.locator(".tm-row").nth(1)).to_be_visible()


def test_a_repeated_task_opens_in_place(visitor: Visitor) -> None:
    with visitor.visit("/runs/kept-repeated") as page:
        settled(page)
        card = page.locator(".gr-card", has_text=re.compile(r"\d of \d"))
        card.first.click()
        cells = page.locator(".gr-items .wf-cell")
        expect(cells).not_to_have_count(0)
        cells.last.click()
        expect(inspector(page).get_by_role("heading").first).to_contain_text("[")
        expect(card.first).not_to_have_class(re.compile("is-far"))


@pytest.mark.slow("paints eight runs")
def test_every_recorded_history_can_be_looked_at(visitor: Visitor) -> None:
    lines = visitor.shop.client.get("/api/runs?limit=200&text=kept-").json()["runs"]
    assert len(lines) >= 17
    lines = lines[:: hunt_size(quick=3, thorough=1)]
    with visitor.visit("/runs/kept-crash") as page:
        settled(page)
        for line in lines:
            follow_link(page, f"/runs/{line['run']}")
            expect(page.locator("main.rp")).to_have_attribute("data-seq", str(line["entries"]))
            expect(page.locator(".rh .chip")).to_be_visible()


def test_why_nobody_worked_is_said_as_it_was(visitor: Visitor) -> None:
    with visitor.visit("/runs/kept-stopped") as page:
        expect(page.locator(".tm-torn-word")).to_have_text("the server was stopped")
        expect(page.locator(".tm-torn-time")).to_have_text("1:00")
        page.goto(f"{visitor.shop.url}/runs/kept-gone")
        expect(page.locator(".tm-torn-word")).to_have_text("interrupted")
