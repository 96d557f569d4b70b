"""A Redis store over TLS: certificates of both sides are checked, and errors say which file or name is wrong.

Valkey's wheel has no TLS, so a proxy adds it; a server of this machine that has TLS is tested as well.
"""

import ssl
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from tests.contract.portrows import CONTROL, a_row, stored
from tests.support.certificates import Authority
from tests.support.redis_server import IN_MEMORY, RedisServer, free_port, program_with_tls, redis_server
from tests.support.tcp_link import tcp_link
from worker.core.errors import ConfigError, RetryLater
from worker.runtime.clock import SystemClock
from worker.store.redis.admin import RedisAdmin
from worker.store.redis.connections import Servers
from worker.store.redis.tables import RedisTables
from worker.store.table import Absent, Put
from worker.store.url import RedisPlace, locate

pytestmark = pytest.mark.xdist_group("redis")

PATIENCE_S: Final = 20.0  # a handshake may take long on a busy machine


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@asynccontextmanager
async def proxy(authority: Authority, *, wants_client: bool) -> AsyncGenerator[int]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.sign("server", "127.0.0.1"))
    if wants_client:
        context.load_verify_locations(authority.file)
        context.verify_mode = ssl.CERT_REQUIRED
    async with tcp_link(redis_server().port, context) as link:
        yield link.port


@asynccontextmanager
async def server(authority: Authority, *, wants_client: bool) -> AsyncGenerator[int]:
    certificate, key = authority.sign("server", "127.0.0.1")
    port = free_port()
    files = {"cert": certificate, "key": key, "ca-cert": authority.file}
    options = [word for name, file in files.items() for word in (f"--tls-{name}-file", str(file))]
    options += ["--tls-port", str(port), "--tls-auth-clients", "yes" if wants_client else "no"]
    started = RedisServer(options=(*IN_MEMORY, *options), program=program()).start()
    try:
        yield port
    finally:
        started.stop()


@cache
def program() -> str:
    found = program_with_tls()
    return found or pytest.skip("no Redis or Valkey server of this machine has TLS")


KINDS: Final = {"proxy": proxy, "server": server}


@pytest.fixture(params=KINDS)
async def port(request: pytest.FixtureRequest, authority: Authority) -> AsyncGenerator[int]:
    async with KINDS[str(request.param)](authority, wants_client=False) as port:
        yield port


@pytest.fixture(params=KINDS)
async def strict_port(request: pytest.FixtureRequest, authority: Authority) -> AsyncGenerator[int]:
    """The port of a server that wants a certificate from its clients."""
    async with KINDS[str(request.param)](authority, wants_client=True) as port:
        yield port


def servers(port: int, options: Mapping[str, Path | str], host: str = "127.0.0.1") -> Servers:
    place = locate(f"rediss://{host}:{port}/0?prefix=tls" + "".join(f"&{name}={it}" for name, it in options.items()))
    assert isinstance(place, RedisPlace)
    return Servers(place, connect_s=PATIENCE_S, answer_s=PATIENCE_S)


async def use(servers: Servers, pk: str) -> None:
    """Make the store, write a row and read it."""
    await RedisAdmin(servers, SystemClock()).init(may_create=True)
    tables = RedisTables(servers, SystemClock())
    await tables.start()
    try:
        await tables.commit(Put(CONTROL, a_row(pk, n=1), Absent()))
        assert await stored(tables, pk) == a_row(pk, n=1)
    finally:
        await tables.stop()


async def test_a_store_works_over_tls(port: int, authority: Authority, pk: str) -> None:
    await use(servers(port, {"ssl_ca_certs": authority.file}), pk)


async def test_a_server_whose_authority_is_unknown_is_refused(port: int, tmp_path: Path, pk: str) -> None:
    other = Authority(tmp_path, "other")

    with pytest.raises(ConfigError, match=r"not valid here.*name the authority that signed it with ssl_ca_certs"):
        await use(servers(port, {"ssl_ca_certs": other.file}), pk)


async def test_a_server_with_a_certificate_for_another_host_is_refused_unless_that_check_is_off(
    port: int, authority: Authority, pk: str
) -> None:
    with pytest.raises(ConfigError, match="not valid for 'localhost'"):
        await use(servers(port, {"ssl_ca_certs": authority.file}, "localhost"), pk)

    await use(servers(port, {"ssl_ca_certs": authority.file, "ssl_check_hostname": "false"}, "localhost"), pk)


async def test_a_server_that_wants_a_certificate_gets_the_clients(
    strict_port: int, authority: Authority, pk: str
) -> None:
    certificate, key = authority.sign("client")
    trusted = {"ssl_ca_certs": authority.file}

    with pytest.raises(RetryLater, match="give ssl_certfile and ssl_keyfile if the server wants a certificate"):
        await use(servers(strict_port, trusted), pk)

    await use(servers(strict_port, {**trusted, "ssl_certfile": certificate, "ssl_keyfile": key}), pk)


@pytest.mark.parametrize("name", ["ssl_ca_certs", "ssl_certfile", "ssl_keyfile"])
async def test_a_file_that_cannot_be_read_is_named(name: str) -> None:
    with pytest.raises(ConfigError, match=f"the file {name}=/nowhere.pem cannot be read"):
        await servers(1, {name: "/nowhere.pem"}).connect()
