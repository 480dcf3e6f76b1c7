"""No secrets in logs: while it is on, every record of this process is cleaned as it is made."""

import logging
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from chargehand.server.middleware.redaction import Redactor

_TRACES = logging.Formatter()


@contextmanager
def hushed(redactor: Redactor) -> Generator[None]:
    """Clean what is logged, tracebacks as well, whoever logs it and wherever it goes."""
    before = logging.getLogRecordFactory()

    def made(*parts: Any, **more: Any) -> logging.LogRecord:
        record = before(*parts, **more)
        _clean(record, redactor)
        return record

    logging.setLogRecordFactory(made)
    try:
        yield
    finally:
        if logging.getLogRecordFactory() is made:
            logging.setLogRecordFactory(before)


def _clean(record: logging.LogRecord, redactor: Redactor) -> None:
    try:
        said = record.getMessage()
    except (TypeError, ValueError, KeyError):  # who logged it got it wrong, and is told so where it is written
        return
    cleaned = redactor.text(said)
    if cleaned is not said:
        record.msg = cleaned
        record.args = ()
    if record.exc_info and record.exc_info[0] is not None:
        record.exc_text = redactor.text(_TRACES.formatException(record.exc_info))
