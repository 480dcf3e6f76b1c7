"""`chargehand message`: ask workers of a team directly, by tag or by name, and show each reply as it comes."""

import secrets
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence

from msgspec import structs

from chargehand.agents.letters import PERSON, Letter, Replies, WorkerReply, addressed
from chargehand.cli.advice import Advice, farewell
from chargehand.cli.arguments import TEAM, add_shared, duration, read_request
from chargehand.cli.console import Console, ProgressLine, Tone, clean, clean_lines, format_json, short
from chargehand.cli.exit_codes import Terminated, exit_code
from chargehand.cli.format import counted, seconds
from chargehand.cli.run_session import StdoutClaim
from chargehand.cli.signals import Interruption, Termination, run_until_stopped
from chargehand.cli.teams import keep_budget, load_team_of, team_arguments
from chargehand.config.source import near
from chargehand.errors import Invalid
from chargehand.runtime.driver import Driver, Outcome, checked
from chargehand.runtime.messaging import as_message, replies_of
from chargehand.stores.sqlite import SqliteJournal
from chargehand.team import Supervisor
from chargehand.terms import events as ev
from chargehand.terms.roster import Match
from chargehand.text.names import listed


def add_message(parser: ArgumentParser) -> None:
    words = "what you want to know or to have done; - for standard input"
    parser.add_argument("text", metavar="TEXT", nargs="*", help=words)
    words = "only workers with this tag; may be repeated: all of them"
    parser.add_argument("--match-all", metavar="TAG", action="append", default=[], help=words)
    words = "only workers with this tag; may be repeated: at least one of them"
    parser.add_argument("--match-some", metavar="TAG", action="append", default=[], help=words)
    words = "this worker, instead of tags; may be repeated"
    parser.add_argument("--worker", metavar="NAME", action="append", default=[], help=words)
    parser.add_argument("--timeout", metavar="TIME", type=duration, help="the time each of them has: 90s, 5m")
    add_shared(parser, *TEAM, "--journal", "--json", "--no-color")


_SETTLED = (ev.AttemptSucceeded, ev.TaskFailed, ev.TaskSkipped)
_TONES: dict[str, Tone] = {"answered": "good", "failed": "bad", "timed out": "bad", "skipped": "warn"}
_EXAMPLE = 'chargehand message "TEXT" --match-all TAG'
_SPARE = 30.0  # seconds beyond the time each worker has, for starting and writing down


def message(options: Namespace) -> int:
    """One message, a run of its own. All of the input is checked before the journal is touched."""
    text = read_request(options.text, "message")
    if text is None:
        raise Invalid(f"nothing was said; say what you want to know: {_EXAMPLE}")
    team = keep_budget(load_team_of(options))
    if options.timeout is not None:
        team = team.bounded(timeout=max(team.timeout, options.timeout + _SPARE))
    letter = _letter(team, text, options)
    now = time.time()
    name = f"{team.name}-{secrets.token_hex(3)}"
    request = checked(as_message(team.request(text, now), letter), now)
    advice = Advice(name, options.journal, team_arguments(options), ())
    claim = StdoutClaim()
    audience = _Audience(name, request, Console(claim.stream, patient=True), team.notice, json=options.json)
    try:

        async def act(driver: Driver, _journal: SqliteJournal) -> Outcome:
            return await driver.start(name, request)

        with Termination() as termination:
            outcome = run_until_stopped(
                act,
                crew=team.crew,
                journal=options.journal,
                durability="machine",
                listener=audience.hear,
                whisper=lambda _run, _work, _text: None,
                interruption=Interruption(audience.announce_stop, farewell(advice)),
                termination=termination,
            )
            assert outcome is not None, "nothing beside a message leaves it"
            return audience.close(outcome, team, advice)
    except KeyboardInterrupt as stop:
        audience.close_stopped("SIGTERM" if isinstance(stop, Terminated) else "Ctrl-C", team, advice)
        raise
    finally:
        claim.restore()


def _letter(team: Supervisor, text: str, options: Namespace) -> Letter:
    """To whom it goes; Invalid, with the tags there are, where that is nobody."""
    match = Match(tuple(options.match_all), tuple(options.match_some))
    letter = addressed(
        agents=team.members, text=text, match=match, names=options.worker, sender=PERSON, timeout=options.timeout
    )
    if letter.to:
        return letter
    tags = team.tags()
    wanted = [f"all of {', '.join(match.all)}"] if match.all else []
    wanted += [f"any of {', '.join(match.some)}"] if match.some else []
    strange = next((tag for tag in (*match.all, *match.some) if tag not in tags), "")
    hint = near(strange, tags) if strange else ""
    said = f"nobody in team {team.name} carries {' and '.join(wanted)}" if wanted else f"team {team.name} has nobody"
    raise Invalid(f"{said}{hint}; the tags there are: {listed(list(tags)) or 'none'}")


class _Audience:
    """Whoever waits for replies: each is shown when it is there, or all of them at the end as JSON."""

    def __init__(self, run: str, request: ev.RunRequested, data: Console, notice: str, *, json: bool) -> None:
        plan = request.plan
        assert plan is not None, "a message is a plan"
        self._run = run
        self._who = {task.id: task.worker for task in plan.tasks}
        self._data = data
        self._notice = notice
        self._json = json
        self._entries: list[ev.Entry] = []
        self._shown: set[str] = set()
        self._line = ProgressLine("message", still=True)
        self.aside = Console(sys.stderr)

    def _begin(self) -> None:
        if self._notice:
            self.aside.line(f"notice: {clean(self._notice)}", "warn")
        names = short(", ".join(self._who.values()), 200)
        self.aside.line(f"to {counted(len(self._who), 'worker')}: {names}", "dim")
        self._wait()

    def hear(self, _run: str, entries: Sequence[ev.Entry]) -> None:
        if not self._entries:
            self._begin()
        self._entries += entries
        settled = [entry.event.task for entry in entries if isinstance(entry.event, _SETTLED)]
        if not settled:
            return
        replies = replies_of(self._run, self._entries)
        for task in settled:
            self._show(replies[self._who[task]])
        self._wait()

    def _wait(self) -> None:
        rest = [name for name in self._who.values() if name not in self._shown]
        if rest:
            self._line.show(f"waiting for {short(', '.join(rest), 60)}", len(self._shown), len(self._who))

    def _show(self, reply: WorkerReply, *, waits: bool = False) -> None:
        if reply.worker in self._shown:
            return
        self._line.end()
        first = not self._shown
        self._shown.add(reply.worker)
        if self._json:
            return
        if not first:
            self._data.line()
        after = "in" if reply.status == "answered" else "after"
        said = "waits for a person" if waits else f"{reply.status} {after} {seconds(reply.seconds)}"
        self._data.line(f"{clean(reply.worker)}: {said}", "warn" if waits else _TONES[reply.status])
        self._data.line(clean_lines(words_of(reply)))

    def close(self, found: Outcome, team: Supervisor, advice: Advice) -> int:
        """What is still unsaid, where it is kept, and the exit code."""
        replies = replies_of(self._run, self._entries)
        for one in replies.replies:
            self._show(one, waits=replies.question is not None)  # whoever was done is shown already
        if self._json:
            self._data.json(_document(replies, team, advice))
        self.aside.line(f"run: {clean(self._run)} in {clean(str(advice.journal))}", "dim")
        if replies.question is not None:
            self.aside.line(f"  go on:  {advice.resume('--approve')}  (or --reject TEXT)")
        self._data.raise_if_lost()
        return _code(found, replies)

    def announce_stop(self) -> None:
        self._line.end()
        self.aside.line("stopping; Ctrl-C once more ends this process at once", "warn")

    def close_stopped(self, stopped_by: str, team: Supervisor, advice: Advice) -> None:
        """Who has not replied when a signal stopped it, and how to go on."""
        self._line.end()
        if not self._entries:
            self.aside.line(f"stopped by {stopped_by} before anything was written", "warn")
            return
        waiting = [worker for worker in self._who.values() if worker not in self._shown]
        if self._json:
            replies = replies_of(self._run, self._entries)
            there = tuple(reply for reply in replies.replies if reply.worker in self._shown)
            document = _document(structs.replace(replies, replies=there), team, advice, waiting=waiting)
            self._data.json(document)
        self.aside.line(f"no reply yet: {short(', '.join(waiting), 200)}", "warn")
        self.aside.line(f"stopped by {stopped_by}; the run is left where it stands, and can go on", "warn")
        self.aside.line(f"  go on:  {advice.resume()}")


def words_of(reply: WorkerReply) -> str:
    """What a worker says, or why it says nothing. What is no text is shown as JSON."""
    if reply.status != "answered":
        return reply.failure
    return reply.text or format_json(reply.value)


def _document(replies: Replies, team: Supervisor, advice: Advice, *, waiting: Sequence[str] = ()) -> dict[str, object]:
    """`waiting` are those who had not replied when it was stopped."""
    told: dict[str, object] = {
        "run": replies.run,
        "team": team.name,
        "notice": team.notice,
        "replies": [structs.asdict(reply) for reply in replies.replies],
        "usage": {"tokens": replies.spent.tokens, "calls": replies.spent.calls},
        "cost_usd": replies.spent.micros / 1_000_000,
    }
    if replies.question is not None:
        told["question"] = replies.question
    if waiting:
        told["waiting"] = waiting
    if waiting or replies.question is not None:
        told["resume"] = advice.resume()
    return told


def _code(found: Outcome, replies: Replies) -> int:
    if found.ending in ("cancelled", "needs_input"):
        return exit_code(found.ending, found.reason)
    answered = sum(one.status == "answered" for one in replies.replies)
    if answered == len(replies.replies):
        return 3 if found.ending == "partial" else 0  # one who answered may say that it left a part
    return 3 if answered else 1
