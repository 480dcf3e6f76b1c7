"""Facts are fields: no module outside `cli/` reads them back out of the texts of events, out of ids or step names."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.syntax import functions

SRC = Path(__file__).parents[1] / "src" / "chargehand"

ALWAYS = frozenset({"goal", "instruction", "message"})
"""Attributes that are texts of events whatever holds them."""
OF_EVENTS = frozenset({"text", "name", "id", "task", "answer", "failure"})
"""Attributes that are texts, names or ids of events where one of `HOLDERS` holds them."""
IDS = frozenset({"id", "task"})
"""Those that may be compared with another one as a whole."""
NAMES = frozenset({"task", "run", "task_id", "run_id"})
"""Variables and attributes that hold names the engine makes, of which no part may be read: not by its punctuation."""
OF_FACTS = ("agents/", "dispatch/", "engine/", "journal/", "runtime/", "server/run_")
"""Where `name` is one of these as well: of a run, a breaker, a step or a tool."""
HOLDERS = frozenset(
    {
        "brief",
        "entry",
        "event",
        "gap",
        "given",
        "note",
        "noted",
        "progress",
        "question",
        "requested",
        "started",
        "state",
        "step",
        "task",
        "written",
    }
)
METHODS = frozenset(
    {
        "startswith",
        "endswith",
        "removeprefix",
        "removesuffix",
        "partition",
        "rpartition",
        "split",
        "rsplit",
        "find",
        "rfind",
        "index",
        "count",
    }
)
PATTERNS = frozenset(["match", "search", "fullmatch", "findall", "finditer", "sub", "subn", "split"])
EXEMPT = {
    "cli": "shows texts to people",
    "models/demo": "a model: it reads what it is told",
    "evals/graders.py": "grades the text of answers",
}
ALLOWED = {
    ("agents/audit/contradictions.py", "WORD.findall(fact.result.instruction)"): "which words two tasks share",
    ("models/guard.py", "again.message.removeprefix(f'{self.card.handle}: ')"): "two messages become one",
    ("agents/messages.py", "name.split()"): "shown on one line",
    ("engine/declared.py", "name.startswith(word)"): "a keyword that was written in part",
    ("journal/protocol.py", "'\\x00' in run"): "whether a name can be stored",
    ("server/letta/postgres_index.py", "'\\x00' in run"): "as above: no run has such a name",
    ("journal/sqlite.py", "row.run.startswith(prefix)"): "people write the beginning of a name",
    ("engine/lint.py", "_WORD.findall(task.instruction.lower())"): "whether an instruction is vague",
}
"""Readings that are known, with why they may stay."""


def in_band_readings(source: str, names: frozenset[str] = NAMES) -> Iterator[tuple[int, str]]:
    """Where code matches on the text of an event: line and expression."""
    for function in functions(ast.parse(source), nested=False):
        nodes = list(ast.walk(function))
        aliases = _aliases(nodes)
        for node in nodes:
            if isinstance(node, ast.Compare | ast.Call) and _is_match_on_text(node, aliases, names):
                yield node.lineno, ast.unparse(node)


def _aliases(nodes: list[ast.AST]) -> frozenset[str]:
    """Local names that are nothing but the text of an event."""
    return frozenset(
        target.id
        for node in nodes
        if isinstance(node, ast.Assign) and _is_event_text(node.value, frozenset())
        for target in node.targets
        if isinstance(target, ast.Name)
    )


def _is_match_on_text(node: ast.AST, aliases: frozenset[str], names: frozenset[str]) -> bool:
    if isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
        compares = all(isinstance(op, ast.Eq | ast.NotEq | ast.In | ast.NotIn) for op in node.ops)
        if (
            isinstance(node.left, ast.Constant)
            and isinstance(node.ops[0], ast.In | ast.NotIn)
            and _is_made_name(sides[1], names)
        ):
            return True
        if isinstance(node.left, ast.Attribute) and node.left.attr in IDS:
            return False
        return compares and any(_says_something(side) for side in sides) and _reads_text(sides, aliases)
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    receiver = node.func.value
    if node.func.attr in METHODS and _is_made_name(receiver, names):
        return True
    is_match = node.func.attr in METHODS and bool(node.args) and not _is_punctuation(node.args[0])
    if is_match and _reads_text([receiver], aliases):
        return True
    of_module = isinstance(receiver, ast.Name) and receiver.id == "re"
    subjects = node.args[1:] if of_module else node.args
    return node.func.attr in PATTERNS and _reads_text(subjects, aliases)


def _is_made_name(node: ast.expr, names: frozenset[str]) -> bool:
    """Whether this is a name the engine makes: of a task, of a run, or the key of a call."""
    if isinstance(node, ast.Name):
        return node.id in names
    return isinstance(node, ast.Attribute) and node.attr in {*NAMES, "key"}


def _reads_text(nodes: list[ast.expr], aliases: frozenset[str]) -> bool:
    """Whether one of these is the text of an event, or is made from one."""
    for node in nodes:
        if _is_event_text(node, aliases):
            return True
        if isinstance(node, ast.Attribute):  # a field of it, which is no text
            continue
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            parts = [node.func.value, *node.args]
        else:
            parts = [part for part in ast.iter_child_nodes(node) if isinstance(part, ast.expr)]
        if _reads_text(parts, aliases):
            return True
    return False


def _is_event_text(node: ast.AST, aliases: frozenset[str]) -> bool:
    if isinstance(node, ast.Name):
        return node.id in aliases
    if not isinstance(node, ast.Attribute):
        return False
    if node.attr in ALWAYS:
        return True
    holder = node.value.attr if isinstance(node.value, ast.Attribute) else getattr(node.value, "id", "")
    return node.attr in OF_EVENTS and holder in HOLDERS


def _says_something(node: ast.expr) -> bool:
    """A text in the code, or a constant that may be one."""
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return bool(node.elts) and all(map(_says_something, node.elts))
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str | bytes) and any(map(str.isalnum, str(node.value)))
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Name) and node.id.isupper())


def _is_punctuation(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and not any(map(str.isalnum, str(node.value)))


@pytest.mark.slow("parses the whole source")
def test_no_module_matches_on_the_text_of_events() -> None:
    found: list[str] = []
    stale = set(ALLOWED)
    for path in sorted(SRC.rglob("*.py")):
        name = path.relative_to(SRC).as_posix()
        if any(name.startswith(exempt) for exempt in EXEMPT) or "templates" in name:
            continue
        names = NAMES | {"name"} if name.startswith(OF_FACTS) else NAMES
        for line, code in in_band_readings(path.read_text(), names):
            stale.discard((name, code))
            if (name, code) not in ALLOWED:
                found.append(f"{name}:{line}: {code}")
    assert not found, "make the fact a field of an event:\n" + "\n".join(found)
    assert not stale, f"these are gone; take them out of ALLOWED: {stale}"


@pytest.mark.parametrize(
    "code",
    [
        'note.text.startswith("route to ")',
        'entry.event.text.removeprefix(MARK).partition(": ")',
        'event.name == "model"',
        "event.name not in NOT_TOOLS",
        '"waits for a person" in gap.message',
        "MARK.fullmatch(task.id)",
        "given.task.startswith(TOOL)",
        're.search("stall", task.id)',
        'str(decode(state.answer)).rpartition("Chosen from ")',
        "brief.goal.endswith(SEEN)",
        'caller.key.rsplit("/", 3)',
        'task.partition("[")[0]',
        '"[" not in result.task',
        'runs[0].run.rpartition("-")[2]',
        'found := [one for one in gaps if one.message.startswith("This stalled")]',
    ],
)
def test_a_module_that_did_would_be_found(code: str) -> None:
    """The channels there once were, each as it was read."""
    assert list(in_band_readings(f"def read():\n    return ({code})\n"))


def test_a_name_is_found_where_facts_are_read() -> None:
    code = 'def read(name):\n    return name.removeprefix("model:")\n'
    assert list(in_band_readings(code, NAMES | {"name"}))
    assert not list(in_band_readings(code))


def test_a_text_is_found_under_another_name() -> None:
    assert list(in_band_readings('def read():\n    said = event.text\n    return said.startswith("route to ")\n'))


@pytest.mark.parametrize(
    "code",
    [
        'event.kind == "model"',
        'reply.text.startswith("{")',
        'task.instruction.partition("\\n")',
        'failure.message.removesuffix(".")',
        "gap.task == task.id",
    ],
)
def test_fields_replies_and_line_breaks_may_be_read(code: str) -> None:
    assert not list(in_band_readings(f"def read():\n    return {code}\n"))
