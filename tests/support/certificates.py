"""A bundle of one certificate for HTTP clients that call 127.0.0.1 without TLS.

Every `httpx.Client` reads the bundle of `certifi`, with or without TLS: 140 certificates, 20 ms of CPU.
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
    if _VARIABLE in os.environ:
        yield
        return
    first, _, _ = Path(certifi.where()).read_text("utf-8").partition(_END)
    bundle = folder / "certificate.pem"
    bundle.write_text(first + _END, "utf-8")
    os.environ[_VARIABLE] = str(bundle)
    try:
        yield
    finally:
        del os.environ[_VARIABLE]
