"""`python -m bench.server_soak`: thousands of runs through one server, a fifth of all model calls failing.

What a server holds must not grow with what it has done: memory, open files, threads, and the log beside each database.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import linear_regression, median
from tempfile import TemporaryDirectory

import httpx
from msgspec import Struct

from bench.server_parts import Served, at_once, modelling, serving

AGENTS = 50
WIDE = 20
STRIDE = 100
WARM = 1000
"""So many runs go before: caches fill, and every page is used for the first time."""
MOST_GROWTH = 1.0
MOST_LOG = 64.0


class Sample(Struct, frozen=True):
    """What the server held after so many runs. Sizes are MiB."""

    runs: int
    rss: float
    files: int
    threads: int
    log: float


def sampled(served: Served, data: Path, runs: int) -> Sample:
    log = sum(one.stat().st_size for one in data.rglob("*-wal")) / 2**20
    return Sample(runs, served.rss(), served.look.num_fds(), served.look.num_threads(), log)


def soak(data: Path, handle: str, runs: int) -> tuple[list[Sample], int]:
    """What was seen, and how many calls were not answered well."""
    with serving(data) as served:
        head = {"Authorization": f"Bearer {served.token}"}
        with httpx.Client(base_url=served.url, headers=head, timeout=60) as client:
            agents: list[str] = [
                client.post("/v1/agents", json={"name": f"soak {n}", "model": f"{handle}faulty-20"}).json()["id"]
                for n in range(AGENTS)
            ]
        seen: list[Sample] = [sampled(served, data, 0)]
        errors = 0
        for begun in range(0, runs, STRIDE):

            def what(number: int, begun: int = begun) -> tuple[str, str, object]:
                sent = {"messages": [{"role": "user", "content": f"What is figure {begun + number}?"}]}
                return "POST", f"/v1/agents/{agents[number % AGENTS]}/messages", sent

            errors += asyncio.run(at_once(served, STRIDE, WIDE, what)).errors
            seen.append(sampled(served, data, begun + STRIDE))
            if begun % (5 * STRIDE) == 0:
                print(seen[-1], file=sys.stderr)
        time.sleep(1)
        seen.append(sampled(served, data, runs))
        return seen, errors


def growth(seen: Sequence[Sample]) -> float:
    """MiB a thousand runs."""
    later = [one for one in seen if one.runs >= WARM]
    return linear_regression([one.runs for one in later], [one.rss for one in later]).slope * 1000


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.server_soak", description=__doc__)
    parser.add_argument("--runs", type=int, default=2000)
    options = parser.parse_args()
    began = time.monotonic()
    with TemporaryDirectory(prefix="chargehand-soak-") as folder, modelling() as handle:
        seen, errors = soak(Path(folder), handle, WARM + options.runs)
    slope = growth(seen)
    first = next(one for one in seen if one.runs >= WARM)
    last = seen[-1]
    flat = last.files <= median(one.files for one in seen) + 5 and last.threads <= first.threads + 2
    met = slope <= MOST_GROWTH and flat and max(one.log for one in seen) <= MOST_LOG and not errors
    print(
        f"{options.runs} runs in {time.monotonic() - began:.0f} s, {errors} not answered; RSS {first.rss:.1f} to "
        f"{last.rss:.1f} MiB, {slope:+.2f} MiB a 1,000 runs (<= {MOST_GROWTH:g}); files {first.files} to {last.files}; "
        f"threads {first.threads} to {last.threads}; logs at most {max(one.log for one in seen):.1f} MiB  "
        f"{'yes' if met else 'NO'}"
    )
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
