"""Bugs planted on purpose around persons, effects and redone work, each of which `people` must find."""

from concurrent.futures import ThreadPoolExecutor

from tests.sim.planted import Bug, hunt

SEEDS = 400
"""How many seeds a bug may survive."""
PEOPLE: tuple[Bug, ...] = ()


def find_bug(bug: Bug, seeds: int = SEEDS) -> tuple[bool, float, str]:
    """Return whether a planted bug is found, how long it took, and what was said."""
    return hunt(bug, seeds, "tests.sim.people", ("--hunt",))


def hunt_planted(only: str) -> int:
    """Hunt the planted bugs whose names contain a text; return 0 if all are found."""
    bugs = [bug for bug in PEOPLE if only in bug.name]
    found = 0
    with ThreadPoolExecutor(2) as pool:
        for bug, (caught, seconds, said) in zip(bugs, pool.map(find_bug, bugs), strict=True):
            found += caught
            print(f"{'found ' if caught else 'MISSED'} {seconds:5.1f} s  {bug.name}: {said[:110]}", flush=True)
    print(f"{found} of {len(bugs)} planted bugs found within {SEEDS} seeds each")
    return 0 if found == len(bugs) else 1
