"""What `--help` says of each verb: every word it takes is explained, and every example is one that can be typed."""

import re
import shlex
from argparse import ArgumentParser, _SubParsersAction
from collections.abc import Iterator
from pathlib import Path

import pytest

from chargehand.cli.main import VERBS, main, parser
from tests.cli.commands import chargehand

USUAL_TEAM = "(default: nearest, else bundled)"
SCREEN = 40  # lines


def parsers(one: ArgumentParser) -> Iterator[ArgumentParser]:
    """A parser and all beneath it."""
    yield one
    for action in one._actions:
        if isinstance(action, _SubParsersAction):
            for below in dict[str, ArgumentParser](action.choices).values():  # pyright: ignore[reportUnknownArgumentType,reportUnknownMemberType] - argparse does not say
                yield from parsers(below)


def test_every_word_a_verb_takes_is_explained() -> None:
    seen = 0
    for one in parsers(parser()):
        for action in one._actions:
            if not isinstance(action, _SubParsersAction):
                seen += 1
                assert action.help, f"{one.prog}: {action.metavar or action.option_strings}"
    assert seen > 100


def test_whichever_verb_takes_a_team_says_which_it_is_without() -> None:
    said = [
        (one.prog, action.help or "")
        for one in parsers(parser())
        for action in one._actions
        if "--team" in action.option_strings
    ]
    assert len(said) > 10
    assert [prog for prog, words in said if USUAL_TEAM not in words] == []


def test_the_help_of_every_verb_fits_a_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for one in parsers(parser()):
        lines = one.format_help().splitlines()
        assert len(lines) <= SCREEN, f"{one.prog}: {len(lines)} lines"
        assert max(map(len, lines)) <= 80, one.prog


@pytest.mark.parametrize("verb", VERBS)
def test_every_example_in_the_help_can_be_typed(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([verb, "--help"])
    shown = capsys.readouterr().out.partition("examples:\n")[2].partition("\n\n")[0]
    for line in shown.splitlines():
        words = re.split(r"  +", line.strip())[0]  # what stands behind two spaces explains it
        _, _, typed = words.partition("chargehand ")
        assert parser(verb).parse_args(shlex.split(typed)).verb == verb, line


@pytest.mark.parametrize("verb", ["run", "plan"])
def test_an_empty_request_is_answered_with_an_example_of_its_own_verb(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], verb: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([verb, ""]) == 2
    assert f'is empty; say what is to be done, for example: chargehand {verb} "Which' in capfd.readouterr().err


def test_a_request_in_the_place_of_a_verb_is_answered_with_the_command(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["What was sold in May?"])
    assert "to have a request done: chargehand run 'What was sold in May?'" in capfd.readouterr().err


@pytest.mark.parametrize("verb", ["run", "plan"])
def test_the_examples_of_a_team_are_a_line_each_where_no_request_is_given(tmp_path: Path, verb: str) -> None:
    done = chargehand(tmp_path, verb)
    assert done.returncode == 2
    first, *examples = done.stderr.splitlines()
    assert first.startswith(f'chargehand: no request given. Try: python -m chargehand {verb} "REQUEST", or --example N')
    assert [line.strip()[:2] for line in examples] == [f"{number}:" for number in range(1, len(examples) + 1)]
    assert len(examples) > 3
