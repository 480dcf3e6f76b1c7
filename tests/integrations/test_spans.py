"""Spans as a projection of the journal: complete, the same in every process, and shaped as the trace of the run."""

from collections import Counter

import pytest

from chargehand.engine import events as ev
from chargehand.integrations.spans import (
    RunSpans,
    Span,
    span_id,
    split_handle,
)
from chargehand.runtime.trace import trace
from chargehand.trace_context import TraceContext, format_traceparent, parse_traceparent
from tests.histories.kept import entries_of, names, read_lines
from tests.integrations.collector import expected_tree, without_models

NAMES = names()


def history(name: str) -> list[ev.Entry]:
    return entries_of(read_lines(name), name)


def spans_of(name: str, entries: list[ev.Entry]) -> list[Span]:
    recorder = RunSpans(name, entries[0])
    return [span for entry in entries[1:] for span in recorder.record(entry)]


def tree_of(spans: list[Span]) -> Counter[tuple[str, ...]]:
    by_key = {span.key: span for span in spans}

    def path(span: Span) -> tuple[str, ...]:
        return (*path(by_key[span.parent]), span.name) if span.key else (span.name,)

    return Counter(path(span) for span in spans)


@pytest.mark.parametrize("name", NAMES)
def test_the_spans_of_every_kind_of_run_are_the_tree_of_its_trace(name: str) -> None:
    entries = history(name)
    spans = spans_of(name, entries)
    keys = [span.key for span in spans]
    assert len(keys) == len(set(keys))
    requested = entries[0].event
    assert isinstance(requested, ev.RunRequested)
    expected = expected_tree(trace(name, entries), requested.team or "agent")
    assert without_models(tree_of(spans)) == without_models(expected)
    for span in spans:
        assert span.end >= span.start
        assert span.attributes["openinference.span.kind"]
        assert bool(span.error) == ("error.type" in span.attributes)


@pytest.mark.parametrize("name", NAMES)
def test_a_process_that_resumes_a_run_at_any_entry_makes_the_same_spans(name: str) -> None:
    entries = history(name)
    whole = {span.key: span for span in spans_of(name, entries)}
    for cut in range(1, len(entries)):
        died = {span.key: span for span in spans_of(name, entries[:cut])}
        assert all(whole[key] == span for key, span in died.items())


def test_calls_that_are_no_steps_are_counted_on_where_another_process_makes_the_attempt() -> None:
    entries = history(NAMES[0])
    begun = next(at for at, entry in enumerate(entries) if isinstance(entry.event, ev.AttemptStarted))
    attempt = entries[begun].event
    assert isinstance(attempt, ev.AttemptStarted)
    called = ev.ModelCalled(
        duty="attempt", task=attempt.task, number=attempt.attempt, model="openai:gpt-5-mini", seconds=1.0, call=1
    )
    more = [called, ev.RunResumed(2), called]  # each process counts its calls from 1
    last = entries[begun]
    added = [ev.Entry(last.seq + number, last.at + number, event) for number, event in enumerate(more, 1)]
    spans = spans_of("r1", [*entries[: begun + 1], *added])
    calls = [span.key for span in spans if span.name == "chat gpt-5-mini"]
    assert len(set(calls)) == len(calls) == 2


def test_ids_differ_by_run_and_by_what_the_run_was_seeded_with() -> None:
    ids = {span_id(run, seed, key) for run in ("r1", "r2") for seed in (1, 2) for key in ("", "attempt/t1/1")}
    assert len(ids) == 8


@pytest.mark.parametrize(
    ("text", "context"),
    [
        (f"00-{7:032x}-{9:016x}-01", TraceContext(7, 9, is_sampled=True)),
        (f"00-{7:032x}-{9:016x}-00", TraceContext(7, 9, is_sampled=False)),
        (f"01-{7:032x}-{9:016x}-01-more", TraceContext(7, 9, is_sampled=True)),
        (f"00-{7:032x}-{9:016x}-01-more", None),
        (f"ff-{7:032x}-{9:016x}-01", None),
        (f"00-{0:032x}-{9:016x}-01", None),
        (f"00-{7:032x}-{0:016x}-01", None),
        (f"00-{7:032X}-{9:015x}_-01", None),
        ("", None),
        ("no traceparent", None),
    ],
)
def test_a_traceparent_is_read_as_the_w3c_says(text: str, context: TraceContext | None) -> None:
    assert parse_traceparent(text) == context
    assert parse_traceparent(format_traceparent(7, 9)) == TraceContext(7, 9)


@pytest.mark.parametrize(
    ("handle", "provider", "model"),
    [
        ("openai:gpt-5-mini", "openai", "gpt-5-mini"),
        ("openai+http://127.0.0.1:1/v1#local", "openai", "local"),
        ("openai-responses:gpt-5-mini", "openai", "gpt-5-mini"),
        ("openai-responses+http://127.0.0.1:1/v1#local", "openai", "local"),
        ("google:gemini-3", "gcp.gemini", "gemini-3"),
        ("demo", "demo", "demo"),
    ],
)
def test_a_handle_is_told_as_provider_and_model(handle: str, provider: str, model: str) -> None:
    assert split_handle(handle) == (provider, model)
