"""Which addresses the engine connects to for somebody else: the public ones, and what is opened."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suimon.core import addresses
from suimon.core.addresses import Allowed, Target
from suimon.errors import AddressRefused

NOTHING = Allowed()


def refused(url: str, address: str, allow: str = "", forbidden: object = ()) -> bool:
    target = addresses.parse(url)
    try:
        addresses.judge(target, address, addresses.allowed(allow), forbidden=forbidden)  # type: ignore[arg-type]
    except AddressRefused:
        return True
    return False


@pytest.mark.parametrize(
    ("url", "host", "port"),
    [
        ("https://hooks.example.com/a?b=c", "hooks.example.com", 443),
        ("http://EXAMPLE.com:8080", "example.com", 8080),
        ("http://example.com./", "example.com", 80),
        ("http://8.8.8.8/", "8.8.8.8", 80),
        ("http://[2001:4860:4860::8888]:90/", "2001:4860:4860::8888", 90),
        ("http://a_b.internal/", "a_b.internal", 80),
    ],
)
def test_a_plain_url_is_taken_apart(url: str, host: str, port: int) -> None:
    target = addresses.parse(url)
    assert (target.host, target.port) == (host, port)


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd", "ftp://example.com/", "gopher://x/", "javascript:alert(1)", "//x/",
        "example.com", "", "http://", "http:///x", "http://user:secret@example.com/",
        "http://example.com@127.0.0.1/", "http://2130706433/", "http://0177.0.0.1/",
        "http://0x7f000001/", "http://0x7f.1/", "http://127.1/", "http://0/", "http://1.2.3.4.5/",
        "http://exa mple.com/", "http://example.com\\@127.0.0.1/", "http://example.com/\r\nX: y",
        "http://ex\u00e4mple.com/", "http://\uff11\uff12\uff17.0.0.1/", "http://[::1/", "http://a..b/",
        "http://-a.com/", "http://example.com:0/", "http://example.com:99999/", "http://[fe80::1%25eth0]/",
        "http://" + "a" * 2000, "http://a.0x7f/",
    ],
)  # fmt: skip
def test_what_has_no_one_meaning_is_refused(url: str) -> None:
    with pytest.raises(AddressRefused) as caught:
        addresses.parse(url)
    assert "secret" not in caught.value.render()


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "127.8.9.10", "::1", "0.0.0.0", "0.1.2.3", "::", "10.1.2.3", "172.16.0.1",
        "192.168.1.1", "169.254.169.254", "fe80::1", "fe80::1%eth0", "fd00::1", "fec0::1",
        "100.64.0.1", "224.0.0.1", "ff02::1", "240.0.0.1", "255.255.255.255", "192.0.2.1",
        "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::127.0.0.1", "2002:7f00:1::", "2002:a00:1::",
        "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "2001:db8::1",
    ],
)  # fmt: skip
def test_what_is_inside_is_refused(address: str) -> None:
    assert refused("http://example.com/", address)


@pytest.mark.parametrize("address", ["8.8.8.8", "93.184.216.34", "2606:4700:4700::1111"])
def test_the_public_internet_is_open(address: str) -> None:
    assert not refused("http://example.com/", address)


@given(st.integers(0, 2**32 - 1))
def test_an_address_inside_is_refused_in_every_ipv6_dress(number: int) -> None:
    v4 = ipaddress.IPv4Address(number)
    if not refused("http://example.com/", str(v4)):
        return
    dresses = [
        ipaddress.IPv6Address((0xFFFF << 32) | number),
        ipaddress.IPv6Address((0x2002 << 112) | (number << 80)),
        ipaddress.IPv6Address((0x64FF9B << 96) | number),
    ]
    assert all(refused("http://example.com/", str(v6)) for v6 in dresses)


@pytest.mark.parametrize(
    ("entry", "url", "address", "opens"),
    [
        ("127.0.0.1", "http://127.0.0.1:9000/", "127.0.0.1", True),
        ("127.0.0.1:9000", "http://127.0.0.1:9000/", "127.0.0.1", True),
        ("127.0.0.1:9000", "http://127.0.0.1:9001/", "127.0.0.1", False),
        ("127.0.0.1:9000", "http://localhost:9000/", "127.0.0.1", True),
        ("127.0.0.1:9000", "http://[::ffff:127.0.0.1]:9000/", "::ffff:127.0.0.1", True),
        ("10.0.0.0/8", "http://crm.internal/", "10.200.1.1", True),
        ("10.0.0.0/8", "http://crm.internal/", "11.0.0.1", False),
        ("[::1]:90", "http://[::1]:90/", "::1", True),
        ("[::1]:90", "http://[::1]:91/", "::1", False),
        ("::1", "http://[::1]:91/", "::1", True),
        ("fd00::/8", "http://x/", "fd12::1", True),
        ("crm.internal", "http://crm.internal/", "10.0.0.1", True),
        ("crm.internal:8443", "http://CRM.internal:8443/", "10.0.0.1", True),
        ("crm.internal:8443", "http://crm.internal/", "10.0.0.1", False),
        ("crm.internal", "http://other.internal/", "10.0.0.1", False),
        ("a.b, 127.0.0.1 10.0.0.1", "http://10.0.0.1/", "10.0.0.1", True),
    ],
)
def test_an_entry_opens_what_it_names_and_nothing_else(
    entry: str, url: str, address: str, opens: bool
) -> None:
    known = address == "11.0.0.1"  # public anyway
    assert refused(url, address, entry) is not (opens or known)


@pytest.mark.parametrize("text", ["a b/c", "10.0.0.0/99", "host:0", "host:x", "[::1", "[::1]x",
                                  "0x7f.1", "-a", "1.2.3", "x" * 70])  # fmt: skip
def test_a_wrong_entry_is_a_mistake(text: str) -> None:
    with pytest.raises(ValueError, match=r"must (have|be)"):
        addresses.allowed(text)


def test_the_databases_port_needs_an_entry_with_that_port() -> None:
    own = {("127.0.0.1", 5432), ("93.184.216.34", 5432)}
    url = "http://127.0.0.1:5432/"
    assert refused(url, "127.0.0.1", "127.0.0.0/8", own)
    assert refused(url, "127.0.0.1", "127.0.0.1", own)
    assert not refused(url, "127.0.0.1", "127.0.0.1:5432", own)
    assert not refused("http://127.0.0.1:5433/", "127.0.0.1", "127.0.0.0/8", own)
    assert refused("http://example.com:5432/", "93.184.216.34", "", own)
    assert refused("http://[::ffff:127.0.0.1]:5432/", "::ffff:127.0.0.1", "127.0.0.0/8", own)


def test_the_message_names_address_and_reason_and_no_query() -> None:
    target = addresses.parse("http://meta.example.com/latest?token=hush")
    with pytest.raises(AddressRefused) as caught:
        addresses.judge(target, "169.254.169.254", NOTHING)
    said = caught.value
    assert said.message == (
        '"http://meta.example.com/latest" may not be connected to: meta.example.com is'
        " 169.254.169.254, which is link-local (the cloud's metadata is there)"
    )
    assert "SUIMON_ALLOW_ADDRESSES" in str(said.hint)


def test_a_target_is_data() -> None:
    assert addresses.parse("http://a/") == Target("http://a/", "http", "a", 80)
