"""Tools that return what would run or load something if a page took it for markup."""

from chargehand.models.artifacts import Chart
from chargehand.tools.tool import ToolFailed

_SVG = (
    "<svg xmlns='http://www.w3.org/2000/svg' width='80' height='40' onload='window.hacked=1'>"
    "<script>window.hacked=1</script><image href='http://evil.test/x.png'/><rect width='80' height='40'/></svg>"
)


def echo(text: str) -> Chart:
    """A chart with this title."""
    return Chart(title=text, svg=_SVG, summary=text, source=text)


def fail(text: str) -> str:
    """Fail with this message."""
    raise ToolFailed(text)
