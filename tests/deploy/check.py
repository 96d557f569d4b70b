"""Check what is deployed, as far as it can be without an account: `make deploy-check`.

The Terraform module is formatted, validated, planned, applied to an emulator, compared with what the program makes of
the same files, and destroyed; checkov and hadolint look it over; the Dockerfile is built on a base that is made here,
and the worker started from what comes out. A step whose tools are missing is skipped, and the exit code is then 3.

The providers come from a registry, or from a directory named by TF_PLUGIN_MIRROR.
"""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.emulators import AWS_ENVIRONMENT, ministack
from tests.installation import Installation
from tests.wholeworker import live_through_a_kill
from worker.store.table import TableName

ROOT = Path(__file__).parents[2]
CHECKERS = ROOT / ".venv/deploy/bin"
PROGRAM = ROOT / ".venv/bin/interlock"
STEP_S = 900
MIRROR = "TF_PLUGIN_MIRROR"
SUITE = "bookworm"
HEALTH_PORT = 18_080


class Failed(Exception):
    """A step found something wrong, or could not be done."""


@dataclass(frozen=True, slots=True)
class Step:
    name: str
    needs: tuple[str, ...]
    run: Callable[[Path], str]  # gives what is worth saying


def main() -> int:
    results: list[str] = []
    with tempfile.TemporaryDirectory(prefix="interlock-deploy-") as name:
        for step in STEPS:
            began = time.monotonic()
            results.append(_carry_out(step, Path(name)))
            print(f"{results[-1]:8} {step.name} ({time.monotonic() - began:.0f} s)", flush=True)
    if "failed" in results:
        return 1
    return 3 if "skipped" in results else 0


def _carry_out(step: Step, work: Path) -> str:
    missing = [tool for tool in step.needs if shutil.which(tool) is None]
    if missing:
        print(f"  {' and '.join(missing)} not found: install it and try again")
        return "skipped"
    try:
        said = step.run(work)
    except Failed as error:
        print(f"  {error}")
        return "failed"
    print(f"  {said}")
    return "ok"


# --- terraform --------------------------------------------------------------------------------------------------------


def check_format(_: Path) -> str:
    run(["terraform", "fmt", "-check", "-recursive", "deploy", "examples/terraform"], cwd=ROOT)
    return "formatted as terraform formats it"


def validate(work: Path) -> str:
    for example in ("minimal", "full"):
        place = _copy(work, f"validate-{example}") / "examples/terraform" / example
        terraform(place, "init", "-input=false", "-backend=false")
        terraform(place, "validate")
    return "both examples are valid"


def apply_and_destroy(work: Path) -> str:
    """Everything is made on the emulator, the store is what the program would have made of it, and all of it goes."""
    server = ministack()
    endpoint = f"http://127.0.0.1:{server.port}"
    place = _copy(work, "apply") / "examples/terraform/full"
    variables = ["-input=false", f"-var=endpoint={endpoint}"]
    terraform(place, "init", "-input=false")
    terraform(place, "plan", *variables)
    applied = terraform(place, "apply", "-auto-approve", *variables)
    try:
        store = terraform(place, "output", "-raw", "store").strip() + f"&endpoint={endpoint}"
        run([str(PROGRAM), "store", "check", "--store", store], env=AWS_ENVIRONMENT)
        files = [str(place / "pipelines"), "--calendars", str(place / "calendars")]
        pushed = run([str(PROGRAM), "pipelines", "push", *files, "--dry-run", "--store", store], env=AWS_ENVIRONMENT)
        if "0 new, 0 changed" not in pushed:
            raise Failed(f"the rows are not what the program makes of the same files:\n{pushed}")
        _work_on(place, endpoint, store)
    finally:
        destroyed = terraform(place, "destroy", "-auto-approve", *variables)
    ends = f"{_last_line(applied, 'Apply complete')} {_last_line(destroyed, 'Destroy complete')}"
    return f"two workers ran on it, one was killed; {ends}"


def _work_on(place: Path, endpoint: str, store: str) -> None:
    """Two real workers on what the module has made, one of them killed."""
    made = json.loads(terraform(place, "output", "-json"))
    installation = Installation(
        store=store,
        bus=made["bus"]["value"]["name"],
        alerts_queue=made["queues"]["value"]["alerts"]["url"],
        endpoint=endpoint,
        names={table: made["tables"]["value"][table]["name"] for table in TableName},
    )
    work = place / "work"
    work.mkdir()
    try:
        asyncio.run(live_through_a_kill(installation, work))
    except AssertionError as problem:
        raise Failed(f"the worker did not work on the module's own resources: {problem}") from problem


def terraform(place: Path, *arguments: str) -> str:
    return run(["terraform", arguments[0], "-no-color", *arguments[1:]], cwd=place, env=_terraform_environment(place))


def _terraform_environment(place: Path) -> Mapping[str, str]:
    mirror = os.environ.get(MIRROR)
    if not mirror:
        return {"TF_IN_AUTOMATION": "1"}
    settings = place / "terraform.rc"
    settings.write_text(f'provider_installation {{\n  filesystem_mirror {{\n    path = "{mirror}"\n  }}\n}}\n')
    return {"TF_IN_AUTOMATION": "1", "TF_CLI_CONFIG_FILE": str(settings)}


def _copy(work: Path, name: str) -> Path:
    """Terraform writes beside what it reads, and the sources are not the place for that."""
    place = work / name
    for part in ("deploy/terraform", "examples/terraform"):
        shutil.copytree(ROOT / part, place / part, ignore=shutil.ignore_patterns(".terraform*", "*.tfstate*"))
    return place


def _last_line(text: str, beginning: str) -> str:
    return next((line for line in text.splitlines() if line.startswith(beginning)), "")


# --- checkers ---------------------------------------------------------------------------------------------------------


def checkov(_: Path) -> str:
    said = [
        run(
            [str(CHECKERS / "checkov"), "--skip-download", "--compact", "--quiet", "--framework=terraform", "-d", part],
            cwd=ROOT,
        )
        for part in ("deploy/terraform", "examples/terraform/full")
    ]
    return "; ".join(_last_line(text, "Passed checks") for text in said)


def hadolint(_: Path) -> str:
    run([str(CHECKERS / "hadolint"), "Dockerfile"], cwd=ROOT)
    return "nothing to say about the Dockerfile"


# --- the image --------------------------------------------------------------------------------------------------------


def build_image(work: Path) -> str:
    """Build the Dockerfile on a small Debian made here, and start the worker from what comes out, as its own user."""
    if os.geteuid() != 0:
        raise Failed("debootstrap and chroot need root: run this as root, or in a container")
    base = work / "base"
    packages = "--include=python3,python3-venv,ca-certificates"
    run(["debootstrap", "--variant=minbase", packages, SUITE, str(base)])
    (base / "usr/bin/python").symlink_to("python3")
    storage = ["--root", str(work / "storage"), "--runroot", str(work / "run"), "--storage-driver", "vfs"]
    run(["buildah", *storage, "from", "--name", "base", "scratch"])
    run(["buildah", *storage, "copy", "base", str(base), "/"])
    run(["buildah", *storage, "commit", "base", "interlock-base"])
    pip = [f"--volume={path}:{path}:ro" for path in _pip_settings()]
    arguments = ["--isolation", "chroot", "--build-arg", "BASE=localhost/interlock-base", *pip, "-t", "interlock"]
    run(["buildah", *storage, "bud", *arguments, str(ROOT)])
    run(["buildah", *storage, "from", "--name", "worker", "localhost/interlock"])
    mounted = run(["buildah", *storage, "mount", "worker"]).strip()
    try:
        return _start_from(Path(mounted), base)
    finally:
        run(["buildah", *storage, "umount", "worker"])


def _pip_settings() -> list[str]:
    """A machine may reach its package registry by settings and certificates of its own: the build must see them too."""
    return [path for path in ("/etc/pip.conf", "/etc/ssl/certs") if Path(path).exists()]


def _start_from(image: Path, base: Path) -> str:
    """Run the worker in the image's own root, as the user it names: it starts, is healthy, and ends in order."""
    if (image / "opt/interlock/bin/pip").exists():
        raise Failed("pip is still in the image")
    refused = subprocess.run(_inside(image, "touch", "/opt/interlock/x"), capture_output=True, check=False, timeout=60)
    if refused.returncode == 0:
        raise Failed("the program's own files can be written by its user")
    version = run(_inside(image, "interlock", "--version")).strip()
    run(_inside(image, "interlock", "store", "init"))
    ended_s = _live_and_end(image)
    size = _megabytes(image) - _megabytes(base)
    return f"{version} runs from the image as user 10001 and ends in {ended_s:.1f} s; it adds {size} MB to its base"


def _live_and_end(image: Path) -> float:
    """Start the worker, wait until its probe is green, and end it as ECS does; gives how long that took."""
    worker = subprocess.Popen(_inside(image, "interlock", "run"), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        deadline = time.monotonic() + 60
        probe = _inside(image, "python", "-m", "worker.web.probe")
        while subprocess.run(probe, capture_output=True, check=False, timeout=30).returncode != 0:
            if time.monotonic() > deadline or worker.poll() is not None:
                raise Failed("the worker did not get healthy")
            time.sleep(0.5)
        began = time.monotonic()
        worker.send_signal(signal.SIGTERM)
        if worker.wait(25) != 0:
            raise Failed(f"the worker ended with {worker.returncode} after SIGTERM")
        return time.monotonic() - began
    finally:
        worker.kill()
        worker.communicate()


def _inside(image: Path, *command: str) -> list[str]:
    environment = ["PATH=/opt/interlock/bin:/usr/bin:/bin", f"INTERLOCK_HEALTH=127.0.0.1:{HEALTH_PORT}"]
    place = ["chroot", "--userspec=10001:10001", str(image), "/usr/bin/env", "-i", "-C", "/var/lib/interlock"]
    return [*place, *environment, *command]


def _megabytes(place: Path) -> int:
    return int(run(["du", "-sm", str(place)]).split()[0])


# --- running things ---------------------------------------------------------------------------------------------------


def run(command: list[str], *, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> str:
    """Run to the end; gives what was printed. Raises `Failed` with all of it if that was no success."""
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, **(env or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=STEP_S,
    )
    if done.returncode != 0:
        raise Failed(f"{' '.join(command[:3])} ended with {done.returncode}:\n{done.stdout[-4000:]}")
    return done.stdout


STEPS = (
    Step("terraform fmt", ("terraform",), check_format),
    Step("terraform validate", ("terraform",), validate),
    Step("terraform plan, apply and destroy on an emulator", ("terraform",), apply_and_destroy),
    Step("checkov", (), checkov),
    Step("hadolint", (), hadolint),
    Step("the image", ("buildah", "debootstrap"), build_image),
)

if __name__ == "__main__":
    sys.exit(main())
