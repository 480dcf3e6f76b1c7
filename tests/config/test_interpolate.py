"""Variables in scalars: filled in, typed by their place, and missed out loud."""

from pathlib import Path

import pytest

from chargehand.config.environment import dotenv, home, lookup
from chargehand.config.source import fill_variables
from tests.config.files import said, shaped, write

DOTENV = r"""
# a comment
SET=file
UNSET = plain  # why
export QUOTED="two\nlines # kept"
SINGLE='a\nb'
X=
=y
no line
"""
KNOWN = {"NAME": "ann", "EMPTY": "", "NUMBER": "7", "SNEAKY": "x: [1]\n# ${NAME} $$"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${NAME}", "ann"),
        ("hello ${NAME}!", "hello ann!"),
        ("${NAME}${NAME}", "annann"),
        ("${NOBODY:-bob}", "bob"),
        ("${NOBODY:-}", ""),
        ("${EMPTY:-bob}", "bob"),
        ("${EMPTY}", ""),
        ("${NOBODY:-http://[::1]:80/a?b=c}", "http://[::1]:80/a?b=c"),
        ("$$", "$"),
        ("$${NAME}", "${NAME}"),
        ("$$$$", "$$"),
        ("it costs $5 and 5$", "it costs $5 and 5$"),
        ("$NAME", "$NAME"),
        ("${SNEAKY}", KNOWN["SNEAKY"]),
    ],
)
def test_a_scalar_is_filled_in(text: str, value: str) -> None:
    filled = fill_variables({"a": [text]}, KNOWN.get)
    assert filled.data == {"a": [value]}
    assert filled.problems == []


def test_keys_are_left_alone() -> None:
    assert fill_variables({"${NAME}": 1}, KNOWN.get).data == {"${NAME}": 1}


@pytest.mark.parametrize("text", ["${}", "${1A}", "${NAME", "${NAME-bob}", "${NAME:?no}", "${A B}", "${NAME:bob}"])
def test_what_is_no_variable_is_said(text: str) -> None:
    (problem,) = fill_variables({"a": {"b": text}}, KNOWN.get).problems
    assert problem[0] == ("a", "b")
    assert "write ${NAME} or ${NAME:-otherwise}" in problem[1]


def test_a_missing_variable_is_named_with_its_place(tmp_path: Path) -> None:
    file = write(tmp_path, "version: 1\nworkers:\n  ann:\n    description: Reads.\n    model: ${NO_SUCH_MODEL}\n")
    _, findings = shaped(file)
    where = "team.yaml:5: workers.ann.model: "
    what = "the variable NO_SUCH_MODEL is not set; set it, put it into .env, or write ${NO_SUCH_MODEL:-otherwise}"
    assert said(findings, file) == [where + what]


def test_a_variable_becomes_what_its_place_asks_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MANY", "7")
    monkeypatch.setenv("YES", "true")
    text = """\
    version: 1
    name: ${MANY}
    defaults: {steps: "${MANY}", settings: {temperature: "${MANY:-1}"}, timeout: "${MANY}s"}
    supervisor: {review: "${YES}"}
    budget: {usd: "${MANY}", tokens: "${MANY}k"}
    workers: {ann: Reads.}
    """
    file = write(tmp_path, text)
    _, findings = shaped(file)
    assert said(findings, file) == ["team.yaml:3: defaults.settings.temperature: is 7; it must be between 0 and 2"]
    team, _ = shaped(write(tmp_path, text.replace("${MANY:-1}", "${NONE:-1}")))
    assert (team.name, team.defaults.steps, team.defaults.settings.temperature, team.defaults.timeout) == (
        "7",
        7,
        1,
        7.0,
    )
    assert team.supervisor.review is True
    assert team.budget.usd is not None
    assert (team.budget.usd, team.budget.tokens) == (7.0, 7000)


def test_a_value_that_looks_like_yaml_stays_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SNEAKY", "x\nbudget: {usd: 99}")
    team, findings = shaped(write(tmp_path, "version: 1\nname: ${SNEAKY}\nworkers: {ann: Reads.}\n"))
    assert not findings
    assert team is not None
    assert team.name == "x\nbudget: {usd: 99}"
    assert team.budget.usd is None


def test_dotenv_is_read_and_never_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SET", "real")
    monkeypatch.delenv("UNSET", raising=False)
    (tmp_path / ".env").write_text(DOTENV)
    assert lookup("SET", tmp_path) == "real"
    assert lookup("UNSET", tmp_path) == "plain"
    expected = {"SET": "file", "UNSET": "plain", "QUOTED": "two\nlines # kept", "SINGLE": "a\\nb", "X": ""}
    assert dotenv(tmp_path) == expected
    assert lookup("NOWHERE", tmp_path) is None
    (tmp_path / ".env").write_text("UNSET=changed later")
    assert lookup("UNSET", tmp_path) == "changed later"


def test_a_dotenv_nobody_can_read_holds_nothing(tmp_path: Path) -> None:
    (tmp_path / ".env").write_bytes(b"\xff\xfe\x00A=1")
    assert dotenv(tmp_path) == {}
    (tmp_path / "folder" / ".env").mkdir(parents=True)
    assert dotenv(tmp_path / "folder") == {}


def test_home_is_where_it_is_said_to_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHARGEHAND_HOME", str(tmp_path))
    assert home() == tmp_path
    monkeypatch.delenv("CHARGEHAND_HOME")
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert home() == tmp_path / "data" / "chargehand"
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    assert home() == Path.home() / ".local" / "share" / "chargehand"
