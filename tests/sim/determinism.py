"""`python -m tests.sim.determinism`: the same seed gives the same bytes, whatever the hash seed and the interpreter."""

import argparse
import hashlib
import os
import subprocess
import sys
from pathlib import Path

from msgspec import json

from tests.sim.run import Case, play

ROOT = Path(__file__).resolve().parents[2]


def fingerprints(first: int, count: int) -> list[str]:
    """A hash of each seed's journal."""
    found: list[str] = []
    for seed in range(first, first + count):
        hashed = hashlib.sha256()
        for entry in play(Case(seed).plot()):
            hashed.update(json.encode(entry))
        found.append(f"{seed} {hashed.hexdigest()}")
    return found


def elsewhere(python: str, hash_seed: int, first: int, count: int) -> list[str]:
    """The same in another process."""
    command = [python, "-m", "tests.sim.determinism", "--print", "--first", str(first), "--seeds", str(count)]
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True, timeout=600)
    return done.stdout.split("\n")[:-1]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.determinism", description=__doc__)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--python", nargs="*", default=[sys.executable], help="interpreters that have msgspec")
    parser.add_argument("--print", action="store_true", help="print the hashes and compare nothing")
    options = parser.parse_args()
    here = fingerprints(options.first, options.seeds)
    if options.print:
        print("\n".join(here))
        return 0
    same = True
    for python in options.python:
        for hash_seed in (0, 1, 4_000_000_000):
            agrees = elsewhere(str(python), hash_seed, options.first, options.seeds) == here
            print(f"{python} with PYTHONHASHSEED={hash_seed}: {'the same' if agrees else 'DIFFERENT'}")
            same = same and agrees
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
