"""What must hold whatever comes: hostile texts, a killed server, people who read the page in other ways."""

import re
import time
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.page.attacks import ATTACKS, EVERYTHING
from tests.page.conftest import NARROW, Visitor
from tests.page.web_tools import WEB, has_node, install_packages

pytestmark = pytest.mark.timeout(300)


def test_texts_of_models_tools_and_people_never_become_markup(visitor: Visitor) -> None:
    tasks: list[dict[str, object]] = [
        {"id": "t1", "instruction": f"Repeat this: {EVERYTHING}", "worker": "writer", "title": ATTACKS[1][:48]},
    ]
    tasks.append({"id": "t2", "instruction": f"Repeat <b>this</b>: {ATTACKS[0]}", "worker": "analyst", "after": ["t1"]})
    run = visitor.shop.begin(f"{ATTACKS[1]} {EVERYTHING}", plan={"tasks": tasks})
    shown = visitor.shop.wait(run, "complete", "partial", "failed")
    assert "window.hacked" in str(shown["answer"])
    with visitor.visit() as page:
        expect(page.get_by_text(ATTACKS[1]).first).to_be_visible()
        page.goto(f"{visitor.shop.url}/runs/{run}")
        for tab in ("result", "attempts", "calls", "prompt", "events"):
            page.goto(f"{visitor.shop.url}/runs/{run}?task=t1&tab={tab}")
            expect(page.get_by_label("Inspector")).to_contain_text("t1")
            page.wait_for_timeout(100)
            check_harmless(page)
        page.goto(f"{visitor.shop.url}/compare/{run}/vs/{run}")
        expect(page.locator(".compare-facts")).to_contain_text("Tasks done")
        check_harmless(page)


def check_harmless(page: Page) -> None:
    assert page.evaluate("window.hacked === undefined")
    assert page.locator("#app script, #app iframe, #app style, #app img:not([src^='blob:']), #app math").count() == 0
    assert page.locator("#app a[href^='javascript']").count() == 0


def test_a_server_that_is_killed_is_missed_and_the_run_goes_on(visitor: Visitor) -> None:
    visitor.expected = ("ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED_ENCODING", "net::ERR")
    run = visitor.shop.begin()
    with visitor.visit(f"/runs/{run}") as page:
        expect(page.locator(".gr-card.is-done").first).to_be_visible()
        visitor.shop.kill()
        expect(page.get_by_text("The server does not answer. Trying again …")).to_be_visible()
        expect(page.get_by_role("button", name="Pause")).to_be_disabled()
        expect(page.locator(".gr-card")).to_have_count(10)
        time.sleep(2.5)
        visitor.shop.start()
        expect(page.get_by_text("The server does not answer. Trying again …")).to_have_count(0)
        expect(page.get_by_role("region", name="Needs you")).to_contain_text("refund")
        expect(page.locator(".tm-torn-word").first).to_have_text("interrupted")
        expect(page.locator('[data-task="t8"]')).to_have_class(re.compile("is-fail"))
        visitor.picture(page, "after-crash")
        page.keyboard.press("a")
        expect(page.locator(".rh .chip")).to_have_text("partial")
        entries: list[dict[str, Any]] = visitor.shop.client.get(f"/api/runs/{run}/entries?limit=5000").json()["entries"]
        expect(page.locator("main.rp")).to_have_attribute("data-seq", str(entries[-1]["seq"]))


@pytest.mark.skipif(not has_node(), reason="needs node and npm")
def test_every_view_can_be_read_without_seeing_or_with_little_contrast(visitor: Visitor, ended_run: str) -> None:
    install_packages()
    axe = (Path(WEB) / "node_modules" / "axe-core" / "axe.min.js").read_text()
    asking = visitor.shop.begin(approve=True)
    visitor.shop.wait(asking, "needs_input")
    views = (
        "/",
        f"/runs/{ended_run}",
        f"/runs/{ended_run}?task=t1&tab=attempts",
        f"/runs/{asking}",
        "/teams",
        "/memory",
    )
    with visitor.visit() as page:
        for path in views:
            page.goto(visitor.shop.url + path)
            expect(page.locator("h1").first).not_to_have_text("…")
            page.wait_for_timeout(300)
            page.evaluate(axe)
            assert findings(page) == [], path
            page.emulate_media(color_scheme="dark")
            assert findings(page, "color-contrast") == [], f"{path} in the dark"
            page.emulate_media(color_scheme="light")
    with visitor.visit(f"/runs/{asking}", size=NARROW) as page:
        expect(page.get_by_role("button", name="Approve")).to_be_visible()
        page.evaluate(axe)
        assert findings(page) == []


def findings(page: Page, *rules: str) -> list[str]:
    """What axe-core calls serious or critical, by these rules or all of WCAG's."""
    wanted = list(rules) or ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]
    result: dict[str, Any] = page.evaluate("wanted => axe.run(document, {runOnly: wanted})", wanted)
    serious = [found for found in result["violations"] if found["impact"] in ("serious", "critical")]
    return [f"{found['id']}: {[node['html'][:160] for node in found['nodes'][:4]]}" for found in serious]
