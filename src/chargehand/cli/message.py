"""`chargehand message`: ask workers of a team directly, by tag or by name, and show each reply as it comes."""

import secrets
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence

from chargehand.agents.messages import (
    PERSON,
    Replies,
    WorkerMessage,
    WorkerReply,
    addressed,
    message_request,
    replies_of,
)
from chargehand.cli.arguments import TEAM, add_shared, duration, read_request
from chargehand.cli.console import Tone, clean_lines, format_json, short
from chargehand.cli.exit_codes import exit_code
from chargehand.cli.format import counted, seconds
from chargehand.cli.run_session import Advice, RunSession
from chargehand.cli.teams import load_team_of, team_arguments
from chargehand.config.source import near
from chargehand.engine import events as ev
from chargehand.engine.roster import Match
from chargehand.errors import Invalid
from chargehand.journal.protocol import Journal
from chargehand.runtime.runner import Outcome, Runner, checked
from chargehand.team import Team
from chargehand.text.names import listed

_SETTLES = (ev.AttemptSucceeded, ev.TaskFailed, ev.TaskSkipped)
_TONES: dict[str, Tone] = {"answered": "good", "failed": "bad", "timed out": "bad", "skipped": "warn"}
_SPARE = 30.0  # seconds beyond the time each worker has, for starting and writing down


def add_message(parser: ArgumentParser) -> None:
    about = "what you want to know or to have done; - for standard input"
    parser.add_argument("text", metavar="TEXT", nargs="*", help=about)
    about = "only workers with this tag; may be repeated: all of them"
    parser.add_argument("--match-all", metavar="TAG", action="append", default=[], help=about)
    about = "only workers with this tag; may be repeated: at least one of them"
    parser.add_argument("--match-some", metavar="TAG", action="append", default=[], help=about)
    about = "this worker, instead of tags; may be repeated"
    parser.add_argument("--worker", metavar="NAME", action="append", default=[], help=about)
    parser.add_argument("--timeout", metavar="TIME", type=duration, help="the time each of them has: 90s, 5m")
    add_shared(parser, *TEAM, "--journal", "--json", "--no-color")


def message(options: Namespace) -> int:
    """One message, a run of its own. All of the input is checked before the journal is touched."""
    text = read_request(options.text, "message")
    if text is None:
        raise Invalid('no message given. Try: chargehand message "TEXT" --match-all TAG')
    team = load_team_of(options)
    if options.timeout is not None:
        team = team.bounded(timeout=max(team.timeout, options.timeout + _SPARE))
    now = time.time()
    request = checked(message_request(team.request(text, now), _address(team, text, options)), now)
    name = f"{team.name}-{secrets.token_hex(3)}"
    session = _MessageSession(options, Advice(name, options.journal, team_arguments(options)), team)

    async def act(runner: Runner, _journal: Journal) -> Outcome:
        return await runner.start(name, request)

    return session.execute(act, team.executor)


def _address(team: Team, text: str, options: Namespace) -> WorkerMessage:
    """The message with its workers; Invalid, with the tags there are, where there is none."""
    match = Match(tuple(options.match_all), tuple(options.match_some))
    message_to_send = addressed(
        agents=team.members, text=text, match=match, names=options.worker, sender=PERSON, timeout=options.timeout
    )
    if message_to_send.to:
        return message_to_send
    tags = team.tags()
    wanted = [f"all of {', '.join(match.all)}"] if match.all else []
    wanted += [f"any of {', '.join(match.some)}"] if match.some else []
    hints = [near(tag, tags) for tag in (*match.all, *match.some) if tag not in tags]
    problem = f"no worker of team {team.name} carries {' and '.join(wanted) or 'a tag'}{''.join(hints[:1])}"
    raise Invalid(f"{problem}; the tags there are: {listed(list(tags)) or 'none'}")


class _MessageSession(RunSession):
    """Each reply is shown when it is there, or all of them at the end as JSON."""

    def __init__(self, options: Namespace, advice: Advice, team: Team) -> None:
        super().__init__(Namespace(**vars(options), quiet=True, no_input=True), advice, team.name, team.notice)
        self._finished: list[str] = []

    def show(self, entries: Sequence[ev.Entry]) -> None:
        is_first = not self.transcript.begun
        super().show(entries)
        if is_first:
            workers = self._waiting()
            self.stderr.line(f"to {counted(len(workers), 'worker')}: {short(', '.join(workers), 200)}", "dim")
        for entry in entries:
            if isinstance(entry.event, _SETTLES):
                reply = replies_of(self.transcript.tracer)[self._worker_of(entry.event.task)]
                self._show_reply(reply, f"{reply.status} after {seconds(reply.seconds)}", _TONES[reply.status])

    def _worker_of(self, task: str) -> str:
        plan = self.transcript.state.requested.plan
        assert plan is not None, "a message is a plan"
        return next(planned.worker for planned in plan.tasks if planned.id == task)

    def _waiting(self) -> list[str]:
        replies = replies_of(self.transcript.tracer).replies
        return [reply.worker for reply in replies if reply.worker not in self._finished]

    def _show_reply(self, reply: WorkerReply, status: str, tone: Tone) -> None:
        if reply.worker in self._finished:
            return
        if not self.options["json"]:
            if self._finished:
                self.data.line()
            self.data.line(f"{reply.worker}: {status}", tone)
            text = reply.text or format_json(reply.value) if reply.status == "answered" else reply.failure
            self.data.text(clean_lines(text))
        self._finished.append(reply.worker)

    def finish(self, result: Outcome) -> int:
        """The replies that are missing, where the run is kept, and the exit code."""
        replies = replies_of(self.transcript.tracer)
        state = self.transcript.state
        for reply in replies.replies if state.ended or replies.question else ():
            waits = replies.question is not None
            status = "waits for an answer" if waits else f"{reply.status} after {seconds(reply.seconds)}"
            self._show_reply(reply, status, "warn" if waits else _TONES[reply.status])
        if self.options["json"]:
            self.data.json(self._document(replies))
        if waiting := self._waiting():
            self.stderr.line(f"no reply yet: {short(', '.join(waiting), 200)}", "warn")
        self.advice.show(self.stderr, state)
        if result.ending in ("cancelled", "needs_input"):
            return exit_code(result.ending, result.reason)
        answered = sum(reply.status == "answered" for reply in replies.replies)
        if answered == len(replies.replies):
            return 3 if result.ending == "partial" else 0  # a reply may say that a part is missing
        return 3 if answered else 1

    def _document(self, replies: Replies) -> dict[str, object]:
        waiting = self._waiting()
        document: dict[str, object] = {
            "run": replies.run,
            "team": self.team,
            "notice": self.notice,
            "replies": [reply for reply in replies.replies if reply.worker in self._finished],
            "usage": {"tokens": replies.spent.tokens, "calls": replies.spent.calls},
            "cost_usd": replies.spent.micros / 1_000_000,
        }
        if replies.question is not None:
            document["question"] = replies.question
        if waiting:
            document["waiting"] = waiting
        if waiting or replies.question is not None:
            document["resume"] = self.advice.resume()
        return document
