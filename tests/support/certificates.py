"""A bundle of one certificate for HTTP clients that call 127.0.0.1 without TLS.

Every `httpx.Client` reads the bundle of the environment or of `certifi`, with or without TLS: 140 certificates, 20 ms
of CPU.
"""

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import certifi

_VARIABLE = "SSL_CERT_FILE"
_END = "-----END CERTIFICATE-----\n"


@contextmanager
def one_certificate(folder: Path) -> Generator[None]:
    """Have clients that are made in this block, in processes started there too, read a single certificate."""
    first, _, _ = Path(certifi.where()).read_text("utf-8").partition(_END)
    bundle = folder / "certificate.pem"
    bundle.write_text(first + _END, "utf-8")
    before = os.environ.get(_VARIABLE)
    os.environ[_VARIABLE] = str(bundle)
    try:
        yield
    finally:
        if before is None:
            del os.environ[_VARIABLE]
        else:
            os.environ[_VARIABLE] = before
