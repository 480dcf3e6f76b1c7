"""Whether JSON is too deep, or an object in it too large, told without reading it. Whether it is JSON is not asked."""

import re

from chargehand.server.problem import Problem

# every quote begins a match, also that of a text without an end: else a hostile body would be looked through from each
_STRINGS = re.compile(rb'(?s)"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)')
_OTHERS = bytes(set(range(256)) - set(b"[]{}:"))
_OPENS = frozenset(b"[{")
_CLOSES = frozenset(b"]}")
_COLON = ord(":")


def check_json(body: bytes, depth: int, keys: int) -> None:
    """Raise a problem for a body that nobody should have to read."""
    if body.count(b":") <= keys and body.count(b"{") + body.count(b"[") <= depth:
        return  # nearly always
    if body.lstrip()[:1] not in (b"{", b"["):
        return
    counts: list[int] = []
    for sign in _STRINGS.sub(b"", body).translate(None, _OTHERS):
        if sign == _COLON:
            if counts:
                counts[-1] += 1
                if counts[-1] > keys:
                    raise _too("large", f"an object has more than {keys} keys")
        elif sign in _OPENS:
            counts.append(0)
            if len(counts) > depth:
                raise _too("deep", f"it is nested more than {depth} deep")
        elif sign in _CLOSES and counts:
            counts.pop()


def _too(what: str, said: str) -> Problem:
    return Problem(422, f"too_{what}", f"the body is too {what}: {said}; send less at once")
