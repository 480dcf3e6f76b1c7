"""Results cut to size."""

from hypothesis import given
from hypothesis import strategies as st

from chargehand.tools.calling import capped


def test_what_fits_is_left_alone() -> None:
    assert capped("abc", 3) == ("abc", False)
    assert capped("", 1) == ("", False)


def test_a_long_text_is_cut_after_a_line_and_says_how_much_is_missing() -> None:
    text = "".join(f"line {n}\n" for n in range(100))
    assert capped(text, 60) == (text[:56] + "[cut here: 734 of 790 bytes are not shown]", True)


def test_a_text_without_lines_is_cut_between_characters() -> None:
    assert capped("ä" * 10, 5) == ("ää\n[cut here: 16 of 20 bytes are not shown]", True)


@given(st.text(alphabet="aä€😀\n\ud800", max_size=60), st.integers(1, 80))
def test_what_is_kept_is_a_beginning_that_fits(text: str, cap: int) -> None:
    kept, cut = capped(text, cap)
    size = len(text.encode(errors="replace"))
    assert cut == (size > cap)
    if cut:
        body = kept[: kept.rindex("[cut here")].removesuffix("\n")
        assert text.encode(errors="replace").decode().startswith(body)
        assert len(body.encode()) <= cap
