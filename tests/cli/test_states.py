"""The command line and the page say the same words for the same states."""

import re

from chargehand.cli.states import STATES
from tests.cli.commands import ROOT

_LINE = re.compile(r'^  "?([\w ]+)"?: \["\w+", "([\w ]+)"\],$', re.MULTILINE)


def test_every_state_has_the_word_that_the_page_has() -> None:
    page = (ROOT / "web" / "src" / "states.tsx").read_text()
    table = page.partition("const STATES")[2].partition("};")[0]
    assert dict(_LINE.findall(table)) == {state: look.word for state, look in STATES.items()}


def test_every_status_of_a_task_and_of_an_attempt_has_a_word() -> None:
    from typing import get_args

    from chargehand.agents.run_document import State
    from chargehand.engine.events import Ending
    from chargehand.engine.state import Status
    from chargehand.runtime.trace import WorkEnding

    states = {status.value for status in Status} | {*get_args(WorkEnding), *get_args(Ending), *get_args(State)}
    assert states <= set(STATES)
