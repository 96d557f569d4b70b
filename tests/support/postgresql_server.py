"""A PostgreSQL server on loopback, where one is installed: once per test process, and ended with it."""

import atexit
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.support.certificates import Authority

USER, PASSWORD = "interlock", "sesame/9000 é"
NAME = "db.interlock.test"  # in its certificate; no name server knows it
READY_S = 30.0
# `sh` ends the server when our end of its input closes, which the kernel does even if we are killed.
WITH_US = '"$@" </dev/null & server=$!; trap "kill -INT $server; wait $server" EXIT; cat >/dev/null'


def find_server() -> Path | None:
    """The folder of the server's programs; Debian's package does not put it on the path."""
    known = shutil.which("postgres")
    found = [Path(known).resolve()] if known else sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    return found[-1].parent if found else None


@dataclass(frozen=True, slots=True)
class PostgresqlServer:
    port: int
    authority: Path


@cache
def postgresql() -> PostgresqlServer:
    programs = find_server()
    assert programs is not None
    folder = Path(tempfile.mkdtemp(prefix="interlock-postgresql-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    authority = Authority(folder)
    certificate, key = authority.sign(NAME)
    key.chmod(0o600)
    (folder / "password").write_text(PASSWORD)
    owner = _owner()
    if owner is not None:  # the server refuses to run as root
        folder.chmod(0o755)
        for path in (folder, certificate, key, folder / "password"):
            shutil.chown(path, owner)
    data, port = folder / "data", _free_port()
    made = [f"{programs}/initdb", "-D", data, "-U", USER, "-A", "scram-sha-256", "--no-sync", "-E", "UTF8"]
    subprocess.run(
        [*made, "--locale=C", f"--pwfile={folder}/password"], user=owner, cwd=folder, check=True, capture_output=True
    )
    settings = {
        "listen_addresses": "127.0.0.1",
        "unix_socket_directories": "",
        "fsync": "off",
        "ssl": "on",
        "ssl_cert_file": certificate,
        "ssl_key_file": key,
    }
    options = [f"-c{name}={value}" for name, value in settings.items()]
    server = [f"{programs}/postgres", "-D", data, "-p", str(port), *options]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            ["sh", "-c", WITH_US, "sh", *map(str, server)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=log,
            user=owner,
            cwd=folder,
        )
    atexit.register(_end, process)
    _wait_until_ready(programs, port, folder / "log")
    return PostgresqlServer(port, authority.file)


def _owner() -> str | None:
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def _wait_until_ready(programs: Path, port: int, log: Path) -> None:
    """Ask the server itself: it takes connections before it is done starting up, and refuses them."""
    until = time.monotonic() + READY_S
    asked = [f"{programs}/pg_isready", "-h", "127.0.0.1", "-p", str(port)]
    while time.monotonic() < until:
        if subprocess.run(asked, capture_output=True, check=False).returncode == 0:
            return
        time.sleep(0.05)
    raise AssertionError(log.read_text())


def _end(process: "subprocess.Popen[bytes]") -> None:
    assert process.stdin
    process.stdin.close()
    process.wait(timeout=20)
