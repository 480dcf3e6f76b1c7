"""Only the store modules know SQL and databases, so that another catalog is some more modules."""

import ast
import re
from pathlib import Path

SRC = Path(__file__).parents[2] / "src" / "chargehand"
SQLITE = frozenset(SRC.glob("memory/sqlite_*.py")) | {SRC / "memory" / "vector_index.py"}
POSTGRES = frozenset(SRC.glob("memory/postgres_*.py"))
STORES = SQLITE | POSTGRES
OPENER = SRC / "memory" / "session.py"
SQL = re.compile(r"\b(?:SELECT\b.+\bFROM|INSERT INTO|UPDATE \w+ SET|DELETE FROM|PRAGMA)\b", re.DOTALL)
STORE_NAME = re.compile(r"(?:Sqlite|Postgres)Catalog|memory\.(?:(?:sqlite|postgres)_\w+|vector_index)")


def test_no_other_module_of_the_memory_holds_sql_or_imports_sqlite() -> None:
    assert len(POSTGRES) > 2
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
    assert len(uses) == 4, "it imports each class and opens it"


def test_no_store_of_one_kind_uses_one_of_the_other() -> None:
    for stores, other in ((SQLITE, r"\bpostgres"), (POSTGRES, r"\bsqlite|vector_index")):
        for path in stores:
            imports = [line for line in path.read_text(encoding="utf-8").splitlines() if "import " in line]
            assert [line for line in imports if re.search(other, line)] == [], path
