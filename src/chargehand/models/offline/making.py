"""A persona and some tools for a task nobody on the team is meant for, chosen by what the tools say of themselves."""

import msgspec

from chargehand.models.offline.drafts import without_returns
from chargehand.models.offline.kinds import asked, done
from chargehand.models.offline.matching import content
from chargehand.models.offline.schemas import said_in
from chargehand.models.offline.words import similarity, terms, weigh
from chargehand.models.subject import Making, Skill

MOST_TOOLS = 4


def make(subject: Making) -> str:
    """JSON with `persona` and `tools`; no tools where none fits."""
    plain = " ".join(without_returns(subject.instruction).split())[:400]
    tools = chosen(plain, subject.skills)
    does = f"Its tools are {', '.join(tools)}" if tools else "It has no tools"
    persona = (
        f"A specialist for one task: {plain.rstrip('. ')}. {does}. It works only from what it is given and what its "
        "tools return, names where each figure comes from, and says plainly what is missing."
    )
    return msgspec.json.encode({"persona": persona, "tools": tools}).decode()


def chosen(text: str, skills: tuple[Skill, ...]) -> list[str]:
    """The names of the tools that fit a task, the best first."""
    held = [terms(f"{skill.name} {skill.description[:4000]} {said_in(skill)}") for skill in skills]
    weights = weigh(held)
    kinds = asked(text)
    about = list(content(text))
    scored: list[tuple[float, int]] = []
    for at, skill in enumerate(skills):
        does = done(skill.name, skill.description[:4000], "")
        fit = max((sure * does.get(name, 0.0) for name, sure in kinds.items()), default=0.0)
        score = 0.5 * fit + 0.5 * max(similarity(about, held[at], weights), similarity(terms(text), held[at], weights))
        if score >= 0.25:
            scored.append((-score, at))
    scored.sort()
    enough = [at for score, at in scored if score <= 0.6 * scored[0][0]]
    return [skills[at].name for at in enough[:MOST_TOOLS]]
