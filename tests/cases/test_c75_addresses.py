"""C75: the address is chosen by a user, and leads inside: refused before any connection is made."""

from __future__ import annotations

import socket

import pytest
from support.lab import Lab
from support.receivers import hook

from suimon.errors import AddressRefused
from suimon.outbox import notify, reach, relay
from suimon.outbox.relay import Post
from suimon.store.secret_key import KeyRing


def post(allow: str = "") -> Post:
    given = {"HOOK": "hush"} | ({"SUIMON_ALLOW_ADDRESSES": allow} if allow else {})
    return Post(KeyRing.of(given))


def notices_to(lab: Lab, url: str, allow: str = "") -> tuple[str, str | None]:
    """The channel is there (an older version let it in); what its notice comes to."""
    lab.sql("delete from suimon.channels")
    lab.sql("delete from suimon.notices")
    lab.sql(
        "insert into suimon.channels (name, kind, target, secret, kinds)"
        " values ('x', 'webhook', %s, 'env:HOOK', '{*}')",
        url,
    )
    notice = notify.test(lab.conn, "x")
    relay.round(lab.conn, post(allow))
    found = notify.log(lab.conn, notice=notice)[0]
    return found["state"], found["why"]


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1", "[::1]", "localhost", "[::ffff:127.0.0.1]", "2130706433", "0177.0.0.1",
        "0x7f.1", "0.0.0.0", "127.1",
    ],
)  # fmt: skip
def test_c75_a_service_on_loopback_is_not_reached(lab: Lab, host: str) -> None:
    with hook() as inside:
        found = notices_to(lab, f"http://{host}:{inside.port}/secret?token=hush")
        assert inside.connections == 0
    assert found[0] == "dead"
    assert "may not be connected to" in str(found[1])
    assert "hush" not in str(found[1])


@pytest.mark.parametrize(
    "url",
    [
        "http://169.254.169.254/latest/meta-data/", "http://10.0.0.7/", "http://192.168.0.1/",
        "http://172.20.1.1:8080/", "http://[fd00::1]/", "http://[fe80::1]/", "file:///etc/passwd",
        "gopher://127.0.0.1:6379/_x", "http://100.64.0.1/", "http://224.0.0.1/",
    ],
)  # fmt: skip
def test_c75_private_addresses_and_other_schemes_are_refused(
    lab: Lab, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def connects(*_: object, **__: object) -> None:
        pytest.fail("a connection was made")

    monkeypatch.setattr(socket, "create_connection", connects)
    found = notices_to(lab, url)
    assert found[0] == "dead"
    assert "may not be connected to" in str(found[1])


def test_c75_the_databases_own_port_is_refused_even_where_its_network_is_open(lab: Lab) -> None:
    info = lab.conn.info
    state, why = notices_to(lab, f"http://127.0.0.1:{info.port}/", allow="127.0.0.0/8")
    assert state == "dead"
    assert "database's own" in str(why)


def test_c75_an_allow_list_opens_single_addresses(lab: Lab) -> None:
    with hook() as one, hook() as other:
        allow = f"127.0.0.1:{one.port}"
        assert notices_to(lab, one.url, allow) == ("sent", None)
        state, _ = notices_to(lab, other.url, allow)
        assert (state, other.connections) == ("dead", 0)


def test_c75_a_name_that_answers_differently_the_second_time_gains_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What was judged is what is connected to: the name is resolved once for each connection."""
    asked: list[str] = []
    connected: list[object] = []

    def resolve(host: str, port: int) -> list[str]:
        asked.append(host)
        return ["93.184.216.34"] if len(asked) == 1 else ["127.0.0.1"]

    def connects(address: tuple[str, int], *_: object, **__: object) -> None:
        connected.append(address)
        raise ConnectionRefusedError

    monkeypatch.setattr(reach, "_resolve", resolve)
    monkeypatch.setattr(socket, "create_connection", connects)
    where = reach.Reach(reach.Allowed())
    with pytest.raises(reach.httpx2.ConnectError):
        where.post("http://rebind.example.com/", b"", {})
    assert (asked, connected) == (["rebind.example.com"], [("93.184.216.34", 80)])
    with pytest.raises(AddressRefused):
        where.post("http://rebind.example.com/", b"", {})
    assert len(connected) == 1


def test_c75_a_name_with_one_address_inside_is_refused_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reach, "_resolve", lambda *_: ["93.184.216.34", "10.0.0.1"])
    with pytest.raises(AddressRefused, match=r"10\.0\.0\.1"):
        reach.Reach(reach.Allowed()).check("https://mixed.example.com/")
