"""A served team whose own function decides on calls: `Team(on_approval=...)`."""

import asyncio
import logging
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from chargehand import (
    ApprovalRequest,
    Plan,
    Reply,
    Request,
    ScriptedModel,
    Supervisor,
    Task,
    Team,
    ToolCall,
    Worker,
    tool,
)
from chargehand.runtime.approving import OnApproval
from tests.server.api import Garden
from tests.server.running import running, settings_in


def refunds(on_approval: OnApproval, refunded: list[int], *euros: int) -> Team:
    """Return a team that refunds these amounts, one after the other."""

    @tool(effect="effect", approve=True)
    async def refund(euros: int) -> str:
        """Refund an order."""
        refunded.append(euros)
        return f"{euros} euros were refunded"

    def work(request: Request) -> Reply | str:
        rounds = sum(message.role == "assistant" for message in request.messages)
        if rounds == len(euros):
            return "Done."
        return Reply(calls=(ToolCall(str(rounds), "refund", f'{{"euros": {euros[rounds]}}}'),), finish="tools")

    plan = Plan((Task("t1", "Refund it.", "clerk"),), "forward")
    clerk = Worker("clerk", "refunds", tools=[refund], model=ScriptedModel(work))
    return Team([clerk], supervisor=Supervisor(plan=plan), name="desk", on_approval=on_approval)


@contextmanager
def served(folder: Path, team: Team) -> Generator[Garden]:
    with (
        running(settings_in(folder / "data", teams=(team,), grace=0.2)) as server,
        httpx.Client(base_url=server.url, headers=server.headers, timeout=30) as client,
    ):
        yield Garden(server, client, folder)


def begin(home: Garden) -> str:
    return home.begin("Refund me.", team="desk")


def approve(home: Garden, run: str) -> None:
    number: Any = home.show(run)["question"]
    answer = {"number": number["number"], "verdict": "approve"}
    assert home.client.post(f"/api/runs/{run}/answer", json=answer).status_code == 200


def up_to_fifty(request: ApprovalRequest) -> bool | None:
    euros = request.arguments["euros"]
    assert isinstance(euros, int)
    return True if euros <= 50 else None


def test_the_function_of_a_served_team_decides(tmp_path: Path) -> None:
    refunded: list[int] = []
    with served(tmp_path, refunds(up_to_fifty, refunded, 20, 30)) as home:
        assert home.wait(begin(home))["question"] is None
    assert refunded == [20, 30]


def test_what_the_function_leaves_open_is_asked_of_a_person_and_the_next_call_of_the_function(tmp_path: Path) -> None:
    refunded: list[int] = []
    with served(tmp_path, refunds(up_to_fifty, refunded, 20, 500, 30)) as home:
        run = begin(home)
        home.wait(run, "needs_input")
        assert refunded == [20]
        approve(home, run)
        home.wait(run, "complete")
    assert refunded == [20, 500, 30]


def test_while_the_function_decides_the_run_is_running_and_asks_nobody(tmp_path: Path) -> None:
    decides = threading.Event()
    decided = threading.Event()

    def decide(_request: ApprovalRequest) -> bool:
        decides.set()
        assert decided.wait(20)
        return True

    with served(tmp_path, refunds(decide, [], 20)) as home:
        run = begin(home)
        assert decides.wait(20)
        info: Any = home.show(run)
        decided.set()
        home.wait(run, "complete")
    assert (info["summary"]["state"], info["question"], info["summary"]["question"]) == ("running", None, None)


def test_a_function_that_raises_is_logged_and_a_person_is_asked(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(request: ApprovalRequest) -> bool:
        raise KeyError("limit")

    refunded: list[int] = []
    with served(tmp_path, refunds(broken, refunded, 20)) as home:
        run = begin(home)
        with caplog.at_level(logging.ERROR):
            home.wait(run, "needs_input")
        approve(home, run)
        home.wait(run, "complete")
    assert f"run {run}: on_approval failed, so a person must answer instead" in caplog.text
    assert refunded == [20]


def test_a_function_that_a_stop_of_the_server_cut_is_asked_again_by_the_next_one(tmp_path: Path) -> None:
    asked = threading.Event()

    async def sleep(_request: ApprovalRequest) -> bool:
        asked.set()
        await asyncio.sleep(60)
        return False

    refunded: list[int] = []
    with served(tmp_path, refunds(sleep, refunded, 20)) as home:
        run = begin(home)
        assert asked.wait(20)
    with served(tmp_path, refunds(up_to_fifty, refunded, 20)) as home:
        home.wait(run, "complete")
    assert refunded == [20]
