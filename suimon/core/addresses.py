"""Where the engine itself may connect to when somebody else names the address.

A webhook of a notice, a destination, a file by URL: whoever may write such an address could read
through the server what only the server can reach (the cloud's metadata, a service on loopback, the
database). So only addresses of the public internet are open; an allow list opens single others:

    SUIMON_ALLOW_ADDRESSES="10.20.0.0/16, 127.0.0.1:9000, [::1]:9000, hooks.internal:8443"

Two checks, both pure. `parse` reads a URL and refuses what has no one meaning (other schemes,
credentials, numbers that are no plain address). `judge` is asked about each address that the name
was resolved to, and then this very address is connected to: a name that answers differently the
next time gains nothing. The database's own address and port are refused unless an entry names that
port.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final
from urllib.parse import SplitResult, urlsplit

from suimon.errors import AddressRefused

PORTS: Final = {"http": 80, "https": 443}
URL_CHARACTERS: Final = 2_000
ALLOWED_ENTRIES: Final = 1_000

Ip = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_LABEL: Final = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)", re.ASCII)
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*", re.ASCII)
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
_COMPATIBLE: Final = ipaddress.IPv6Network("::/96")
_HINT: Final = "An operator opens single addresses with SUIMON_ALLOW_ADDRESSES."


@dataclass(frozen=True, slots=True)
class Target:
    """A URL that can be connected to, taken apart."""

    url: str
    scheme: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Allowed:
    """The allow list: networks and names, each with a port or for all of them."""

    networks: tuple[tuple[Network, int | None], ...] = ()
    names: tuple[tuple[str, int | None], ...] = ()


def parse(url: str) -> Target:
    """The target of a URL, or AddressRefused. Nothing is resolved."""
    if len(url) > URL_CHARACTERS:
        raise _refused(url[:60], f"it is longer than {URL_CHARACTERS:,} characters")
    shown = redacted(url)
    if not url.isascii() or any(c <= " " or c in '\\<>"^`{|}' or c == "\x7f" for c in url):
        raise _refused(shown, "it holds characters that no URL has")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise _refused(shown, "it is no URL") from None
    if parts.scheme not in PORTS:
        raise _refused(shown, "only http and https are spoken")
    if "@" in parts.netloc:
        raise _refused(shown, "it holds a user or a password")
    host = (parts.hostname or "").rstrip(".")
    if port == 0 or not _is_host(host, parts):
        raise _refused(shown, f'"{host[:200]}" is no plain host name or address')
    return Target(url, parts.scheme, host, port or PORTS[parts.scheme])


def _is_host(host: str, parts: SplitResult) -> bool:
    """A name or a plain address; no `2130706433`, `0177.0.0.1`, `0x7f.1` or `127.1`."""
    if "[" in parts.netloc:
        return _ip(host) is not None and "%" not in host
    labels = host.split(".")
    if _NUMBER.fullmatch(labels[-1]):
        return _ip(host) is not None
    return 0 < len(host) <= 253 and all(_LABEL.fullmatch(label) for label in labels)


def allowed(text: str | None) -> Allowed:
    """The allow list as it is written: entries with commas or spaces between. Raises ValueError."""
    networks: list[tuple[Network, int | None]] = []
    names: list[tuple[str, int | None]] = []
    entries = re.split(r"[,\s]+", (text or "").strip())
    if len(entries) > ALLOWED_ENTRIES:
        msg = f"must have at most {ALLOWED_ENTRIES:,} entries"
        raise ValueError(msg)
    for entry in filter(None, entries):
        host, port = _entry(entry)
        try:
            networks.append((ipaddress.ip_network(host, strict=False), port))
        except ValueError:
            labels = host.lower().split(".")
            if "/" in host or _NUMBER.fullmatch(labels[-1]) or not all(
                _LABEL.fullmatch(label) for label in labels
            ):  # fmt: skip
                msg = f'must be addresses such as 10.0.0.0/8, host or host:port; "{entry}" is none'
                raise ValueError(msg) from None
            names.append((host.lower(), port))
    return Allowed(tuple(networks), tuple(names))


def _entry(entry: str) -> tuple[str, int | None]:
    """Host and port of `host`, `host:port`, `address`, `[address]:port` or a network."""
    if entry.startswith("["):
        host, bracket, rest = entry[1:].partition("]")
        port = rest[1:] if rest.startswith(":") else ("" if not rest else "x")
        if not bracket:
            port = "x"
    elif entry.count(":") == 1:
        host, _, port = entry.partition(":")
    else:
        return entry, None
    if not port:
        return host, None
    if not port.isdecimal() or not 0 < int(port) < 65_536:
        msg = f'must have ports from 1 to 65535; "{entry}" has none'
        raise ValueError(msg)
    return host, int(port)


def judge(
    target: Target,
    address: str,
    allow: Allowed,
    *,
    forbidden: Collection[tuple[str, int]] = (),
) -> None:
    """Raise AddressRefused unless this address, which the target's name was resolved to, is open.

    `forbidden` are addresses with their ports that only an entry with that port opens.
    """
    ip = _ip(address.partition("%")[0])
    if ip is None:
        raise _refused(target.url, f'"{address}" is no address')
    faces = [ip, *_embedded(ip)]
    own = any((str(face), target.port) in forbidden for face in faces)
    if any(_opens(allow, target, face, exactly=own) for face in faces):
        return
    if own:
        raise _refused(target.url, "it is the database's own address and port")
    for face in faces:
        if kind := _kind(face):
            place = str(ip) if target.host == str(ip) else f"{target.host} is {ip}, which"
            raise _refused(target.url, f"{place} is {kind}")


def _opens(allow: Allowed, target: Target, ip: Ip, *, exactly: bool) -> bool:
    def fits(port: int | None) -> bool:
        return port == target.port or (port is None and not exactly)

    return any(
        fits(port) and ip.version == network.version and ip in network
        for network, port in allow.networks
    ) or any(fits(port) and name == target.host for name, port in allow.names)


def _kind(ip: Ip) -> str | None:
    """What stands against an address; None: it is one of the public internet."""
    if ip.is_unspecified or (ip.version == 4 and ip in ipaddress.IPv4Network("0.0.0.0/8")):
        return "the unspecified address"
    if ip.is_loopback:
        return "on loopback"
    if ip.is_link_local:
        return "link-local (the cloud's metadata is there)"
    if ip.is_multicast:
        return "a multicast address"
    if not ip.is_global or ip.is_reserved or (ip.version == 6 and ip.is_site_local):
        return "in a private or reserved network"
    return None


def _embedded(ip: Ip) -> list[Ip]:
    """The IPv4 addresses inside an IPv6 address: mapped, compatible, 6to4, NAT64, Teredo."""
    if not isinstance(ip, ipaddress.IPv6Address):
        return []
    found: list[Ip] = [v4 for v4 in (ip.ipv4_mapped, ip.sixtofour) if v4 is not None]
    if ip.teredo is not None:
        found += list(ip.teredo)
    if ip in _NAT64 or (ip in _COMPATIBLE and int(ip) > 1):
        found.append(ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF))
    return found


def _ip(text: str) -> Ip | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def redacted(url: str) -> str:
    """A URL for messages: without user and password, without its query, which may hold a token."""
    text = re.sub(r"//[^/?#]*@", "//***@", url)
    text = re.split(r"[?#]", text, maxsplit=1)[0]
    return "".join(c if c.isprintable() else "?" for c in text)[:200]


def _refused(url: str, why: str) -> AddressRefused:
    msg = f'"{redacted(url)}" may not be connected to: {why}'
    return AddressRefused(msg, hint=_HINT)
