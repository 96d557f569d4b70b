"""Where jobs may be sent."""

import socket
from ipaddress import ip_address

import pytest

from tests.support.fakes.http_target import Names
from worker.core.errors import ConfigError
from worker.net.address_policy import AddressPolicy, AddressRefused, special_kind
from worker.net.guarded_connector import AddressGuard

NOBODY = AddressPolicy()


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("0.0.0.0", "unspecified"),
        ("100.64.0.1", "shared"),
        ("100.127.255.255", "shared"),
        ("168.63.129.16", "cloud"),
        ("192.0.0.8", "reserved"),
        ("192.0.2.1", "documentation"),
        ("198.18.0.1", "benchmark"),
        ("198.19.255.255", "benchmark"),
        ("198.51.100.1", "documentation"),
        ("203.0.113.1", "documentation"),
        ("224.0.0.1", "multicast"),
        ("255.255.255.255", "reserved"),
        ("fd00:ec2::254", "private"),
        ("fec0::1", "site-local"),
        ("2001:db8::1", "documentation"),
        ("3fff::1", "documentation"),
        ("100::1", "not public"),
        ("64:ff9b:1::7f00:1", "not public"),
        # Only a wrapping around an IPv4 address:
        ("::ffff:127.0.0.1", "loopback"),
        ("::ffff:169.254.169.254", "link-local"),
        ("::127.0.0.1", "loopback"),
        ("2002:7f00:1::", "loopback"),
        ("2002:a9fe:a9fe::1", "link-local"),
        ("64:ff9b::10.0.0.1", "private"),
        ("2001:0:102:304::1", "Teredo"),
    ],
)
def test_a_special_address_is_known_for_what_it_is(address: str, kind: str) -> None:
    found = special_kind(ip_address(address))

    assert found
    assert kind in found


@pytest.mark.parametrize(
    "address",
    ["1.1.1.1", "100.63.255.255", "100.128.0.1", "172.32.0.1", "198.17.0.1", "2606:4700::1111", "64:ff9b::1.1.1.1"],
)
def test_a_public_address_is_nothing_special(address: str) -> None:
    assert special_kind(ip_address(address)) is None


@pytest.mark.parametrize(
    ("entries", "host", "is_allowed"),
    [
        (["10.1.0.0/16"], "10.1.2.3", True),
        (["10.1.0.0/16"], "10.2.0.1", False),
        (["10.1.2.3"], "10.1.2.3", True),
        (["10.1.0.0/16"], "::ffff:10.1.2.3", True),
        (["fd00::/8"], "fd00::1", True),
        (["localhost"], "localhost", True),
        (["localhost"], "LOCALHOST.", True),
        ([], "localhost", False),
        ([], "anything.localhost", False),
        (["*.localhost"], "anything.localhost", True),
        (["*.localhost"], "localhost", False),
        ([], "2852039166", False),  # 169.254.169.254, as resolvers also read it
        ([], "127.1", False),
        ([], "0x7f000001", False),
        (["127.0.0.0/8"], "127.1", True),
        ([], "example.com", True),
        ([], "face.b00c", True),
    ],
)
def test_the_allow_list_opens_what_it_names_and_nothing_else(entries: list[str], host: str, is_allowed: bool) -> None:
    policy = AddressPolicy.parse(entries)

    if is_allowed:
        policy.check_host(host)
    else:
        with pytest.raises(AddressRefused):
            policy.check_host(host)


@pytest.mark.parametrize("entry", ["*", "10.1.2.3/16", "a..b", "http://internal", "*.", "host name"])
def test_an_entry_that_cannot_be_meant_is_an_error(entry: str) -> None:
    with pytest.raises(ConfigError, match="INTERLOCK_HTTP_ALLOW"):
        AddressPolicy.parse([entry])


async def test_a_name_is_judged_by_every_answer_it_resolves_to() -> None:
    guard = AddressGuard(NOBODY, Names(mixed_example=[["1.1.1.1", "10.0.0.1"]]))

    with pytest.raises(AddressRefused, match=r"mixed\.example \(10\.0\.0\.1\) is private"):
        await guard.resolve("mixed.example", 443)


async def test_a_name_that_changes_its_answer_is_judged_anew() -> None:
    guard = AddressGuard(NOBODY, Names(fickle_example=[["1.1.1.1"], ["169.254.169.254"]]))

    [first] = await guard.resolve("fickle.example", 443)

    assert first["host"] == "1.1.1.1"
    with pytest.raises(AddressRefused):
        await guard.resolve("fickle.example", 443)


async def test_an_allowed_name_may_resolve_to_our_own_network_and_no_other_name_may() -> None:
    guard = AddressGuard(
        AddressPolicy.parse(["*.corp.example"]), Names(airflow_corp_example=[["10.0.0.5"]], evil_example=[["10.0.0.5"]])
    )

    await guard.resolve("airflow.corp.example", 443)

    guard.open_socket((socket.AF_INET, socket.SOCK_STREAM, 0, "", ("10.0.0.5", 443))).close()
    with pytest.raises(AddressRefused):
        await guard.resolve("evil.example", 443)


@pytest.mark.parametrize("address", ["127.0.0.1", "169.254.169.254", "::1", "::ffff:10.0.0.1"])
def test_no_socket_is_opened_for_a_forbidden_address(address: str) -> None:
    guard = AddressGuard(NOBODY, Names())

    with pytest.raises(AddressRefused):
        guard.open_socket((socket.AF_INET, socket.SOCK_STREAM, 0, "", (address, 80)))
