"""Only the store modules know SQL and SQLite, so that another catalog is one more module."""

import ast
import re
from pathlib import Path

SRC = Path(__file__).parents[2] / "src" / "chargehand"
STORES = frozenset(SRC.glob("memory/sqlite_*.py")) | {SRC / "memory" / "vector_index.py"}
OPENER = SRC / "memory" / "session.py"
SQL = re.compile(r"\b(?:SELECT\b.+\bFROM|INSERT INTO|UPDATE \w+ SET|DELETE FROM|PRAGMA)\b", re.DOTALL)
STORE_NAME = re.compile(r"SqliteCatalog|memory\.(?:sqlite_\w+|vector_index)")


def test_no_other_module_of_the_memory_holds_sql_or_imports_sqlite() -> None:
    others = set(SRC.glob("memory/*.py")) - STORES
    assert len(others) > 8
    for path in sorted(others):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        texts = [
            node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)
        ]
        assert [text for text in texts if SQL.search(text)] == [], path
        imported = [name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names]
        assert "sqlite3" not in imported, path


def test_only_the_function_that_opens_a_catalog_names_its_class() -> None:
    naming = {path for path in SRC.rglob("*.py") if STORE_NAME.search(path.read_text(encoding="utf-8"))}
    assert naming - STORES == {OPENER}
    uses = [line for line in OPENER.read_text(encoding="utf-8").splitlines() if STORE_NAME.search(line)]
    assert len(uses) == 2, "it imports the class and opens it"
