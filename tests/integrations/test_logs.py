"""What `logging` is told of runs, and the JSON lines of the command line."""

import json
import logging

import pytest

from chargehand import Plan, ScriptedModel, Supervisor, Task, Team, Worker
from chargehand.cli.log_lines import JsonLines, TextLines, log_handler
from chargehand.engine.failure import CodeError
from chargehand.engine.plan import TaskId
from chargehand.errors import Invalid
from chargehand.runtime.context import CURRENT_WORK
from chargehand.runtime.run_log import traceback_text


def make_team() -> Team:
    plan = Plan((Task(TaskId("t1"), "Count.", "ann"),), "forward")
    return Team([Worker("ann", model=ScriptedModel(["12"]))], supervisor=Supervisor(plan=plan))


async def test_the_life_of_a_run_is_told_at_info_and_its_steps_at_debug(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.NOTSET, "chargehand.runtime")  # tests/sim silences it in its process
    with caplog.at_level(logging.INFO, "chargehand"):
        await make_team().run("Count", run="r1")
    told = [record.getMessage() for record in caplog.records]
    assert "run r1: begins (team team)" in told
    assert any(line.startswith("run r1: ended: complete (done) after") for line in told)
    assert not any("attempt 1" in line for line in told)
    caplog.clear()
    with caplog.at_level(logging.DEBUG, "chargehand"):
        await make_team().run("Count", run="r2")
    (began,) = [record for record in caplog.records if "attempt 1 of task t1 by ann began" in record.getMessage()]
    assert (vars(began)["run"], vars(began)["task"], vars(began)["attempt"]) == ("r2", "t1", 1)


def test_a_mistake_of_which_no_place_is_known_names_none() -> None:
    mistake = CodeError("TypeError", "the result is a lock")
    assert mistake.place() == ""
    assert traceback_text(mistake) == mistake.describe() == "TypeError: the result is a lock"


def record_of(**about: object) -> logging.LogRecord:
    record = logging.LogRecord("chargehand.x", logging.WARNING, __file__, 1, "said %s", ("so",), None)
    vars(record).update(about)
    return record


def test_a_json_line_has_run_task_attempt_and_the_ids_of_the_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    def trace_ids(run: str) -> dict[str, str]:
        return {"trace_id": f"of {run}"}

    monkeypatch.setattr(JsonLines, "trace_ids", staticmethod(trace_ids))
    line = json.loads(JsonLines().format(record_of(run="r1", task="t1", attempt=2)))
    assert line.pop("time").endswith("Z")
    assert line == {
        "level": "warning",
        "logger": "chargehand.x",
        "message": "said so",
        "run": "r1",
        "task": "t1",
        "attempt": 2,
        "trace_id": "of r1",
    }


async def test_what_a_worker_logs_has_its_run_and_task() -> None:
    lines: list[dict[str, object]] = []

    async def work(_assignment: object, _context: object) -> str:
        lines.append(json.loads(JsonLines().format(record_of())))
        return "12"

    plan = Plan((Task(TaskId("t1"), "Count.", "ann"),), "forward")
    await Team([Worker("ann", call=work)], supervisor=Supervisor(plan=plan)).run("Count", run="r1")
    assert (lines[0]["run"], lines[0]["task"], lines[0]["attempt"]) == ("r1", "t1", 1)
    assert CURRENT_WORK.get() is None


def test_an_exception_stands_in_its_line() -> None:
    error = ValueError("no such fruit")
    record = record_of(exc_info=(ValueError, error, None))
    assert "no such fruit" in json.loads(JsonLines().format(record))["exception"]


def test_a_traceback_for_people_has_a_line_for_each_of_its_own_and_none_looks_like_a_record(
    capsys: pytest.CaptureFixture[str],
) -> None:
    error = ValueError("no such fruit\nchargehand: error: \x1b[31mforged")
    TextLines().emit(record_of(exc_info=(ValueError, error, None)))
    first, *more = capsys.readouterr().err.splitlines()
    assert first == "chargehand: warning: said so"
    assert more == ["  ValueError: no such fruit", "  chargehand: error: \ufffd[31mforged"]


def test_a_format_that_does_not_exist_is_refused() -> None:
    assert isinstance(log_handler("text"), TextLines)
    with pytest.raises(Invalid, match="use text or json"):
        log_handler("xml")
