"""Event streams, taken apart piece by piece."""

import pytest

from chargehand.models.call_errors import Unreadable
from chargehand.models.http import Event, Events

WANTED = [Event(b"", '{"text":"Grüße 世界 🦩"}'.encode()), Event(b"ping", b"{}"), Event(b"", b"one\ntwo")]
STREAM = """: hello

data: {"text":"Grüße 世界 🦩"}

id: 7
retry: 10
event: ping
data: {}

data: one
data:two

"""


def fed(*chunks: bytes) -> list[Event]:
    events = Events()
    return [event for chunk in chunks for event in events.feed(chunk)]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_the_same_events_come_out_wherever_the_bytes_are_cut(end: str) -> None:
    stream = STREAM.replace("\n", end).encode()
    assert fed(stream) == WANTED
    for cut in range(1, len(stream)):
        assert fed(stream[:cut], stream[cut:]) == WANTED, cut
    assert fed(*(stream[at : at + 1] for at in range(len(stream)))) == WANTED


def test_an_event_without_its_blank_line_is_none() -> None:
    events = Events()
    assert events.feed(b'data: {"a":1}\n') == []
    assert events.rest()
    assert events.feed(b"\n") == [Event(b"", b'{"a":1}')]
    assert not events.rest()


def test_a_name_without_data_is_no_event_and_does_not_stick() -> None:
    assert fed(b"event: ping\n\ndata: 1\n\n") == [Event(b"", b"1")]


@pytest.mark.parametrize("line", [b'{"error":"raw"}', b"<html>", b"dat: 1", b" data: 1"])
def test_a_line_that_is_none_of_an_event_is_not_passed_over(line: bytes) -> None:
    with pytest.raises(Unreadable, match="none of an event"):
        fed(line + b"\n\n")


def test_a_piece_of_data_counts_as_movement_and_a_comment_does_not() -> None:
    events = Events()
    events.feed(b": still here")
    assert not events.growing()
    events.feed(b"\n\ndata: {")
    assert events.growing()


def test_a_long_line_in_small_pieces_costs_no_more_than_its_length() -> None:
    events = Events()
    pieces = [b"data: ", *([b"x"] * 200_000), b"\n\n"]
    assert [len(event.data) for piece in pieces for event in events.feed(piece)] == [200_000]
