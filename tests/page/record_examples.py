"""`python -m tests.page.record_examples`: record the two runs that a server without runs shows as examples."""

import tempfile
from pathlib import Path

import msgspec

from tests.page.shop import CASCADE, SLOW, Shop, open_shop
from tests.page.web_tools import WEB

FOLDER = WEB / "src" / "examples"


def record(shop: Shop, goal: str, verdict: str, file: str) -> None:
    run = shop.begin(goal)
    number = shop.wait(run, "needs_input")["question"]["number"]
    shop.client.post(f"/api/runs/{run}/answer", json={"number": number, "verdict": verdict})
    shop.wait(run, "partial", "complete", "failed")
    entries = shop.client.get(f"/api/runs/{run}/entries?limit=5000").json()["entries"]
    kept = msgspec.json.encode([{"seq": entry["seq"], "at": entry["at"], "event": entry["event"]} for entry in entries])
    (FOLDER / file).write_bytes(kept.replace(run.encode(), b"example") + b"\n")


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as data, open_shop(Path(data)) as shop:
        record(shop, SLOW, "approve", "incident.entries")
        record(shop, CASCADE, "reject", "cascade.entries")


if __name__ == "__main__":
    main()
