"""What the task roles of the deployment allow, by worker role, as `deploy/terraform/roles.tf` says it."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from typing import Any, Final

from tests.support.aws.calls import Call, Heard
from tests.support.aws.terraform_files import default_of, local

# What a person does with `interlock store init`, or with an inbox before its first day: by rights of their own.
BY_PEOPLE: Final = frozenset(
    {
        "dynamodb:CreateTable",
        "dynamodb:UpdateTable",
        "dynamodb:UpdateTimeToLive",
        "dynamodb:ListStreams",
    }
)
# Changes can come through Kinesis too; the module reads streams.
OTHER_SOURCES: Final = frozenset(
    {"kinesis:DescribeStreamSummary", "kinesis:ListShards", "kinesis:GetShardIterator", "kinesis:GetRecords"}
)
READS: Final = re.compile(r":(Get|BatchGet|Describe|List|Query|ConditionCheck|Filter|Receive)")
# Allowed beside calls: a role that a job is given is passed, which no client of ours calls by this name; protection
# from scale-in is asked of the agent beside the task; Athena writes results with the rights of who asks.
NO_CALLS: Final = frozenset({"iam:PassRole", "ecs:UpdateTaskProtection", "s3:AbortMultipartUpload"})
# What a process of the console holds: the task role is the module's `web`, with its writes unless it is read-only.
WEB_VIEWER: Final = frozenset({"web:viewer"})
WEB_OPERATOR: Final = WEB_VIEWER | {"web:operator"}
_REFERENCE: Final = re.compile(r"^\$\{local\.(\w+)\}$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """`on`: what it speaks of; nothing, if whoever deploys names it. `partitions`: nothing, if it speaks of all."""

    sid: str
    actions: frozenset[str]
    on: frozenset[str] = frozenset()
    partitions: tuple[str, ...] = ()

    def allows(self, call: Call) -> bool:
        """What is not known of a call is not held against it."""
        is_meant = not call.on or not self.on or any(fnmatchcase(call.on, each) for each in self.on)
        is_within = not call.partition or any(fnmatchcase(call.partition, each) for each in self.partitions or ("*",))
        return call.action in self.actions and is_meant and is_within


@cache
def statements(role: str) -> tuple[Statement, ...]:
    """What a worker role adds; `everyone` is what any worker has, `jobs` what the engine has for those that were named.

    `web:viewer` and `web:operator` are no worker roles: they are the parts of the console's task role, and `web:jobs`
    is what it has of `jobs`.
    """
    if role in {"jobs", "web:jobs"}:
        return tuple(
            Statement(sid=each["sid"], actions=frozenset(each["actions"]), on=frozenset(_patterns(each["on"])))
            for each in local("job_rights")
            if role == "jobs" or each["sid"] in local("web_job_rights")
        )
    web, _, part = role.partition(":")
    return tuple(
        Statement(
            sid=each["sid"],
            actions=frozenset(_listed(each["actions"])),
            on=frozenset(each["on"]),
            partitions=tuple(sorted(each["partition"])),
        )
        for each in (local("web_rights")[part] if web == "web" else local("role_statements")[role])
    )


def _patterns(names: list[str]) -> list[str]:
    """What a right on jobs is about; of logs, the groups themselves, which the module names."""
    groups = {
        "glue/logs": [f"logs:{group}" for group in default_of("glue_log_groups")],
        "lambda/logs": ["logs:/aws/lambda/*"],
    }
    return [each for name in names for each in groups.get(name, [name])]


def _listed(said: Any) -> list[str]:  # noqa: ANN401 - a list, or the name of one
    reference = _REFERENCE.match(said) if isinstance(said, str) else None
    return list(local(reference[1]) if reference else said)


def roles() -> frozenset[str]:
    return frozenset(local("role_statements")) - {"everyone"}


def statements_of(held: Iterable[str]) -> list[Statement]:
    """All that a worker with these worker roles, or a process of the console, may do."""
    if set(held) >= WEB_VIEWER:
        return [each for part in sorted({"web:jobs", *held}) for each in statements(part)]
    jobs = {"jobs"} if "engine" in held else set[str]()
    return [each for role in sorted({"everyone", *held, *jobs}) for each in statements(role)]


def _of_all_roles() -> list[Statement]:
    return [*statements_of(roles()), *statements_of(WEB_OPERATOR)]


def allowed() -> frozenset[str]:
    """All actions of the task roles, whichever worker role they are for."""
    return frozenset[str]().union(*(each.actions for each in _of_all_roles()))


def not_allowed(heard: Iterable[Heard]) -> list[str]:
    """What was called and is in no task role.

    Of a worker's process we know its worker roles, so it is held to what they allow, where they allow it. Everything
    else that the suite does with the program's clients is held to the actions of all task roles together.
    """
    return sorted({str(each) for each in heard if not _is_allowed(each)})


def _is_allowed(heard: Heard) -> bool:
    if heard.roles is None:
        is_of_jobs = any(heard.call.action in each.actions for each in statements("jobs"))
        if is_of_jobs and heard.call.on:
            # Of a job's call it is known what it is about, too. Probes read as workers do: any task role may name it.
            return any(each.allows(heard.call) for each in _of_all_roles())
        return heard.call.action in allowed() | BY_PEOPLE | OTHER_SOURCES
    return any(each.allows(heard.call) for each in statements_of(heard.roles))


def never_called(heard: Iterable[Heard]) -> list[str]:
    """Writes that a task role may do and nobody does."""
    writes = {action for action in allowed() if not READS.search(action)}
    return sorted(writes - {each.call.action for each in heard} - NO_CALLS)


def problems(heard: Iterable[Heard], *, is_whole: bool) -> list[str]:
    """Where the task roles do not fit. What nobody calls, only a whole run can tell."""
    every = list(heard)
    found = [f"called, and no task role allows it: {each}" for each in not_allowed(every)]
    if is_whole:
        found += [f"allowed by a task role, and never called: {action}" for action in never_called(every)]
    return found
