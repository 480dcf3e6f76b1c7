"""URLs of stores. Of files a path is shorthand; a database of PostgreSQL holds all stores of all tenants.

sqlite:///runs.db                          a file; with four slashes an absolute path
postgresql://user@host/database            a database; the tenant is `main`
postgresql://user@host/database?tenant=lab the same of another tenant
memory:                                    ends with the process
"""

import re
from pathlib import Path
from typing import TypeAlias
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

from msgspec import Struct, structs

from chargehand.errors import Invalid

MEMORY = "memory:"
"""The URL of a store that ends with the process."""
FIRST_TENANT = "main"
"""The tenant of a URL that names none."""
_SQLITE = "sqlite:///"
_POSTGRES = ("postgresql://", "postgres://")
_CREDENTIALS = re.compile(r"//[^/?#]*@")
_PASSWORD_FIELD = re.compile(r"(?i)(password|sslpassword)=[^&#]*")


class PostgresUrl(Struct, frozen=True):
    """A tenant of a database. As text it has neither user nor password: it may be printed and logged."""

    dsn: str
    """What the driver is given, with the password."""
    place: str
    """The same without user and password."""
    tenant: str = FIRST_TENANT

    def __str__(self) -> str:
        if self.tenant == FIRST_TENANT:
            return self.place
        return f"{self.place}{'&' if '?' in self.place else '?'}{urlencode({'tenant': self.tenant})}"

    def __repr__(self) -> str:
        return f"PostgresUrl({str(self)!r})"

    def of_tenant(self, tenant: str) -> "PostgresUrl":
        return structs.replace(self, tenant=tenant)


StoreUrl: TypeAlias = str | Path | PostgresUrl


def parse_store_url(url: StoreUrl) -> Path | PostgresUrl:
    """The file or the database a URL names; Invalid for any other URL, and for `memory:`."""
    if not isinstance(url, str):
        return url
    if url.startswith(_POSTGRES):
        return _parse_postgres(url)
    if url.startswith(_SQLITE):
        return Path(url.removeprefix(_SQLITE))
    if url == MEMORY:
        raise Invalid(f"{url} ends with its process, so there is nothing to open; name a file: {_SQLITE}runs.db")
    if "://" in url or not url:
        raise Invalid(
            f"{_without_password(url)!r} is not the URL of a store; write {_SQLITE}PATH, the path of a file, "
            "or postgresql://USER@HOST/DATABASE"
        )
    return Path(url)


def postgres_url(url: StoreUrl) -> PostgresUrl:
    """The database a URL names; Invalid for a file."""
    place = parse_store_url(url)
    if isinstance(place, PostgresUrl):
        return place
    raise Invalid(f"{place} is a file, and a database is needed here; write postgresql://USER@HOST/DATABASE")


def _parse_postgres(url: str) -> PostgresUrl:
    safe_url = _without_password(url)
    try:
        parts = urlsplit(url)
        fields = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError as error:
        raise Invalid(f"{safe_url} is not a URL of PostgreSQL: write postgresql://USER@HOST:PORT/DATABASE") from error
    tenant = dict(fields).get("tenant", FIRST_TENANT)
    if not tenant or "\0" in unquote(url):
        raise Invalid(f"{safe_url} names no tenant; leave ?tenant= out, or name one")
    driver = urlencode([field for field in fields if field[0] != "tenant"])
    dsn = urlunsplit(("postgresql", parts.netloc, parts.path, driver, ""))
    public = urlencode([field for field in fields if field[0] in ("host", "port")], safe="/")
    host = parts.netloc.rpartition("@")[2]
    return PostgresUrl(dsn=dsn, place=f"postgresql://{host}{parts.path}{f'?{public}' if public else ''}", tenant=tenant)


def _without_password(url: str) -> str:
    return _PASSWORD_FIELD.sub(r"\1=***", _CREDENTIALS.sub("//***@", url))
