"""`python -m tests.security.audited REPORT serve ...`: the real command, watched for what a server must never do.

What happens while a module is imported does not count: Python itself unmarshals and executes then.
"""

import atexit
import sys
from collections import Counter
from pathlib import Path
from types import FrameType

NEVER = frozenset(
    (
        "pickle.find_class",
        "marshal.loads",
        "marshal.load",
        "exec",
        "os.system",
        "os.exec",
        "os.posix_spawn",
        "code.__new__",
        "subprocess.Popen",
        "shutil.unpack_archive",
        "ctypes.dlopen",
    )
)


def watched() -> "Counter[str]":
    """Listen from now on. Each event is counted with the place it came from."""
    found: Counter[str] = Counter()

    def hook(event: str, _details: tuple[object, ...]) -> None:
        if event in NEVER:
            frame = sys._getframe(1)
            if not importing(frame):
                found[f"{event} in {frame.f_code.co_filename}:{frame.f_lineno}"] += 1

    sys.addaudithook(hook)
    return found


def importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


if __name__ == "__main__":
    from chargehand.cli.main import main

    report = Path(sys.argv[1])
    events = watched()
    if "--self-test" in sys.argv:
        exec("1 + 1")
    else:
        code = main(sys.argv[2:])
    atexit.register(lambda: report.write_text("\n".join(f"{count} {what}" for what, count in events.items())))
