"""`python -m tests.peers VENV`: the programs of docs/coming-from.md, in their own framework (in VENV) and here."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

PROGRAMS = Path(__file__).parents[1] / "examples" / "coming_from"
PEERS = ("langgraph", "crewai", "openai_agents")
_NO_TELEMETRY = {"CREWAI_DISABLE_TELEMETRY": "true", "CREWAI_TRACING_ENABLED": "false", "OTEL_SDK_DISABLED": "true"}
_EXPECTED = "12 anvils"


def output_of(python: str, program: str, variables: dict[str, str]) -> str:
    """What a program printed; with its errors if it failed."""
    with tempfile.TemporaryDirectory() as folder:
        words = [python, str(PROGRAMS / program)]
        environment = {**os.environ, **_NO_TELEMETRY, **variables}
        done = subprocess.run(
            words, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=180
        )
    return done.stdout if done.returncode == 0 else f"exit {done.returncode}: {done.stderr[-2000:]}"


def main(venv: Path) -> int:
    words = [sys.executable, str(PROGRAMS / "model_server.py"), "--port", "0"]
    failures = 0
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        variables = {"OPENAI_BASE_URL": server.stdout.readline().strip(), "OPENAI_API_KEY": "none"}
        for peer in PEERS:
            for python, program in (
                (str(venv / "bin" / "python"), f"{peer}_before.py"),
                (sys.executable, f"{peer}_after.py"),
            ):
                output = output_of(python, program, variables)
                is_good = _EXPECTED in output
                failures += not is_good
                print(f"{'ok' if is_good else 'FAILED':7}{program}: {output.strip()[:200] if is_good else output}")
        server.terminate()
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).absolute()))
