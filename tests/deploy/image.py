"""The image of `make deploy-check`: built on a base that is made here, looked over, and run as ECS runs it."""

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.message import Message
from email.parser import Parser
from pathlib import Path
from typing import Any, Final

from deploy.release.artifacts import LOCK
from deploy.release.image import label_arguments
from deploy.release.lockfile import read_lock
from deploy.release.sbom import bill_of_materials
from deploy.release.source import Source, read_source
from tests.deploy.steps import ROOT, Failed, Skipped, run
from tests.support.worlds.live_worker import BUSY, PATIENCE_S, today

SUITE: Final = "bookworm"
BASE: Final = "localhost/interlock-base"
INSTALLED: Final = "opt/interlock/lib/python3*/site-packages"
UNCHECKED: Final = 1  # in a compiled file: it is used without a look at its source
HEALTH_PORT: Final = 18_080
EXIT_S: Final = 25
# A root that cannot be written, with what any container has, and one directory that can. Then a command.
READ_ONLY: Final = (
    'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && '
    'mount --rbind /dev "$0/dev" && mount --rbind /proc "$0/proc" && '
    'mount --bind "$1" "$0$2" && shift 2 && exec "$@"'
)


def build_image(work: Path) -> str:
    """Build the Dockerfile on a small Debian made here, and start the worker from what comes out, as ECS does."""
    if os.geteuid() != 0:
        raise Skipped("debootstrap and chroot need root: run this as root, or in a container")
    base = work / "base"
    packages = "--include=python3,python3-venv,ca-certificates"
    run(["debootstrap", "--variant=minbase", packages, SUITE, str(base)])
    (base / "usr/bin/python").symlink_to("python3")
    storage = ["--root", str(work / "storage"), "--runroot", str(work / "run"), "--storage-driver", "vfs"]
    run(["buildah", *storage, "from", "--name", "base", "scratch"])
    run(["buildah", *storage, "copy", "base", str(base), "/"])
    run(["buildah", *storage, "commit", "base", BASE])
    pip = [f"--volume={path}:{path}:ro" for path in _pip_settings()]
    source = read_source()
    arguments = ["--isolation", "chroot", "--build-arg", f"BASE={BASE}", *label_arguments(source), *pip]
    run(["buildah", *storage, "bud", *arguments, "-t", "interlock", str(ROOT)])
    run(["buildah", *storage, "from", "--name", "worker", "localhost/interlock"])
    inspected = json.loads(run(["buildah", *storage, "inspect", "--type", "image", "localhost/interlock"]))
    mounted = run(["buildah", *storage, "mount", "worker"]).strip()
    try:
        config = inspected["OCIv1"]["config"]
        _look_at(Path(mounted), config)
        _look_at_labels(config["Labels"], source)
        packages = _look_at_packages(Path(mounted), source)
        files = _look_at_compiled(Path(mounted))
        started = _start_from(Path(mounted), base, config, work / "data")
        return f"{started}; its labels name the commit; {packages} packages are as locked, {files} files compiled"
    finally:
        run(["buildah", *storage, "umount", "worker"])


def _pip_settings() -> list[str]:
    """A machine may reach its package registry by settings and certificates of its own: the build must see them too."""
    return [path for path in ("/etc/pip.conf", "/etc/ssl/certs") if Path(path).exists()]


@dataclass(frozen=True, slots=True)
class Container:
    """The image as its task definition runs it: its own command and user, all of it read-only but one directory."""

    root: Path
    data: Path
    config: Mapping[str, Any]

    @property
    def entrypoint(self) -> list[str]:
        return list(self.config["Entrypoint"])

    def inside(self, *command: str) -> list[str]:
        """Mounts are those of the command alone, and end with it."""
        directory = self.config["WorkingDir"]
        environment = [*self.config["Env"], f"INTERLOCK_HEALTH=127.0.0.1:{HEALTH_PORT}", "INTERLOCK_TIMING=fast"]
        chroot = ["chroot", f"--userspec={self.config['User']}", str(self.root), "/usr/bin/env", "-i", "-C", directory]
        place = ["unshare", "--mount", "sh", "-c", READ_ONLY, str(self.root), str(self.data), directory]
        return [*place, *chroot, *environment, *command]

    def interlock(self, *arguments: str) -> str:
        return run(self.inside(*self.entrypoint, *arguments))


def _start_from(image: Path, base: Path, config: Mapping[str, Any], data: Path) -> str:
    """Run the worker as the image says: it starts, is healthy, and ends in order while it is busy."""
    data.mkdir()
    os.chown(data, 10001, 10001)
    container = Container(image, data, config)
    for place in ("/opt/interlock/x", "/tmp/x", "/x"):
        touched = subprocess.run(container.inside("touch", place), capture_output=True, check=False, timeout=60)
        if touched.returncode == 0:
            raise Failed(f"{place} can be written in the container")
    version = container.interlock("--version").strip()
    (data / "pipelines").mkdir()
    (data / "pipelines/busy.yaml").write_text(BUSY)
    container.interlock("store", "init")
    container.interlock("pipelines", "push", "pipelines", "--yes")
    ended_s = _live_and_end(container)
    size = _megabytes(image) - _megabytes(base)
    lives = f"{version} runs from the image as {config['User']}, and ends in {ended_s:.1f} s while it is busy"
    return f"{lives}; it adds {size} MB to its base"


def _look_at(image: Path, config: Mapping[str, Any]) -> None:
    if (config["Entrypoint"], config["Cmd"], config["User"]) != (["interlock"], ["run"], "10001:10001"):
        raise Failed(f"the image starts {config['Entrypoint']} {config['Cmd']} as {config['User']}")
    if "Healthcheck" in config:
        raise Failed("the image has a health check of its own")
    tools = [path for name in ("pip*", "gcc*", "cc", "make") for path in image.glob(f"**/bin/{name}")]
    if tools:
        raise Failed(f"build tools are still in the image: {', '.join(map(str, tools))}")


def _look_at_labels(labels: Mapping[str, str], source: Source) -> None:
    """The labels of the image itself, as a registry shows them."""
    prefix = "org.opencontainers.image."
    created = datetime.fromtimestamp(source.epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    wanted = {
        "title": source.name,
        "licenses": "Apache-2.0",
        "version": source.version,
        "revision": source.commit,
        "created": created,
        "base.name": BASE,
    }
    wrong = {name: labels.get(prefix + name) for name, value in wanted.items() if labels.get(prefix + name) != value}
    if wrong or not labels.get(f"{prefix}description"):
        raise Failed(f"the image has the labels {wrong}, and not those of {wanted}")


def _look_at_packages(image: Path, source: Source) -> int:
    """What is installed is what the bill of materials of a release lists; gives how many packages that are."""
    locked = read_lock((ROOT / LOCK).read_text(encoding="utf-8"))
    listed = {each["purl"] for each in json.loads(bill_of_materials(source, locked))["components"]}
    written = [path.read_text(encoding="utf-8") for path in image.glob(f"{INSTALLED}/*.dist-info/METADATA")]
    installed = {_purl(Parser().parsestr(each, headersonly=True)) for each in written}
    installed.remove(f"pkg:pypi/{source.name}@{source.version}")
    # A package for other platforms or other Pythons has a marker.
    needed = {each.purl for each in locked if not each.marker}
    if not needed <= installed <= listed:
        problems = (
            f"{sorted(installed - listed)} are installed and not listed, {sorted(needed - installed)} the reverse"
        )
        raise Failed(f"the image is not what the bill of materials says: {problems}")
    return len(installed)


def _purl(metadata: Message) -> str:
    name = re.sub(r"[-_.]+", "-", metadata["Name"]).lower()
    return f"pkg:pypi/{name}@{metadata['Version']}"


def _look_at_compiled(image: Path) -> int:
    """Every module is compiled, in a way that no other time of its source makes outdated; gives how many there are."""
    compiled = list(image.glob(f"{INSTALLED}/worker/**/*.pyc"))
    outdated = [path for path in compiled if int.from_bytes(path.read_bytes()[4:8], "little") != UNCHECKED]
    sources = list(image.glob(f"{INSTALLED}/worker/**/*.py"))
    if outdated or len(compiled) != len(sources) or not sources:
        raise Failed(f"{len(compiled)} of {len(sources)} modules are compiled, {len(outdated)} of them by time")
    return len(list(image.glob(f"{INSTALLED}/**/*.pyc")))


def _live_and_end(container: Container) -> float:
    """Start the worker, make it busy once its probe is green, and end it as ECS does; gives how long that took."""
    log = container.data / "worker.log"
    with log.open("w") as said:
        command = container.inside(*container.entrypoint, *container.config["Cmd"])
        worker = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=said)
    try:
        probe = container.inside("python", "-m", "worker.web.probe")
        _until(lambda: subprocess.run(probe, capture_output=True, check=False, timeout=30).returncode == 0, worker, log)
        for day in range(1, 4):
            container.interlock("sensor", "put", "busy", "landed", "ok=true", "--period", today(days_ago=day))
        _until(lambda: '"JobStarted"' in log.read_text(), worker, log)
        began = time.monotonic()
        worker.send_signal(signal.SIGTERM)
        if worker.wait(EXIT_S) != 0:
            raise Failed(f"the worker ended with {worker.returncode} after SIGTERM:\n{log.read_text()[-4000:]}")
        return time.monotonic() - began
    except subprocess.TimeoutExpired as late:
        raise Failed(f"the worker did not end within {EXIT_S} s:\n{log.read_text()[-4000:]}") from late
    finally:
        worker.kill()
        worker.wait()


def _until(has_come: Callable[[], bool], worker: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not has_come():
        if time.monotonic() > deadline or worker.poll() is not None:
            raise Failed(f"the worker did not get healthy and busy:\n{log.read_text()[-4000:]}")
        time.sleep(0.5)


def _megabytes(place: Path) -> int:
    return int(run(["du", "-sm", str(place)]).split()[0])
