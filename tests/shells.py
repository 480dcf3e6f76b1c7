"""`python -m tests.shells`: the completion scripts in a real zsh and a real fish, which not every machine has.

What bash offers is tested everywhere, in tests/cli/test_completion.py.
"""

import os
import pty
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from chargehand.cli import shells
from chargehand.cli.main import parser
from chargehand.cli.places import places

CASES = {
    "chargehand re": {"resume", "replay"},
    "chargehand memory pa": {"passages", "patch"},
    "chargehand run --approve ": {"ask", "auto", "never"},
    "chargehand runs --journal list show --js": {"--jsonl"},
    "chargehand completion ": {"bash", "zsh", "fish"},
    "chargehand run --plan my": {"my plan.json", "my team/"},
    "chargehand run --save m": {"my team/"},
}
STEERING = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|[\r\x07\x08]")


def in_fish(folder: Path) -> list[str]:
    (folder / "c.fish").write_text(shells.fish(tuple(places(parser()))), encoding="utf-8")
    wrong: list[str] = []
    for typed, wanted in CASES.items():
        told = ["fish", "--no-config", "-c", f"source c.fish; complete -C '{typed}'"]
        done = subprocess.run(told, cwd=folder, capture_output=True, text=True, check=False, timeout=20)
        found = {line.split("\t")[0] for line in done.stdout.splitlines()}
        wrong += [] if found == wanted and not done.stderr else [f"fish: {typed!r} offers {found}; {done.stderr}"]
    return wrong


def in_zsh(folder: Path) -> list[str]:
    """At a terminal, as a person would: zsh completes nowhere else."""
    (folder / "_chargehand").write_text(shells.zsh(tuple(places(parser()))) + "\n", encoding="utf-8")
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        os.execvpe("zsh", ["zsh", "-f", "-i"], {**os.environ, "TERM": "xterm", "HOME": str(folder)})
    try:
        _typed(
            terminal,
            f"fpath=({folder} $fpath); autoload -U compinit; compinit -u -D; setopt no_auto_menu; PS1=; echo re''ady\n",
            "ready",
        )
        wrong: list[str] = []
        for typed, wanted in CASES.items():
            shown = {one.replace(" ", "\\ ") for one in wanted}
            said = _typed(terminal, f"{typed}\t\t", *shown)
            _typed(terminal, "\x03")
            _typed(terminal, "echo do''ne\n", "done")
            wrong += [f"zsh: {typed!r} shows {said[-200:]!r}"] if any(one not in said for one in shown) else []
    finally:
        os.close(terminal)
        os.waitpid(pid, 0)
    return wrong


def _typed(terminal: int, keys: str, *wanted: str) -> str:
    """What is shown after these keys, until all that is wanted is there or five seconds are over."""
    os.write(terminal, keys.encode())
    said, until = "", time.monotonic() + (5 if wanted else 0.3)
    while time.monotonic() < until and not (wanted and all(one in STEERING.sub("", said) for one in wanted)):
        if select.select([terminal], [], [], 0.1)[0]:
            said += os.read(terminal, 65536).decode(errors="replace")
    return STEERING.sub("", said)


def main() -> int:
    if missing := [name for name in ("zsh", "fish") if shutil.which(name) is None]:
        print(
            f"there is no {' and no '.join(missing)} here: install it (Debian: packages zsh and fish)", file=sys.stderr
        )
        return 2
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        (folder / "my team").mkdir()
        (folder / "my plan.json").touch()
        wrong = [*in_fish(folder), *in_zsh(folder)]
    print("\n".join(wrong) or f"zsh and fish offer what they should in {len(CASES)} places each")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
