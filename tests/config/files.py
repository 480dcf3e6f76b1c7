"""Team files for tests: written to a folder, read back, and what is wrong with them."""

from collections.abc import Sequence
from pathlib import Path
from textwrap import dedent

from chargehand.config.assemble import assemble
from chargehand.config.findings import Finding
from chargehand.config.fit import fit
from chargehand.config.parts import Parts
from chargehand.config.shapes import TeamShape
from chargehand.config.source import read_source

TOOLS = '''
"""Tools of a test team."""
from chargehand.tools.tool import Tool, tool

RATE = 3

def double(number: float) -> float:
    """Twice a number."""
    return number * 2

@tool(name="own_name", effect="effect", timeout=5)
def triple(number: float) -> float:
    """Three times a number."""
    return number * RATE

def make_one() -> Tool:
    return triple

def make_two() -> list[Tool]:
    return [triple, tool(double)]

def today() -> str:
    """A tool without arguments."""
    return "Sunday"

def broken() -> Tool:
    raise RuntimeError("no luck")
'''


def write(folder: Path, text: str, name: str = "team.yaml") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / name
    file.write_text(dedent(text), encoding="utf-8")
    return file


def shaped(file: Path) -> tuple[TeamShape | None, Sequence[Finding]]:
    return fit(read_source(file))


def parts(folder: Path, text: str, model: str = "") -> Parts:
    """The parts of a team file that has the right shape."""
    (folder / "tools.py").write_text(TOOLS, encoding="utf-8")
    source = read_source(write(folder, text))
    team, findings = fit(source)
    assert team is not None, [str(one) for one in findings]
    return assemble(source, team, model)


def said(findings: Sequence[Finding], file: Path) -> list[str]:
    """Findings without the path of the test's folder."""
    return [str(one).replace(str(file.parent) + "/", "") for one in findings]
