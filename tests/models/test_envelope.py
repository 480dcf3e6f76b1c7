"""What delimits material in a prompt."""

import os
from pathlib import Path

import pytest

import chargehand
from chargehand.models.messages import new_nonce, wrap
from chargehand.text.numbers import find_quantities
from tests.envelopes import unwrap


@pytest.mark.parametrize("digits", ["1234567890123456", "12e4567890123456", "3e10000000000000", "9999999999999e99"])
def test_a_nonce_that_a_model_repeats_is_no_figure(digits: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def urandom(_size: int) -> bytes:
        return bytes.fromhex(digits)

    monkeypatch.setattr(os, "urandom", urandom)
    nonce = new_nonce()
    assert len(nonce) == 16
    assert list(find_quantities(f"It is in <data {nonce}> and {nonce}.")) == []
    assert unwrap(wrap(nonce, "task t1", "12 apples")) == ("task t1", "12 apples")


def test_all_nonces_of_prompts_come_from_one_place() -> None:
    folder = Path(chargehand.__file__).parent
    users = [file for room in ("agents", "evals", "server/openai") for file in (folder / room).rglob("*.py")]
    assert [file.name for file in users if "nonce" in (text := file.read_text()) and "urandom" in text] == []
    assert len({new_nonce() for _ in range(1000)}) == 1000
