"""The walk of `letta_conformance` with clients of other versions, each in an environment of its own.

python -m tests.server.letta_matrix .venv/letta-1.0.0 .venv/letta-1.7.0
"""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.server.model_server import fake_model
from tests.server.running import running, settings_in

_SCRIPT = Path(__file__).with_name("letta_conformance.py")
_PATIENCE = 120


def walked(environment: Path, url: str, token: str, model: str) -> int:
    command = [str(environment / "bin" / "python"), str(_SCRIPT), url, token, model]
    return subprocess.run(command, check=False, timeout=_PATIENCE).returncode


def main(environments: Sequence[str]) -> int:
    """How many of these clients could not do what they should."""
    failed = 0
    for one in environments:
        with (
            TemporaryDirectory() as folder,
            fake_model(lambda _asked: "Nothing is new.") as model,
            running(settings_in(Path(folder))) as server,
        ):
            failed += walked(Path(one), server.url, server.token, model.handle) != 0
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
