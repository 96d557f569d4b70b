"""Check what is deployed, as far as it can be without an account: `make deploy-check`.

The Terraform module is formatted, validated, tested, applied to an emulator, compared with what the program makes of
the same files, and destroyed; checkov, hadolint and zizmor look it and the workflows over; the Dockerfile is built on
a base that is made here, and the worker started from what comes out. A step whose tools are missing is skipped, and the
exit code is then 3.

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
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.aws import task_roles
from tests.support.aws.emulators import AWS_ENVIRONMENT, ministack
from tests.support.worlds.installation import Installation, client
from tests.support.worlds.live_worker import BUSY, PATIENCE_S, today
from tests.support.worlds.whole_worker import live_through_a_kill
from worker.store.table import TableName

ROOT = Path(__file__).parents[2]
CHECKERS = ROOT / ".venv/deploy/bin"
PROGRAM = ROOT / ".venv/bin/interlock"
STEP_S = 900
MIRROR = "TF_PLUGIN_MIRROR"
SUITE = "bookworm"
HEALTH_PORT = 18_080
EXIT_S = 25
# A root that cannot be written, with what any container has, and one directory that can. Then a command.
READ_ONLY = (
    'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && '
    'mount --rbind /dev "$0/dev" && mount --rbind /proc "$0/proc" && '
    'mount --bind "$1" "$0$2" && shift 2 && exec "$@"'
)


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


def plan_tests(work: Path) -> str:
    place = _copy(work, "test") / "deploy/terraform"
    terraform(place, "init", "-input=false", "-backend=false")
    return _last_line(terraform(place, "test"), "Success!")


def apply_and_destroy(work: Path) -> str:
    """Everything is made on the emulator, the store is what the program would have made of it, and all of it goes."""
    server = ministack()
    endpoint = f"http://127.0.0.1:{server.port}"
    place = _copy(work, "apply") / "examples/terraform/full"
    variables = ["-input=false", f"-var=endpoint={endpoint}", f"-var=listener_arn={asyncio.run(_listener(endpoint))}"]
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
        roles = _compare_roles(place)
        _work_on(place, endpoint, store)
    finally:
        destroyed = terraform(place, "destroy", "-auto-approve", *variables)
    ends = f"{_last_line(applied, 'Apply complete')} {_last_line(destroyed, 'Destroy complete')}"
    return f"{roles} roles are as the tests read them; two workers ran on it, one was killed; {ends}"


async def _listener(endpoint: str) -> str:
    """A listener of a load balancer, as whoever deploys the console has one; gives its ARN."""
    async with client("elbv2", endpoint) as balancing:
        [made] = (await balancing.create_load_balancer(Name="console", Type="application"))["LoadBalancers"]
        refusal = {"Type": "fixed-response", "FixedResponseConfig": {"StatusCode": "404"}}
        [listener] = (
            await balancing.create_listener(
                LoadBalancerArn=made["LoadBalancerArn"], Protocol="HTTPS", Port=443, DefaultActions=[refusal]
            )
        )["Listeners"]
    return str(listener["ListenerArn"])


def _compare_roles(place: Path) -> int:
    """What Terraform makes of `roles.tf` is what the tests read there; gives how many roles there are."""
    [module] = json.loads(terraform(place, "show", "-json"))["values"]["root_module"]["child_modules"]
    made = {(each["type"], each["name"], each.get("index")): each["values"] for each in module["resources"]}
    services = [index for kind, name, index in made if (kind, name) == ("aws_ecs_task_definition", "this")]
    for service in services:
        [container] = json.loads(made["aws_ecs_task_definition", "this", service]["container_definitions"])
        given = {each["name"]: each["value"] for each in container["environment"]}
        policy = made["aws_iam_role_policy", "task", service]["policy"]
        _compare_policy(service, policy, task_roles.statements_of(given["INTERLOCK_DUTIES"].split(",")))
    operators = task_roles.statements_of(task_roles.WEB_OPERATOR)
    _compare_policy("web", made["aws_iam_role_policy", "web", 0]["policy"], operators)
    return len(services) + 1


def _compare_policy(service: str, policy: str, expected: Iterable[task_roles.Statement]) -> None:
    written = {each["Sid"]: _statement(each) for each in json.loads(policy)["Statement"]}
    for read in expected:
        if read.on and written.get(read.sid) != read:
            raise Failed(f"the role of {service} has {written.get(read.sid)}, and not {read}")


def _statement(written: Mapping[str, Any]) -> task_roles.Statement:
    partitions = written.get("Condition", {}).get("ForAllValues:StringLike", {}).get("dynamodb:LeadingKeys", [])
    return task_roles.Statement(
        sid=written["Sid"],
        actions=frozenset(_listed(written["Action"])),
        on=frozenset(_named_of_probe(written["Sid"], arn) or _named(arn) for arn in _listed(written["Resource"])),
        partitions=tuple(sorted(_listed(partitions))),
    )


def _listed(said: str | list[str]) -> list[str]:
    return [said] if isinstance(said, str) else said


def _named(arn: str) -> str:
    """What statements call it: all names of this installation end in what they are of."""
    service, name = arn.split(":")[2], arn.split(":", 5)[5]
    table, _, part = name.removeprefix("table/").partition("/")
    match service:
        case "logs":
            group = name.removeprefix("log-group:").removesuffix(":*")
            # The tests read the module without functions of its own, so theirs is the pattern of all.
            return "logs:/aws/lambda/*" if group.startswith("/aws/lambda/") else f"logs:{group}"
        case "glue" | "elasticmapreduce" | "emr-serverless" | "states" | "lambda" | "iam":
            return _named_of_job(service, name)
        case "dynamodb":
            return "/".join((table.rpartition("-")[2], *part.split("/")[:1])).rstrip("/")
        case "s3":
            return f"archive/{'objects' if '/' in name else 'bucket'}"
        case "sqs":
            return f"queue/{name.rpartition('-')[2]}"
        case _:
            secret = next((f"secret/{of}" for of in SECRETS if of in name), "secret/jobs")
            return {"events": "bus", "ecs": "task", "secretsmanager": secret}.get(service, "")


# By what the names of the example's secrets contain; the longer ones first.
SECRETS = ("slack", "webhook-url", "webhook-secret", "pagerduty", "teams", "web")

# What statements about probes and the inbox are about: the service, and whether it is what is in a bucket.
PROBED = {
    ("InboxObjects", "s3", True): "inbox/objects",
    ("ProbeObjects", "s3", True): "probe/objects",
    ("ProbeBuckets", "s3", False): "probe/buckets",
    ("ProbePartitions", "glue", False): "probe/catalogue",
    ("ProbeItems", "dynamodb", False): "probe/tables",
    ("ProbeQueries", "athena", False): "probe/workgroups",
    ("ProbeQueriedTables", "glue", False): "probe/queried",
    ("ProbeResultBuckets", "s3", False): "probe/result-buckets",
    ("ProbeResults", "s3", True): "probe/results",
}


def _named_of_probe(sid: str, arn: str) -> str | None:
    """What a statement about probes calls it; None if it is none. A bucket is another's, so its name tells nothing."""
    service = arn.split(":")[2]
    return PROBED.get((sid, service, service == "s3" and arn.endswith("/*")))


def _named_of_job(service: str, name: str) -> str:
    match service:
        case "emr-serverless":
            return f"{service}/{'run' if name.endswith('/jobruns/*') else 'application'}"
        case "states":
            return f"{service}/{'execution' if name.startswith('execution:') else 'machine'}"
        case _:
            return {
                "glue": "glue/job",
                "elasticmapreduce": "emr/cluster",
                "lambda": "lambda/function",
                "iam": "emr-serverless/role",
            }[service]


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


def zizmor(_: Path) -> str:
    workflows = [".github", "examples/github/pipelines.yml", "worker/cli/commands/configure/files/workflow.yaml"]
    run([str(CHECKERS / "zizmor"), "--offline", "--quiet", *workflows], cwd=ROOT)
    return "nothing to say about the workflows"


# --- the image --------------------------------------------------------------------------------------------------------


def build_image(work: Path) -> str:
    """Build the Dockerfile on a small Debian made here, and start the worker from what comes out, as ECS does."""
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
    inspected = json.loads(run(["buildah", *storage, "inspect", "--type", "image", "localhost/interlock"]))
    mounted = run(["buildah", *storage, "mount", "worker"]).strip()
    try:
        return _start_from(Path(mounted), base, inspected["OCIv1"]["config"], work / "data")
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
    _look_at(image, config)
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
    Step("terraform test", ("terraform",), plan_tests),
    Step("terraform plan, apply and destroy on an emulator", ("terraform",), apply_and_destroy),
    Step("checkov", (), checkov),
    Step("hadolint", (), hadolint),
    Step("zizmor", (), zizmor),
    Step("the image", ("buildah", "debootstrap", "unshare"), build_image),
)

if __name__ == "__main__":
    sys.exit(main())
