"""Teams from options of both, of the team and of its supervisor, for tests that mix them."""

from collections.abc import Sequence
from typing import Any

from chargehand import Supervisor, Team, Worker


def make_team(workers: Sequence[Worker], **options: Any) -> Team:
    """A team; options that are fields of `Supervisor` go to its supervisor."""
    role = {name: options.pop(name) for name in Supervisor.__struct_fields__ if name in options and name != "timeout"}
    return Team(workers, supervisor=Supervisor(**role), **options)
