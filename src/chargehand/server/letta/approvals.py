"""Leave for calls: an agent that must ask first waits, and its client says yes or no to each call, by its id."""

from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Raw, Struct

from chargehand.errors import Refused
from chargehand.memory.catalog import Profile
from chargehand.server.letta.book_rows import Conditions
from chargehand.server.letta.client_tools import ClientReturn, client_returns
from chargehand.server.letta.message_shapes import MessageSent, MessageTold, VerdictTold
from chargehand.server.letta.office import Office
from chargehand.server.letta.pages import Page
from chargehand.server.letta.speech import Speech
from chargehand.server.letta.talk import Talk
from chargehand.server.problem import Problem
from chargehand.server.tenants import Tenant
from chargehand.terms import events as ev

_NOTHING_WAITS = "nothing waits for approval: it was answered already, or withdrawn by another message"
_LATEST = Page("", "", 20, "desc")


class _Response(Struct):
    """An answer to an approval request, as the book keeps it."""

    run_id: str
    approval_request_id: str = ""
    approvals: tuple[VerdictTold, ...] = ()


class _Verdict(Struct, frozen=True):
    """What a client says of a call; with what it came to, where the client made it."""

    approve: bool
    reason: str = ""
    returned: ClientReturn | None = None

    @property
    def result(self) -> object:
        """The same as plain JSON; None where the client sent nothing."""
        return None if self.returned is None else msgspec.json.decode(msgspec.json.encode(self.returned))


async def pending(tenant: Tenant, agent: str) -> MessageTold | None:
    """The question an agent waits with."""
    standing = await _waiting(tenant, agent)
    if standing is None:
        return None
    return next((one for one in reversed(standing.messages) if one.message_type == "approval_request_message"), None)


async def _waiting(tenant: Tenant, lane: str) -> Speech | None:
    """The talk of a conversation (or of an agent's own) that waits for a person."""
    office = tenant.part(Office)
    await office.ready()
    run = office.waiting.get(lane, "")
    standing = await office.standing(run) if run else None
    return standing if standing is not None and standing.question is not None else None


async def approved(
    tenant: Tenant, profile: Profile, sent: Sequence[MessageSent], conversation: str = "", *, repeated: bool
) -> Talk:
    """The talk that goes on after verdicts. What is sent again joins what the first began."""
    office = tenant.part(Office)
    standing = await _waiting(tenant, conversation or profile.id)
    if repeated and (talk := await _answered_before(office, profile, sent)) is not None:
        return talk
    if standing is None or standing.question is None:
        raise Problem(422, "not_waiting", _NOTHING_WAITS)
    report = _report(standing, standing.question, sent)
    try:
        return await office.go_on(standing.run, report)
    except Refused as error:  # somebody was faster: perhaps whoever sends this again
        talk = await _answered_before(office, profile, sent) if repeated else None
        if talk is None:
            raise Problem(422, "not_waiting", _NOTHING_WAITS) from error
        return talk


# --- which verdict is about which call


def _report(standing: Speech, question: ev.InputRequested, sent: Sequence[MessageSent]) -> ev.InputAnswered:
    """The answer to a question: a verdict on each call that waits, and on no other. Else nothing is done: 422."""
    calls = standing.pending
    request = standing.request_id(question.number)
    verdicts: dict[str, _Verdict] = {}
    for message in sent:
        if message.approval_request_id not in (None, "", request):
            raise _unfit(f"approval_request_id is {message.approval_request_id!r}, and {request!r} waits", calls)
        for call, verdict in _verdicts(message, calls):
            if verdicts.setdefault(call, verdict).approve != verdict.approve:
                raise _unfit(f"there are two verdicts on {call!r}, and they contradict each other", calls)
    if unknown := [call for call in verdicts if call not in calls]:
        raise _unfit(f"no call with the id {_listed(unknown)} waits", calls)
    if missing := [call for call in calls if call not in verdicts]:
        raise _unfit(f"there is no verdict on {_listed(missing)}", calls)
    _check_who_runs(standing, verdicts)
    answers = {calls[call]: verdict for call, verdict in verdicts.items()}
    first = answers.pop(min(answers))
    also = tuple(
        ev.CallVerdict(place, _word(verdict), verdict.reason, verdict.result)
        for place, verdict in sorted(answers.items())
    )
    result = Raw(msgspec.json.encode(first.result))
    return ev.InputAnswered(question.number, _word(first), first.reason, result=result, also=also)


def _check_who_runs(standing: Speech, verdicts: Mapping[str, _Verdict]) -> None:
    """Raise a problem where a call is allowed whose return the client owes, or a return is sent that it cannot know."""
    at_client = standing.pending_at_client
    for call, verdict in verdicts.items():
        if call in at_client and verdict.approve and verdict.returned is None:
            said = f"{call[:100]} is a call of a tool that the client runs: send what it returned, as tool_returns"
            raise Problem(422, "invalid", f"{said}, or reject it. Nothing was done.")
        if call not in at_client and verdict.returned is not None:
            said = f"{call[:100]} is a call of a tool that this server runs: approve it, or reject it"
            raise Problem(422, "invalid", f"{said}. Nothing was done.")


def _verdicts(message: MessageSent, calls: Mapping[str, int]) -> list[tuple[str, _Verdict]]:
    """What one message says of which call. Without `approvals`, its `approve` is about every call of the request."""
    if message.tool_returns:
        returns = client_returns(message.tool_returns, "tool_returns")
        return [(call, _Verdict(approve=True, returned=returned)) for call, returned in returns]
    if not message.approvals:
        if message.approve is None:
            raise _unfit("there is no verdict: send `approvals`, with tool_call_id and approve of each call", calls)
        return [(call, _Verdict(message.approve, message.reason or "")) for call in calls]
    found: list[tuple[str, _Verdict]] = []
    for entry in message.approvals:
        if "tool_return" in entry:
            returns = client_returns([entry], "approvals")
            found += [(call, _Verdict(approve=True, returned=returned)) for call, returned in returns]
            continue
        call = entry.get("tool_call_id")
        approve = entry.get("approve")
        if not isinstance(call, str) or not isinstance(approve, bool):
            raise _unfit("each of `approvals` needs a tool_call_id, and approve: true or false", calls)
        if message.approve is not None and message.approve != approve:
            raise _unfit(f"`approve` and the verdict on {call!r} in `approvals` contradict each other", calls)
        found.append((call, _Verdict(approve, str(entry.get("reason") or message.reason or ""))))
    return found


def _word(verdict: _Verdict) -> ev.CallWord:
    return "approve" if verdict.approve else "reject"


def _unfit(why: str, calls: Mapping[str, int]) -> Problem:
    waiting = f"send one verdict on each call that waits: {_listed(calls)}"
    return Problem(422, "invalid", f"{why}; {waiting}. Nothing was done.")


def _listed(calls: Sequence[str] | Mapping[str, int]) -> str:
    return ", ".join(call[:100] for call in calls)


# --- sent again


async def _answered_before(office: Office, profile: Profile, sent: Sequence[MessageSent]) -> Talk | None:
    """The talk that went on after these very verdicts; None where they were not given yet."""
    await office.settle(profile.id)
    wanted = Conditions()
    wanted.equal("agent", profile.id)
    wanted.equal("type", "approval_response_message")
    for body in reversed(await office.book.messages(wanted, _LATEST)):
        response = msgspec.json.decode(body, type=_Response)
        if all(_is_answer(message, response) for message in sent):
            return await _joined(office, response)
    return None


def _is_answer(message: MessageSent, response: _Response) -> bool:
    """Whether a message says what was answered then."""
    if message.approval_request_id not in (None, "", response.approval_request_id):
        return False
    if message.tool_returns or any("tool_return" in entry for entry in message.approvals or ()):
        sent = message.tool_returns or message.approvals or ()
        given = {one.tool_call_id for one in response.approvals if one.type == "tool"}
        return all(entry.get("tool_call_id") in given for entry in sent)
    if not message.approvals:
        return bool(message.approval_request_id) and all(one.approve == message.approve for one in response.approvals)
    given = {one.tool_call_id: one.approve for one in response.approvals}
    return all(given.get(str(entry.get("tool_call_id"))) == entry.get("approve") for entry in message.approvals)


async def _joined(office: Office, response: _Response) -> Talk | None:
    """The talk of an answer, from after its question on."""
    talk = office.talks.get(response.run_id)
    if talk is None:
        standing = await office.standing(response.run_id)
        if standing is None:
            return None
        talk = Talk(standing)
        talk.finish()
    asked = (place for place, one in enumerate(talk.speech.messages, 1) if one.id == response.approval_request_id)
    talk.since = next(asked, 0)
    return talk
