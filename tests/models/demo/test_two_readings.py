"""Where two readings of a request fit, the demo model asks which is meant."""

import pytest

from tests.models.demo.asking import ask


@pytest.mark.parametrize(
    ("team", "request_text", "reason"),
    [
        ("support", "How many Owl lamps were ordered in all?", "'ordered' may be"),
        ("support", "Which lamp was ordered on 12 October 2026?", "'ordered' may be"),
        ("shop", "Convert -100 euros to US dollars at the rate of 29 May 2026.", "negative numbers"),
        ("shop", "How many orders had a quantity above \u22121 in May 2026?", "negative numbers"),
        ("contract_review", "What did Bellwether Paper invoice in all?", "which total is meant"),
    ],
)
def test_a_word_with_two_meanings_is_refused(team: str, request_text: str, reason: str) -> None:
    result = ask(team, request_text)
    assert result.ending == "failed", result.answer
    assert reason in str(result.answer)
