"""Writes docs/reference anew, and the table of models in docs/models.md: `make reference`.

What stands on a page is decided in its own module.
"""

from collections.abc import Callable
from pathlib import Path

from tests.reference import model_features
from tests.reference.cli_page import cli_page
from tests.reference.errors_page import errors_page
from tests.reference.events_page import events_page
from tests.reference.exits_page import exits_page
from tests.reference.team_page import team_page

FOLDER = Path(__file__).parents[2] / "docs" / "reference"
PAGES: dict[str, Callable[[], str]] = {
    "cli.md": cli_page,
    "team-file.md": team_page,
    "events.md": events_page,
    "errors.md": errors_page,
    "exit-codes.md": exits_page,
}


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, made in PAGES.items():
        (FOLDER / name).write_text(made(), encoding="utf-8")
    model_features.write()


if __name__ == "__main__":
    main()
