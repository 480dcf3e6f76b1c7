"""Traces over OTLP/HTTP: what a collector gets is what the journal says, whatever happens to the process."""

import logging
import os
import time
from pathlib import Path

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from chargehand import (
    Assignment,
    Plan,
    Policy,
    Reply,
    Retry,
    ScriptedModel,
    StepContext,
    Supervisor,
    Task,
    Team,
    ToolCall,
    Usage,
    Worker,
    tool,
)
from chargehand.cli.tracing import is_wanted, listener_from
from chargehand.engine.plan import TaskId
from chargehand.errors import Invalid, Refused
from chargehand.integrations.otel import OtelListener
from chargehand.journal.store import read_run
from chargehand.runtime.trace import trace
from tests.cli.commands import environment
from tests.cli.forked import Forked
from tests.integrations.collector import Collector, attributes_of, collecting, expected_tree, without_models

PLAN = '{"tasks": [{"id": "t1", "worker": "ann", "instruction": "Add 1 and 2"}], "combine": "merge"}'


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def listener_to(collector: Collector, *, content: bool = False, exporter_timeout: float | None = None) -> OtelListener:
    exporter = OTLPSpanExporter(endpoint=f"{collector.url}/v1/traces", timeout=exporter_timeout)
    return OtelListener(
        exporter, content=content, redact=lambda text: text.replace("s3cret", "[redacted]"), first_pause=0.05
    )


USED = Usage(100, 10, cached=40, cache_written=20, cache_written_hour=5, reasoning=6)


def make_team(name: str = "adders") -> Team:
    call = Reply(calls=(ToolCall("c1", "add", '{"a": 1, "b": 2}'),), usage=USED, micros=250)
    worker = Worker("ann", model=ScriptedModel([call, Reply("s3cret: 3", usage=Usage(120, 5))]), tools=[add])
    supervisor = Supervisor(model=ScriptedModel([PLAN, "It is 3."]))
    return Team([worker], supervisor=supervisor, name=name)


def named(collector: Collector, name: str) -> list[Span]:
    return [span for span in collector.by_id().values() if span.name == name]


async def test_a_collector_gets_the_tree_of_the_run_with_tokens_and_cost() -> None:
    with collecting() as collector:
        listener = listener_to(collector)
        team = make_team()
        team.add_listener(listener)
        result = await team.run("Add 1 and 2")
        assert listener.flush()
        listener.close()
    tree = collector.tree()
    assert without_models(tree) == without_models(expected_tree(trace(result.run, result.entries), "adders"))
    assert tree["invoke_workflow adders", "plan supervisor", "chat scripted"] == 1
    assert tree["invoke_workflow adders", "invoke_agent ann", "execute_tool add"] == 1
    assert collector.service == "chargehand"
    first = min(named(collector, "chat scripted")[1:], key=lambda span: span.start_time_unix_nano)
    told = attributes_of(next(s for s in named(collector, "chat scripted") if "gen_ai.usage.cost" in attributes_of(s)))
    assert told["gen_ai.provider.name"] == "scripted"
    assert (told["gen_ai.usage.input_tokens"], told["gen_ai.usage.output_tokens"]) == (100, 10)
    assert told["gen_ai.usage.cache_read.input_tokens"] == 40
    assert told["llm.token_count.prompt_details.cache_read"] == 40
    assert told["gen_ai.usage.cache_creation.input_tokens"] == 25
    assert told["llm.token_count.prompt_details.cache_write"] == 25
    assert told["gen_ai.usage.reasoning.output_tokens"] == 6
    assert told["llm.token_count.completion_details.reasoning"] == 6
    assert told["llm.token_count.total"] == 110
    assert told["gen_ai.usage.cost"] == told["llm.cost.total"] == told["operation.cost"] == 0.00025
    assert told["openinference.span.kind"] == "LLM"
    assert first.kind == Span.SPAN_KIND_CLIENT
    assert "s3cret" not in str(collector.received)
    assert "Add 1" not in str(collector.received)


async def test_texts_are_told_only_on_request_and_without_secrets() -> None:
    with collecting() as collector:
        listener = listener_to(collector, content=True)
        team = make_team()
        team.add_listener(listener)
        await team.run("Add 1 and 2")
        listener.close()
    (run,) = named(collector, "invoke_workflow adders")
    assert attributes_of(run)["input.value"] == "Add 1 and 2"
    (call,) = named(collector, "execute_tool add")
    assert attributes_of(call)["gen_ai.tool.call.arguments"] == '{"a": 1, "b": 2}'
    messages = [str(attributes_of(span).get("gen_ai.output.messages", "")) for span in collector.received]
    assert any("[redacted]: 3" in text and '"finish_reason":"stop"' in text for text in messages)
    assert any("gen_ai.input.messages" in attributes_of(span) for span in collector.received)
    assert "s3cret" not in str(collector.received)


async def test_a_failed_attempt_is_an_error_span_with_its_kind() -> None:
    async def fails(_assignment: Assignment, _context: StepContext) -> str:
        raise ConnectionError("the s3cret service is away")

    plan = Plan((Task(TaskId("t1"), "Count.", "ann"),), "forward")
    policy = Policy(retry=Retry(attempts=2, base=0.01))
    team = Team([Worker("ann", call=fails)], supervisor=Supervisor(plan=plan), policy=policy)
    with collecting() as collector:
        listener = listener_to(collector)
        team.add_listener(listener)
        result = await team.run("Count")
        listener.close()
    assert result.ending == "failed"
    attempts = named(collector, "invoke_agent ann")
    assert [attributes_of(span)["chargehand.attempt"] for span in attempts] == [1, 2]
    for span in (*attempts, *named(collector, "invoke_workflow team")):
        assert span.status.code == Status.STATUS_CODE_ERROR
    assert {attributes_of(span)["error.type"] for span in attempts} == {"network"}
    assert "[redacted] service is away" in attempts[0].status.message


async def test_a_team_inside_a_team_is_part_of_the_same_trace() -> None:
    inner = make_team("adders")
    plan = Plan((Task(TaskId("t1"), "Add 1 and 2.", "adders"),), "forward")
    outer = Team([inner.as_worker("adders")], supervisor=Supervisor(plan=plan), name="office")
    with collecting() as collector:
        listener = listener_to(collector)
        outer.add_listener(listener)
        await outer.run("Add 1 and 2")
        listener.close()
    path = ("invoke_workflow office", "invoke_agent adders", "invoke_agent adders", "invoke_workflow adders")
    assert collector.tree()[*path, "invoke_agent ann", "execute_tool add"] == 1


async def test_a_run_with_a_traceparent_belongs_to_the_trace_of_its_caller() -> None:
    label = f"00-{'ab' * 16}-{'cd' * 8}-01"
    with collecting() as collector:
        listener = listener_to(collector)
        team = make_team()
        team.add_listener(listener)
        await team.run("Add 1 and 2", labels={"traceparent": label, "user": "u7", "ticket": "T-1"})
        listener.close()
    (run,) = named(collector, "invoke_workflow adders")
    assert (run.trace_id.hex(), run.parent_span_id.hex()) == ("ab" * 16, "cd" * 8)
    told = attributes_of(run)
    assert (told["user.id"], told["chargehand.label.ticket"]) == ("u7", "T-1")
    assert {span.trace_id for span in collector.received} == {run.trace_id}


async def test_what_its_caller_does_not_sample_is_not_sent() -> None:
    with collecting() as collector:
        listener = listener_to(collector)
        team = make_team()
        team.add_listener(listener)
        await team.run("Add 1 and 2", labels={"traceparent": f"00-{'ab' * 16}-{'cd' * 8}-00"})
        listener.close()
    assert collector.received == []


async def test_a_collector_that_is_away_for_a_while_gets_everything_later(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "opentelemetry")
    with collecting() as collector:
        collector.closed.set()
        listener = listener_to(collector, exporter_timeout=0.5)
        team = make_team()
        team.add_listener(listener)
        result = await team.run("Add 1 and 2")
        assert not listener.flush(0.2)
        collector.closed.clear()
        assert listener.flush(60)
        listener.close()
    expected = expected_tree(trace(result.run, result.entries), "adders")
    assert without_models(collector.tree()) == without_models(expected)
    assert len(collector.received) == len(collector.by_id())


async def test_a_resumed_run_of_another_process_goes_on_in_the_same_trace() -> None:
    """Two listeners that know nothing of each other: what two processes have."""

    @tool(effect="effect", approve=True)
    def pay(euros: int) -> str:
        """Pay."""
        return f"paid {euros}"

    call = Reply(calls=(ToolCall("c1", "pay", '{"euros": 5}'),))
    plan = Plan((Task(TaskId("t1"), "Pay.", "ann"),), "forward")
    worker = Worker("ann", model=ScriptedModel([call, "paid"]), tools=[pay])
    team = Team([worker], supervisor=Supervisor(plan=plan))
    with collecting() as collector:
        first = listener_to(collector)
        await team.run("Pay 5", run="r1", listener=first)
        first.close()
        assert named(collector, "invoke_agent ann") == []
        second = listener_to(collector)
        result = await team.resume("r1", "approve", listener=second)
        second.close()
    assert result.ending == "complete"
    expected = expected_tree(trace("r1", result.entries), "team")
    assert without_models(collector.tree()) == without_models(expected)
    assert collector.tree()["invoke_workflow team", "wait_for_input tool"] == 1


def start(journal: Path, verb: str, collector: Collector, output: Path) -> Forked:
    code = f"from tests.integrations.traced_program import main; main({str(journal)!r}, {verb!r})"
    variables = environment(OTEL_EXPORTER_OTLP_ENDPOINT=collector.url)
    with Path(os.devnull).open("r+b") as nothing, output.open("wb") as file:
        streams = nothing.fileno(), file.fileno(), nothing.fileno()
        return Forked((), folder=journal.parent, environment=variables, streams=streams, code=code)


def test_after_kill_9_in_the_middle_of_a_batch_no_span_is_lost_or_doubled(tmp_path: Path) -> None:
    journal = tmp_path / "runs.db"
    output = tmp_path / "output"
    with collecting() as collector:
        program = start(journal, "start", collector, output)
        collector.wait_for(5)
        collector.slow = 0.3
        requests = collector.requests
        deadline = time.monotonic() + 30
        while collector.requests == requests and time.monotonic() < deadline:
            time.sleep(0.01)
        program.kill()  # a batch is under way, and later spans wait
        program.wait(timeout=30)
        collector.slow = 0.0
        assert start(journal, "resume", collector, output).wait(timeout=90) == 0
    assert output.read_text().strip() == "complete"
    entries = read_run(journal, "killed-run")
    assert any(type(entry.event).__name__ == "RunResumed" for entry in entries)
    expected = expected_tree(trace("killed-run", entries), "waiters")
    assert without_models(collector.tree()) == without_models(expected)


@pytest.mark.parametrize(
    ("variables", "wanted"),
    [
        ({}, False),
        ({"CHARGEHAND_OTEL": "1"}, True),
        ({"CHARGEHAND_OTEL": "0", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318", "OTEL_SDK_DISABLED": "true"}, False),
    ],
)
def test_traces_are_sent_where_the_environment_says_so(variables: dict[str, str], wanted: bool) -> None:
    assert is_wanted(variables) is wanted


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"CHARGEHAND_OTEL": "ja"}, "CHARGEHAND_OTEL is 'ja'; write 1 or 0"),
        ({"CHARGEHAND_OTEL": "1", "CHARGEHAND_OTEL_CONTENT": "ja"}, "CHARGEHAND_OTEL_CONTENT is 'ja'; write 1 or 0"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "localhost:4318"}, "write the whole of it: http://localhost:4318"),
    ],
)
def test_a_variable_of_traces_that_cannot_be_meant_is_refused(variables: dict[str, str], words: str) -> None:
    with pytest.raises(Invalid, match=words):
        listener_from(variables)


async def test_runs_of_one_name_in_two_journals_have_a_trace_each() -> None:
    """The first waits for a person while the second is done."""

    async def asks(assignment: Assignment, _context: StepContext) -> object:
        return assignment.ask_person("How many?")

    plan = Plan((Task(TaskId("t1"), "Count.", "bob"),), "forward")
    waiting = Team([Worker("bob", call=asks)], supervisor=Supervisor(plan=plan))
    team = make_team()
    with collecting() as collector:
        listener = listener_to(collector)
        for member in (waiting, team):
            member.add_listener(listener)
        assert (await waiting.run("Count", run="r1")).ending == "needs_input"
        result = await team.run("Add 1 and 2", run="r1")
        listener.close()
    expected = expected_tree(trace("r1", result.entries), "adders")
    assert without_models(collector.tree()) == without_models(expected)


async def test_a_run_that_has_ended_is_not_told_again() -> None:
    with collecting() as collector:
        listener = listener_to(collector)
        team = make_team()
        team.add_listener(listener)
        await team.run("Add 1 and 2", run="r1")
        with pytest.raises(Refused):
            await team.resume("r1")
        listener.close()
    assert len(collector.received) == len(collector.by_id())
