"""Where a webhook may go: a name may resolve to any address at the moment it is used, even in this
network."""

from __future__ import annotations

import ipaddress
import socket

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

#: Ranges that carry an IPv4 address which a gateway may unwrap: the address inside could be any.
_WRAPPERS = tuple(map(ipaddress.ip_network, ("64:ff9b::/96", "2002::/16", "192.88.99.0/24")))
#: Not public on the internet, which this Python does not know; the last is a cloud's own host.
_NOBODYS = tuple(map(ipaddress.ip_network, ("3fff::/20", "192.0.0.0/24", "168.63.129.16/32")))
#: The bits before the IPv4 address in the last half of an ISATAP address.
_ISATAP = (0x00005EFE, 0x02005EFE)


class AddressRefused(Exception):
    """This name must not be called; the message says where it points, and which setting allows that."""


def permitted(host: str, port: int, *, allow_private: bool) -> str:
    """The one address to connect to for this host. Use only this address, because a name may change.

    Raises :class:`AddressRefused` if any of its addresses is not public, :class:`OSError` if it has none.
    """
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = [str(info[4][0]) for info in found]
    for address in addresses:
        if not allow_private and not is_public(ipaddress.ip_address(address.partition("%")[0])):
            raise AddressRefused(
                f"{host} points at {address}, which is not a public address; "
                "CELLBLOCK_WEBHOOKS_ALLOW_PRIVATE=true allows it"
            )
    return addresses[0]


def is_public(address: Address) -> bool:
    """Whether it is a public address on the internet: not this host or network, not a group, not reserved."""
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return is_public(address.ipv4_mapped)
        if address.is_site_local or (int(address) >> 32) & 0xFFFFFFFF in _ISATAP:
            return False
    if any(address in network for network in (*_WRAPPERS, *_NOBODYS)):
        return False
    return address.is_global and not (address.is_multicast or address.is_reserved or address.is_unspecified)
