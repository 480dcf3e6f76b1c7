"""`documents` in a team file: by meaning where the small model is, by words where the file says so."""

import json
import os
from pathlib import Path

import pytest

from chargehand.config.schema import ToolShape
from chargehand.config.tools import make_tools
from chargehand.errors import Invalid
from chargehand.models.artifacts import Passages
from chargehand.models.local import pull
from chargehand.tools.tool import ToolFailed

MODELS = Path(os.environ.get("CHARGEHAND_MODELS") or Path(__file__).parents[2] / ".venv" / "models")
ASKED = json.dumps({"query": "I scalded my finger on the stove"})


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "burns.md").write_text("# Burns\n\nCool it under water.\n", encoding="utf-8")
    (tmp_path / ".env").write_text(f"CHARGEHAND_MODELS={pull('minilm', MODELS).parent}\n", encoding="utf-8")
    monkeypatch.delenv("CHARGEHAND_MODELS", raising=False)
    return tmp_path


async def test_documents_of_a_team_file_are_searched_by_meaning_unless_it_says_words(folder: Path) -> None:
    for shape in (ToolShape(documents="notes"), ToolShape(documents="notes", embed="auto")):
        (tool,) = make_tools("leaflets", shape, folder)
        found = await tool.call(ASKED, "k")
        assert isinstance(found, Passages)
        assert [one.source for one in found.found] == ["burns.md#burns"]
    (tool,) = make_tools("leaflets", ToolShape(documents="notes", embed="words"), folder)
    with pytest.raises(ToolFailed, match="nothing found"):
        await tool.call(ASKED, "k")


def test_embed_is_refused_for_any_other_source(folder: Path) -> None:
    with pytest.raises(Invalid, match="embed is for documents only"):
        make_tools("notes", ToolShape(files="notes", embed="words"), folder)
