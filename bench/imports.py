"""What importing costs in a fresh interpreter, and whose time it is."""

import subprocess
import sys
from statistics import median

from bench.measure import MILLI, Settings
from bench.table import Row, Target, shown

_TIMED = """
import time
wall, cpu = time.perf_counter(), time.process_time()
import {0}
print(time.perf_counter() - wall, time.process_time() - cpu)
"""


def imports(settings: Settings) -> list[Row]:
    rows: list[Row] = []
    for module in ("chargehand", "chargehand.runtime.runner"):
        rounds = [(_took(module), _took("asyncio"), _shares(module)) for _ in range(settings.repeat)]
        laps, bare, shares = zip(*rounds, strict=True)
        own, others = (tuple(side) for side in zip(*shares, strict=True))
        walls, floor = (tuple(MILLI * wall for wall, _ in one) for one in (laps, bare))
        also = f"CPU {shown(MILLI * median(cpu for _, cpu in laps))}; floor: import asyncio"
        rows.append(
            Row(what=f"import {module}", unit="wall ms", ours=walls, floor=floor, target=Target("<", 150), also=also)
        )
        rest = f"others {shown(median(others))}"
        rows.append(Row("  in modules of ours", "ms by -X importtime", own, target=Target("<", 60), also=rest))
    return rows


def _python(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *args], capture_output=True, text=True, check=True)


def _took(module: str) -> tuple[float, float]:
    wall, cpu = _python("-c", _TIMED.format(module)).stdout.split()
    return float(wall), float(cpu)


def _shares(module: str) -> tuple[float, float]:
    """Milliseconds in modules of ours and in others, of all that comes after the interpreter has started."""
    own = others = 0.0
    for line in _python("-X", "importtime", "-c", f"import {module}").stderr.splitlines():
        took, _, name = line.removeprefix("import time:").split("|")
        if not took.strip().isdigit():
            continue  # the head
        if name.strip() == "site":
            own = others = 0.0
        elif name.strip().partition(".")[0] == "chargehand":
            own += int(took) / MILLI
        else:
            others += int(took) / MILLI
    return own, others
