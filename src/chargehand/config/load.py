"""From a team file to a team."""

from collections.abc import Mapping
from pathlib import Path

from chargehand.agents.acceptance import Check
from chargehand.agents.hedging import Hedge
from chargehand.agents.prompts import Prompts
from chargehand.agents.strategies import Way
from chargehand.config.checks import make_checks
from chargehand.config.environment import lookup_beside
from chargehand.config.findings import refuse
from chargehand.config.gather import read_parts
from chargehand.config.nested import add_teams
from chargehand.config.parts import Parts
from chargehand.config.shapes import DefaultsShape, SupervisorShape, TeamShape
from chargehand.config.ways import make_way
from chargehand.models.known import BUILT_IN
from chargehand.models.messages import Settings
from chargehand.team import Supervisor
from chargehand.terms.budget import Budget
from chargehand.terms.keywords import suggest_keywords
from chargehand.terms.policy import Limits, Policy, Retry

SECONDS = 300.0


@suggest_keywords("load_team")
def load_team(
    path: Path | str | None = None,
    *,
    model: str = "",
    memory: Path | str | None = None,
    elsewhere: Path | str | None = None,
) -> Supervisor:
    """The team of a file or folder; without one, that of the nearest `team.yaml` upwards, else the bundled one.

    `model` stands in for every model the file names. `memory` is where memory is kept when the file does not say;
    left out, in this process alone. `elsewhere` is where it is kept whatever the file says.
    """
    parts = read_parts(path, model, memory=memory, elsewhere=elsewhere)
    supervisor = lead(parts)
    refuse(str(parts.source.file), parts.findings)
    assert supervisor is not None, "a team without findings"
    return supervisor


def lead(parts: Parts) -> Supervisor | None:
    """The supervisor of assembled parts. What is wrong is added to their findings; with errors there is none."""
    add_teams(parts, lead)
    shape = parts.team.supervisor
    instructions = parts.prose(("supervisor", "instructions"), shape.instructions)
    prompts = _prompts(parts, shape)
    way = make_way(parts, shape.way)
    checks = make_checks(parts)
    if any(finding.grave for finding in parts.findings):
        return None
    return parts.made((), lambda: _supervisor(parts, instructions, prompts, way, checks), None)


def _supervisor(
    parts: Parts, instructions: str, prompts: dict[str, str], way: Way, checks: Mapping[str, Check]
) -> Supervisor:
    team = parts.team
    shape = parts.team.supervisor
    usual = parts.team.defaults
    return Supervisor(
        parts.workers,
        model=parts.handle(shape.model or usual.model) or BUILT_IN,
        name=team.name,
        instructions=instructions,
        planner=parts.handle(shape.planner) if shape.planner else "",
        judge=parts.handle(shape.judge) if shape.judge else "",
        supervisor_timeout=None if shape.timeout is None else float(shape.timeout),
        settings=Settings(usual.temperature, None if usual.max_tokens is None else int(usual.max_tokens)),
        timeout=SECONDS if team.timeout is None else float(team.timeout),
        budget=_budget(team),
        policy=_policy(shape, usual, parts.nesting),
        combine=shape.combine,
        stream_plan=shape.stream_plan,
        review=shape.review,
        factory=parts.factory,
        prompts=prompts,
        examples=team.examples,
        lookup=lookup_beside(parts.source.file.resolve().parent),
        memory=parts.memory,
        way=way,
        cache=None if team.cache is None else float(team.cache),
        checks=checks,
        hedge=_hedge(parts),
    )


def _prompts(parts: Parts, shape: SupervisorShape) -> dict[str, str]:
    texts: dict[str, str] = {}
    for name in shape.prompts.__struct_fields__:
        if written := str(getattr(shape.prompts, name)):
            path = ("supervisor", "prompts", name)
            text = texts[name] = parts.prose(path, written)
            parts.made(path, lambda name=name, text=text: Prompts({name: text}), None)
    return texts


def _hedge(parts: Parts) -> Hedge | None:
    written = parts.team.hedge
    if isinstance(written, bool):
        return Hedge() if written else None
    after = written.after
    most = written.most_usd
    share = Hedge().share if written.share is None else written.share
    return parts.made(
        ("hedge",),
        lambda: Hedge(None if after is None else float(after), None if most is None else most.micros, share),
        None,
    )


def _budget(team: TeamShape) -> Budget:
    shape = team.budget
    return Budget(
        tokens=None if shape.tokens is None else int(shape.tokens),
        usd=None if shape.usd is None else float(shape.usd),
        calls=None if shape.calls is None else int(shape.calls),
        seconds=None if team.timeout is None else float(team.timeout),
    )


def _policy(shape: SupervisorShape, usual: DefaultsShape, nesting: int) -> Policy:
    retry = usual.retry
    plain = Retry()
    limits = Limits()
    shortest, longest = retry.backoff or (plain.base, plain.ceiling)
    obeyed = retry.obey_retry_after
    return Policy(
        retry=Retry(
            attempts=retry.attempts or plain.attempts,
            fallback_attempts=retry.fallback_attempts or plain.fallback_attempts,
            base=float(shortest),
            ceiling=float(longest),
            obey_retry_after=plain.obey_retry_after if obeyed is None else float(obeyed),
        ),
        limits=Limits(
            tasks=shape.plan.max_tasks or limits.tasks, depth=shape.plan.max_depth or limits.depth, nesting=nesting
        ),
        refine=shape.refine,
        approve=shape.plan.approve in (True, "always"),
        uncertain=shape.uncertain,
        tainted_effects=shape.tainted_effects,
    )
