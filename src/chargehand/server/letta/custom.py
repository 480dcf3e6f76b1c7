"""Tools that clients brought, at work: each call in a sandbox of its own, without a network. No sandbox, no tool."""

import secrets
from functools import partial

import msgspec
from msgspec import Raw, Struct

from chargehand.errors import ChargehandError
from chargehand.memory.catalog import KeptTool, Profile
from chargehand.models.messages import ToolSpec
from chargehand.server.problem import Problem
from chargehand.server.tenants import Tenant
from chargehand.terms.value import encode_value
from chargehand.tools.sandbox import Ran, available, python_sandbox
from chargehand.tools.tool import Caller, Tool, ToolFailed

_SECONDS = 30.0
_LAST_LINES = 2000  # characters of what a program said in the end
_CALL = """

import asyncio as _asyncio, inspect as _inspect, json as _json, sys as _sys
_given = _json.loads(_sys.stdin.read())
_found = {name}(**_given)
if _inspect.isawaitable(_found):
    async def _awaited(): return await _found
    _found = _asyncio.run(_awaited())
_sys.stdout.flush()
print("\\n{mark}" + _json.dumps(_found, default=str))
"""


class ExecutionTold(Struct):
    status: str
    func_return: object = None
    stdout: list[str] = []
    stderr: list[str] = []
    agent_state: None = None


def allowed(tenant: Tenant) -> None:
    """Raise a problem unless clients may bring tools here."""
    if not tenant.settings.custom_tools:
        said = "custom tools are off on this server; its operator can allow them (serve --custom-tools)"
        raise Problem(403, "custom_tools_off", f"{said}: they run in a sandbox, without a network")
    if why := available():
        raise Problem(403, "no_sandbox", f"tools of clients run only in a sandbox, and there is none here: {why}")


async def executed(source: str, name: str, given: dict[str, object], most: int) -> ExecutionTold:
    """Call the function `name` of this source with these arguments; what it printed comes along."""
    mark = secrets.token_hex(16)
    program = source + _CALL.replace("{name}", name).replace("{mark}", mark)
    tool = python_sandbox(seconds=_SECONDS)
    arguments = {"code": program, "stdin": msgspec.json.encode(given).decode()}
    ran = await tool.call(msgspec.json.encode(arguments).decode(), "")
    assert isinstance(ran, Ran)
    before, found, rest = ran.stdout.partition(f"\n{mark}")
    value, _, after = rest.partition("\n")  # what it does on its way out may print as well
    out = [one for one in (before, after) if one]
    err = [ran.stderr] if ran.stderr else []
    if not found or ran.exit or ran.note:
        why = ran.note or ran.stderr.strip()[-_LAST_LINES:] or f"it ended with {ran.exit} and returned nothing"
        return ExecutionTold("error", why, out, err)
    return ExecutionTold("success", _cut(_returned(value), most), out, err)


def _returned(text: str) -> object:
    """What a function returned; what no JSON can hold (NaN, half a surrogate pair) stays the text it was printed as."""
    try:
        found: object = msgspec.json.decode(text)
        encode_value(found)
    except (msgspec.MsgspecError, ChargehandError, UnicodeError, RecursionError):
        return text
    return found


def _cut(value: object, most: int) -> object:
    """The value, or as much of it as is allowed, and a note on the rest."""
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    if len(text) <= most:
        return value
    return f"{text[:most]}\n[cut here: {len(text) - most:,} of {len(text):,} characters are not shown]"


class Custom(Tool, frozen=True):
    """A client's tool as an agent has it. Its arguments are checked by its own function, in the sandbox."""

    source: str = ""
    most: int = 50_000

    def check(self, arguments: str) -> None:
        self._read(arguments)

    def _read(self, arguments: str) -> dict[str, object]:
        try:
            return msgspec.json.decode(arguments or "{}", type=dict[str, object])
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise ToolFailed(f"the arguments of {self.name} must be one JSON object: {error}") from error

    async def call(self, arguments: str, key: str, caller: Caller | None = None) -> object:  # noqa: ARG002 - it has no use for them
        told = await executed(self.source, self.name, self._read(arguments), self.most)
        if told.status == "error":
            raise ToolFailed(f"{self.name} failed: {told.func_return}")
        return told.func_return


async def _never() -> None:
    """Stands where a function must: a client's source is not one of this process."""


def made(kept: KeptTool) -> Tool:
    most = kept.settings.get("limit")
    spec = ToolSpec(kept.name, kept.description, Raw(msgspec.json.encode(kept.parameters)))
    return Custom(
        spec,
        partial(_never),
        timeout=_SECONDS + 15,
        approve=bool(kept.settings.get("approval")),
        source=kept.code,
        most=most if isinstance(most, int) else 50_000,
    )


async def custom_tools(tenant: Tenant, profile: Profile) -> dict[str, Tool]:
    """The tools that clients brought and this agent has; none where they are not allowed."""
    if not tenant.settings.custom_tools:
        return {}
    found: dict[str, Tool] = {}
    for name in profile.tools:
        for kept in await tenant.memory.catalog.find(KeptTool, name=name, limit=1):
            found[name] = made(kept)
    return found
