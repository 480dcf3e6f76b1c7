"""The page on other screens, in the dark, by keyboard alone, on paper, and for people who do not see it."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, Route, expect

from tests.page.browser.conftest import NARROW, TIMEOUT, WIDE, Visitor, follow_link, inspector, settled
from tests.page.web_tools import WEB, need_packages
from tests.support.hunts import hunt_size

pytestmark = TIMEOUT
TABLET = {"width": 900, "height": 1100}
LARGE = {"width": 1920, "height": 1080}
VIEWS = ("/", "/teams", "/teams/expert-router", "/memory", "/evals", "/runs/kept-crash", "/runs/kept-repeated?task=t2")


def is_wider_than_the_screen(page: Page) -> bool:
    return page.evaluate("document.documentElement.scrollWidth > innerWidth")


@pytest.mark.slow("watches a whole run in a browser")
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
        visitor.picture(page, "phone")
        for part in ("Graph", "Time", "Answer"):
            page.get_by_role("button", name=part, exact=True).click()
            assert not is_wider_than_the_screen(page)
        approve.tap()
        expect(inspector(page)).to_contain_text("The slowdown was our own change.")
        assert not is_wider_than_the_screen(page)


@pytest.mark.slow("paints ten views in four sizes")
def test_no_view_is_wider_than_its_screen(visitor: Visitor, ended_run: str, waiting_run: str) -> None:
    views = (
        *VIEWS,
        f"/runs/{ended_run}?task=t1&tab=calls",
        f"/runs/{waiting_run}",
        f"/compare/{ended_run}/vs/{waiting_run}",
    )
    for sizes in ((NARROW,), (TABLET, WIDE, LARGE)):  # a phone has its own pixels and no mouse
        with visitor.visit(size=sizes[0]) as page:
            for path in views:
                follow_link(page, path)
                for size in sizes:
                    page.set_viewport_size(size)  # pyright: ignore[reportArgumentType] - a dict as the library wants it
                    expect(page.locator("h1").first).not_to_have_text("…")
                    assert not is_wider_than_the_screen(page), (path, size)
            page.set_viewport_size(sizes[0])  # pyright: ignore[reportArgumentType]


def test_slow_tools_with_many_calls_do_not_make_the_page_wider(visitor: Visitor, ended_run: str) -> None:
    def slow(route: Route) -> None:
        response = route.fetch()
        health = response.json()
        for each in health["workers"]:
            each |= {"attempts": 1_234_567, "median": 3599.9, "p95": 86_399.9}
        route.fulfill(response=response, json=health)

    with visitor.visit(size=NARROW) as page:
        page.route("**/api/health/workers", slow)
        page.goto(f"{visitor.shop.url}/teams")
        expect(page.get_by_role("group", name="Tools")).to_contain_text("1234567")
        assert not is_wider_than_the_screen(page)


def test_a_tablet_has_all_of_it_below_each_other(visitor: Visitor, ended_run: str) -> None:
    with visitor.visit(f"/runs/{ended_run}", size=TABLET) as page:
        settled(page)
        graph = page.locator(".gr").bounding_box()
        side = inspector(page).bounding_box()
        assert graph is not None
        assert side is not None
        assert side["y"] > graph["y"] + graph["height"]
        visitor.picture(page, "tablet")


def test_dark_is_by_the_system_or_by_choice(visitor: Visitor, ended_run: str) -> None:
    with visitor.visit(f"/runs/{ended_run}?task=t1&tab=calls", scheme="dark") as page:
        settled(page)
        expect(inspector(page)).to_contain_text("connection reset")
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 22, 25)"
        visitor.picture(page, "dark")
        page.keyboard.press("?")
        page.get_by_label("light", exact=True).check()
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(250, 249, 246)"


def test_keys_lead_through_the_tasks(visitor: Visitor, ended_run: str) -> None:
    with visitor.visit(f"/runs/{ended_run}") as page:
        settled(page)
        for key, task in (("j", "t1"), ("j", "t2"), ("k", "t1")):
            page.keyboard.press(key)
            expect(page).to_have_url(re.compile(f"task={task}$"))
        for key, tab in (("2", "attempts"), ("3", "calls"), ("4", "prompt"), ("5", "events"), ("1", "result")):
            page.keyboard.press(key)
            expect(page).to_have_url(re.compile(f"tab={tab}"))
        page.keyboard.press("Escape")
        expect(page).not_to_have_url(re.compile("task="))
        page.locator('[data-task="t2"]').focus()
        page.keyboard.press("ArrowRight")
        expect(page.locator('[data-task="t5"]')).to_be_focused()
        page.keyboard.press("ArrowLeft")
        expect(page.locator('[data-task="t1"]')).to_be_focused()
        page.keyboard.press("Enter")
        expect(page).to_have_url(re.compile("task=t1"))
        fitted = page.locator(".gr g").first.get_attribute("transform")
        page.keyboard.press("+")
        expect(page.locator(".gr g").first).not_to_have_attribute("transform", fitted or "")
        page.keyboard.press("0")
        expect(page.locator(".gr g").first).to_have_attribute("transform", fitted or "")


def test_keys_lead_through_the_views(visitor: Visitor, ended_run: str) -> None:
    with visitor.visit(f"/runs/{ended_run}") as page:
        settled(page)
        page.keyboard.press("g")
        page.keyboard.press("r")
        expect(page.get_by_role("heading", name="Runs")).to_be_visible()
        page.goto(f"{visitor.shop.url}/runs/{ended_run}")
        settled(page)
        page.keyboard.press("/")
        expect(page.get_by_label("Search")).to_be_focused()
        page.get_by_role("link", name="Teams").click()
        page.keyboard.press("n")
        expect(page.get_by_role("dialog", name="New run").get_by_label("Request")).to_be_focused()
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_have_count(0)
        page.keyboard.press("?")
        expect(page.get_by_role("dialog", name="Keys and colours")).to_contain_text("approve, reject")


def test_a_link_to_what_is_looked_at_is_copied(visitor: Visitor, ended_run: str) -> None:
    with visitor.visit(f"/runs/{ended_run}?task=t3&tab=attempts") as page:
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        settled(page)
        page.keyboard.press("c")
        expect(page.get_by_role("status")).to_have_text("Link copied")
        assert page.evaluate("navigator.clipboard.readText()") == page.url


def test_on_paper_a_run_is_its_answer_what_is_missing_its_graph_and_its_ledgers(
    visitor: Visitor, ended_run: str
) -> None:
    with visitor.visit(f"/runs/{ended_run}", scheme="dark") as page:
        settled(page)
        paper = page.pdf(format="A4", print_background=True)
        assert len(re.findall(rb"/Type\s*/Page\b", paper)) == 2
        page.emulate_media(media="print")
        for part in (".pn-answer", ".gaps", ".ledger", ".bars", ".gr-card >> nth=0"):
            expect(page.locator(part).first).to_be_visible()
        for part in (".bar", ".rh-acts", ".tm", ".copy"):
            expect(page.locator(part).first).to_be_hidden()
        assert page.evaluate("getComputedStyle(document.body).color") == "rgb(28, 29, 32)"


@pytest.mark.slow("axe-core checks eleven views in a browser")
def test_every_view_can_be_read_without_seeing_or_with_little_contrast(
    visitor: Visitor, ended_run: str, waiting_run: str
) -> None:
    need_packages()
    axe = (Path(WEB) / "node_modules" / "axe-core" / "axe.min.js").read_text()
    views = hunt_size(
        quick=[view for view in VIEWS if view != "/runs/kept-crash"],  # looks like the run that ended
        thorough=[*VIEWS, *(f"/runs/{ended_run}?task=t1&tab={tab}" for tab in ("attempts", "prompt"))],
    )
    views += [f"/runs/{waiting_run}", f"/compare/{ended_run}/vs/{waiting_run}"]
    views += [f"/runs/{ended_run}", f"/runs/{ended_run}?task=t1&tab=calls"]
    with visitor.visit() as page:
        page.evaluate(axe)
        for path in views:
            follow_link(page, path)
            expect(page.locator("h1").first).not_to_have_text("…")
            expect(page.locator(".loading")).to_have_count(0)
            assert findings(page) == [], path
            page.emulate_media(color_scheme="dark")
            assert findings(page, "color-contrast") == [], f"{path} in the dark"
            page.emulate_media(color_scheme="light")
        follow_link(page, "/")
        page.get_by_role("button", name="New run").click()
        assert findings(page) == [], "a dialog"
    with visitor.visit(f"/runs/{waiting_run}", size=NARROW) as page:
        expect(page.get_by_role("button", name="Approve")).to_be_visible()
        page.evaluate(axe)
        assert findings(page) == []


_FINDINGS = """async wanted => {
    const result = await axe.run(document, { runOnly: wanted, resultTypes: ["violations"] });
    const serious = result.violations.filter(({ impact }) => impact === "serious" || impact === "critical");
    const places = nodes => nodes.slice(0, 4).map(node => node.html.slice(0, 160));
    return serious.map(({ id, nodes }) => `${id}: ${places(nodes).join(", ")}`);
}"""


def findings(page: Page, *rules: str) -> list[str]:
    """Return what axe-core calls serious or critical, by these rules or all of WCAG's.

    Rules about structure do not depend on colours.
    """
    wanted = list(rules) or ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]
    return page.evaluate(_FINDINGS, wanted)
