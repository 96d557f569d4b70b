"""Run the contract of runners on real Airflows: `python -m tests.real_airflow`, or `make test-airflow`.

Airflow 2 and Airflow 3 are each installed into an environment of their own and run as `airflow standalone` on a
database that lives as long as the run. The first time takes some minutes, and nothing of it is kept with the sources.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support.fakes.airflow import DAGS, Version
from tests.support.fakes.running_airflow import REAL_AIRFLOW, RealAirflow

ROOT = Path(__file__).parent.parent
NAME, PASSWORD = "interlock", "interlock-contract"
INSTALL_S, READY_S, END_S = 1800, 240, 20
TEST_S = 300  # Airflow takes seconds for what a fake does at once

# The classes have moved between the versions; the DAGs are the same.
DAG_FILE = """
from datetime import datetime, timedelta

try:
    from airflow.sdk import DAG
    from airflow.providers.standard.operators.bash import BashOperator
except ImportError:
    from airflow import DAG
    from airflow.operators.bash import BashOperator

COMMANDS = {"succeeds": "true", "fails": "exit 1", "times_out": "sleep 600", "runs_on": "sleep 600"}

for name, command in COMMANDS.items():
    limit = timedelta(seconds=1) if name == "times_out" else None
    with DAG(name, schedule=None, start_date=datetime(2026, 1, 1)) as dag:
        BashOperator(task_id="work", bash_command=command, execution_timeout=limit)
    globals()[name] = dag
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    version: Version
    requirement: str
    settings: Mapping[str, str]

    @property
    def home(self) -> Path:
        return ROOT / ".venv" / f"airflow-{self.version}"


RELEASES = (
    Release(
        version="v1",
        requirement="apache-airflow==2.11.0",
        settings={
            "AIRFLOW__API__AUTH_BACKENDS": "airflow.api.auth.backend.basic_auth",
            "AIRFLOW__WEBSERVER__WEB_SERVER_HOST": "127.0.0.1",
            "AIRFLOW__WEBSERVER__WEB_SERVER_MASTER_TIMEOUT": "900",  # on a slow machine it gives up on itself
            "AIRFLOW__WEBSERVER__WEB_SERVER_PORT": "{port}",
            "AIRFLOW__WEBSERVER__WORKERS": "2",  # a connection on which nothing is sent holds up a whole one
        },
    ),
    Release(
        version="v2",
        requirement="apache-airflow==3.3.2",
        settings={
            "AIRFLOW__API__HOST": "127.0.0.1",
            "AIRFLOW__API__PORT": "{port}",
            "AIRFLOW__API__WORKERS": "1",
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": "http://127.0.0.1:{port}/execution/",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": "{folder}/passwords.json",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": f"{NAME}:admin",
        },
    ),
)


def main() -> int:
    return max(_test(release) for release in RELEASES)


def _test(release: Release) -> int:
    _install(release)
    with TemporaryDirectory(prefix="interlock-airflow-") as folder, _serving(release, Path(folder)) as airflow:
        suite = ["tests/contract/test_runners.py", "-k", "real-airflow", f"--timeout={TEST_S}"]
        command = [sys.executable, "-m", "pytest", *suite, *sys.argv[1:]]
        return subprocess.call(command, cwd=ROOT, env={**os.environ, REAL_AIRFLOW: airflow.to_json()})


def _install(release: Release) -> None:
    done = release.home / f"{release.requirement}.installed"
    if done.exists():
        return
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(release.home)], check=True, timeout=INSTALL_S)
    pip = [str(release.home / "bin" / "python"), "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", release.requirement], check=True, timeout=INSTALL_S)
    done.touch()


@contextmanager
def _serving(release: Release, folder: Path) -> Generator[RealAirflow]:
    (folder / "dags").mkdir()
    (folder / "dags" / "played.py").write_text(DAG_FILE)
    (folder / "passwords.json").write_text(json.dumps({NAME: PASSWORD}))
    port = _free_port()
    environment = _environment(release, folder, port)
    with (folder / "standalone.log").open("wb") as log:
        program = str(release.home / "bin" / "airflow")
        server = subprocess.Popen(
            [program, "standalone"], env=environment, cwd=folder, stdout=log, stderr=log, start_new_session=True
        )
    try:
        yield _once_ready(release, folder, port, server)
    finally:
        _end(server)


def _environment(release: Release, folder: Path, port: int) -> dict[str, str]:
    settings = {name: value.format(folder=folder, port=port) for name, value in release.settings.items()}
    return {
        **os.environ,
        **settings,
        "AIRFLOW_HOME": str(folder),
        "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "false",
        "AIRFLOW__CORE__DAGS_FOLDER": str(folder / "dags"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "false",
        # It starts its parts by name.
        "PATH": f"{release.home / 'bin'}{os.pathsep}{os.environ['PATH']}",
    }


def _once_ready(release: Release, folder: Path, port: int, server: subprocess.Popen[bytes]) -> RealAirflow:
    """Wait until every DAG can be triggered. Airflow 2 makes up a password while it starts."""
    given_up_at = time.monotonic() + READY_S
    while time.monotonic() < given_up_at and server.poll() is None:
        airflow = RealAirflow(release.version, f"http://127.0.0.1:{port}", *_login(release, folder))
        try:
            if all(airflow.has_dag(dag_id) for dag_id in DAGS):
                return airflow
        except (OSError, urllib.error.URLError):
            pass
        time.sleep(1)
    log = (folder / "standalone.log").read_text(errors="replace")
    raise SystemExit(f"{release.requirement} did not come up:\n{log[-4000:]}")


def _login(release: Release, folder: Path) -> tuple[str, str]:
    if release.version == "v2":
        return NAME, PASSWORD
    made_up = folder / "standalone_admin_password.txt"
    return "admin", made_up.read_text().strip() if made_up.exists() else ""


def _end(server: subprocess.Popen[bytes]) -> None:
    """End the server and everything it started: they are one process group."""
    for kind in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(server.pid, kind)
            server.wait(END_S)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    sys.exit(main())
