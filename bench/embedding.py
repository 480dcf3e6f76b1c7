"""`python -m bench.embedding`: what the small embedding model on this machine costs, in time and memory.

Every repetition is a new interpreter, so that loading is cold. Speeds are texts for each second of CPU on one thread:
what else the machine does hardly moves them.
"""

import asyncio
import os
import sys
import time
from pathlib import Path

from msgspec import Struct

from bench.measure import fresh, resident, timed
from bench.table import Row, rendered
from chargehand.models.embeddings import LocalEmbedding
from chargehand.models.local import pull

MEGABYTE = 1e6
REPEAT = 5
SHORT = ("how do I get my money back for number {}", "the parcel {} never came", "which tent keeps rain out, {}?")
SENTENCE = "the carrier left parcel {} with a neighbour who does not know us and the label says another street "
LONG = " ".join((SENTENCE * 11).split()[:200])


class Seen(Struct, frozen=True):
    """Seconds, texts a second, bytes."""

    load: float
    load_cpu: float
    short: float
    one: float
    long: float
    loaded: float
    after: float
    peak: float


def look(folder: str) -> Seen:
    return asyncio.run(_look(Path(folder)))


async def _look(folder: Path) -> Seen:
    before = resident()
    embedding = LocalEmbedding(folder)
    with timed() as load:
        await embedding.embed(["warm"])
    loaded = resident() - before
    short = await _speed(embedding, [SHORT[at % 3].format(at) for at in range(480)])
    long = await _speed(embedding, [LONG.format(*[at] * 99) for at in range(48)])
    began = time.process_time()
    for at in range(50):
        await embedding.embed([SHORT[at % 3].format(at)])
    one = (time.process_time() - began) / 50
    after = resident() - before
    peak = resident(peak=True) - before
    await embedding.close()
    return Seen(
        load=load.wall, load_cpu=load.cpu, short=short, one=one, long=long, loaded=loaded, after=after, peak=peak
    )


async def _speed(embedding: LocalEmbedding, texts: list[str]) -> float:
    with timed() as lap:
        vectors = await embedding.embed(texts)
    assert len(vectors) == len(texts)
    return len(texts) / lap.cpu


def main() -> int:
    models = Path(os.environ.get("CHARGEHAND_MODELS") or Path(__file__).parents[1] / ".venv" / "models")
    folder = str(pull("minilm", models).parent)
    seen = [fresh(look, folder) for _ in range(REPEAT)]
    rows = [
        Row("cold load and the first text", "s", tuple(one.load for one in seen)),
        Row("the same", "CPU s", tuple(one.load_cpu for one in seen)),
        Row("short texts (8 words)", "a CPU s", tuple(one.short for one in seen), also="in batches of 16"),
        Row("one short text", "CPU ms", tuple(one.one * 1e3 for one in seen), also="there and back from the loop"),
        Row("texts of 200 words", "a CPU s", tuple(one.long for one in seen), also="two at a time"),
        Row("memory added once loaded", "MB", tuple(one.loaded / MEGABYTE for one in seen)),
        Row("memory added after all of it", "MB", tuple(one.after / MEGABYTE for one in seen)),
        Row("memory added at most", "MB", tuple(one.peak / MEGABYTE for one in seen)),
    ]
    print(f"load {os.getloadavg()[0]:.1f}, medians of {REPEAT} new interpreters")
    print(rendered(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
