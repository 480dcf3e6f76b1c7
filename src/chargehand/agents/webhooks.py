"""Webhooks of a team file: addresses that a server tells of the runs of the team."""

import base64
import binascii
from typing import Literal, TypeAlias, get_args
from urllib.parse import urlsplit

from msgspec import Struct

from chargehand.errors import Invalid
from chargehand.models.resolve import Lookup

WebhookEvent: TypeAlias = Literal["run.started", "run.needs_input", "run.ended"]
WEBHOOK_EVENTS: tuple[WebhookEvent, ...] = get_args(WebhookEvent)
_SECRET_PREFIX = "whsec_"  # noqa: S105 - what secrets of the Standard Webhooks begin with
_MIN_SECRET_BYTES = 24


class WebhookKeys(Struct, frozen=True, kw_only=True):
    """What a webhook says in a team file as in Python."""

    url: str
    """Where events are sent, such as `https://example.com/hooks`."""
    secret_env: str
    """The environment variable with the secret that signs what is sent: `whsec_` and base64."""
    events: tuple[WebhookEvent, ...] = ("run.needs_input", "run.ended")
    """Which events of runs are sent."""


class Webhook(WebhookKeys, frozen=True):
    """An address, and the events of runs that are sent there."""

    name: str

    def check(self) -> None:
        """Raise Invalid for what cannot be called."""
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise Invalid(f"url is {self.url[:200]!r}; write the whole of it, such as https://example.com/hooks")
        if parts.username or parts.password:
            raise Invalid("url has a user or a password in it; the signature says who calls, so leave them out")
        if not self.events:
            raise Invalid(f"events is empty; name some of {', '.join(WEBHOOK_EVENTS)}")

    def secret(self, lookup: Lookup) -> bytes:
        """The key that signs; Invalid where the environment has none that could."""
        value = lookup(self.secret_env)
        advice = f'set it to one: echo "{_SECRET_PREFIX}$(openssl rand -base64 32)"'
        if not value:
            raise Invalid(f"webhook {self.name} needs the variable {self.secret_env}, which is not set; {advice}")
        try:
            key = base64.b64decode(value.removeprefix(_SECRET_PREFIX), validate=True)
        except binascii.Error:
            key = b""
        if not value.startswith(_SECRET_PREFIX) or len(key) < _MIN_SECRET_BYTES:
            raise Invalid(
                f"the variable {self.secret_env} of webhook {self.name} is no secret: it must be {_SECRET_PREFIX} and "
                f"at least {_MIN_SECRET_BYTES} bytes in base64; {advice}"
            )
        return key
