"""`chargehand message`: ask workers of a team directly, by tag or by name. It is a run without a planner."""

import secrets
import time
from argparse import ArgumentParser, Namespace

from chargehand.agents.messages import PERSON, WorkerMessage, addressed, message_request
from chargehand.cli.arguments import EXECUTION, TEAM, add_options, duration, read_request, shared
from chargehand.cli.run_session import RunSession
from chargehand.cli.teams import load_team_of, team_executor
from chargehand.config.source import near
from chargehand.engine.roster import Match
from chargehand.errors import Invalid
from chargehand.journal.protocol import Journal
from chargehand.runtime.runner import Outcome, Runner, checked
from chargehand.team import Team
from chargehand.text.words import listed

_SPARE = 30.0  # seconds beyond the time each worker has, for starting and writing down


def add_message(parser: ArgumentParser) -> None:
    add_options(
        parser,
        {
            "text": {
                "metavar": "TEXT",
                "nargs": "*",
                "help": "what to ask or to have done; - for standard input",
            },
            "--match-all": {
                "metavar": "TAG",
                "action": "append",
                "default": [],
                "help": "only workers with this tag, and all others given",
            },
            "--match-some": {
                "metavar": "TAG",
                "action": "append",
                "default": [],
                "help": "only workers with this tag, or another one given",
            },
            "--worker": {
                "metavar": "NAME",
                "action": "append",
                "default": [],
                "help": "this worker, instead of tags; may be repeated",
            },
            "--timeout": {"metavar": "TIME", "type": duration, "help": "the time each of them has: 90s, 5m"},
            **shared(*TEAM),
            **EXECUTION,
            **shared("--json"),
        },
    )
    parser.set_defaults(no_background=True)


def message(options: Namespace) -> int:
    """One message, a run of its own. All of the input is checked before the journal is touched."""
    text = read_request(options.text, "message")
    if text is None:
        raise Invalid('no message given. Try: chargehand message "TEXT" --match-all TAG')
    team = load_team_of(options)
    if options.timeout is not None:
        team = team.bounded(timeout=max(team.timeout, options.timeout + _SPARE))
    now = time.time()
    addressed_message = _address(team, text, options)
    request = checked(message_request(team.request(text, now), addressed_message), now)
    name = f"{team.name}-{secrets.token_hex(3)}"

    async def act(runner: Runner, _journal: Journal, session: RunSession) -> Outcome:
        return await runner.start(name, request, wait_for_input=session.asks)

    executor = team_executor(team, options)
    workers = [word for worker in addressed_message.to for word in ("--worker", worker.name)]
    return executor.execute(options, name, act, again=("message", text, *workers, *executor.words))


def _address(team: Team, text: str, options: Namespace) -> WorkerMessage:
    """The message with its workers; Invalid, with the tags there are, where there is none."""
    match = Match(tuple(options.match_all), tuple(options.match_some))
    message_to_send = addressed(
        agents=team.members, text=text, match=match, names=options.worker, sender=PERSON, timeout=options.timeout
    )
    if message_to_send.to:
        return message_to_send
    tags = team.tags()
    unknown = [tag for tag in (*match.all, *match.some) if tag not in tags]
    hint = near(unknown[0], tags) if unknown else ""
    problem = f"no worker of team {team.name} carries these tags{hint}"
    raise Invalid(f"{problem}; the tags there are: {listed(list(tags)) or 'none'}")
