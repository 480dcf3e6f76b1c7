"""The page about exit codes: what each means, and a command that ends with it."""

from chargehand.cli.exit_codes import EXIT_CODES, exit_codes_of
from chargehand.cli.main import VERBS
from tests.reference.markdown import page

_ABOUT = """\
Data goes to standard output and progress to standard error, whatever the code. The commands below, in an
empty folder with `examples/` in it, end with their code."""

_MORE = {
    0: "A warning does not change it.",
    1: "Also where nobody on a team can do anything about a request, where every worker that was asked failed, and "
    "where `doctor` finds something broken. An error of the store is one for the operator, see [errors](errors.md).",
    2: "One line on standard error says what is wrong, where, and what to do next.",
    3: "In this run or in one inside it. What is missing stands below the answer, and under `gaps` with `--json`.",
    4: "The plan waits for approval, a call does, or the outcome of an effect is unknown. The last line is the "
    "command that goes on.",
    5: "There may still be an answer, made from what there was. A `run --plan` whose least cost is above the budget "
    "ends so before anybody is asked: there is no run then.",
    6: "Only `eval` with `--gate`.",
    130: "A run is left where it stands, and the last line is the command that goes on. A second Ctrl-C ends the "
    "process at once; the run can be resumed all the same. `runs cancel` ends it for good.",
    143: "A run is left where it stands, and the last line is the command that goes on. `eval` keeps what was tried. "
    "`serve` is meant to be stopped so, and ends with 0.",
}
_COMMANDS = {
    0: "chargehand play examples/cascade.json",
    1: "chargehand runs --journal examples/gaps.json",
    2: "chargehand runs show nobody",
    3: "chargehand play examples/gaps.json",
    4: "chargehand run --example --approve ask --no-input",
    6: "chargehand eval --team examples/strategies/route --gate accuracy=1",
}
_NOT_RUN = {
    5: "chargehand run --example --timeout 300ms",
    130: "timeout --preserve-status --signal INT 1 chargehand play examples/cascade.json",
    143: "timeout --preserve-status 1 chargehand play examples/cascade.json",
}
"""They end by the clock, and so perhaps otherwise on a slow machine."""


def exits_page() -> str:
    return page("Exit codes", _ABOUT, *(part for code in EXIT_CODES for part in _code(code)))


def _code(code: int) -> tuple[str, ...]:
    verbs = [verb for verb in VERBS if code in exit_codes_of(verb)]
    who = "Every verb." if len(verbs) == len(VERBS) else f"Verbs: {', '.join(f'`{verb}`' for verb in verbs)}."
    said = EXIT_CODES[code][:1].upper() + EXIT_CODES[code][1:]
    words = f"{said}. {_MORE[code]} {who}"
    if code in _COMMANDS:
        return f"## {code}", words, f"<!-- runs: {code} -->\n```console\n$ {_COMMANDS[code]}\n```"
    return f"## {code}", words, f"```text\n$ {_NOT_RUN[code]}\n```"
