"""`chargehand completion`: a script for bash, zsh or fish. What is offered is in `places`, how in `shells`."""

import sys
from argparse import ArgumentParser, Namespace

from chargehand.cli.console import Console

_HOW = """\
bash, in ~/.bashrc:
  eval "$(chargehand completion bash)"
zsh, in ~/.zshrc, after compinit:
  eval "$(chargehand completion zsh)"
fish, once:
  chargehand completion fish > ~/.config/fish/completions/chargehand.fish
Where it is kept in a file, make it anew after an upgrade.

"""


def add_completion(parser: ArgumentParser) -> None:
    parser.epilog = _HOW + (parser.epilog or "")
    words = "the shell it is for: bash, zsh or fish"
    parser.add_argument("shell", metavar="SHELL", choices=("bash", "zsh", "fish"), help=words)


def completion(options: Namespace) -> int:
    """Print the script."""
    from chargehand.cli import shells  # noqa: PLC0415 - --help must not wait for it
    from chargehand.cli.main import parser  # noqa: PLC0415 - it imports the verbs, and so this module
    from chargehand.cli.places import places  # noqa: PLC0415 - as shells

    make = {"bash": shells.bash, "zsh": shells.zsh, "fish": shells.fish}[options.shell]
    Console(sys.stdout).line(make(list(places(parser()))))
    return 0
