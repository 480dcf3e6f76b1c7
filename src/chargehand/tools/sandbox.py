"""The tool that runs Python a model wrote, behind the walls of `confinement`. Where they cannot stand it refuses."""

from msgspec import Struct

from chargehand.tools.calling import ToolFailed
from chargehand.tools.confinement import confined, standing
from chargehand.tools.tool import Tool, tool
from chargehand.tools.walls import Limits, Unavailable

LONGEST = 1 << 20


class Ran(Struct, frozen=True, omit_defaults=True):
    """What a program said and how it ended. `note` is for one that was stopped: what it said until then is here."""

    stdout: str
    stderr: str
    exit: int
    seconds: float
    note: str = ""


def available() -> str:
    """Nothing when Python can be run safely here, otherwise why not and what to do."""
    try:
        standing()
    except Unavailable as error:
        return str(error)
    return ""


def python_sandbox(
    *,
    seconds: float = 10.0,
    memory: int = 256 << 20,
    disk: int = 16 << 20,
    output: int = 256 << 10,
    threads: int = 16,
) -> Tool:
    """A tool that runs Python with the standard library and nothing else of this machine. Sizes are in bytes."""
    limits = Limits(seconds=seconds, memory=memory, disk=disk, output=output, threads=threads)

    @tool(name="run_python", effect="read", timeout=seconds + 10)
    async def run_python(code: str, stdin: str = "") -> Ran:
        """Run a Python program and return what it prints, its errors and its exit code.

        Only the standard library is there; no network, no other processes, no files but an empty folder that is gone
        afterwards. Print what you want to see. Input for the program goes into stdin.
        """
        if len(code) + len(stdin) > LONGEST:
            raise ToolFailed("the program and its input are longer than 1 MiB together: shorten them")
        if "\0" in code:
            raise ToolFailed("the program contains a NUL character: remove it")
        try:
            outcome = await confined(code, stdin, limits)
        except Unavailable as error:
            raise ToolFailed(f"Python cannot be run here: {error}. Do without it.", broken=True) from error
        return Ran(
            stdout=outcome.stdout.decode(errors="replace"),
            stderr=outcome.stderr.decode(errors="replace"),
            exit=outcome.exit,
            seconds=outcome.seconds,
            note=f"stopped: {outcome.stopped}" if outcome.stopped else "",
        )

    return run_python
