"""Secrets out of what is written and logged: every one that is known, also encoded, and what has the shape of a key.

Where secrets come from, and what is written where, is not decided here.
"""

import base64
import logging
import re
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec

_Value = TypeVar("_Value")
MARK = "[redacted]"
_MARK = MARK.encode()
_SHORTEST = 8
_PLAIN = 16  # of one kind of letter only: a shorter one may be a word

# The keys of providers, and tokens of ours: how each begins, and what follows.
_SHAPES = tuple(
    (start, re.compile(re.escape(start) + rest))
    for start, rest in (
        (b"sk-", rb"[A-Za-z0-9_-]{20,}"),
        (b"ch_", rb"[0-9a-f]{8}_[A-Za-z0-9_-]{43}"),
        (b"ghp_", rb"[A-Za-z0-9]{36,}"),
        (b"github_pat_", rb"[A-Za-z0-9_]{40,}"),
        (b"xox", rb"[abp]-[A-Za-z0-9-]{20,}"),
        (b"AKIA", rb"[A-Z0-9]{16}"),
        (b"AIza", rb"[A-Za-z0-9_-]{35}"),
        (b"hf_", rb"[A-Za-z0-9]{30,}"),
        (b"gsk_", rb"[A-Za-z0-9]{40,}"),
    )
)
# What stands between is base64, with headers where it is encrypted; line ends may stand there as JSON writes them. Of
# a key that is cut off, the lines that are headers or base64.
_PRIVATE_KEY = re.compile(
    rb"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
    rb"(?:(?:[A-Za-z0-9+/=:,.()@<> \t\r\n]|-(?!-)|\\++[nrt])*+-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
    rb"|(?:(?:[ \t\r\n]|\\++[nrt])*+(?:[A-Za-z0-9+/=]{16,}+"
    rb"|(?:Proc-Type|DEK-Info|Version|Comment|Hash|Charset|MessageID): [^\r\n\\\"]{0,200}+))*+)"
)
# one look for the beginnings of all of them costs less than one for each, and nearly always that is it
_ANY = re.compile(
    b"(?:"
    + b"|".join(re.escape(start) for start, _ in _SHAPES)
    + rb")[A-Za-z0-9_-]{16}|-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY"
)
_WORD = re.compile(rb"[A-Za-z0-9]")
_DIGIT = re.compile(rb"\d")
_ENCODER = msgspec.json.Encoder()
_TRACES = logging.Formatter()


class Redactor:
    """Knows secrets. `clean` is for text and for JSON alike: what is put in a secret's place fits both."""

    def __init__(self, secrets: Iterable[str]) -> None:
        texts = [secret.strip() for secret in secrets]
        # the longest first: one may stand inside another
        self._forms = tuple(
            sorted({form for secret in texts if _worth(secret) for form in forms(secret)}, key=len, reverse=True)
        )

    def clean(self, body: bytes) -> bytes:
        """The body without secrets; the very same one where there are none."""
        for form in self._forms:
            if form in body:
                body = body.replace(form, _MARK)
        if _ANY.search(body) is None:
            return body
        for start, shape in _SHAPES:
            if start in body and (cleaned := shape.sub(_shaped, body)) != body:
                body = cleaned
        return _PRIVATE_KEY.sub(_MARK, body)

    def value(self, value: _Value, shape: Any = None) -> _Value:
        """The same for anything that JSON carries; `shape` is how it is read back, where its type does not say it."""
        try:
            body = _ENCODER.encode(value)
        except (TypeError, ValueError, RecursionError):
            return value  # it cannot be encoded, so it cannot be written either
        cleaned = self.clean(body)
        return value if cleaned is body else msgspec.json.decode(cleaned, type=shape or type(value))

    def text(self, text: str) -> str:
        """The same for text; lone surrogates are kept."""
        body = text.encode("utf-8", "surrogatepass")
        cleaned = self.clean(body)
        return text if cleaned is body else cleaned.decode("utf-8", "surrogatepass")


def _worth(secret: str) -> bool:
    """Whether it can be told from a word; else half of everything would be taken for it."""
    return len(secret) >= (_PLAIN if secret.isalpha() and (secret.islower() or secret.isupper()) else _SHORTEST)


def _shaped(match: re.Match[bytes]) -> bytes:
    """Not within a word (`task-…`), and not without a digit, as names are."""
    body = match.string
    at = match.start()
    if (at and _WORD.match(body, at - 1)) or not _DIGIT.search(match[0]):
        return match[0]
    return _MARK


def forms(secret: str) -> set[bytes]:
    """A secret as it may stand in a text: plain, in JSON inside JSON, in a URL, in base64 at any of three offsets."""
    plain = secret.encode("utf-8", "replace")
    spellings = {plain, quote(secret, safe="", errors="replace").encode(), quote(secret, errors="replace").encode()}
    escaped = plain.decode()
    for _ in range(3):
        escaped = _ENCODER.encode(escaped)[1:-1].decode()
        spellings.add(escaped.encode())
    spellings |= {re.sub(rb"%[0-9A-F]{2}", lambda match: match[0].lower(), form) for form in tuple(spellings)}
    for offset in range(3):
        coded = base64.b64encode(b"\0" * offset + plain)
        # characters that hold bits of what stands before or behind are another each time
        inner = coded[(0, 2, 3)[offset] : len(coded) - (0, 3, 2)[(offset + len(plain)) % 3]]
        if len(inner) >= _SHORTEST:
            spellings |= {inner, inner.translate(bytes.maketrans(b"+/", b"-_"))}
    return spellings


@contextmanager
def clean_logs(redactor: Redactor) -> Generator[None]:
    """While it is open, every record that this process logs is cleaned as it is made, tracebacks as well."""
    before = logging.getLogRecordFactory()

    def make_record(*parts: Any, **more: Any) -> logging.LogRecord:
        record = before(*parts, **more)
        _clean_record(record, redactor)
        return record

    logging.setLogRecordFactory(make_record)
    try:
        yield
    finally:
        if logging.getLogRecordFactory() is make_record:
            logging.setLogRecordFactory(before)


def _clean_record(record: logging.LogRecord, redactor: Redactor) -> None:
    try:
        message = record.getMessage()
    except (TypeError, ValueError, KeyError):  # who logged it got it wrong, and is told so where it is written
        return
    cleaned = redactor.text(message)
    if cleaned is not message:
        record.msg = cleaned
        record.args = ()
    if record.exc_info and record.exc_info[0] is not None:
        record.exc_text = redactor.text(_TRACES.formatException(record.exc_info))
