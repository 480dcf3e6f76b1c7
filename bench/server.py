"""`python -m bench.server`: a real `chargehand serve` under load, beside a bare application of the same framework.

Sequential rows are asked by the real `letta-client`, rows at once by a raw client. What that client computes itself is
told apart and not counted against the server: it is the same with any. The figures of the old server are those of its
best configuration (database pooling on) on a machine like ours.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from letta_client import Letta
from msgspec import Struct

from bench.server_overload import overload
from bench.server_parts import Figures, Served, at_once, bare, modelling, one_by_one, serving

WIDE = 50
_HEAD = (
    f"{'what':34} {'p50 ms':>8} {'p95 ms':>8} {'req/s':>8} {'err':>4} {'cpu ms':>8} {'client':>7}   old server, target"
)


class Row(Struct, frozen=True):
    """What is measured, what the old server took (p50 ms one by one, calls a second at once), and the target p50."""

    what: str
    alone: Callable[[Letta, int], object]
    together: Callable[[int], tuple[str, str, object]]
    old: float
    old_rate: float
    target: float
    calls: int = 300


def rows(agent: str, archive: str) -> list[Row]:
    block = {"label": "notes", "value": "what is known so far", "limit": 5000}
    return [
        Row(
            what="block create",
            alone=lambda client, _: client.blocks.create(label="notes", value="what is known so far", limit=5000),
            together=lambda _: ("POST", "/v1/blocks/", block),
            old=25,
            old_rate=44.3,
            target=5,
            calls=600,
        ),
        Row(
            what="agent create",
            alone=lambda client, n: client.agents.create(name=f"made {n}", memory_blocks=[block], tags=["made"]),  # pyright: ignore[reportArgumentType] - as a dictionary, as people write it
            together=lambda n: (
                "POST",
                "/v1/agents/",
                {"name": f"wide {n}", "memory_blocks": [block], "tags": ["made"]},
            ),
            old=116,
            old_rate=12.7,
            target=8,
        ),
        Row(
            what="agents list (50, by tag)",
            alone=lambda client, _: client.agents.list(tags=["fifty"], limit=50),
            together=lambda _: ("GET", "/v1/agents/?tags=fifty&limit=50", None),
            old=81,
            old_rate=11.1,
            target=8,
            calls=200,
        ),
        Row(
            what="archival insert",
            alone=lambda client, n: client.archives.passages.create(archive, text=f"Finding {n}: the margin is {n} %."),
            together=lambda n: (
                "POST",
                f"/v1/archives/{archive}/passages",
                {"text": f"Finding {n}: the price is {n} EUR."},
            ),
            old=158,
            old_rate=6.0,
            target=15,
        ),
        Row(
            what="message, 0 ms model, one agent",
            alone=lambda client, n: client.agents.messages.create(
                agent, messages=[{"role": "user", "content": f"And {n}?"}]
            ),
            together=lambda n: (
                "POST",
                f"/v1/agents/{agent}/messages",
                {"messages": [{"role": "user", "content": f"Ask {n}"}]},
            ),
            old=838,
            old_rate=1.8,
            target=20,
            calls=100,
        ),
    ]


def measure(served: Served, client: Letta, handle: str, calls: float) -> bool:
    """Every row, alone and at once; whether all targets were met."""
    archive = client.archives.create(name="findings", embedding="words").id
    for number in range(50):
        client.agents.create(name=f"one of fifty {number}", tags=["fifty"], model=f"{handle}say-0")
    agent = client.agents.create(name="asked", model=f"{handle}say-0").id
    crowd = [client.agents.create(name=f"crowd {number}", model=f"{handle}say-0").id for number in range(WIDE)]
    good = True
    for row in rows(agent, archive):
        alone = one_by_one(served, max(20, int(row.calls * calls)), lambda n, row=row: row.alone(client, n))
        good &= _tell(
            f"{row.what}", alone, f"{row.old:g} ms, <= {row.target:g} ms", alone.p50 - alone.client <= row.target
        )
        together = asyncio.run(at_once(served, max(WIDE, int(2 * row.calls * calls)), WIDE, row.together))
        wanted = 10 * row.old_rate
        said = f"{row.old_rate:g} req/s, >= {wanted:g}"
        good &= _tell(f"  {WIDE} at once", together, said, together.rate >= wanted and not together.errors)
    spread = asyncio.run(
        at_once(
            served,
            max(2 * WIDE, int(300 * calls)),
            WIDE,
            lambda n: (
                "POST",
                f"/v1/agents/{crowd[n % WIDE]}/messages",
                {"messages": [{"role": "user", "content": f"Ask {n}"}]},
            ),
        )
    )
    good &= _tell(f"  {WIDE} at once to {WIDE} agents", spread, "1.8 req/s, >= 18", spread.rate >= 18)
    return good


def _tell(what: str, found: Figures, said: str, met: bool) -> bool:
    print(f"{what:34} {found.cells()}   {said}  {'yes' if met else 'NO'}", flush=True)
    return met


# --- behaviour under load


def broadcast(client: Letta, handle: str) -> bool:
    """Five workers with a model of one second, asked through a supervisor, against one of them."""
    for number in range(5):
        client.agents.create(name=f"worker {number}", tags=["team"], model=f"{handle}say-1000")
    alone = client.agents.create(name="alone", model=f"{handle}say-1000").id
    boss = client.agents.create(name="boss", tags=["supervisor"], model=f"{handle}ask-0").id
    took = [_took(client, alone), _took(client, boss)]
    met = took[1] <= 1.15 * took[0]
    print(f"broadcast to 5 workers of 1 s: {took[1]:.2f} s; one of them {took[0]:.2f} s; old server 17.5 s  {met}")
    return met


def _took(client: Letta, agent: str) -> float:
    began = time.perf_counter()
    found = client.agents.messages.create(agent, messages=[{"role": "user", "content": "What is the figure?"}])
    assert found.stop_reason.stop_reason == "end_turn", found.stop_reason
    return time.perf_counter() - began


def shared_block(served: Served, client: Letta, handle: str) -> bool:
    """24 inserts into one block by eight agents at once."""
    block = client.blocks.create(label="log", value="", limit=20_000)
    agents = [
        client.agents.create(name=f"writer {n}", block_ids=[block.id], model=f"{handle}insert-0").id for n in range(8)
    ]

    def what(number: int) -> tuple[str, str, object]:
        sent = {"messages": [{"role": "user", "content": "write it down"}]}
        return "POST", f"/v1/agents/{agents[number % 8]}/messages", sent

    found = asyncio.run(at_once(served, 24, 24, what))
    lines = [one for one in client.blocks.retrieve(block.id).value.splitlines() if one.strip()]
    met = len(lines) == len(set(lines)) == 24 and not found.errors
    print(
        f"24 inserts into one block at once: {len(set(lines))} lines, {found.errors} errors; old server 1 line  {met}"
    )
    return met


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.server", description=__doc__)
    parser.add_argument("--calls", type=float, default=1.0, help="so many times the usual number of calls")
    options = parser.parse_args()
    with TemporaryDirectory(prefix="chargehand-load-") as folder, modelling() as handle:
        with bare() as empty:
            print(_HEAD)
            found = asyncio.run(at_once(empty, 2000, WIDE, lambda _: ("POST", "/echo", {"label": "notes"})))
            _tell(f"bare application, {WIDE} at once", found, "", met=True)
        with serving(Path(folder) / "data") as served:
            good = served.started < 2.0 and served.rss() < 120
            print(
                f"start to healthy {served.started:.2f} s (46 s, < 2 s); idle RSS {served.rss():.0f} MiB (473, < 120)"
            )
            client = Letta(base_url=served.url, api_key=served.token)
            good &= measure(served, client, handle, options.calls)
            good &= broadcast(client, handle)
            good &= shared_block(served, client, handle)
            print(f"RSS after all that: {served.rss():.0f} MiB (old server 811)")
        good &= overload(Path(folder) / "overload", handle)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
