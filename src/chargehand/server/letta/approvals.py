"""Leave for a call: an agent that must ask first waits, and a message of its client says yes or no."""

from chargehand.errors import Refused
from chargehand.memory.catalog import Profile
from chargehand.server.house import House
from chargehand.server.letta.message_shapes import MessageSent, MessageTold
from chargehand.server.letta.office import Office
from chargehand.server.letta.speech import Speech
from chargehand.server.letta.talk import Talk
from chargehand.server.problem import Problem
from chargehand.terms import events as ev

_NOTHING = "nothing waits for approval: it was answered already, or withdrawn by another message"


async def pending(house: House, agent: str) -> MessageTold | None:
    """The question an agent waits with."""
    office = house.part(Office)
    await office.ready()
    run = office.waiting.get(agent, "")
    standing = await office.standing(run) if run else None
    if standing is None or standing.question is None:
        return None
    return next((one for one in reversed(standing.messages) if one.message_type == "approval_request_message"), None)


async def approved(house: House, profile: Profile, sent: MessageSent, *, repeated: bool) -> Talk:
    """The talk that goes on after a verdict. One that is sent again joins what the first began."""
    office = house.part(Office)
    await office.ready()
    run = office.waiting.get(profile.id, "")
    standing = await office.standing(run) if run else None
    if standing is None or standing.question is None or not _meant(standing, sent):
        return await _answered(office, profile, sent, repeated=repeated)
    allowed, reason = _verdict(sent)
    report = ev.InputAnswered(standing.question.number, "approve" if allowed else "reject", reason)
    try:
        return await office.go_on(run, report)
    except Refused as error:  # somebody was faster: perhaps whoever sends this again
        if not repeated:
            raise Problem(422, "not_waiting", _NOTHING) from error
        return await _answered(office, profile, sent, repeated=True)


async def _answered(office: Office, profile: Profile, sent: MessageSent, *, repeated: bool) -> Talk:
    """What came of a question that was answered already."""
    row = await office.book.message(sent.approval_request_id) if sent.approval_request_id else None
    if not repeated or row is None or row[2] != profile.id:
        raise Problem(422, "not_waiting", _NOTHING)
    run = row[1]
    talk = office.talks.get(run)
    if talk is None:
        standing = await office.standing(run)
        if standing is None:
            raise Problem(422, "not_waiting", _NOTHING)
        talk = Talk(standing)
        talk.finish()
    asked = (at for at, one in enumerate(talk.speech.messages, 1) if one.id == sent.approval_request_id)
    talk.since = next(asked, 0)
    return talk


def _meant(standing: Speech, sent: MessageSent) -> bool:
    """Whether a verdict is about what is asked now. One that names nothing is about whatever that is."""
    asked = next((one for one in reversed(standing.messages) if one.message_type == "approval_request_message"), None)
    if asked is None:
        return False
    named = {str(one.get("tool_call_id", "")) for one in sent.approvals or ()} - {""}
    call = asked.tool_call.tool_call_id if asked.tool_call is not None else ""
    by_id = sent.approval_request_id in (None, "", asked.id)
    return by_id and (not named or call in named)


def _verdict(sent: MessageSent) -> tuple[bool, str]:
    if sent.approve is not None:
        return sent.approve, sent.reason or ""
    first = next(iter(sent.approvals or ()), None)
    if first is None or not isinstance(first.get("approve"), bool):
        raise Problem(422, "invalid", "say `approve`: true or false, or send `approvals` with one for the call")
    return bool(first["approve"]), str(first.get("reason") or sent.reason or "")
