"""Approvals: an agent waits with tool calls, and its client approves or rejects each of them by its id.

For a call of a tool that the client runs itself, what it returned is the approval.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec
from msgspec import Raw, Struct

from chargehand.engine import events as ev
from chargehand.errors import Refused
from chargehand.memory.catalog import Profile
from chargehand.server.letta.index import Conditions, Page
from chargehand.server.letta.message_log import Approval, ClientReturn, MessageLog
from chargehand.server.letta.request import text_of
from chargehand.server.letta.session import Session
from chargehand.server.letta.sessions import Sessions
from chargehand.server.letta.wire import ApprovalEntry, Message, MessageCreate, MessageRequest, RunResponse
from chargehand.server.problem import Problem, invalid

_NOT_WAITING = "nothing waits for approval: it was answered already, or withdrawn by another message"
_LATEST = Page(limit=20, order="desc")


class _Verdict(Struct, frozen=True):
    """What a client says of a call; with what it returned, if the client made it."""

    approve: bool
    reason: str = ""
    returned: ClientReturn | None = None

    @property
    def word(self) -> ev.CallWord:
        return "approve" if self.approve else "reject"

    @property
    def result(self) -> object:
        """What it returned as plain JSON; None if the client sent nothing."""
        return None if self.returned is None else msgspec.json.decode(msgspec.json.encode(self.returned))


def approvals_in(sent: MessageRequest) -> tuple[MessageCreate, ...]:
    """The messages that approve or reject calls, or say what they returned. They come alone."""
    messages = sent.messages or ()
    approvals = tuple(each for each in messages if each.type in ("approval", "tool_return") or each.role == "approval")
    if approvals and (len(approvals) < len(messages) or sent.input is not None):
        reason = "a verdict on calls that wait comes alone; send what else there is to say once it is answered"
        raise invalid(f"{reason}. Nothing was done.")
    return approvals


async def pending_approval(sessions: Sessions, lane: str) -> Message | None:
    """The question that a lane waits with."""
    log = await _waiting_log(sessions, lane)
    if log is None or log.approval is None:
        return None
    return next((message for message in log.messages if message.id == log.approval.request_id), None)


async def _waiting_log(sessions: Sessions, lane: str) -> MessageLog | None:
    await sessions.load()
    run = sessions.waiting.get(lane, "")
    log = await sessions.log_of(run) if run else None
    return log if log is not None and log.is_waiting else None


async def answer_approval(
    sessions: Sessions,
    profile: Profile,
    sent: Sequence[MessageCreate],
    conversation: str = "",
    *,
    repeated: bool,
) -> Session:
    """The session that goes on after verdicts. Verdicts that are sent again join what the first ones started."""
    log = await _waiting_log(sessions, conversation or profile.id)
    if repeated and (session := await _answered_before(sessions, profile, sent)) is not None:
        return session
    if log is not None and log.approval is not None:
        report = _report(log.approval, _read_verdicts(log.approval, sent))
        try:
            return await sessions.resume(log.run, report)
        except Refused:  # another caller was faster: perhaps with the same verdicts
            session = await _answered_before(sessions, profile, sent) if repeated else None
            if session is not None:
                return session
    raise Problem(422, "not_waiting", _NOT_WAITING)


async def _answered_before(sessions: Sessions, profile: Profile, sent: Sequence[MessageCreate]) -> Session | None:
    """The session that went on after these very verdicts; None if they were not given yet."""
    index = await sessions.flush(profile.id)
    for body in await index.runs(Conditions().equal("agent", profile.id), _LATEST):
        run = msgspec.json.decode(body, type=RunResponse).id
        log = await sessions.log_of(run)
        for approval, given in log.verdicts if log is not None else ():
            if log is not None and _is_same(approval, given, sent):
                session = sessions.running.get(run)
                if session is None:
                    session = Session(log)
                    session.finish()
                session.since = approval.position
                return session
    return None


def _is_same(approval: Approval, given: Mapping[str, bool], sent: Sequence[MessageCreate]) -> bool:
    try:
        verdicts = _read_verdicts(approval, sent)
    except Problem:
        return False
    return {call: verdict.approve for call, verdict in verdicts.items()} == given


def _report(approval: Approval, verdicts: Mapping[str, _Verdict]) -> ev.InputAnswered:
    """The answer to the question of the run: one verdict, and those on the other calls beside it."""
    by_place = sorted((approval.calls[call], verdict) for call, verdict in verdicts.items())
    (_, first), *others = by_place
    return ev.InputAnswered(
        approval.question.number,
        first.word,
        first.reason,
        result=Raw(msgspec.json.encode(first.result)),
        also=tuple(ev.CallVerdict(place, verdict.word, verdict.reason, verdict.result) for place, verdict in others),
    )


# --- which verdict is about which call


def _read_verdicts(approval: Approval, sent: Sequence[MessageCreate]) -> dict[str, _Verdict]:
    """A verdict on each call that waits, and on no other; else nothing is done, and the problem says why."""
    calls = approval.calls
    verdicts: dict[str, _Verdict] = {}
    for message in sent:
        if message.approval_request_id not in (None, "", approval.request_id):
            reason = f"approval_request_id is {message.approval_request_id!r}, and {approval.request_id!r} waits"
            raise _refused(reason, calls)
        for call, verdict in _verdicts_in(message, calls):
            if verdicts.setdefault(call, verdict).approve != verdict.approve:
                raise _refused(f"there are two verdicts on {call!r}, and they contradict each other", calls)
    if unknown := [call for call in verdicts if call not in calls]:
        raise _refused(f"no call with the id {_join(unknown)} waits", calls)
    if missing := [call for call in calls if call not in verdicts]:
        raise _refused(f"there is no verdict on {_join(missing)}", calls)
    for call, verdict in verdicts.items():
        is_at_client = call in approval.at_client
        if is_at_client and verdict.approve and verdict.returned is None:
            reason = f"{call} is a call of a tool that the client runs: send what it returned, as tool_returns"
            raise _refused(f"{reason}, or reject it", calls)
        if not is_at_client and verdict.returned is not None:
            raise _refused(f"{call} is a call of a tool that this server runs: approve it, or reject it", calls)
    return verdicts


def _verdicts_in(message: MessageCreate, calls: Mapping[str, int]) -> Iterator[tuple[str, _Verdict]]:
    """What one message says of which call. Without `approvals`, its `approve` is about every call of the request."""
    whole = [ApprovalEntry(call, message.approve) for call in calls]
    for entry in message.tool_returns or message.approvals or whole:
        if entry.tool_return is not None:
            if entry.status not in ("success", "error"):
                raise _refused("a tool_return needs a status: success or error", calls)
            text = text_of(entry.tool_return)
            returned = ClientReturn(text, entry.status == "success", entry.stdout or (), entry.stderr or ())
            yield entry.tool_call_id, _Verdict(approve=True, returned=returned)
        elif entry.approve is None:
            raise _refused("there is no verdict: send `approvals`, with tool_call_id and approve of each call", calls)
        elif message.approve not in (None, entry.approve):
            raise _refused("`approve` and a verdict in `approvals` contradict each other", calls)
        else:
            yield entry.tool_call_id, _Verdict(entry.approve, entry.reason or message.reason or "")


def _refused(reason: str, calls: Mapping[str, int]) -> Problem:
    return invalid(f"{reason}; send one verdict on each call that waits: {_join(calls)}. Nothing was done.")


def _join(calls: Iterable[str]) -> str:
    return ", ".join(call[:100] for call in calls)
