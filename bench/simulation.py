"""How fast simulated worlds are played, on one core."""

from bench.measure import Laps, Settings, timed
from bench.table import Row, Target, shown
from tests.sim.run import Case, trouble

_EVERY = 10  # as `make sim` does, one seed in ten is resumed from every entry of its journal


def seeds(settings: Settings) -> list[Row]:
    count = 30 if settings.quick else 100
    plain = Laps()
    resumed = Laps()
    wrong: dict[int, str] = {}
    for number in range(settings.repeat):
        first = number * count
        for laps, every in ((plain, 0), (resumed, _EVERY)):
            with timed() as lap:
                found = {seed: _found(seed, every) for seed in range(first, first + count)}
            laps.laps.append(lap)
            wrong.update({seed: said for seed, said in found.items() if said})
    also = f"{len(wrong)} wrong" + (f": seed {min(wrong)}, {wrong[min(wrong)][:60]}" if wrong else "")
    return [
        _row("simulated worlds", plain, count, also),
        _row(f"  every {_EVERY}th resumed from each entry", resumed, count),
    ]


def _found(seed: int, every: int) -> str:
    return trouble(Case(seed), prefixes=bool(every) and seed % every == 0)


def _row(what: str, laps: Laps, count: int, also: str = "") -> Row:
    speed = tuple(count / cpu for cpu in laps.cpu())
    walls = f"wall {shown(count * len(laps.laps) / sum(laps.wall()))}"
    return Row(what, "seeds/s of CPU", speed, target=Target(">=", 50), also=", ".join(filter(None, (walls, also))))
