"""Whether an address belongs to the public internet. Not how a name becomes an address.

A list of our own: the standard library's `is_global` lets several forms of private addresses through (NAT64,
site-local, mapped and multicast ones), and not the same ones in every version.
"""

from ipaddress import AddressValueError, IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import TypeAlias

Address: TypeAlias = IPv4Address | IPv6Address

# Azure's wire server is a metadata service on an address that looks public.
PRIVATE_4 = {
    IPv4Network("0.0.0.0/8"): "means this host",
    IPv4Network("10.0.0.0/8"): "is private",
    IPv4Network("100.64.0.0/10"): "is shared by a carrier",
    IPv4Network("127.0.0.0/8"): "is this machine",
    IPv4Network("168.63.129.16/32"): "is a metadata service",
    IPv4Network("169.254.0.0/16"): "is link-local, where metadata services live",
    IPv4Network("172.16.0.0/12"): "is private",
    IPv4Network("192.0.0.0/24"): "is reserved",
    IPv4Network("192.0.2.0/24"): "is for documentation",
    IPv4Network("192.31.196.0/24"): "is reserved",
    IPv4Network("192.52.193.0/24"): "is reserved",
    IPv4Network("192.88.99.0/24"): "is a relay for 6to4",
    IPv4Network("192.168.0.0/16"): "is private",
    IPv4Network("192.175.48.0/24"): "is reserved",
    IPv4Network("198.18.0.0/15"): "is for benchmarks",
    IPv4Network("198.51.100.0/24"): "is for documentation",
    IPv4Network("203.0.113.0/24"): "is for documentation",
    IPv4Network("224.0.0.0/4"): "is multicast",
    IPv4Network("240.0.0.0/4"): "is reserved",
}

# Of IPv6 only this is given out to hosts. All else is refused without being named: loopback, link-local, site-local,
# unique local (with Amazon's metadata service), multicast, IPv4-compatible, local NAT64, discard, segment routing.
PUBLIC_6 = IPv6Network("2000::/3")
PRIVATE_6 = {
    IPv6Network("2001::/23"): "is reserved (Teredo, benchmarks, ORCHID)",
    IPv6Network("2001:db8::/32"): "is for documentation",
    IPv6Network("2002::/16"): "is 6to4, which hides another address",
    IPv6Network("2620:4f:8000::/48"): "is reserved",
    IPv6Network("3fff::/20"): "is for documentation",
}
MAPPED = IPv6Network("::ffff:0:0/96")
NAT64 = IPv6Network("64:ff9b::/96")
ISATAP = (0x00005EFE, 0x02005EFE)


def objection(text: str) -> str:
    """Why this address may not be contacted; nothing when it may."""
    try:
        address = ip_address(text)
    except (AddressValueError, ValueError):
        return "is not an address"
    if isinstance(address, IPv6Address) and address.scope_id is not None:
        return "is bound to a network interface"
    inner = embedded(address)
    if isinstance(inner, IPv6Address):
        return next((why for net, why in PRIVATE_6.items() if inner in net), "") or (
            "" if inner in PUBLIC_6 else "is not public"
        )
    return next((why for net, why in PRIVATE_4.items() if inner in net), "")


def embedded(address: Address) -> Address:
    """The IPv4 address that is really reached, where an IPv6 one only carries it."""
    if isinstance(address, IPv4Address):
        return address
    number = int(address)
    carries = address in MAPPED or address in NAT64 or (number >> 32) & 0xFFFFFFFF in ISATAP
    return IPv4Address(number & 0xFFFFFFFF) if carries else address
