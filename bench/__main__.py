"""`python -m bench`: measure, print one table, and say which targets were missed."""

import argparse
import os
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from bench import durability, executor, imports, scale, scheduling, simulation, tracing, wire
from bench.measure import Settings
from bench.table import Row, rendered

BENCHMARKS: dict[str, Callable[[Settings], list[Row]]] = {
    "overhead": scheduling.overhead,
    "calls": scheduling.calls,
    "makespan": scheduling.makespan,
    "journal": durability.tasks,
    "appends": durability.appends,
    "fold": durability.fold,
    "graph": scale.tasks,
    "runs": scale.runs,
    "simulation": simulation.seeds,
    "team": executor.fan_out,
    "functions": executor.function_workers,
    "loop": executor.tool_loop,
    "teams": executor.many,
    "traces": tracing.spans,
    "wire": wire.calls,
    "imports": imports.imports,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--data", type=Path, help="a folder with dag60.json; without it a graph is generated")
    parser.add_argument("--json", type=Path, help="write every repetition there as well")
    parser.add_argument("--only", choices=BENCHMARKS, action="append", help="only this one (may be repeated)")
    parser.add_argument("--quick", action="store_true", help="fewer repetitions and smaller sizes: for a first look")
    options = parser.parse_args()
    settings = Settings(options.quick, options.data)
    if settings.data is not None and not (settings.data / "dag60.json").is_file():
        parser.error(f"{settings.data} holds no dag60.json; name another folder, or none to have a graph generated")
    began = time.monotonic()
    rows: list[Row] = []
    for name in options.only or BENCHMARKS:
        start = time.monotonic()
        rows += BENCHMARKS[name](settings)
        print(f"{name}: {time.monotonic() - start:.1f} s", file=sys.stderr, flush=True)
    print(_circumstances(time.monotonic() - began, quick=options.quick))
    print(rendered(rows))
    if options.json is not None:
        options.json.write_bytes(msgspec.json.format(msgspec.json.encode([_told(row) for row in rows])))
    return 0


def _circumstances(seconds: float, *, quick: bool) -> str:
    load = ", ".join(f"{one:.1f}" for one in os.getloadavg())
    machine = f"Python {platform.python_version()}, {os.cpu_count()} cores, load {load}"
    manner = "medians; --quick: few repetitions, smaller sizes" if quick else "medians"
    return f"{machine}; {manner}; {seconds:.0f} s in all"


def _told(row: Row) -> dict[str, object]:
    return {**msgspec.to_builtins(row), "ratio": row.ratio, "met": row.met}


if __name__ == "__main__":
    sys.exit(main())
