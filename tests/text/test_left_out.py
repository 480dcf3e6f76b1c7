"""Text that leaves something out says how much, in the room it has."""

import re

from hypothesis import given
from hypothesis import strategies as st

from chargehand.text.left_out import cut_text, left_out


def test_what_is_left_out_is_counted_in_words() -> None:
    assert left_out(1, "earlier call") == "… 1 earlier call is left out here …"
    assert left_out(1200, "character") == "… 1,200 characters are left out here …"
    assert left_out(2, "turn", "search for them") == "… 2 turns are left out here: search for them …"


@given(st.text(max_size=400), st.integers(0, 400), st.sampled_from(["", "search for it"]))
def test_a_cut_text_keeps_to_its_room_and_says_the_true_number(text: str, most: int, how: str) -> None:
    cut = cut_text(text, most, how)
    assert len(cut) <= most
    if len(text) <= most:
        assert cut == text
        return
    mark = re.search(r" … ([\d,]+) characters? (?:is|are) left out here(?:: search for it)? …\Z", cut)
    if mark is None:
        assert cut == text[: max(0, most - 1)].rstrip() + "…"[:most]
        return
    start = cut[: mark.start()]
    assert text.startswith(start)
    assert int(mark[1].replace(",", "")) == len(text) - len(start)
