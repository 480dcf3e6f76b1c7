"""Several calls and effects in doubt, in a real browser: each is shown with its arguments and has its own verdict."""

import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from playwright.sync_api import Locator, Page, expect

from chargehand import Plan, Policy, Reply, Request, ScriptedModel, Supervisor, Task, Team, ToolCall, Worker, tool
from chargehand.engine.plan import TaskId
from chargehand.engine.policy import Retry
from tests.page.browser.conftest import TIMEOUT, WIDE, Pages, inspector
from tests.server.api import Garden
from tests.server.door_teams import cases
from tests.server.running import TOKEN, running, settings_in

pytestmark = TIMEOUT


def _mailing(name: str, *texts: str, is_lost: bool = False) -> Team:
    """Return a team that sends one mail in each run, with these texts in turn, and whose task fails after it.

    Args:
        name: the name of the team.
        texts: the text of the mail in each run.
        is_lost: the line breaks before it is known whether a mail left.
    """
    following = iter(texts)

    @tool(effect="effect", trusted=True)
    async def mail(text: str) -> str:
        """Mail Ott."""
        if is_lost:
            raise ConnectionResetError("the line broke")
        return "sent"

    def work(request: Request) -> Reply:
        if any(message.role == "tool" for message in request.messages):
            return Reply(calls=(ToolCall("2", "give_up", '{"reason": "no receipt"}'),), finish="tools")
        return Reply(calls=(ToolCall("1", "mail", f'{{"text": "{next(following)}"}}'),), finish="tools")

    plan = Plan((Task(TaskId("t1"), "Mail Ott.", "ute"),), "forward")
    policy = Policy(retry=Retry(attempts=1), refine=False, uncertain="fail")
    supervisor = Supervisor(plan=plan, model=ScriptedModel(lambda _: "All."))
    return Team(
        [Worker("ute", "mails", tools=[mail], model=ScriptedModel(work))],
        name=name,
        supervisor=supervisor,
        policy=policy,
    )


REPEATS = {
    "equal": (_mailing("equal", "Dear Ott", "Dear Ott"), "The same call was made before."),
    "other": (_mailing("other", "Dear Ott", "Ott, we paid"), "An earlier call of the same tool was made."),
    "unknown": (
        _mailing("unknown", "Dear Ott", "Dear Ott", is_lost=True),
        "The same call may have been made before: nobody knows.",
    ),
    "vague": (
        _mailing("vague", "Dear Ott", "Ott, we paid", is_lost=True),
        "An earlier call of the same tool may have been made: nobody knows.",
    ),
}
"""By name: a team whose second run makes a call that may repeat one of its first, and what the page says of it."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Garden]:
    folder = tmp_path_factory.mktemp("verdicts")
    teams = cases()
    served = (teams["calls"].team, teams["doubt"].team, *(team for team, _ in REPEATS.values()))
    settings = settings_in(folder / "data", teams=served, grace=0.2)
    with (
        running(settings) as server,
        httpx.Client(base_url=server.url, headers=server.headers, timeout=30) as client,
    ):
        yield Garden(server, client, folder)


@pytest.fixture
def page(pages: Pages) -> Iterator[Page]:
    with pages.take("light", WIDE) as page:
        yield page


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
    decisions = inspector(page).get_by_role("region", name="Decisions").get_by_role("listitem")
    expect(decisions).to_have_count(2)
    expect(decisions.nth(0)).to_contain_text(re.compile("t1 pay payee=Ott approved by operator after [^:]*$"))
    expect(decisions.nth(1)).to_contain_text(re.compile("t1 pay payee=Bob rejected by operator after .*: too dear$"))


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
    decisions = inspector(page).get_by_role("region", name="Decisions").get_by_role("listitem")
    expect(decisions).to_have_text([re.compile("t1 mail to=Ute done by operator after")])
    entries: Any = home.client.get(f"/api/runs/{run}/entries").json()["entries"]
    (answer,) = [entry["event"] for entry in entries if entry["event"]["type"] == "input.answered"]
    assert (answer["verdict"], answer["result"]) == ("done", {"mail": 7})


@pytest.mark.parametrize("name", REPEATS)
def test_a_call_that_may_repeat_another_is_shown_with_what_is_known_of_that(
    home: Garden, page: Page, name: str
) -> None:
    first = home.begin("Do it.", team=name)
    home.wait(first, "failed", "partial")
    again = home.client.post(f"/api/runs/{first}/retry", json={}).json()["run"]
    home.wait(again, "needs_input")
    page.goto(f"{home.server.url}/runs/{again}#key={TOKEN}")
    needs = page.get_by_role("region", name="Needs you")
    expect(needs.locator(".ny-because").first).to_have_text(REPEATS[name][1])
    expect(needs.locator(".ny-because").last).to_contain_text(f"task t1, run {first}")
