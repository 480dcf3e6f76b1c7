"""The page in a real browser against a real server: each interaction on a live run and on an ended one."""

import re
import time

import pytest
from playwright.sync_api import Page, expect

from tests.page.browser.conftest import NARROW, Visitor
from tests.page.shop import CASCADE, SLOW

pytestmark = pytest.mark.timeout(300)
TABLET = {"width": 900, "height": 1100}


def settled(page: Page) -> None:
    """The run page with all its entries drawn."""
    expect(page.locator("main.rp")).to_have_attribute("data-seq", re.compile(r"[1-9]\d*"))
    expect(page.locator(".tm-row").first).to_be_visible()


def test_a_run_from_the_request_to_the_answer(visitor: Visitor) -> None:
    with visitor.visit() as page:
        expect(page.get_by_role("button", name="New run")).to_be_visible()
        page.keyboard.press("n")
        dialog = page.get_by_role("dialog", name="New run")
        expect(dialog.get_by_role("button", name="Start")).to_be_disabled()
        dialog.get_by_label("Request").fill(SLOW)
        dialog.get_by_role("button", name="What will it take?").click()
        expect(dialog.get_by_role("region", name="The plan")).to_contain_text("10 tasks")
        visitor.picture(page, "new")
        dialog.get_by_role("button", name="Start").click()
        needs = page.get_by_role("region", name="Needs you")
        expect(needs).to_contain_text("May this plan be carried out?")
        expect(needs).to_contain_text("10 tasks for 8 workers")
        side = page.get_by_label("Inspector")
        for text in ("What it will take", "Times are UTC", "What nobody can do", "Who does what"):
            expect(side).to_contain_text(text)
        expect(page.locator(".gr-card.is-ready")).to_have_count(4)
        time.sleep(1.0)
        visitor.picture(page, "plan")
        page.keyboard.press("a")
        expect(page.locator(".gr-card.is-run").first).to_be_visible()
        expect(needs).to_contain_text("billing wants to call refund")
        expect(needs).to_contain_text("C-1041, C-2210, C-0073")
        expect(page.locator('[data-task="t7"]')).to_have_class(re.compile("is-ask"))
        visitor.picture(page, "live")
        needs.get_by_role("button", name="Approve").click()
        expect(needs).to_have_count(0)
        expect(page.locator(".rh .chip")).to_have_text("partial")
        expect(side).to_contain_text("The slowdown was our own change.")
        expect(side.locator("section", has_text="Missing").first).to_contain_text("t4")
        visitor.picture(page, "run")


def test_an_ended_run_tells_what_was_retried_and_what_was_changed(visitor: Visitor, ended_run: str) -> None:
    with visitor.visit(f"/runs/{ended_run}") as page:
        settled(page)
        side = page.get_by_label("Inspector")
        for text in (
            "Answer",
            "Missing",
            "Where the time went",
            "Critical path",
            "Where the money went",
            "attempts that failed",
        ):
            expect(side).to_contain_text(text)
        side.locator(".pn-answer .ref", has_text="t3").first.hover()
        expect(page.locator('[data-task="t3"]')).to_have_class(re.compile("is-pointed"))
        page.locator('[data-task="t3"]').click()
        expect(page).to_have_url(re.compile("task=t3"))
        expect(page.locator('[data-task="t2"]')).to_have_class(re.compile("is-far"))
        page.keyboard.press("2")
        expect(side).to_contain_text("What the supervisor changed")
        expect(side.locator("ins")).to_contain_text("one service per query")
        expect(side.locator(".attempt")).to_have_count(2)
        visitor.picture(page, "task")
        page.keyboard.press("3")
        expect(side.locator(".call").first).to_contain_text("services")
        page.keyboard.press("4")
        expect(side).to_contain_text("memory block known_causes")
        expect(side).not_to_contain_text("</data")
        page.keyboard.press("5")
        expect(side).to_contain_text("attempt.started")
        page.locator(".tm-row", has_text="plan").first.click()
        expect(side).to_contain_text("tokens in")
        page.goto(f"{visitor.shop.url}/runs/{ended_run}?task=t5&tab=prompt")
        expect(side).to_contain_text("input from t1")
        visitor.picture(page, "prompt")


def test_the_past_of_a_run_can_be_looked_at(visitor: Visitor, ended_run: str) -> None:
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
        expect(page.get_by_label("Inspector")).not_to_contain_text("The slowdown was our own change.")
        visitor.picture(page, "scrub")
        page.get_by_role("button", name="back to now").click()
        expect(page.locator(".rh-past")).to_have_count(0)
        expect(page.locator(".gr-card.is-done")).to_have_count(done)


def test_what_fell_with_a_failed_task_is_red_and_named_once(visitor: Visitor) -> None:
    run = visitor.shop.begin(CASCADE)
    with visitor.visit(f"/runs/{run}") as page:
        expect(page.locator(".gr-card.is-skip")).to_have_count(4)
        expect(page.locator(".gr-edge.is-cut")).not_to_have_count(0)
        expect(page.get_by_label("Inspector")).to_contain_text("and so t5")
        expect(page.get_by_role("region", name="Needs you")).to_be_visible()
        time.sleep(2.5)  # long enough that the axis is torn
        visitor.picture(page, "cascade")
        page.get_by_role("button", name="Reject …").click()
        page.get_by_label("Why not?").fill("not before the review")
        page.get_by_role("button", name="Reject", exact=True).click()
        expect(page.locator(".rh .chip")).to_have_text("partial")


def test_runs_that_need_a_person_come_first_and_lists_follow_by_themselves(visitor: Visitor, ended_run: str) -> None:
    with visitor.visit() as page:
        expect(page.get_by_role("link", name=re.compile("Audit 500 places"))).to_be_visible()
        run = visitor.shop.begin(approve=True)
        inbox = page.get_by_role("region", name="Needs you")
        expect(inbox).to_contain_text("Approve a plan")
        visitor.picture(page, "list")
        visitor.shop.client.post(f"/api/runs/{run}/cancel", json={})
        expect(page.get_by_text("Approve a plan")).to_have_count(0)
        page.keyboard.press("/")
        page.keyboard.type("audit 500")
        expect(page.locator(".rl-row")).to_have_count(1)
        expect(page).to_have_url(re.compile("text=audit"))
        page.get_by_label("Search").fill("nothing is called so")
        expect(page.get_by_text("No run matches")).to_be_visible()
        page.get_by_role("button", name="Take the filter away").click()
        boxes = page.locator(".rl-row input")
        boxes.nth(0).check()
        boxes.nth(1).check()
        page.get_by_role("button", name="Compare").click()
        expect(page.get_by_role("heading", name="Compare")).to_be_visible()
        expect(page.locator(".compare-facts")).to_contain_text("Tasks done")


def test_a_plan_is_edited_and_checked_before_it_is_carried_out(visitor: Visitor) -> None:
    run = visitor.shop.begin(approve=True)
    with visitor.visit(f"/runs/{run}") as page:
        page.get_by_role("button", name="Edit …").click()
        dialog = page.get_by_role("dialog", name="Edit the plan")
        dialog.get_by_label("Instruction of t2").fill("")
        expect(dialog.locator("fieldset .failure").first).to_be_visible()
        for task in ("t10", "t9", "t8", "t7", "t6", "t5", "t4", "t3"):
            dialog.get_by_title(f"Remove {task}").click()
        dialog.get_by_label("Instruction of t2").fill("Say what checkout is.")
        dialog.get_by_role("tab", name="Changes").click()
        expect(dialog.locator(".plan-changes")).to_contain_text("Say what checkout is.")
        dialog.get_by_role("button", name="Carry out this plan").click()
        expect(page.locator(".gr-card")).to_have_count(2)
        visitor.shop.wait(run, "complete", "partial", "failed")
        expect(page.locator('[data-task="t2"]')).to_have_class(re.compile("is-done"))


def test_a_run_is_paused_resumed_and_cancelled(visitor: Visitor) -> None:
    run = visitor.shop.begin()
    with visitor.visit(f"/runs/{run}") as page:
        page.get_by_role("button", name="Pause").click()
        expect(page.locator(".rh").get_by_role("button", name="Resume")).to_be_enabled()
        page.keyboard.press("p")
        expect(page.get_by_role("button", name="Pause")).to_be_enabled()
        page.keyboard.press("x")
        page.get_by_role("button", name="Really cancel?").click()
        expect(page.locator(".rh .chip")).to_have_text("cancelled")
        expect(page.get_by_role("button", name="Fork")).to_be_enabled()
        page.keyboard.press("f")
        expect(page).not_to_have_url(re.compile(run))
        expect(page.locator(".rh")).to_contain_text("after")


def test_who_answers_second_is_told_what_was_said(visitor: Visitor) -> None:
    visitor.expected = ("409",)
    run = visitor.shop.begin()
    visitor.shop.wait(run, "needs_input")
    with visitor.visit(f"/runs/{run}") as page:
        page.route("**/answer", lambda route: (visitor.shop.approve(run), route.continue_()))
        page.get_by_role("button", name="Approve").click()
        expect(page.get_by_text("Somebody answered before you: approved")).to_be_visible()
        expect(page.locator(".rh .chip")).to_have_text("partial")


def test_hundreds_of_tasks_are_a_map_of_cells(visitor: Visitor) -> None:
    with visitor.visit("/runs/incident-500") as page:
        expect(page.locator(".wf-cell")).to_have_count(500)
        expect(page.locator(".tm-row")).not_to_have_count(0)
        assert page.locator(".tm-row").count() < 100
        expect(page.get_by_label("Inspector")).to_contain_text("no such ledger")
        page.locator(".wf-cell.is-fail").click()
        expect(page.locator(".wf-cell.is-far").first).to_be_attached()
        visitor.picture(page, "big-500")
        page.get_by_label("Rows").select_option("critical path")
        expect(page.locator(".tm-row").nth(1)).to_be_visible()


def test_one_thumb_is_enough_on_a_phone(visitor: Visitor) -> None:
    run = visitor.shop.begin()
    visitor.shop.wait(run, "needs_input")
    with visitor.visit(f"/runs/{run}", size=NARROW) as page:
        approve = page.get_by_role("button", name="Approve")
        box = approve.bounding_box()
        assert box is not None
        assert box["height"] >= 44
        assert box["y"] > 600
        expect(page.locator(".rp-tasks li")).to_have_count(10)
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width <= 390
        visitor.picture(page, "phone")
        for part in ("Graph", "Time", "Answer"):
            page.get_by_role("button", name=part, exact=True).click()
        approve.tap()
        expect(page.get_by_label("Inspector")).to_contain_text("The slowdown was our own change.")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_a_tablet_has_all_of_it_below_each_other(visitor: Visitor, ended_run: str) -> None:
    with visitor.visit(f"/runs/{ended_run}", size=TABLET) as page:
        settled(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= TABLET["width"]
        visitor.picture(page, "tablet")


def test_dark_is_by_the_system_or_by_choice(visitor: Visitor, ended_run: str) -> None:
    with visitor.visit(f"/runs/{ended_run}?task=t1&tab=calls", scheme="dark") as page:
        settled(page)
        expect(page.get_by_label("Inspector")).to_contain_text("connection reset")
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 22, 25)"
        visitor.picture(page, "dark")
        page.keyboard.press("?")
        page.get_by_label("light", exact=True).check()
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(250, 249, 246)"


def test_keys_lead_through_the_tasks(visitor: Visitor, ended_run: str) -> None:
    with visitor.visit(f"/runs/{ended_run}") as page:
        settled(page)
        page.keyboard.press("j")
        expect(page).to_have_url(re.compile("task=t1"))
        page.keyboard.press("j")
        expect(page).to_have_url(re.compile("task=t2"))
        page.keyboard.press("k")
        expect(page).to_have_url(re.compile("task=t1"))
        page.keyboard.press("Escape")
        expect(page).not_to_have_url(re.compile("task="))
        page.locator('[data-task="t2"]').focus()
        page.keyboard.press("ArrowRight")
        expect(page.locator('[data-task="t5"]')).to_be_focused()
        page.keyboard.press("Enter")
        expect(page).to_have_url(re.compile("task=t5"))
        page.keyboard.press("g")
        page.keyboard.press("r")
        expect(page.get_by_role("heading", name="Runs")).to_be_visible()


def test_teams_and_memory_are_shown_and_a_block_is_edited(visitor: Visitor, ended_run: str) -> None:
    with visitor.visit("/teams") as page:
        expect(page.get_by_role("row", name=re.compile("archivist"))).to_contain_text("runbooks")
        page.get_by_role("link", name="memory", exact=True).click()
        block = page.get_by_label("known_causes")
        expect(block).to_have_value(re.compile("expired certificate"))
        block.fill("2026-11-12: pool of checkout 4.18.0.")
        page.get_by_role("button", name="Save").nth(1).click()
        expect(page.locator(".block", has_text="known_causes")).to_contain_text("version 2")
        page.locator(".block", has_text="known_causes").get_by_role("button", name="History").click()
        expect(page.locator(".block-history")).to_contain_text("2026-11-12")


def test_without_a_token_the_page_asks_for_one_and_an_unknown_run_is_said_to_be(visitor: Visitor) -> None:
    visitor.expected = ("401", "404")
    context = visitor.browser.new_context()
    page = context.new_page()
    page.goto(visitor.shop.url)
    page.get_by_label("Token").fill("ch_test_0123456789abcdef0123456789abcdef")
    page.get_by_role("button", name="Open").click()
    expect(page.get_by_role("heading", name="Runs")).to_be_visible()
    page.goto(f"{visitor.shop.url}/runs/no-such-run")
    expect(page.get_by_text("This run is not here")).to_be_visible()
    context.close()


def test_tasks_of_a_live_run_are_skipped_and_given_away_in_place(visitor: Visitor) -> None:
    run = visitor.shop.begin()
    with visitor.visit(f"/runs/{run}?task=t9") as page:
        side = page.get_by_label("Inspector")
        side.get_by_role("button", name="Give to …").click()
        side.get_by_label("Worker").select_option("analyst")
        expect(side).to_contain_text("In this run, which goes on.")
        side.get_by_role("button", name="Give to", exact=True).click()
        expect(side.locator(".facts")).to_contain_text("analyst")
        page.goto(f"{visitor.shop.url}/runs/{run}?task=t10")
        side.get_by_role("button", name="Skip").first.click()
        side.locator(".pn-confirm").get_by_role("button", name="Skip").click()
        expect(page.locator('[data-task="t10"]')).to_have_class(re.compile("is-skip"))
        expect(page).to_have_url(re.compile(run))
        visitor.shop.client.post(f"/api/runs/{run}/cancel", json={})


def test_a_question_of_a_worker_is_answered_in_words(visitor: Visitor) -> None:
    tasks = [{"id": "t1", "instruction": "Ask which language the note is to be in and write it.", "worker": "writer"}]
    run = visitor.shop.begin("Write a note for customers.", plan={"tasks": tasks})
    with visitor.visit() as page:
        page.get_by_role("region", name="Needs you").get_by_text("Answer a question").click()
        needs = page.get_by_role("region", name="Needs you")
        expect(needs).to_contain_text("writer asks: In which language is the note to be?")
        needs.get_by_role("button", name="German").click()
        expect(needs).to_have_count(0)
        visitor.shop.wait(run, "complete", "partial")
        page.locator('[data-task="t1"]').click()
        expect(page.get_by_label("Inspector")).to_contain_text("German")
        page.keyboard.press("Escape")
        expect(page.get_by_label("Inspector")).to_contain_text("answered by operator")


def test_a_server_without_runs_shows_examples(visitor: Visitor) -> None:
    with visitor.visit() as page:
        page.route("**/api/runs?*", lambda route: route.fulfill(json={"runs": [], "next": None}))
        page.route("**/api/runs/events*", lambda route: route.fulfill(status=204))
        page.goto(f"{visitor.shop.url}/?again")
        expect(page.get_by_text("Nothing has run here yet")).to_be_visible()
        page.get_by_role("region", name="Examples").get_by_role("link").first.click()
        expect(page.locator(".gr-card")).to_have_count(10)
        expect(page.get_by_label("Inspector")).to_contain_text("The slowdown was our own change.")
        expect(page.get_by_role("button", name="Fork")).to_have_count(0)
        page.keyboard.press("j")
        expect(page.get_by_label("Inspector")).to_contain_text("Error classes")
