"""Whoever carries a run on: the crew of a script or that of a team, and how to name it again."""

from argparse import Namespace
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial

from msgspec import Struct

from chargehand.agents.crew import Crew
from chargehand.core.state import RunState
from chargehand.errors import Refused


class Hired(Struct, frozen=True):
    """`words` name the crew on a command line, `again` begins a command that does it once more.

    `notice` is what people must know about its models; `leave` is told with which code it ended.
    """

    crew: Callable[[], AbstractAsyncContextManager[Crew]]
    words: tuple[str, ...]
    again: tuple[str, ...]
    team: str = ""
    notice: str = ""
    leave: Callable[[int], None] = lambda _: None


def hire(options: Namespace, run: str, state: Callable[[], RunState]) -> Hired:
    """The crew that the options name; Refused where the run counts on somebody it does not have."""
    if options.script:
        from chargehand.cli.play import scripted  # noqa: PLC0415 - a team needs none of it
        from chargehand.cli.script import read_story  # noqa: PLC0415 - as above

        file: str = options.script
        return Hired(scripted(read_story(file)), ("--script", file), ("play", file))
    from chargehand.cli.afford import keep_budget  # noqa: PLC0415 - as below
    from chargehand.cli.run import leave, team_of, team_words  # noqa: PLC0415 - it brings all of a team

    team, words = keep_budget(team_of(options)), team_words(options)
    team.check_recorded(state().requested.budget)
    known = {*team.roster.names(), *(agent.name for agent, _ in team.aside)}
    strangers = [agent.name for agent in state().requested.roster.agents if agent.name not in known]
    if strangers:
        said = f"run {run!r} counts on {', '.join(strangers[:5])}, and team {team.name} has nobody of that name"
        raise Refused(f"{said}; name the team it began with (--team), or its script (--script)")
    return Hired(team.crew, words, ("run", *words), team.name, team.notice, partial(leave, team, options))
