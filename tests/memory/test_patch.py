"""Patches fit once or not at all, and say why."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chargehand.errors import Refused
from chargehand.memory.edits import patched

TEXT = "red\ngreen\nblue\n\ngreen\nwhite"


@pytest.mark.parametrize(
    ("text", "patch", "after"),
    [
        (TEXT, " red\n-green\n+lime\n", "red\nlime\nblue\n\ngreen\nwhite"),
        (TEXT, "@@\n-white\n+black", "red\ngreen\nblue\n\ngreen\nblack"),
        (TEXT, "@@ -1,2 +1,3 @@\n red\n+pink\n green\n", "red\npink\ngreen\nblue\n\ngreen\nwhite"),
        (TEXT, "-red\n@@\n-white\n@@\n blue\n-\n-green\n", "green\nblue"),
        (TEXT, " blue\n\n-green\n", "red\ngreen\nblue\n\nwhite"),
        (TEXT, "--- a/colours\n+++ b/colours\n@@\n-red\n+rose\n", "rose\ngreen\nblue\n\ngreen\nwhite"),
        ("-- dashes\nend", "--- dashes\n end\n", "end"),
        ("one", "-one\n", ""),
        ("one\n", "-one\n+two\n\\ No newline at end of file\n", "two\n"),
        ("", "+one\n+two\n", "one\ntwo"),
        ("a\na", "-a\n-a\n+b\n", "b"),
    ],
)
def test_hunks_are_found_by_their_context(text: str, patch: str, after: str) -> None:
    assert patched(text, patch) == after


@pytest.mark.parametrize(
    ("patch", "said"),
    [
        (" red\n+pink\n@@\n-green\n", r"hunk 2 fits 2 times, on lines 3, 6"),
        ("-purple\n", r"hunk 1 does not fit: there is no line 'purple'"),
        ("-red\n-blue\n", "hunk 1 does not fit: its lines are all there, but not one after the other"),
        ("-gree\n+x\n", "no line 'gree'"),
        ("+more\n", "hunk 1 has no line of context"),
        ("red\n", "line 1 of the patch begins with 'r'"),
        (" red\n", "changes nothing"),
        ("", "changes nothing"),
        ("@@\n@@\n", "changes nothing"),
        (" red\n-red\n" * 2000, "hunk 1 does not fit"),
        ("@@\n-red\n+red\n" * 1001 + "+x", "send at most 1000"),
    ],
)
def test_a_hunk_that_does_not_fit_is_named_with_the_reason(patch: str, said: str) -> None:
    with pytest.raises(Refused, match=said):
        patched(TEXT, patch)


def test_overlapping_places_count_as_two() -> None:
    with pytest.raises(Refused, match="fits 2 times"):
        patched("a\na\na", "-a\n-a\n+b\n")


def test_a_patch_without_end_is_answered_soon() -> None:
    began = time.perf_counter()
    with pytest.raises(Refused, match="1000 times or more"):
        patched("a\n" * 500_000, "-a\n+b\n")
    assert time.perf_counter() - began < 5


lines = st.lists(st.sampled_from(["", "a", "b", " c", "-d", "+e", "@@", "é"]), max_size=8)


@given(before=lines, new=lines, at=st.integers(0, 8), count=st.integers(0, 4))
def test_a_patch_of_the_whole_text_makes_what_it_says(before: list[str], new: list[str], at: int, count: int) -> None:
    after = [*before[:at], *new, *before[at + count :]]
    old = "\n".join(before)
    wanted = "\n".join(after)
    kept = before[:at]
    gone = before[at : at + count]
    end = before[at + count :]
    patch = [f" {line}" for line in kept] + [f"-{line}" for line in gone] + [f"+{line}" for line in new]
    patch += [f" {line}" for line in end]
    if old and (gone or new) and gone != new:
        assert patched(old, "\n".join(patch) + "\n") == wanted
