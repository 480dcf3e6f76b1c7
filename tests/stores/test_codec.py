"""Bytes of any age become events, or are refused: nothing is guessed."""

import pytest

from chargehand.engine.events import VERSIONS, Noted
from chargehand.errors import Corrupt
from chargehand.journal import codec
from tests.stores.samples import SHAPES, sample, tag_of

OLD = b'{"type":"noted","words":"hello","weight":1}'


@pytest.mark.parametrize("shape", SHAPES)
def test_every_event_has_a_tag_and_a_version(shape: type[codec.Event]) -> None:
    event = sample(shape, full=True)
    assert codec.TAGS[shape] == tag_of(event)
    assert codec.version_of(event) == VERSIONS.get(codec.TAGS[shape], 1)
    body = codec.encode(event)
    assert codec.decode(codec.TAGS[shape], codec.version_of(event), body, run="r", seq=1) == event


def test_no_two_events_share_a_tag() -> None:
    assert len(set(codec.TAGS.values())) == len(SHAPES)


def test_an_old_shape_is_brought_up_to_date_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    def renamed(fields: dict[str, object]) -> dict[str, object]:
        return {"type": fields["type"], "text": fields["words"], "weight": fields["weight"]}

    def dropped(fields: dict[str, object]) -> dict[str, object]:
        return {"type": fields["type"], "text": f"{fields['text']}!"}

    monkeypatch.setitem(VERSIONS, "noted", 3)
    monkeypatch.setitem(codec.UPCASTS, ("noted", 1), renamed)
    monkeypatch.setitem(codec.UPCASTS, ("noted", 2), dropped)
    assert codec.decode("noted", 1, OLD, run="r", seq=1) == Noted("hello!")
    assert codec.decode("noted", 2, b'{"type":"noted","text":"a","weight":1}', run="r", seq=1) == Noted("a!")
    assert codec.decode("noted", 3, b'{"type":"noted","text":"a"}', run="r", seq=1) == Noted("a")
    assert codec.version_of(Noted("a")) == 3


def test_a_type_that_is_no_more_becomes_its_successor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(VERSIONS, "noted", 2)
    monkeypatch.setitem(codec.UPCASTS, ("remarked", 1), lambda old: {"type": "noted", "text": old["words"]})
    assert codec.decode("remarked", 1, OLD.replace(b'"noted"', b'"remarked"'), run="r", seq=1) == Noted("hello")


@pytest.mark.parametrize(
    ("kind", "version", "body"),
    [
        ("noted", 2, b'{"type":"noted","text":"a"}'),
        ("noted", 0, b'{"type":"noted","text":"a"}'),
        ("unheard.of", 1, b'{"type":"unheard.of"}'),
        ("noted", 1, b'{"type":"unheard.of","text":"a"}'),
        ("noted", 1, b'{"type":"noted"}'),
        ("noted", 1, b'{"type":"noted","text":7}'),
        ("noted", 1, b""),
        ("noted", 1, b"\xff\xfe"),
        ("noted", 1, b'{"type":"noted","text":"\xff"}'),
        ("noted", 1, b"[" * 5000),
        ("noted", 7, b"[]"),
    ],
)
def test_what_is_not_understood_is_not_guessed(kind: str, version: int, body: bytes) -> None:
    with pytest.raises(Corrupt) as caught:
        codec.decode(kind, version, body, run="the run", seq=12)
    for words in ("entry 12", "'the run'", f"'{kind}'", f"version {version}", "upgrade chargehand"):
        assert words in str(caught.value)
