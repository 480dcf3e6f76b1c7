"""Groups as they travel between clients up to 1.7.0 and us."""

from msgspec import UNSET, Struct, UnsetType

from chargehand.memory.catalog import Group
from chargehand.server.letta.mapping import items
from chargehand.server.problem import Problem

MANAGERS = ("round_robin", "supervisor", "dynamic", "sleeptime", "voice_sleeptime")
LED = ("supervisor", "dynamic", "sleeptime", "voice_sleeptime")
"""Those that need an agent to lead."""
BEHIND = ("sleeptime", "voice_sleeptime")
"""Those whose members work behind the one who leads."""


class ManagerSent(Struct):
    manager_type: str = "round_robin"
    manager_agent_id: str | None = None
    max_turns: int | None = None
    termination_token: str | None = None
    sleeptime_agent_frequency: int | None = None
    max_message_buffer_length: int | None = None
    min_message_buffer_length: int | None = None


class GroupSent(Struct):
    agent_ids: tuple[str, ...]
    description: str
    manager_config: ManagerSent | None = None
    shared_block_ids: tuple[str, ...] | None = None
    hidden: bool | None = None


class GroupChange(Struct):
    agent_ids: tuple[str, ...] | UnsetType | None = UNSET
    description: str | UnsetType | None = UNSET
    manager_config: ManagerSent | UnsetType | None = UNSET
    shared_block_ids: tuple[str, ...] | UnsetType | None = UNSET
    hidden: bool | UnsetType | None = UNSET


class GroupTold(Struct):
    id: str
    agent_ids: tuple[str, ...]
    description: str
    manager_type: str
    manager_agent_id: str | None
    max_turns: int | None
    termination_token: str | None
    sleeptime_agent_frequency: int | None
    turns_counter: int
    shared_block_ids: tuple[str, ...] = ()
    max_message_buffer_length: int | None = None
    min_message_buffer_length: int | None = None
    hidden: bool | None = None
    last_processed_message_id: str | None = None
    base_template_id: str | None = None
    template_id: str | None = None
    deployment_id: str | None = None
    project_id: str | None = None


def manager_kept(sent: ManagerSent) -> dict[str, object]:
    """What is kept of how a group is led; a problem where nobody could lead it so."""
    kind = sent.manager_type
    if kind not in MANAGERS:
        raise Problem(422, "invalid", f"manager_type is {kind[:40]!r}; it must be one of {', '.join(MANAGERS)}")
    if kind in LED and not sent.manager_agent_id:
        raise Problem(422, "invalid", f"a group of the type {kind} needs a manager_agent_id")
    for name in ("max_turns", "sleeptime_agent_frequency"):
        found = getattr(sent, name)
        if found is not None and not 1 <= found <= 1000:
            raise Problem(422, "invalid", f"{name} is {found}; it must be from 1 to 1000")
    kept = {name: getattr(sent, name) for name in sent.__struct_fields__ if name != "manager_type"}
    if kind == "dynamic" and sent.termination_token is None:
        kept["termination_token"] = "DONE!"  # noqa: S105 - a word that ends a talk
    return {name: value for name, value in kept.items() if value is not None}


def group_told(group: Group) -> GroupTold:
    kept = group.settings

    def number(name: str) -> int | None:
        found = kept.get(name)
        return found if isinstance(found, int) else None

    def text(name: str) -> str | None:
        found = kept.get(name)
        return found if isinstance(found, str) else None

    return GroupTold(
        group.id, group.members, group.description, group.kind, text("manager_agent_id"), number("max_turns"),
        text("termination_token"), number("sleeptime_agent_frequency"), number("turns") or 0,
        tuple(str(one) for one in items(kept.get("blocks"))),
        number("max_message_buffer_length"), number("min_message_buffer_length"), bool(kept.get("hidden")) or None,
    )  # fmt: skip
