"""What travels between `letta-client` and us. Fields that a client may send and we do not use are let go.

Times are ISO 8601 in UTC. `UNSET` is what was not sent, where that differs from null.
"""

from datetime import UTC, datetime
from typing import Any

from msgspec import UNSET, Struct, UnsetType, field

from chargehand.terms.policy import Instant

_FIRST = datetime.min.replace(tzinfo=UTC).timestamp()
_LAST = 253_402_300_799.0


def moment(at: Instant) -> str:
    """A time as it is told; one beyond what can be written is the last that can."""
    return datetime.fromtimestamp(min(max(at, _FIRST), _LAST), UTC).isoformat()


# --- what is sent


class BlockSent(Struct):
    """A block that is to be made; also inside an agent that is."""

    label: str
    value: str
    description: str | None = None
    limit: int | None = None
    read_only: bool | None = None
    metadata: dict[str, Any] | None = None
    tags: tuple[str, ...] | None = None
    hidden: bool | None = None


class BlockChange(Struct):
    label: str | UnsetType | None = UNSET
    value: str | UnsetType | None = UNSET
    description: str | UnsetType | None = UNSET
    limit: int | UnsetType | None = UNSET
    read_only: bool | UnsetType | None = UNSET
    metadata: dict[str, Any] | UnsetType | None = UNSET
    tags: tuple[str, ...] | UnsetType | None = UNSET
    hidden: bool | UnsetType | None = UNSET
    version: int | None = None


class ArchiveSent(Struct):
    name: str
    description: str | None = None
    embedding: str | None = None
    metadata: dict[str, Any] | None = None


class ArchiveChange(Struct):
    name: str | UnsetType | None = UNSET
    description: str | UnsetType | None = UNSET


class PassageSent(Struct):
    text: str
    tags: tuple[str, ...] | None = None
    metadata: dict[str, Any] | None = None
    created_at: str | None = None


class PassagesSent(Struct):
    passages: list[PassageSent]


class PassageQuery(Struct):
    query: str | None = None
    agent_id: str | None = None
    archive_id: str | None = None
    tags: tuple[str, ...] | None = None
    tag_match_mode: str | None = None
    limit: int | None = None
    start_date: str | None = None
    end_date: str | None = None


# --- what is told


class BlockTold(Struct, omit_defaults=True):
    """`version` is ours: send it back with a change (or as If-Match) to change only what you have seen.

    So are `tainted` and `untainted`: an agent that had seen text from outside has changed it, and what it held before.
    """

    id: str
    value: str
    label: str
    limit: int
    description: str | None
    read_only: bool
    tags: tuple[str, ...]
    metadata: dict[str, Any]
    version: int
    hidden: bool | None = None
    is_template: bool = False
    template_name: str | None = None
    template_id: str | None = None
    base_template_id: str | None = None
    deployment_id: str | None = None
    entity_id: str | None = None
    project_id: str | None = None
    preserve_on_migration: bool = False
    created_by_id: str | None = None
    last_updated_by_id: str | None = None
    tainted: bool = False
    untainted: str = ""


class ArchiveTold(Struct):
    id: str
    name: str
    description: str | None
    created_at: str
    updated_at: str
    metadata: dict[str, Any]
    embedding: str
    embedding_config: dict[str, Any] | None = None
    vector_db_provider: str = "native"
    organization_id: str | None = None


class PassageTold(Struct):
    id: str
    text: str
    archive_id: str
    tags: tuple[str, ...]
    metadata: dict[str, Any]
    created_at: str
    embedding: list[float] | None = None
    embedding_config: dict[str, Any] | None = None
    is_deleted: bool = False
    file_id: str | None = None


class FoundTold(Struct):
    id: str
    content: str
    timestamp: str
    tags: tuple[str, ...]
    relevance: dict[str, Any] = field(default_factory=dict[str, Any])
