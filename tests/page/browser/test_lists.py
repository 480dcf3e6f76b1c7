"""The other views in a real browser: runs and their filters, comparison, teams, memory, evaluations."""

import re

import pytest
from playwright.sync_api import expect

from tests.page.browser.conftest import TIMEOUT, Visitor, many_tasks, most_tasks
from tests.page.shop import Shop

pytestmark = TIMEOUT


def test_runs_that_need_a_person_come_first_and_lists_follow_by_themselves(visitor: Visitor, ended_run: str) -> None:
    asked: list[str] = []
    with visitor.visit("/?team=incident") as page:
        expect(page.get_by_role("link", name=re.compile(f"Audit {many_tasks()} places"))).to_be_visible()
        page.on("request", lambda request: asked.append(request.url))
        run = visitor.shop.begin(approve=True)
        inbox = page.get_by_role("region", name="Needs you")
        expect(inbox).to_contain_text("Approve a plan")
        visitor.picture(page, "list")
        visitor.shop.client.post(f"/api/runs/{run}/cancel", json={})
        expect(page.get_by_text("Approve a plan")).to_have_count(0)
        expect(page.locator(".rl-row", has_text="cancelled")).not_to_have_count(0)
        assert asked == [], "the list asks for nothing: it is told"


def test_runs_are_found_by_text_state_worker_label_and_cost(visitor: Visitor, ended_run: str) -> None:
    tasks = [{"id": "t1", "instruction": "Say what checkout is.", "worker": "writer"}]
    run = visitor.shop.begin("What is checkout?", plan={"tasks": tasks}, labels={"customer": "77", "env": "test"})
    visitor.shop.wait(run, "complete", "partial")
    with visitor.visit() as page:
        page.keyboard.press("/")
        page.keyboard.type(f"audit {many_tasks()}")
        expect(page.locator(".rl-row")).to_have_count(1)
        expect(page).to_have_url(re.compile("text=audit"))
        page.get_by_label("Search").fill("nothing is called so")
        expect(page.get_by_text("No run matches")).to_be_visible()
        page.get_by_role("button", name="Take the filter away").click()
        page.get_by_role("link", name="customer: 77").first.click()
        expect(page).to_have_url(re.compile(r"label=customer%3A77"))
        expect(page.locator(".rl-row")).to_have_count(1)
        expect(page.locator(".rl-row")).to_contain_text("What is checkout?")
        page.get_by_title("Take this filter away").click()
        page.get_by_label("Team").select_option("incident")
        page.get_by_label("Worker").select_option("logs")
        expect(page.get_by_role("link", name="What is checkout?")).to_have_count(0)
        expect(page.locator(".rl-row").first).to_be_visible()
        page.goto(f"{visitor.shop.url}/?cost=0.1&state=partial")
        expect(page.locator(".rl-row")).to_contain_text(
            [f"Audit {most_tasks()} places", f"Audit {many_tasks()} places"]
        )


def test_two_runs_are_compared_while_one_goes_on(visitor: Visitor, ended_run: str, waiting_run: str) -> None:
    with visitor.visit("/?text=checkout") as page:
        boxes = page.locator(".rl-row input")
        boxes.nth(0).check()
        expect(page.get_by_role("button", name="Choose another to compare")).to_be_disabled()
        boxes.nth(1).check()
        page.get_by_role("button", name="Compare").click()
        expect(page.get_by_role("heading", name="Compare")).to_be_visible()
        page.goto(f"{visitor.shop.url}/compare/{ended_run}/vs/{waiting_run}")
        facts = page.locator(".compare-facts")
        expect(facts).to_contain_text("needs you")
        expect(facts).to_contain_text("8 of 10")
        expect(page.locator(".compare-answers").first).to_contain_text("waiting for a person")
        expect(page.locator(".plan-changes")).to_contain_text("Decide which change")
        visitor.picture(page, "compare", full=True)


@pytest.fixture(scope="package")
def evaluated(shop: Shop) -> str:
    """A team with two reports, the second of which misses a gate."""
    team = shop.teams[1]
    routing = str(team / "evals" / "routing.jsonl")
    printed = shop.command("eval", routing, "--team", str(team), "--quiet")
    reports = team / ".chargehand" / "evals"
    assert reports.is_dir(), printed
    words = ["--quiet", "--gate", "accuracy=0.95", "--baseline", str(next(reports.iterdir()))]
    shop.command("eval", routing, str(team / "evals" / "golden.yaml"), "--team", str(team), *words)
    assert len(list(reports.iterdir())) == 2
    return "expert-router"


def test_a_team_shows_who_is_in_it_and_where_requests_go(visitor: Visitor, evaluated: str) -> None:
    with visitor.visit("/teams/incident") as page:
        expect(page.get_by_role("row", name=re.compile("archivist"))).to_contain_text("runbooks")
        expect(page.get_by_role("row", name=re.compile("billing"))).to_contain_text("refund acts")
        page.get_by_role("link", name=re.compile(evaluated)).click()
        page.get_by_label("A request to try").fill("My landlord wants to raise the rent.")
        page.get_by_role("button", name="Try").click()
        expect(page.locator(".try-route")).to_contain_text(re.compile(r"legal by words, \d+ % sure"))
        expect(page.locator(".try-route .bars")).to_contain_text("legal")
        matrix = page.get_by_role("group", name="Where requests went")
        expect(matrix.get_by_role("row", name=re.compile("^legal"))).to_contain_text("4")
        visitor.picture(page, "team", full=True)
        page.get_by_role("link", name=re.compile("evaluation of")).click()
        expect(page).to_have_url(re.compile(f"/evals/{evaluated}/"))


def test_an_evaluation_shows_gates_intervals_failed_cases_and_routes(visitor: Visitor, evaluated: str) -> None:
    with visitor.visit("/evals") as page:
        expect(page.get_by_text("Nothing was evaluated here yet")).to_be_visible()
        page.get_by_role("link", name=evaluated).click()
        expect(page.get_by_role("heading", name="Gates")).to_contain_text("not reached")
        expect(page.locator(".ev-gates .is-missed").first).to_contain_text("accuracy")
        row = page.get_by_role("row", name=re.compile("^accuracy")).last
        expect(row).to_contain_text(re.compile(r"\d+\.\d % to \d+\.\d % \(gate ≥ 95\.0 %\)"))
        expect(page.get_by_role("heading", name="Since the baseline")).to_be_visible()
        expect(page.get_by_role("group", name="Where requests went")).to_be_visible()
        page.locator(".ev-case").last.locator("summary").click()
        expect(page.locator(".ev-case").last).to_contain_text("wanted")
        visitor.picture(page, "evals", full=True)
        page.locator(".ev-pick").last.click()
        expect(page.get_by_role("heading", name="Gates")).to_have_count(0)
        expect(page.get_by_role("group", name="Where requests went")).to_be_visible()


def test_a_block_is_edited_restored_and_guarded_against_others(visitor: Visitor) -> None:
    visitor.expected = ("409",)
    with visitor.visit("/memory/incident") as page:
        card = page.locator(".block", has_text="known_causes")
        block = page.get_by_label("known_causes")
        expect(block).to_have_value(re.compile("expired certificate"))
        block.fill("2026-11-12: pool of checkout 4.18.0.")
        card.get_by_role("button", name="Save").click()
        expect(card).to_contain_text("version 2")
        card.get_by_role("button", name="History").click()
        expect(card.locator(".block-history ins").first).to_contain_text("2026-11-12")
        visitor.picture(page, "memory")
        at = "/api/teams/incident/blocks/known_causes"
        other = visitor.shop.client.put(at, json={"value": "Somebody else was here.", "version": 2})
        assert other.status_code == 200
        block.fill("This comes too late.")
        card.get_by_role("button", name="Save").click()
        expect(card.get_by_role("alert")).to_contain_text("version")
        page.reload()
        card.get_by_role("button", name="History").click()
        card.get_by_role("button", name="Restore this text").last.click()
        expect(block).to_have_value(re.compile("expired certificate"))
        expect(card).to_contain_text("version 4")


def test_what_a_task_kept_is_found_with_its_score_and_source(visitor: Visitor) -> None:
    tasks = [{"id": "t1", "instruction": "Put what was learnt into the archive.", "worker": "archivist"}]
    run = visitor.shop.begin("Keep what was learnt.", plan={"tasks": tasks})
    visitor.shop.wait(run, "complete", "partial")
    looked = [{"id": "t1", "instruction": "Look in the archive for the pool.", "worker": "archivist"}]
    later = visitor.shop.begin("What do we know of the pool?", plan={"tasks": looked})
    visitor.shop.wait(later, "complete", "partial")
    with visitor.visit("/memory/incident") as page:
        page.get_by_label("Search the archives").fill("size of the pool")
        page.keyboard.press("Enter")
        hit = page.get_by_role("list", name="Passages that fit").get_by_role("listitem").first
        expect(hit).to_contain_text("Pool of checkout 4.18.0 was too small.")
        expect(hit).to_contain_text(re.compile(r"\d\.\d\d"))
        expect(hit).to_contain_text("archivist")
        page.locator("summary", has_text="incidents").click()
        expect(page.locator("details .hits")).to_contain_text("was too small")
        hit.get_by_role("button", name="Used by …").click()
        expect(hit.get_by_role("link", name=re.compile(later.rsplit("-", 1)[1]))).to_be_visible()
        hit.get_by_role("link").first.click()
        expect(page).to_have_url(re.compile(f"/runs/{run}.task=t1"))
