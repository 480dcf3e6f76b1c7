"""`python -m tests.sim.hunt SEEDS`: play seeds of whatever is on the path until one is wrong (exit 1).

Cases that were wrong once come first.
"""

import sys

from tests.sim.run import Case, corpus, trouble


def main() -> int:
    seeds = int(sys.argv[1])
    for case in corpus():
        if found := trouble(case, prefixes=False):
            print(f"corpus {case.seed}: {found}")
            return 1
    for seed in range(seeds):
        if found := trouble(Case(seed), prefixes=seed % 4 == 0):
            print(f"seed {seed}: {found}")
            return 1
    print(f"nothing wrong in {seeds} seeds")
    return 0


if __name__ == "__main__":
    sys.exit(main())
