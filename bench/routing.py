"""`python -m bench.routing --data FOLDER`: who should do it? CLINC150's intents and domains as workers.

The data is public: GitHub `clinc/oos-eval`, `data/data_full.json` and `data/domains.json` (Larson et al., EMNLP-IJCNLP
2019, CC BY 3.0), in the folder as `clinc150_data_full.json` and `clinc150_domains.json`. Everything was tuned on its
validation part; the test part is only measured. Each text is embedded once, in memory.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import mean, median

import numpy

from bench.routing_board import Bench, plain
from bench.routing_learning import learning_rows
from bench.routing_llm import llm_rows
from bench.routing_rivals import published, rival_lines, rivals
from bench.routing_routers import asked_lines, quick_lines, table
from bench.routing_score import Judged, accuracy, caught, ranked
from bench.routing_sentences import sentence_rows
from bench.table import Row, Target, rendered
from chargehand.agents.routing.space import Space
from chargehand.agents.routing.words import Lexicon, WorkerTexts
from chargehand.models.local import pull
from chargehand.models.request_facts import WorkerCard

DRAWS = 3
SAMPLE = 500


async def shots(bench: Bench, count: int, goal: float, *, named: bool) -> tuple[Row, list[Judged], Space]:
    own = {name: name for name in bench.intents}
    draws = range(1 if count in (0, 100) else DRAWS)
    spaces = [await bench.learnt(bench.drawn(count, seed, named=named)) for seed in draws]
    seen = [await bench.judged(space, own) for space in spaces]
    found = [accuracy(one) for one in seen]
    also = f"{mean(found):.2f}"
    also += {0: ", names only", 100: ", 100 examples"}.get(count, f", draws {min(found):.2f}..{max(found):.2f}")
    what = f"150 intents, {'full' if count == 100 else f'{count} examples' if count else 'zero-shot'}"
    what += " and the name" if named and count else ""
    target = Target(">=", goal) if not (named and count) else None  # the figures to reach are of examples alone
    return Row(what, "%", (mean(found),), target=target, also=also), seen, spaces[0]


def sure(seen: Judged) -> str:
    """How far confidence is from how often it is right, on average over tenths."""
    tenth = numpy.minimum((seen.sure * 10).astype(int), 9)
    off = [
        abs(seen.sure[tenth == at].mean() - seen.right[tenth == at].mean()) * (tenth == at).mean() for at in set(tenth)
    ]
    return f"{100 * sum(off):.2f}"


async def domain_rows(bench: Bench) -> list[Row]:
    said = [WorkerTexts(name, tuple(map(plain, held)), ()) for name, held in bench.domains.items()]
    owner = {intent: name for name, held in bench.domains.items() for intent in held}
    seen = await bench.judged(await bench.learnt(said), owner)
    recall, kept = caught(seen)
    also = f"{recall:.1f} % of strangers caught, {kept:.1f} % kept"
    return [
        Row("10 domains, intents as phrases", "%", (accuracy(seen),), target=Target(">=", 84.2)),
        Row("the same, out-of-scope AUROC", "%", (ranked(seen),), also=also),
    ]


def strangers(seen: Judged) -> list[Row]:
    recall, kept = caught(seen)
    return [
        Row("out-of-scope AUROC, full", "%", (ranked(seen),), target=Target(">=", 96.0)),
        Row(
            "out-of-scope caught, 95 % of val. kept",
            "%",
            (recall,),
            target=Target(">=", 78.0),
            also=f"{kept:.1f} % of test kept",
        ),
        Row("confidence off by (ECE), full", "%", (float(sure(seen)),)),
    ]


def timed(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


async def speed(bench: Bench, full: Space) -> list[Row]:
    asked = [text for text, _ in bench.data.test[:SAMPLE]]
    vectors = await bench.vectors(asked)
    read = [timed(lambda vector=vector: full.read(vector, 10)) for vector in vectors]
    alone: list[float] = []
    for text in asked[:200]:
        began = time.perf_counter()
        await bench.embedding.embed([text])
        alone.append(time.perf_counter() - began)
    return [
        Row("one decision once embedded, p50", "us", (median(read) * 1e6,), target=Target("<=", 10_000)),
        Row("embedding one request, p50", "ms", (median(alone) * 1e3,)),
    ]


def worded(bench: Bench) -> list[Row]:
    """By words alone, for those without the extra."""
    rows: list[Row] = []
    for count, what in ((0, "zero-shot"), (10, "10 examples and the name")):
        said = bench.drawn(count, 0, named=True)
        lexicon = Lexicon([WorkerCard(one.worker, "", phrases=one.phrases, examples=one.examples) for one in said])
        hits = [lexicon.decide(text).worker == name for text, name in bench.data.test]
        rows.append(Row(f"by words: 150 intents, {what}", "%", (100 * mean(hits),), also="no library"))
    return rows


async def measured(bench: Bench) -> list[Row]:
    """Ours by meaning and by words, on 150 intents and on the domains."""
    zero, _, _ = await shots(bench, 0, 68.5, named=True)
    rows = [zero]
    for count, goal in ((5, 84.5), (10, 88.0)):
        rows += [(await shots(bench, count, goal, named=named))[0] for named in (False, True)]
    row, (seen,), full = await shots(bench, 100, 92.0, named=False)
    rows += [row, (await shots(bench, 100, 92.0, named=True))[0], *await domain_rows(bench), *strangers(seen)]
    return [*rows, *await speed(bench, full), *worded(bench), *await sentence_rows(bench), *await learning_rows(bench)]


async def compared(bench: Bench, chosen: argparse.Namespace) -> list[Row]:
    """Everything, printed as it is there: routers on ten workers, then 150 intents, then what others reach."""
    lines = [*await quick_lines(bench), *await rival_lines(bench)]
    if chosen.llm_seconds:
        lines += await asked_lines(bench, chosen.llm, chosen.models, chosen.llm_seconds)
    print("ten domains as workers\n")
    print(table(lines), flush=True)
    rows = await measured(bench)
    print(f"\n{rendered(rows)}\n{published()}", flush=True)
    print(await rivals(bench))
    return rows


async def chosen_parts(chosen: argparse.Namespace) -> int:
    bench = Bench(chosen.data, chosen.models)
    try:
        if chosen.unclear:
            print(rendered(await llm_rows(bench, chosen.llm, chosen.models, chosen.llm_seconds, chosen.llm_shots)))
            return 0
        rows = await compared(bench, chosen)
    finally:
        await bench.embedding.close()
    return 0 if all(row.met is not False for row in rows) else 1


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.routing", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="a folder with the two CLINC150 files")
    parser.add_argument("--models", type=Path, default=Path(__file__).parents[1] / ".venv" / "models")
    words = "the model that routes, and that the hybrid asks (default local:qwen-coder-0.5b, pulled once)"
    parser.add_argument("--llm", metavar="HANDLE", default="local:qwen-coder-0.5b", help=words)
    words = "how long the model is asked (default 300; the hybrid after it takes less; 0: not at all)"
    parser.add_argument("--llm-seconds", type=float, default=300.0, help=words)
    words = "only this: 150 intents, where meaning is not clear the model chooses among the four nearest"
    parser.add_argument("--unclear", action="store_true", help=words)
    parser.add_argument("--llm-shots", type=int, default=0, help="examples of each intent, for --unclear (default 0)")
    chosen = parser.parse_args()
    pull("minilm", chosen.models)
    if chosen.llm.startswith("local:") and chosen.llm_seconds:
        pull(chosen.llm.removeprefix("local:"), chosen.models)
    return asyncio.run(chosen_parts(chosen))


if __name__ == "__main__":
    sys.exit(main())
