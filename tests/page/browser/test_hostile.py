"""What must hold whatever comes: hostile texts, a killed server, a stream that breaks or falls silent."""

import re
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.page.attacks import ATTACKS, EVERYTHING
from tests.page.browser.conftest import TIMEOUT, Visitor, follow_link, inspector, settled, shorten_waits
from tests.page.hostile_team import NAME
from tests.page.shop import LONG_TASK

pytestmark = TIMEOUT
TABS = ("result", "attempts", "calls", "prompt", "events")


def check_harmless(page: Page) -> None:
    assert page.evaluate("window.hacked === undefined")
    assert page.locator("#app script, #app iframe, #app style, #app img:not([src^='blob:']), #app math").count() == 0
    assert page.locator("#app a[href^='javascript']").count() == 0


@pytest.mark.slow("opens every view with hostile texts")
def test_texts_of_models_tools_and_people_never_become_markup(visitor: Visitor) -> None:
    shop = visitor.shop
    tasks: list[dict[str, object]] = [
        {"id": "t1", "instruction": f"Call: call the echo with {EVERYTHING}", "title": ATTACKS[1][:48]},
        {"id": "t2", "instruction": f"Call: call the failure with {EVERYTHING}", "title": ATTACKS[2][:48]},
        {"id": "t3", "instruction": f"Call: call the person with {ATTACKS[0]}", "after": ["t1"]},
    ]
    plan = {"tasks": [{**task, "worker": "mallory"} for task in tasks]}
    label = ATTACKS[1][:60].replace(":", "")
    run = shop.begin(f"{ATTACKS[1]} {EVERYTHING}", team=NAME, plan=plan, labels={label: EVERYTHING[:200]})
    shop.wait(run, "needs_input")
    with visitor.visit() as page:
        expect(page.get_by_text(ATTACKS[1]).first).to_be_visible()
        check_harmless(page)
        page.get_by_role("button", name="New run").click()
        page.get_by_role("dialog", name="New run").get_by_label("Team").select_option(NAME)
        expect(page.get_by_role("button", name=ATTACKS[0])).to_be_visible()
        check_harmless(page)
        page.goto(f"{shop.url}/runs/{run}")
        needs = page.get_by_role("region", name="Needs you")
        expect(needs.get_by_role("button", name=ATTACKS[1])).to_be_visible()
        check_harmless(page)
        needs.get_by_label("Your answer").fill(EVERYTHING)
        needs.get_by_role("button", name="Answer").click()
        shown = shop.wait(run, "complete", "partial", "failed")
        assert "window.hacked" in str(shown["answer"])
        for task in ("t1", "t2", "t3"):
            for tab in TABS:
                follow_link(page, f"/runs/{run}?task={task}&tab={tab}")
                expect(inspector(page)).to_contain_text(task)
                expect(inspector(page).get_by_role("tab", selected=True)).to_contain_text(tab.capitalize())
                check_harmless(page)
        follow_link(page, f"/runs/{run}?task=t1&tab=calls")
        expect(inspector(page).locator("img")).to_be_visible()
        check_harmless(page)
        views = (f"/runs/{run}", f"/compare/{run}/vs/{run}", f"/teams/{NAME}", f"/memory/{NAME}", f"/evals/{NAME}")
        for path in views:
            follow_link(page, path)
            expect(page.locator("#app")).to_contain_text("window.hacked")
            check_harmless(page)


def test_a_plan_with_hostile_texts_is_shown_as_text(visitor: Visitor) -> None:
    tasks = [{"id": "t1", "instruction": EVERYTHING, "title": ATTACKS[1][:48], "worker": "mallory"}]
    run = visitor.shop.begin(EVERYTHING, team=NAME, plan={"tasks": tasks}, approve=True)
    with visitor.visit(f"/runs/{run}") as page:
        page.get_by_role("button", name="Edit …").click()
        expect(page.get_by_label("Instruction of t1")).to_have_value(re.compile("window.hacked"))
        check_harmless(page)
        page.get_by_role("tab", name="JSON").click()
        check_harmless(page)
        page.get_by_role("button", name="Close", exact=True).click()
        page.get_by_role("button", name="Reject …").click()
        page.get_by_label("Why not?").fill(EVERYTHING)
        page.get_by_role("button", name="Reject", exact=True).click()
        expect(inspector(page)).to_contain_text("Decisions")
        check_harmless(page)
        visitor.shop.client.post(f"/api/runs/{run}/cancel", json={"reason": EVERYTHING})
        expect(page.locator(".rh .chip")).to_have_text("cancelled")
        check_harmless(page)


def test_the_browser_is_told_to_run_and_load_nothing_from_elsewhere(visitor: Visitor) -> None:
    visitor.expected = ("Content Security Policy", "Refused to", "violates the following", "404")
    failed: dict[str, str | None] = {}
    with visitor.visit() as page:
        page.on("requestfailed", lambda request: failed.update({request.url: request.failure}))
        expect(page.get_by_role("heading", name="Runs")).to_be_visible()
        page.evaluate(
            """() => {
                const script = document.createElement("script");
                script.textContent = "window.hacked = 1";
                document.body.append(script);
                const image = document.createElement("img");
                image.src = "http://evil.test/pixel.png";
                document.body.append(image);
                document.body.insertAdjacentHTML("beforeend", "<img src='/assets/x.svg' onerror='window.hacked = 1'>");
            }"""
        )
        expect(page.locator("body > img")).to_have_count(2)
        assert page.evaluate("window.hacked === undefined")
        assert page.evaluate("fetch('http://evil.test/').then(() => 'reached', () => 'refused')") == "refused"
    foreign = {url: why for url, why in failed.items() if "evil.test" in url}
    assert foreign == {"http://evil.test/pixel.png": "csp"}
    visitor.troubles = [trouble for trouble in visitor.troubles if "evil.test" not in trouble]


@pytest.mark.slow("starts a server again and resumes its run")
def test_a_server_that_is_killed_is_missed_and_the_run_goes_on(visitor: Visitor) -> None:
    visitor.expected = ("ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED_ENCODING", "net::ERR")
    analysis = visitor.shop.model.hold(LONG_TASK)
    run = visitor.shop.begin()
    with visitor.visit(f"/runs/{run}") as page:
        expect(page.get_by_role("region", name="Needs you")).to_contain_text("refund")
        shorten_waits(page)
        visitor.shop.kill()
        analysis.release()
        expect(page.get_by_text("The server does not answer. Trying again …")).to_be_visible()
        expect(page.get_by_role("button", name="Pause")).to_be_disabled()
        expect(page.locator(".gr-card")).to_have_count(10)
        page.wait_for_timeout(2000)  # so long a gap is torn out of the axis
        visitor.shop.start()
        expect(page.get_by_text("The server does not answer")).to_have_count(0)
        expect(page.get_by_role("region", name="Needs you")).to_contain_text("refund")
        expect(page.locator(".tm-torn-word").first).to_have_text("interrupted")
        expect(page.locator('[data-task="t8"]')).to_have_class(re.compile("is-fail"))
        visitor.picture(page, "after-crash")
        page.keyboard.press("a")
        expect(page.locator(".rh .chip")).to_have_text("partial")
        entries: list[dict[str, Any]] = visitor.shop.client.get(f"/api/runs/{run}/entries?limit=5000").json()["entries"]
        expect(page.locator("main.rp")).to_have_attribute("data-seq", str(entries[-1]["seq"]))


def test_a_stream_that_is_cut_is_taken_up_after_the_last_entry(visitor: Visitor) -> None:
    visitor.expected = ("net::ERR",)
    with visitor.proxy() as proxy:
        run = visitor.shop.begin()
        with visitor.visit(f"/runs/{run}", url=proxy.url) as page:
            shorten_waits(page)
            for task in ("t2", "t6"):
                expect(page.locator(f'[data-task="{task}"]')).to_have_class(re.compile("is-done"))
                proxy.cut()
            expect(page.get_by_role("region", name="Needs you")).to_contain_text("refund")
            visitor.shop.approve(run)
            proxy.cut()
            last = visitor.shop.wait(run, "partial")["summary"]["entries"]
            expect(page.locator("main.rp")).to_have_attribute("data-seq", str(last))
            expect(page.locator(".rh .chip")).to_have_text("partial")


def test_a_stream_that_falls_silent_counts_as_broken(visitor: Visitor) -> None:
    """Silence is 20 seconds of the page's own clock, which the test turns on."""
    visitor.expected = ("net::ERR",)
    last = visitor.shop.show("kept-crash")["summary"]["entries"]
    with visitor.proxy() as proxy, visitor.visit("/memory", url=proxy.url, own=True) as page:
        page.clock.install()
        proxy.hold_at(f"id: {last}\n".encode())
        page.goto(f"{proxy.url}/runs/kept-crash")
        expect(page.locator("main.rp")).to_have_attribute("data-seq", str(last - 1))
        proxy.hold_no_more()
        page.clock.run_for(25_000)
        expect(page.locator("main.rp")).to_have_attribute("data-seq", str(last))
        settled(page)
