"""Stepping in, in a real browser: plans, questions, tasks, whole runs; while a run goes on and after its end."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.page.browser.conftest import TIMEOUT, Visitor, inspector, settled
from tests.page.shop import LONG_TASK

pytestmark = TIMEOUT


@pytest.mark.slow("watches a whole run in a browser")
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
        expect(inspector(page)).to_contain_text("plan edited by operator")


def test_a_plan_is_rejected_with_words_and_made_anew(visitor: Visitor) -> None:
    run = visitor.shop.begin(approve=True)
    with visitor.visit(f"/runs/{run}") as page:
        needs = page.get_by_role("region", name="Needs you")
        expect(needs).to_contain_text("May this plan be carried out?")
        page.keyboard.press("r")
        needs.get_by_label("Why not?").fill("Leave the vendor out.")
        needs.get_by_role("button", name="Reject", exact=True).click()
        expect(page.locator(".tm-row", has_text="plan").locator(".tm-bar.is-supervisor")).to_have_count(2)
        expect(needs).to_contain_text("May this plan be carried out?")
        page.keyboard.press("x")
        page.keyboard.press("x")
        expect(page.locator(".rh .chip")).to_have_text("cancelled")
        expect(inspector(page)).to_contain_text("Leave the vendor out.")


def test_a_run_is_paused_resumed_cancelled_and_forked(visitor: Visitor) -> None:
    analysis = visitor.shop.model.hold(LONG_TASK)
    run = visitor.shop.begin()
    with visitor.visit(f"/runs/{run}") as page:
        page.get_by_role("button", name="Pause").click()
        expect(page.locator(".rh").get_by_role("button", name="Resume")).to_be_enabled()
        page.keyboard.press("p")
        expect(page.get_by_role("button", name="Pause")).to_be_enabled()
        expect(page.locator('[data-task="t2"]')).to_have_class(re.compile("is-done"))
        page.keyboard.press("x")
        page.get_by_role("button", name="Really cancel?").click()
        expect(page.locator(".rh .chip")).to_have_text("cancelled")
        analysis.release()
        expect(page.get_by_role("button", name="Fork")).to_be_enabled()
        page.keyboard.press("f")
        preview = page.locator(".rh-confirm")
        expect(preview).to_contain_text(re.compile(r"A new run: [1-9]\d* results? reused, \d+ tasks? done again"))
        page.keyboard.press("Enter")
        expect(page).not_to_have_url(re.compile(run))
        expect(page.locator(".rh")).to_contain_text("after")
        expect(page.locator('[data-task="t2"]')).to_have_class(re.compile("is-reuse"))
        visitor.shop.client.post(f"/api/runs/{page.url.rsplit('/', 1)[1]}/cancel", json={})


def test_who_answers_second_is_told_what_was_said(visitor: Visitor) -> None:
    visitor.expected = ("409",)
    run = visitor.shop.begin()
    visitor.shop.wait(run, "needs_input")
    with visitor.visit(f"/runs/{run}") as page:
        page.route("**/answer", lambda route: (visitor.shop.approve(run), route.continue_()))
        page.get_by_role("button", name="Approve").click()
        expect(page.get_by_text("Somebody answered before you: approved")).to_be_visible()
        expect(page.locator(".rh .chip")).to_have_text("partial")


def act(page: Page, verb: str) -> None:
    """What a person wants of a task, and that they mean it."""
    side = inspector(page)
    side.locator(".pn-acts .row").get_by_role("button", name=verb).click()
    side.locator(".pn-confirm").get_by_role("button", name=verb.removesuffix(" …")).click()


def test_tasks_of_a_live_run_are_skipped_stopped_and_given_away_in_place(visitor: Visitor) -> None:
    analysis = visitor.shop.model.hold(LONG_TASK)
    run = visitor.shop.begin()
    with visitor.visit(f"/runs/{run}?task=t9") as page:
        side = inspector(page)
        side.get_by_role("button", name="Give to …").click()
        side.get_by_label("Worker").select_option("analyst")
        expect(side).to_contain_text("In this run, which goes on.")
        side.get_by_role("button", name="Give to", exact=True).click()
        expect(side.locator(".facts")).to_contain_text("analyst")
        page.locator('[data-task="t10"]').click()
        act(page, "Skip")
        expect(page.locator('[data-task="t10"]')).to_have_class(re.compile("is-skip"))
        page.locator('[data-task="t5"]').click()
        act(page, "Stop attempt")
        expect(page.locator('[data-task="t5"]')).to_have_class(re.compile("is-fail"))
        analysis.release()
        expect(side).to_contain_text("operator stopped it")
        expect(page).to_have_url(re.compile(run))
        visitor.shop.client.post(f"/api/runs/{run}/cancel", json={})


def test_a_live_run_is_forked_at_a_finished_task(visitor: Visitor) -> None:
    run = visitor.shop.begin()
    visitor.shop.wait_for_tasks(run, "t2", "t6")
    with visitor.visit(f"/runs/{run}?task=t6") as page:
        settled(page)
        inspector(page).get_by_role("button", name="Fork from here").click()
        expect(inspector(page)).to_contain_text(re.compile(r"A new run: [1-9]\d* results? reused"))
        inspector(page).locator(".pn-confirm").get_by_role("button", name="Fork from here").click()
        expect(page).not_to_have_url(re.compile(run))
        expect(page.locator('[data-task="t2"]')).to_have_class(re.compile("is-reuse"))
        visitor.shop.client.post(f"/api/runs/{page.url.rsplit('/', 1)[1]}/cancel", json={})
    visitor.shop.wait(run, "cancelled")


def test_tasks_of_an_ended_run_are_retried_skipped_and_given_away_in_a_new_one(visitor: Visitor) -> None:
    tasks = [
        {"id": "t1", "instruction": "Say what checkout is.", "worker": "writer"},
        {"id": "t2", "instruction": "Say what a refund is.", "worker": "writer"},
        {"id": "t3", "instruction": "Compare the two.", "worker": "analyst", "after": ["t1", "t2"]},
    ]
    run = visitor.shop.begin("What is checkout, and what a refund?", plan={"tasks": tasks})
    visitor.shop.wait(run, "complete", "partial")
    with visitor.visit(f"/runs/{run}?task=t2") as page:
        settled(page)
        inspector(page).get_by_role("button", name="Retry", exact=True).click()
        expect(inspector(page)).to_contain_text("1 result reused, 2 tasks done again")
        inspector(page).locator(".pn-confirm").get_by_role("button", name="Retry").click()
        expect(page).not_to_have_url(re.compile(run))
        expect(page.locator('[data-task="t1"]')).to_have_class(re.compile("is-reuse"))
        page.goto(f"{visitor.shop.url}/runs/{run}?task=t2")
        act(page, "Skip")
        expect(page.locator(".gr-card")).to_have_count(2)
        page.goto(f"{visitor.shop.url}/runs/{run}?task=t1")
        inspector(page).get_by_role("button", name="Give to …").click()
        inspector(page).get_by_label("Worker").select_option("archivist")
        inspector(page).get_by_role("button", name="Give to", exact=True).click()
        expect(page.locator('[data-task="t1"]')).to_contain_text("archivist")


def test_what_failed_is_retried_after_what_it_takes_was_shown(visitor: Visitor, ended_run: str) -> None:
    with visitor.visit(f"/runs/{ended_run}") as page:
        page.get_by_role("button", name="Retry what failed").click()
        expect(page.locator(".rh-confirm")).to_contain_text("planned anew")
        page.keyboard.press("Escape")
        expect(page.locator(".rh-confirm")).to_have_count(0)
        page.get_by_role("button", name="Fork").click()
        expect(page.locator(".rh-confirm")).to_contain_text("t8")
        visitor.picture(page, "fork")


def test_a_run_is_deleted_when_that_is_said_twice(visitor: Visitor) -> None:
    tasks = [{"id": "t1", "instruction": "Say it.", "worker": "writer"}]
    run = visitor.shop.begin("Say what checkout is.", plan={"tasks": tasks})
    visitor.shop.wait(run, "complete", "partial", "failed")
    visitor.expected = ("404",)  # the view of the run may read it once more before it is left
    with visitor.visit(f"/runs/{run}") as page:
        page.get_by_role("button", name="Delete").click()
        page.get_by_role("button", name="Really delete?").click()
        expect(page.get_by_role("heading", name="Runs")).to_be_visible()
    assert visitor.shop.client.get(f"/api/runs/{run}").status_code == 404


def ask(visitor: Visitor, instruction: str) -> str:
    tasks = [{"id": "t1", "instruction": instruction, "worker": "writer"}]
    run = visitor.shop.begin("Write a note for customers.", plan={"tasks": tasks})
    visitor.shop.wait(run, "needs_input")
    return run


def test_a_question_with_options_takes_one_of_them_and_no_other_words(visitor: Visitor) -> None:
    run = ask(visitor, "Ask which language the note is to be in and write it.")
    with visitor.visit() as page:
        page.get_by_role("region", name="Needs you").get_by_text("Answer a question").click()
        needs = page.get_by_role("region", name="Needs you")
        expect(needs).to_contain_text("writer asks: In which language?")
        expect(needs.get_by_label("Your answer")).to_have_count(0)
        expect(needs.get_by_role("button", name="Answer")).to_have_count(0)
        needs.get_by_role("button", name="German").click()
        expect(needs).to_have_count(0)
        visitor.shop.wait(run, "complete", "partial")
        page.locator('[data-task="t1"]').click()
        expect(inspector(page)).to_contain_text("German")
        page.keyboard.press("Escape")
        expect(inspector(page)).to_contain_text("answered by operator")


def test_a_question_takes_other_words_where_it_says_so_and_of_the_form_it_wants(visitor: Visitor) -> None:
    visitor.expected = ("422",)
    city = ask(visitor, "Ask which city it is for.")
    letters = ask(visitor, "Ask how many letters there are.")
    with visitor.visit(f"/runs/{city}") as page:
        needs = page.get_by_role("region", name="Needs you")
        expect(needs.get_by_role("button", name="Bonn")).to_be_visible()
        needs.get_by_label("Your answer").fill("Ulm")
        needs.get_by_role("button", name="Answer").click()
        expect(needs).to_have_count(0)
        page.locator('[data-task="t1"]').click()
        expect(inspector(page)).to_contain_text("Ulm")
        page.goto(f"{visitor.shop.url}/runs/{letters}")
        needs.get_by_label("Your answer").fill("many")
        needs.get_by_role("button", name="Answer").click()
        expect(needs.get_by_role("alert")).to_contain_text("not of the form that is asked for")
        needs.get_by_label("Your answer").fill("12")
        needs.get_by_role("button", name="Answer").click()
        expect(needs).to_have_count(0)
    visitor.shop.wait(letters, "complete", "partial")
