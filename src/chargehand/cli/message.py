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
from chargehand.cli.advice import Advice, advise
from chargehand.cli.arguments import TEAM, add_shared, duration, read_request
from chargehand.cli.console import ProgressLine, Tone, clean_lines, format_json, short
from chargehand.cli.exit_codes import exit_code
from chargehand.cli.format import counted, seconds
from chargehand.cli.run_session import RunSession
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
        raise Invalid('nothing was said; say what you want to know: chargehand message "TEXT" --match-all TAG')
    team = load_team_of(options)
    if options.timeout is not None:
        team = team.bounded(timeout=max(team.timeout, options.timeout + _SPARE))
    message_to_send = _address(team, text, options)
    now = time.time()
    name = f"{team.name}-{secrets.token_hex(3)}"
    request = checked(message_request(team.request(text, now), message_to_send), now)
    advice = Advice(name, options.journal, team_arguments(options), ())
    session = _MessageSession(options, advice, team, request)

    async def act(driver: Runner, _journal: Journal) -> Outcome:
        return await driver.start(name, request)

    return session.execute(act, team.executor)


def _address(team: Team, text: str, options: Namespace) -> WorkerMessage:
    """To whom it goes; Invalid, with the tags there are, where that is nobody."""
    match = Match(tuple(options.match_all), tuple(options.match_some))
    message_to_send = addressed(
        agents=team.members, text=text, match=match, names=options.worker, sender=PERSON, timeout=options.timeout
    )
    if message_to_send.to:
        return message_to_send
    tags = team.tags()
    wanted = [f"all of {', '.join(match.all)}"] if match.all else []
    wanted += [f"any of {', '.join(match.some)}"] if match.some else []
    unknown = next((tag for tag in (*match.all, *match.some) if tag not in tags), "")
    hint = near(unknown, tags) if unknown else ""
    problem = f"nobody in team {team.name} carries {' and '.join(wanted)}" if wanted else f"team {team.name} has nobody"
    raise Invalid(f"{problem}{hint}; the tags there are: {listed(list(tags)) or 'none'}")


class _MessageSession(RunSession):
    """Each reply is shown when it is there, or all of them at the end as JSON."""

    def __init__(self, options: Namespace, advice: Advice, team: Team, request: ev.RunRequested) -> None:
        super().__init__(Namespace(**vars(options), quiet=True, no_input=True), advice, notice=team.notice)
        plan = request.plan
        assert plan is not None, "a message is a plan"
        self.team = team.name
        self._workers = {task.id: task.worker for task in plan.tasks}
        self._shown: set[str] = set()
        self._progress = ProgressLine("message", still=True)

    def show(self, entries: Sequence[ev.Entry]) -> None:
        is_first = not self.transcript.begun
        super().show(entries)
        if is_first:
            names = short(", ".join(self._workers.values()), 200)
            self.stderr().line(f"to {counted(len(self._workers), 'worker')}: {names}", "dim")
        settled = [entry.event.task for entry in entries if isinstance(entry.event, _SETTLES)]
        if settled:
            replies = replies_of(self.transcript.tracer)
            for task in settled:
                self._show_reply(replies[self._workers[task]])
        waiting = self._waiting()
        if waiting:
            names = short(", ".join(waiting), 60)
            self._progress.show(f"waiting for {names}", len(self._shown), len(self._workers))

    def _waiting(self) -> list[str]:
        return [worker for worker in self._workers.values() if worker not in self._shown]

    def _show_reply(self, reply: WorkerReply, *, waits: bool = False) -> None:
        if reply.worker in self._shown:
            return
        self._progress.end()
        data = self.output.data
        if not self.options["json"]:
            if self._shown:
                data.line()
            after = "in" if reply.status == "answered" else "after"
            status = "waits for a person" if waits else f"{reply.status} {after} {seconds(reply.seconds)}"
            data.line(f"{reply.worker}: {status}", "warn" if waits else _TONES[reply.status])
            is_answered = reply.status == "answered"
            data.text(clean_lines((reply.text or format_json(reply.value)) if is_answered else reply.failure))
        self._shown.add(reply.worker)

    def finish(self, result: Outcome) -> int:
        """What is still unsaid, where it is kept, and the exit code."""
        self._progress.end()
        replies = replies_of(self.transcript.tracer)
        for reply in replies.replies if self.transcript.state.ended or replies.question else ():
            self._show_reply(reply, waits=replies.question is not None)  # whoever was done is shown already
        waiting = self._waiting()
        if self.options["json"]:
            self.output.data.json(self._document(replies, waiting))
        stderr = self.stderr()
        if waiting:
            stderr.line(f"no reply yet: {short(', '.join(waiting), 200)}", "warn")
        advise(stderr, self.transcript.state, self.advice)
        if result.ending in ("cancelled", "needs_input"):
            return exit_code(result.ending, result.reason)
        answered = sum(reply.status == "answered" for reply in replies.replies)
        if answered == len(replies.replies):
            return 3 if result.ending == "partial" else 0  # one who answered may say that it left a part
        return 3 if answered else 1

    def _document(self, replies: Replies, waiting: Sequence[str]) -> dict[str, object]:
        """`waiting` are those who had not replied when it was stopped."""
        document: dict[str, object] = {
            "run": replies.run,
            "team": self.team,
            "notice": self.notice,
            "replies": [reply for reply in replies.replies if reply.worker in self._shown],
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
