"""Requests of OpenAI clients, and the goal of a team made from one.

Fields that are not declared here are ignored; fields that cannot be honoured are refused.
"""

from collections.abc import Sequence
from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import Meta, Raw, Struct, structs

from chargehand.engine import events as ev
from chargehand.engine.events import Material
from chargehand.engine.plan import TaskId
from chargehand.engine.value import encode_value
from chargehand.models.providers import BUILT_IN
from chargehand.server.problem import Fault, Problem
from chargehand.server.teams import Teams
from chargehand.server.tenants import Tenant
from chargehand.team import Team
from chargehand.text.names import did_you_mean

MAX_EARLIER = 32_000
"""Characters of earlier turns that are kept, the latest first."""
MAX_TURN = 8_000
"""Characters of one earlier turn."""
_MAX_ITEMS = 10_000
_WISHES = "The client also says this about the answer:"
_TEXT_PARTS = ("text", "input_text", "output_text")
_API = "openai"
TEAM_PREFIX = "team/"

Content: TypeAlias = str | list[dict[str, Any]] | None
ModelName: TypeAlias = Annotated[str, Meta(min_length=1, max_length=300)]
Tools: TypeAlias = list[dict[str, Any]] | None


class MessageSent(Struct, frozen=True):
    """A message, or another item of an input; those that say nothing (calls, reasoning) have no content."""

    role: str = ""
    content: Content = None
    type: str = "message"
    output: Content = None


class StreamOptions(Struct, frozen=True):
    include_usage: bool = False


class ChatSent(Struct, frozen=True):
    model: ModelName
    messages: Annotated[list[MessageSent], Meta(min_length=1, max_length=_MAX_ITEMS)]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: int | None = None
    tools: Tools = None
    functions: Tools = None
    tool_choice: str | dict[str, Any] | None = None
    response_format: dict[str, Any] | None = None
    modalities: list[str] | None = None
    logprobs: bool | None = None


class ResponseSent(Struct, frozen=True):
    model: ModelName
    input: str | Annotated[list[MessageSent], Meta(max_length=_MAX_ITEMS)]
    instructions: str | None = None
    stream: bool | None = None
    store: bool | None = None
    background: bool | None = None
    previous_response_id: Annotated[str, Meta(max_length=400)] | None = None
    conversation: str | dict[str, Any] | None = None
    tools: Tools = None
    tool_choice: str | dict[str, Any] | None = None
    text: dict[str, Any] | None = None
    metadata: dict[str, str] | None = None


# --- what is refused


def refused(param: str, detail: str, code: str = "unsupported_value") -> Problem:
    """A parameter that cannot be honoured."""
    return Problem(400, code, detail, faults=[Fault(place=param, message=detail, code=code)])


def check_chat(sent: ChatSent) -> None:
    if sent.n not in (None, 1):
        raise refused("n", f"n is {sent.n}, but a team gives one answer; leave n out, and call again for another")
    _check_tools("tools", sent.tools, sent.tool_choice)
    _check_tools("functions", sent.functions, sent.tool_choice)
    _check_format("response_format", sent.response_format)
    if sent.modalities and sent.modalities != ["text"]:
        raise refused("modalities", "a team answers in text only; leave modalities out")
    if sent.logprobs:
        raise refused("logprobs", "a team has no log probabilities; leave logprobs out")


def check_response(sent: ResponseSent) -> None:
    _check_tools("tools", sent.tools, sent.tool_choice)
    _check_format("text.format", (sent.text or {}).get("format"))
    if sent.conversation is not None:
        raise refused("conversation", "there are no conversation objects here; use previous_response_id")
    if sent.background and sent.stream:
        raise refused("stream", "a response in the background is not streamed; retrieve it by its id")
    if sent.background and sent.store is False:
        raise refused("store", "a response in the background must be stored, or it could not be retrieved")


def _check_tools(param: str, tools: Tools, choice: object) -> None:
    if tools and choice != "none":
        detail = "a team uses the tools its workers have, and calls none of yours; leave them out, or send "
        raise refused(param, f'{detail}tool_choice: "none"')


def _check_format(param: str, form: Any) -> None:
    if form is not None and (not isinstance(form, dict) or form.get("type") != "text"):  # pyright: ignore[reportUnknownMemberType] - JSON of anybody
        detail = "a team answers in words, and cannot promise a form; leave the format out, or ask in words"
        raise refused(param, detail)


# --- who is called


class Target(Struct, frozen=True):
    """A team that was called by the name of a model; with `worker`, only that one of it."""

    id: str
    team: Team
    worker: str = ""

    @property
    def reads_facts(self) -> bool:
        """Whether every model of it reads only the request."""
        return all(worker.model == BUILT_IN for worker in self.team.members)

    @property
    def answering_work(self) -> str:
        """The kind of work whose words become the answer as they come.

        What a worker says before it calls a tool is no answer, so one who has tools is heard at the end.
        """
        if not self.worker:
            return "answer"
        has_tools = any(worker.tools for worker in self.team.members if worker.name == self.worker)
        return "" if has_tools else "attempt"


def find_target(tenant: Tenant, name: str) -> Target:
    """The team or worker of a model name; 404 if there is none. A team's name wins over a worker's."""
    teams = tenant.part(Teams).teams
    plain = name.removeprefix(TEAM_PREFIX)
    if plain in teams:
        return Target(name, teams[plain])
    team, _, worker = plain.rpartition(":")
    if team in teams and any(member.name == worker for member in teams[team].members):
        return Target(name, teams[team], worker)
    hint = did_you_mean(f"{TEAM_PREFIX}{plain}", [target.id for target in list_targets(tenant)])
    raise Problem(404, "model_not_found", f"there is no model {name[:100]!r}; {hint}")


def list_targets(tenant: Tenant) -> list[Target]:
    """Every team and worker, teams first."""
    teams = tenant.part(Teams).teams.values()
    names = [(team, "") for team in teams] + [(team, worker.name) for team in teams for worker in team.members]
    return [Target(f"{TEAM_PREFIX}{team.name}{':' if worker else ''}{worker}", team, worker) for team, worker in names]


# --- a conversation as one goal


class Turn(Struct, frozen=True):
    """Something that was said, by `user`, `assistant` or `tool`."""

    role: str
    text: str


class Conversation(Struct, frozen=True):
    """The last thing the user said is the request; what was said before is material for it.

    Earlier turns may repeat what tools found somewhere, so they are given as data, never as orders. `wishes` are system
    messages: they come from the owner of the request, so they are part of it. The team's own
    instructions stay above both.
    """

    request: str
    wishes: str = ""
    earlier: tuple[Turn, ...] = ()

    @property
    def turns(self) -> tuple[Turn, ...]:
        """What a next request goes on from; wishes are for one request only."""
        return bounded((*self.earlier, Turn("user", self.request)))

    def goal(self, *, heeds_wishes: bool) -> str:
        """What a team is asked. A model that reads facts only would take wishes for something to be done."""
        return f"{self.request}\n\n{_WISHES}\n{self.wishes}" if self.wishes and heeds_wishes else self.request

    def material(self) -> tuple[Material, ...]:
        """The earlier turns, as what a run is given besides its goal."""
        turns = [(f"turn {number} ({turn.role})", turn.text) for number, turn in enumerate(self.earlier, 1)]
        return tuple(Material(TaskId(name), encode_value(text)) for name, text in turns)


def read_conversation(turns: Sequence[Turn], param: str) -> Conversation:
    """The request among these turns and what belongs to it; a problem where there is none."""
    wishes: list[str] = []
    spoken: list[Turn] = []
    for turn in turns:
        if not turn.text.strip():
            continue
        if turn.role in ("system", "developer"):
            wishes.append(turn.text.strip())
        else:
            spoken.append(turn)
    last = max((number for number, turn in enumerate(spoken) if turn.role == "user"), default=-1)
    if last < 0:
        raise refused(param, "there is no request; send a user message with some text", "invalid_value")
    request = spoken.pop(last)
    return Conversation(request.text.strip(), "\n\n".join(wishes), bounded(spoken))


def bounded(turns: Sequence[Turn]) -> tuple[Turn, ...]:
    """The latest of these turns, as far as there is room for them."""
    recent: list[Turn] = []
    room = MAX_EARLIER
    for turn in reversed(turns):
        text = turn.text if len(turn.text) <= MAX_TURN else f"{turn.text[: MAX_TURN - 2]} …"
        room -= len(text)
        if room < 0:
            break
        recent.append(structs.replace(turn, text=text))
    return tuple(reversed(recent))


def read_turns(messages: Sequence[MessageSent], param: str) -> list[Turn]:
    """What was said. Calls of tools and the like say nothing; pictures and sounds are refused."""
    turns: list[Turn] = []
    for number, message in enumerate(messages):
        place = f"{param}[{number}]"
        if message.type == "function_call_output":
            turns.append(Turn("tool", _text(message.output, f"{place}.output")))
        elif message.type == "item_reference":
            detail = "an item that is only referred to cannot be read here; send it, or use previous_response_id"
            raise refused(place, detail)
        elif message.type == "message":
            if not message.role:
                raise refused(place, "a message needs a role")
            role = "tool" if message.role == "function" else message.role
            turns.append(Turn(role, _text(message.content, f"{place}.content")))
    return turns


def _text(content: Content, param: str) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    texts: list[str] = []
    for number, part in enumerate(content):
        kind = str(part.get("type", "text"))
        if kind == "refusal":
            continue
        if kind not in _TEXT_PARTS:
            detail = f"this part is of type {kind[:40]!r}; a team reads text only, so describe it in words"
            raise refused(f"{param}[{number}]", detail)
        text = part.get("text", "")
        if not isinstance(text, str):
            raise refused(f"{param}[{number}].text", "the text of a part is a string")
        texts.append(text)
    return "\n".join(texts)


# --- what is recorded of a call


class TeamRequest(Struct, frozen=True, omit_defaults=True):
    """What a client asked of a team, recorded with the request of its run.

    `turns` are what a next request may go on from; none where it was not to be stored.
    """

    model: str
    worker: str = ""
    stored: bool = False
    turns: tuple[Turn, ...] = ()
    previous: str = ""
    instructions: str = ""
    background: bool = False
    metadata: dict[str, str] | None = None

    def to_record(self, digest: str) -> ev.ClientRequest:
        return ev.ClientRequest(_API, Raw(msgspec.json.encode(self)), digest)


def recorded_request(requested: ev.RunRequested) -> TeamRequest | None:
    """What the client asked of a team; None for a run that was begun another way."""
    if requested.client is None or requested.client.api != _API:
        return None
    return msgspec.json.decode(requested.client.body, type=TeamRequest)
