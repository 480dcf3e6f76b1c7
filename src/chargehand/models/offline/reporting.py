"""What a researcher can say who has an archive and nothing else; and it is kept there, for whoever asks next.

That is what the archive holds, what the request itself shows, and what is missing. It is the last resort: only when
nothing else could be done is it asked.
"""

import ast
import re
from collections.abc import Iterator, Sequence
from typing import cast

import msgspec

from chargehand.models.messages import Message, Reply, ToolCall, ToolSpec
from chargehand.models.offline.material import Outcome, outcomes
from chargehand.models.subject import Working

SEARCH, INSERT = "archival_memory_search", "archival_memory_insert"
_OURS = frozenset(
    (
        "give_up", "read_more", "conversation_search", "memory_insert", "memory_replace", "core_memory_append",
        SEARCH, INSERT,
    )
)  # fmt: skip
_CODE = re.compile(r"^(?:def|class|import|from|async def|@)\b.*", re.MULTILINE | re.DOTALL)
_ORDER = re.compile(
    r"\A(?:please\s+)?(?:analy[sz]e|research|review|investigate|conduct|study|examine|look\s+into|find\s+out|describe|"
    r"summari[sz]e|assess|evaluate)\s+(?:an?\s+|the\s+)?(?P<about>.+?)[\s.?!:]*\Z",
    re.IGNORECASE | re.DOTALL,
)
_LONGEST = 160


def report(subject: Working, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Reply | None:
    """The next step; None for who has other means or no archive, and where nothing is to be found out."""
    names = {one.name for one in tools}
    if INSERT not in names or SEARCH not in names or names - _OURS or not _researches(subject.instruction):
        return None
    past = outcomes(messages)
    looked = [one for one in past if one.call.name == SEARCH]
    if not looked:
        return _call(SEARCH, {"query": about(subject.instruction)})
    said = _findings(subject, looked[-1])
    if not any(one.call.name == INSERT for one in past):
        return _call(INSERT, {"content": said})
    return Reply(said)


def _researches(instruction: str) -> bool:
    return _ORDER.match(" ".join(instruction.split())) is not None or _CODE.search(instruction) is not None


def about(instruction: str) -> str:
    """What a request is about, in a few words."""
    text = _CODE.sub("", instruction).strip() or instruction
    found = _ORDER.match(" ".join(text.split()))
    return (found["about"] if found is not None else " ".join(text.split()))[:_LONGEST].strip(" .:?!")


def _findings(subject: Working, looked: Outcome) -> str:
    topic = about(subject.instruction)
    lines = list(_reviewed(subject.instruction))
    known = [text for text in _texts(looked.value) if not text.startswith("On ")]
    lines += [f"The archive says: {text}" for text in known[:3]]
    if not lines:
        lines.append("the archive holds nothing on it, and no source was at hand to look it up in.")
    return f"On {topic}: " + " ".join(lines)


def _texts(value: object) -> list[str]:
    """The texts of passages, wherever in a result they stand."""
    if isinstance(value, dict):
        table = cast("dict[str, object]", value)
        own = [text for key in ("text", "content") if isinstance(text := table.get(key), str)]
        return own or [text for one in table.values() for text in _texts(one)]
    if isinstance(value, list):
        return [text for one in cast("list[object]", value) for text in _texts(one)]
    return []


def _call(name: str, arguments: dict[str, object]) -> Reply:
    return Reply(calls=(ToolCall(f"call_{name}", name, msgspec.json.encode(arguments).decode()),), finish="tools")


# --- code in a request: it is read, never run


def _reviewed(instruction: str) -> Iterator[str]:
    """What can be said of Python code that stands in a request."""
    found = _CODE.search(instruction)
    if found is None:
        return
    try:
        tree = ast.parse(found[0])
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        yield f"the code does not parse: {error}."
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _function(node)
        elif isinstance(node, ast.ExceptHandler) and node.type is None:
            yield f"Line {node.lineno} catches every exception."


def _function(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    bare = [one.arg for one in arguments if one.annotation is None and one.arg not in ("self", "cls")]
    faults: list[str] = []
    if bare:
        faults.append(
            f"{', '.join(bare)} {'has' if len(bare) == 1 else 'have'} no type, so nothing says what may be passed"
        )
    if node.returns is None:
        faults.append("nothing says what it returns")
    if ast.get_docstring(node) is None:
        faults.append("it has no docstring")
    if any(isinstance(one, ast.List | ast.Dict | ast.Set) for one in (*node.args.defaults, *node.args.kw_defaults)):
        faults.append("a default value can be changed by a caller")
    if not any(isinstance(one, ast.Raise | ast.Assert | ast.If) for one in ast.walk(node)):
        faults.append("its input is not checked")
    if faults:
        yield f"{node.name}(): {'; '.join(faults)}."
