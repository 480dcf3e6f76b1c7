"""`chargehand tokens`: who may call the server. A token is shown once, when it is made; only its hash is kept."""

import re
import sys
import time
from argparse import SUPPRESS, ArgumentParser, ArgumentTypeError, Namespace
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from chargehand.cli import USUAL_DATA
from chargehand.cli.arguments import duration
from chargehand.cli.console import Console, clean
from chargehand.errors import Unknown

if TYPE_CHECKING:
    from chargehand.server.middleware.keys import Key, KeyFile

_HEADS = ("id", "tenant", "scope", "name", "made", "expires", "")
_DAY = 86400.0


def add_tokens(parser: ArgumentParser) -> None:
    parser.epilog = (
        "examples:\n"
        "  chargehand tokens create --name laptop\n"
        "  chargehand tokens create --tenant lab --scope read --name board --expires 30d\n"
        "  chargehand tokens revoke 1f2e3d4c\n\n" + (parser.epilog or "")
    )
    _shared(parser, nested=False)
    what = parser.add_subparsers(dest="what", metavar="list|create|revoke")
    words = "every token that was made, without what is secret of it"
    listed = what.add_parser("list", help=words, description=f"{words.capitalize()}.")
    words = "make a token; it is shown once"
    create = what.add_parser("create", help=words, description=f"{words.capitalize()}.")
    create.add_argument("--tenant", metavar="NAME", default="main", help="whose it is (default main)")
    words = "what it is good for; each includes those before it (default run)"
    create.add_argument("--scope", choices=("read", "run", "admin"), default="run", help=words)
    create.add_argument("--name", metavar="TEXT", default="", help="what to remember it by")
    create.add_argument("--expires", metavar="TIME", type=lifetime, help="how long it is good: 12h, 30d")
    words = "let nobody in with it any more, from now on"
    revoke = what.add_parser("revoke", help=words, description=f"{words.capitalize()}.")
    revoke.add_argument("id", metavar="ID", help="as `tokens list` shows it")
    for one in (listed, create, revoke):
        _shared(one, nested=True)


def _shared(parser: ArgumentParser, *, nested: bool) -> None:
    words = f"the folder of the server's data (default {USUAL_DATA})"
    usual: object = SUPPRESS if nested else Path(USUAL_DATA)
    parser.add_argument("--data", metavar="DIR", type=Path, default=usual, help=words)
    unset: object = SUPPRESS if nested else False
    parser.add_argument("--json", action="store_true", default=unset, help="one JSON document")
    parser.add_argument("--no-color", action="store_true", default=unset, help="no colours")


def lifetime(text: str) -> float:
    """Seconds from `30d`, or whatever else is a duration."""
    if found := re.fullmatch(r"(\d{1,5})d", text.strip()):
        return int(found[1]) * _DAY
    try:
        return duration(text)
    except ArgumentTypeError as error:
        raise ArgumentTypeError(f"{text!r} is no time; write it like 12h or 30d") from error


def tokens(options: Namespace) -> int:
    """A server that runs in the same folder heeds it at once."""
    from chargehand.server.middleware.keys import KeyFile, key_file  # noqa: PLC0415 - --help must not wait for it

    if options.what != "create" and not key_file(options.data).exists():  # who only looks makes no folder
        return _none(options)
    with closing(KeyFile(key_file(options.data))) as file:
        return {"create": _create, "revoke": _revoke}.get(options.what or "list", _list)(options, file)


def _none(options: Namespace) -> int:
    if options.what == "revoke":
        raise Unknown(f"there are no tokens in {options.data}; --data names another folder")
    if options.json:
        _document([])
    else:
        Console(sys.stdout).line(f"there are no tokens in {options.data} yet; `chargehand tokens create` makes one")
    return 0


def _create(options: Namespace, file: "KeyFile") -> int:
    from chargehand.server.middleware.keys import made  # noqa: PLC0415 - as above

    now = time.time()
    expires = None if options.expires is None else now + options.expires
    key, token = made(options.tenant, options.name, options.scope, now, expires)
    file.add(key)
    if options.json:
        _document({"token": token, **_told(key)})
        return 0
    Console(sys.stdout).line(token)
    Console(sys.stderr).line(f"token {key.id} of tenant {key.tenant}; it is not shown again", "dim")
    return 0


def _revoke(options: Namespace, file: "KeyFile") -> int:
    key = file.revoke(options.id, time.time())
    if options.json:
        _document(_told(key))
    else:
        Console(sys.stdout).line(f"revoked: {key.id} of tenant {key.tenant}")
    return 0


def _list(options: Namespace, file: "KeyFile") -> int:
    from chargehand.cli.console import print_table  # noqa: PLC0415 - only who looks needs it

    keys = file.all()
    if options.json:
        _document([_told(key) for key in keys])
    elif keys:
        print_table(Console(sys.stdout), _HEADS, [_row(key) for key in keys])
    else:
        return _none(options)
    return 0


def _row(key: "Key") -> tuple[str, ...]:
    state = "revoked" if key.revoked is not None else "" if key.good(time.time()) else "expired"
    return key.id, key.tenant, key.scopes[0], clean(key.name), _day(key.created), _day(key.expires), state


def _told(key: "Key") -> dict[str, object]:
    times = {"created": _day(key.created), "expires": _day(key.expires), "revoked": _day(key.revoked)}
    return {"id": key.id, "tenant": key.tenant, "scopes": key.scopes, "name": key.name, **times}


def _day(at: float | None) -> str:
    return "" if at is None else datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M")


def _document(value: object) -> None:
    Console(sys.stdout).json(value)
