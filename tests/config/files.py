"""Team files for tests: written to a folder, read back, and what is wrong with them."""

from collections.abc import Sequence
from pathlib import Path
from textwrap import dedent

from chargehand.config.build import Overrides, TeamBuild, build_members
from chargehand.config.schema import TeamShape
from chargehand.config.source import FileFinding, read_source
from chargehand.config.validate import validate

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

made_two = [triple, tool(double)]

def today() -> str:
    """A tool without arguments."""
    return "Sunday"
'''


def write(folder: Path, text: str, name: str = "team.yaml") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / name
    file.write_text(dedent(text), encoding="utf-8")
    return file


def shaped(file: Path) -> tuple[TeamShape, Sequence[FileFinding]]:
    return validate(read_source(file))


def parts(folder: Path, text: str, model: str = "") -> TeamBuild:
    """The parts of a team file that has the right shape."""
    (folder / "tools.py").write_text(TOOLS, encoding="utf-8")
    source = read_source(write(folder, text))
    team, findings = validate(source)
    assert team is not None, [str(finding) for finding in findings]
    return build_members(TeamBuild(source, team, Overrides(model)))


def said(findings: Sequence[FileFinding], file: Path) -> list[str]:
    """Findings without the path of the test's folder."""
    return [str(finding).replace(str(file.parent) + "/", "") for finding in findings]
