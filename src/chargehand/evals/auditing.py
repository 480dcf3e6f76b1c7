"""Runs of a journal looked into for the known ways in which crews fail: what was found, by mode. No model is asked."""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from chargehand.runtime.audit import audit
from chargehand.runtime.audit_case import AuditFinding
from chargehand.terms.events import Entry


class Audited(Struct, frozen=True):
    """One run and what was found in it."""

    run: str
    findings: tuple[AuditFinding, ...]


class Mode(Struct, frozen=True):
    """One of the fourteen modes: in how many runs, how often, and how often it was prevented."""

    mode: str
    runs: int
    found: int
    prevented: int


class Audit(Struct, frozen=True):
    """All runs, and the modes that occur in them."""

    runs: tuple[Audited, ...]
    modes: tuple[Mode, ...]


def audited(runs: Mapping[str, Sequence[Entry]]) -> Audit:
    """Every run by its entries. A journal that is damaged is a finding, not an error."""
    found = tuple(Audited(name, audit(name, entries)) for name, entries in runs.items())
    seen: dict[str, list[tuple[str, bool]]] = {}
    for one in found:
        for each in one.findings:
            seen.setdefault(each.mode, []).append((one.run, each.prevented))
    modes = tuple(
        Mode(mode, len({run for run, _ in each}), len(each), sum(prevented for _, prevented in each))
        for mode, each in sorted(seen.items())
    )
    return Audit(found, modes)
