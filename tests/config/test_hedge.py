"""`hedge:` in a team file: what it comes to, and what is said of values that make no sense."""

from pathlib import Path

import pytest

from chargehand.agents.roles import Hedge
from chargehand.config.load import load_team
from chargehand.errors import Invalid
from chargehand.team import Team


def loaded(folder: Path, line: str) -> Team:
    file = folder / "team.yaml"
    file.write_text(f"version: 1\n{line}\nworkers:\n  ann: Counts things.\n")
    return load_team(file)


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("name: plain", None),
        ("supervisor: {hedge: false}", None),
        ("supervisor: {hedge: true}", Hedge()),
        ("supervisor: {hedge: {}}", Hedge()),
        ("supervisor: {hedge: {after: 1m, share: 0.1}}", Hedge(60.0, 0.1)),
    ],
)
def test_a_team_file_says_whether_calls_are_made_twice(tmp_path: Path, line: str, wanted: Hedge | None) -> None:
    assert loaded(tmp_path, line).supervisor.hedge == wanted


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (
            "supervisor: {hedge: {after: 0s}}",
            r"hedge.after: is '0s'; it must be longer than nothing",
        ),
        (
            "supervisor: {hedge: {share: 0}}",
            r"hedge.share: is 0; it must be between 0.001 and 0.5",
        ),
        (
            "supervisor: {hedge: {share: 0.9}}",
            r"hedge.share: is 0.9; it must be between 0.001 and 0.5",
        ),
        ("supervisor: {hedge: {aftr: 3s}}", r"there is no key 'aftr' here; did you mean 'after'"),
        ("supervisor: {hedge: 3}", r"hedge: must be true or false, not the number 3"),
    ],
)
def test_what_makes_no_sense_is_refused_with_its_line(tmp_path: Path, line: str, words: str) -> None:
    with pytest.raises(Invalid, match=words):
        loaded(tmp_path, line)
