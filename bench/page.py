"""`python -m bench.page`: how fast the page is with many tasks, in Chromium, beside what is promised."""

import tempfile
from pathlib import Path

from tests.page.big_run import big_run
from tests.page.chromium import open_browser
from tests.page.figures import measure_layout, measure_load, measure_status_change
from tests.page.proxy import open_proxy
from tests.page.recorded_runs import write_runs
from tests.page.shop import open_shop
from tests.server.running import TOKEN

ROUNDS = 5


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder)
        write_runs(data, {f"incident-{size}": big_run(f"incident-{size}", size) for size in (500, 2000)})
        with open_shop(data) as shop, open_proxy(shop.port) as proxy, open_browser() as browser:
            taken: dict[str, list[float]] = {}
            for _ in range(ROUNDS):
                for size in (500, 2000):
                    page = browser.new_page()
                    page.goto(f"{shop.url}/memory#key={TOKEN}")
                    page.goto("about:blank")
                    name = f"{size} tasks: address to painted, processor time"
                    taken.setdefault(name, []).append(measure_load(page, shop.url, f"incident-{size}", size))
                    wall = page.evaluate("performance.now()") / 1000
                    taken.setdefault(f"{size} tasks: address to painted, by the clock", []).append(wall)
                    page.close()
                page = browser.new_page()
                page.goto(f"{proxy.url}/memory#key={TOKEN}")
                change = measure_status_change(page, proxy, shop, "incident-500")
                taken.setdefault("500 tasks: one change of status, processor time", []).append(change)
                proxy.hold_no_more()
                page.close()
                taken.setdefault("500 tasks: layout as cards", []).append(measure_layout(500))
    for name, seconds in taken.items():
        middle = sorted(seconds)[ROUNDS // 2] * 1000
        print(f"{name}: {middle:.0f} ms (least {min(seconds) * 1000:.0f}, most {max(seconds) * 1000:.0f})")


if __name__ == "__main__":
    main()
