"""Which models clients may name: those for which the server calls this machine only where the operator says so."""

from ipaddress import ip_address
from urllib.parse import urlsplit

from chargehand.models.find import Lookup
from chargehand.models.known import OWN, RECORDED, RECORDING
from chargehand.server.settings import Settings


def may_name(handle: str, settings: Settings, lookup: Lookup) -> bool:
    """Whether a client may name this model."""
    provider = provider_of(handle)
    if provider in (RECORDED, RECORDING):
        return False  # they read and write files
    if "://" in handle:
        return settings.model_urls and _may_call(handle, settings.model_hosts)
    return provider not in OWN or is_named(provider, settings, lookup)


def is_named(provider: str, settings: Settings, lookup: Lookup) -> bool:
    """Whether the operator named a provider that is on this machine unless another address is set; others are."""
    place = OWN[provider]
    if place.needs_key:
        return True
    return bool(lookup(place.base)) or provider_of(settings.model) == provider


def provider_of(handle: str) -> str:
    return handle.replace("/", ":", 1).partition(":")[0].lower()


def _may_call(handle: str, hosts: tuple[str, ...]) -> bool:
    """Whether the address in a handle is public, or one that the operator named."""
    try:
        parts = urlsplit(handle)
        host = (parts.hostname or "").rstrip(".")
        port = parts.port
    except ValueError:
        return True  # no URL: whoever looks for the model says so
    return _is_public(host) or host in hosts or f"{host}:{port}" in hosts


def _is_public(host: str) -> bool:
    """Whether it is a public address, or a name with a dot: what that stands for is known to its network only."""
    try:
        address = ip_address(host)
    except ValueError:
        is_address = host.rpartition(".")[2].isdigit()  # 127.1 and 2130706433 are addresses, too
        return "." in host and not is_address and not host.endswith((".localhost", ".local", ".internal"))
    return address.is_global
