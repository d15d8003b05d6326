"""Where a server binds. Apart from the server, so that the first life of `suimon serve` can judge
the address without loading a web framework.
"""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass

from suimon.core.settings import SettingsError


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server binds; ``loopback``: nobody outside this machine can reach it."""

    family: socket.AddressFamily
    host: str
    port: int
    loopback: bool


def address_of(host: str, port: int) -> Address:
    """The first address of a host name or number. Raises SettingsError."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        msg = f'"{host}" is no address of this machine: {error.strerror}'
        raise SettingsError([msg]) from None
    family, _, _, _, place = found[0]
    name = str(place[0])
    return Address(family, name, port, ipaddress.ip_address(name.partition("%")[0]).is_loopback)


def bound(where: Address) -> socket.socket:
    """A socket bound to the address. Raises SettingsError when it is taken or not ours."""
    sock = socket.socket(where.family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((where.host, where.port))
    except OSError as error:
        sock.close()
        msg = f"{where.host}:{where.port} cannot be bound: {error.strerror}"
        hint = "Choose another one: --port NUMBER (0: any free one)"
        raise SettingsError([msg], hint=hint) from None
    return sock
