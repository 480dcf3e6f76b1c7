"""`chargehand tokens`: who may call the server. A token is shown once, when it is made; only its hash is kept."""

import sys
import time
from argparse import ArgumentParser, Namespace
from contextlib import closing
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from chargehand.cli.arguments import add_verbs, duration
from chargehand.cli.console import Console, print_table
from chargehand.errors import Unknown

if TYPE_CHECKING:
    from chargehand.server.middleware.keys import Key, KeyFile

_HEADS = ("id", "tenant", "scope", "name", "made", "expires", "")
_EXAMPLES = """examples:
  chargehand tokens create --name laptop
  chargehand tokens create --tenant lab --scope read --name board --expires 30d
  chargehand tokens revoke 1f2e3d4c

"""
_ABOUT = {
    "list": "every token that was made, without what is secret of it",
    "create": "make a token; it is shown once",
    "revoke": "let nobody in with it any more, from now on",
}


def add_tokens(parser: ArgumentParser) -> None:
    parser.epilog = _EXAMPLES + (parser.epilog or "")
    verbs = add_verbs(parser, _ABOUT, "--data", "--json", "--no-color")
    create = verbs["create"]
    create.add_argument("--tenant", metavar="NAME", default="main", help="whose it is (default main)")
    about = "what it is good for; each includes those before it (default run)"
    create.add_argument("--scope", choices=("read", "run", "admin"), default="run", help=about)
    create.add_argument("--name", metavar="TEXT", default="", help="what to remember it by")
    create.add_argument("--expires", metavar="TIME", type=duration, help="how long it is good: 12h, 30d")
    verbs["revoke"].add_argument("id", metavar="ID", help="as `tokens list` shows it")


def tokens(options: Namespace) -> int:
    """A server that runs in the same folder heeds it at once."""
    from chargehand.server.middleware.keys import KeyFile, key_file  # noqa: PLC0415 - the server is an extra

    console = Console(sys.stdout)
    path = key_file(options.data)
    if options.what != "create" and not path.exists():  # who only looks makes no folder
        if options.what == "revoke":
            raise Unknown(f"there are no tokens in {options.data}; --data names another folder")
        return _list(options, console, [])
    with closing(KeyFile(path)) as file:
        if options.what == "create":
            return _create(options, console, file)
        if options.what == "revoke":
            key = file.revoke(options.id, time.time())
            if options.json:
                console.json(_document(key))
            else:
                console.line(f"revoked: {key.id} of tenant {key.tenant}")
            return 0
        return _list(options, console, file.all())


def _create(options: Namespace, console: Console, file: "KeyFile") -> int:
    from chargehand.server.middleware.keys import create_key  # noqa: PLC0415 - as above

    now = time.time()
    expires = None if options.expires is None else now + options.expires
    key, token = create_key(options.tenant, options.name, options.scope, now, expires)
    file.add(key)
    if options.json:
        console.json({"token": token, **_document(key)})
        return 0
    console.line(token)
    Console(sys.stderr).line(f"token {key.id} of tenant {key.tenant}; it is not shown again", "dim")
    return 0


def _list(options: Namespace, console: Console, keys: "list[Key]") -> int:
    if options.json:
        console.json([_document(key) for key in keys])
    elif keys:
        print_table(console, _HEADS, [_table_row(key) for key in keys])
    else:
        console.line(f"there are no tokens in {options.data} yet; `chargehand tokens create` makes one")
    return 0


def _table_row(key: "Key") -> tuple[str, ...]:
    state = "revoked" if key.revoked is not None else "" if key.good(time.time()) else "expired"
    return key.id, key.tenant, key.scope, key.name, _day(key.created), _day(key.expires), state


def _document(key: "Key") -> dict[str, object]:
    times = {"created": _day(key.created), "expires": _day(key.expires), "revoked": _day(key.revoked)}
    return {"id": key.id, "tenant": key.tenant, "scope": key.scope, "name": key.name, **times}


def _day(at: float | None) -> str:
    return "" if at is None else datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M")
