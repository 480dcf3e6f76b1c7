"""Python objects that are named as text."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from chargehand.config.python_objects import named_object

SLOW = """
import time

time.sleep(0.2)


def look():
    return "whole"
"""


def test_a_module_that_another_thread_is_loading_is_given_whole(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text(SLOW)
    with ThreadPoolExecutor(4) as pool:
        loading = [pool.submit(named_object, tmp_path, "tools:look") for _ in range(4)]
    assert len({id(each.result()) for each in loading}) == 1
