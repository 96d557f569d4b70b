"""The Terraform module as text: where Terraform itself is not installed, this much is still checked."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from consumers.outbox.severities import told_pattern
from tests.support.aws.terraform_files import FILES, MODULE, bare, default_of, local, parsed
from tests.support.pages import terraform_table
from worker.config.settings import NAMES, OLD_NAMES
from worker.core.run.triggering import START_BACKOFF
from worker.jobs.state_changes import STATE_CHANGES
from worker.store.dynamodb.schema import STREAMED, TableSchema
from worker.store.retention import EVENTS
from worker.store.table import TTL, TableName
from worker.telemetry.emf import NAMESPACE
from worker.telemetry.meters import Metric
from worker.web.access import CALLBACKS
from worker.web.addresses import DEFAULT_LISTEN, parse_address
from worker.web.health import LIVE

# One process reads the files: that takes seconds.
pytestmark = pytest.mark.xdist_group("terraform")

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples/terraform").glob("*/main.tf"))


@pytest.mark.parametrize("path", [*FILES, *EXAMPLES], ids=lambda path: str(path.relative_to(ROOT)))
def test_every_file_can_be_read(path: Path) -> None:
    assert parsed(path)


@pytest.mark.parametrize("table", TableName)
def test_the_tables_are_those_that_the_program_would_make(table: TableName) -> None:
    wanted = TableSchema(table=table, name=table.value).creation().parameters
    made = local("tables")[table.value]

    assert made["streamed"] == (table in STREAMED)
    assert made["attributes"] == {
        each["AttributeName"]: each["AttributeType"] for each in wanted["AttributeDefinitions"]
    }
    assert made["indexes"] == {
        index["IndexName"]: {
            "partition": index["KeySchema"][0]["AttributeName"],
            "sort": index["KeySchema"][1]["AttributeName"],
            "projected": index["Projection"].get("NonKeyAttributes", []),
        }
        for index in wanted.get("GlobalSecondaryIndexes", [])
    }


def test_rows_expire_by_the_attribute_the_program_writes() -> None:
    text = (MODULE / "tables.tf").read_text()

    assert f'attribute_name = "{TTL}"' in text


def test_the_rule_for_people_is_the_one_of_the_program() -> None:
    assert json.loads((MODULE / "alert-pattern.json").read_text()) == told_pattern()


def test_alarms_and_dashboard_watch_metrics_that_exist() -> None:
    alarmed = {alarm["metric"] for alarm in local("metric_alarms").values()}
    shown = {metric for panel in local("panels") for metric in panel["metrics"]}

    assert alarmed | shown <= {metric.value for metric in Metric}
    assert f'namespace           = "{NAMESPACE}"' in (MODULE / "alarms.tf").read_text()


def test_services_grow_by_metrics_that_exist() -> None:
    service = (MODULE / "service.tf").read_text()
    ours = re.findall(r'namespace = "Interlock", metric = "(\w+)"', service)

    assert len(ours) == 2
    assert set(ours) <= {metric.value for metric in Metric}


def test_two_installations_in_one_account_share_no_metric() -> None:
    alarms = (MODULE / "alarms.tf").read_text()

    assert 'name          = "${var.name}-ErrorLines"' in alarms
    assert 'dimensions          = { Service = "${var.name}-${each.value.service}" }' in alarms


def test_every_variable_is_of_use_and_every_one_that_is_named_is_there() -> None:
    text = "".join(path.read_text() for path in FILES)
    declared = set(re.findall(r'^variable "(\w+)"', text, re.MULTILINE))

    assert set(re.findall(r"\bvar\.(\w+)", text)) == declared
    for example in EXAMPLES:
        [module] = re.findall(r"^module .*?^}", example.read_text(), re.MULTILINE | re.DOTALL)
        assert set(re.findall(r"^  (\w+) +=", module, re.MULTILINE)) - {"source"} <= declared


def test_every_variable_of_a_task_is_one_the_worker_reads() -> None:
    given = set(re.findall(r"\b(INTERLOCK_[A-Z_]+|OTEL_[A-Z_]+)\s*=", _text("service.tf") + _text("web.tf")))

    assert given
    assert given <= {*NAMES, *OLD_NAMES}


def test_both_names_of_the_roles_are_set_alike_and_cannot_be_overridden() -> None:
    both = [
        re.search(rf"\b{name} += (join\(.*?\)\))", _text("service.tf"))
        for name in ("INTERLOCK_ROLES", "INTERLOCK_DUTIES")
    ]
    [variable] = re.findall(r'^variable "environment" .*?^}', _text("variables.tf"), re.MULTILINE | re.DOTALL)

    assert len({found[1] if found else None for found in both}) == 1
    assert all(both)
    for name in ("INTERLOCK_ROLES", "INTERLOCK_DUTIES"):
        assert f'!contains(keys(var.environment), "{name}")' in variable


def test_queues_are_encrypted_so_that_the_bus_can_send_to_them() -> None:
    queues = (MODULE / "queues.tf").read_text()
    example = (ROOT / "examples/terraform/full/main.tf").read_text()

    assert queues.count('sqs_managed_sse_enabled           = var.kms_key_arn == "" ? true : null') == 2
    [senders] = re.findall(r'sid       = "Senders".*?\n  }\n', example, re.DOTALL)
    assert '"events.amazonaws.com"' in senders
    assert '"kms:DescribeKey"' in senders  # or no bus with this key can be made


def test_a_container_has_no_rights_and_can_write_one_directory_only() -> None:
    task = (MODULE / "service.tf").read_text()

    assert re.search(r"readonlyRootFilesystem\s*= !var\.execute_command", task)
    assert default_of("execute_command") is False
    assert re.search(r'user\s*= "10001:10001"', task)
    assert 'capabilities = { drop = ["ALL"] }' in task
    assert re.findall(r'containerPath = "([^"]+)"', task) == ["/var/lib/interlock"]


def test_the_consoles_container_has_no_rights_and_no_secret_of_jobs_and_writes_nothing() -> None:
    web = _text("web.tf")

    assert re.search(r"readonlyRootFilesystem\s*= true", web)
    assert re.search(r'user\s*= "10001:10001"', web)
    assert 'capabilities = { drop = ["ALL"] }' in web
    assert "mountPoints" not in web
    assert "var.secrets" not in web


def test_a_load_balancer_finds_the_console_where_the_program_serves_it() -> None:
    web = _text("web.tf")

    assert local("web_port") == parse_address("DEFAULT_LISTEN", DEFAULT_LISTEN).port
    assert f'path                = "{LIVE}"' in web
    assert f'"worker.web.probe", "{LIVE}"]' in web
    # With these equal, the metrics would need no sign-in.
    assert not re.search(r"INTERLOCK_HEALTH\s+=", web)


def test_nobody_reaches_the_console_without_a_sign_in_a_token_or_the_address_of_a_job() -> None:
    rules = re.findall(
        r'^resource "aws_lb_listener_rule" "(\w+)" \{(.*?)^\}', _text("web.tf"), re.MULTILINE | re.DOTALL
    )
    by_name = dict(rules)

    assert set(by_name) == {"web_people", "web_programs", "web_jobs"}
    assert "authenticate-oidc" in by_name["web_people"]
    assert f'values = ["{CALLBACKS}*"]' in by_name["web_jobs"]
    assert 'http_header_name = "Authorization"' in by_name["web_programs"]
    assert all("values = [local.web_host]" in rule for rule in by_name.values())


def test_a_count_of_tasks_that_nothing_scales_is_followed() -> None:
    services = {
        bare(name): block for each in parsed(MODULE / "service.tf")["resource"] for name, block in _services(each)
    }

    ignoring = {name for name, block in services.items() if "ignore_changes" in str(block.get("lifecycle", ""))}
    assert ignoring == {"this"}, "autoscaling sets the count of these"
    assert set(services) == {"this", "fixed"}
    assert {name: str(block["for_each"]) for name, block in services.items()} == {
        "this": "${local.scaled_services}",
        "fixed": "${local.fixed_services}",
    }
    [target] = re.findall(r'resource "aws_appautoscaling_target" "this" \{\n  for_each = (.+)', _text("service.tf"))
    assert target == "local.scaled_services"


def _services(resource: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return [pair for kind, named in resource.items() if bare(kind) == "aws_ecs_service" for pair in named.items()]


def _text(name: str) -> str:
    return (MODULE / name).read_text()


def test_the_documented_build_is_for_the_architecture_that_tasks_run_on() -> None:
    platforms = {"ARM64": "linux/arm64", "X86_64": "linux/amd64"}
    page = (ROOT / "docs/deploy.md").read_text()
    builds = re.findall(r"^docker build .*$", page, re.MULTILINE)

    assert builds
    assert all(f"--platform {platforms[default_of('cpu_architecture')]} " in build for build in builds)
    for architecture, platform in platforms.items():
        assert f"`{architecture}` | `{platform}`" in page


def test_the_page_has_every_variable_and_output() -> None:
    page = terraform_table.PAGE.read_text(encoding="utf-8")

    assert page == terraform_table.with_fresh_tables(page), "run `python -m tests.support.pages.terraform_table`"
    assert "| `alarms` | `map(object)` | none |" in page


def test_every_alarm_can_be_changed() -> None:
    [listed] = re.findall(r"keys\(var\.alarms\) : contains\(\[(.*?)\], name", _text("variables.tf"), re.DOTALL)

    assert set(re.findall(r'"([a-z-]+)"', listed)) == {*local("metric_alarms"), *local("other_alarms")}
    assert set(local("unasked_alarms")) == {"runs-failed"}


def test_the_alarm_about_the_store_watches_operations_that_workers_use() -> None:
    calls = (ROOT / "worker/store/dynamodb/calls.py").read_text()

    assert all(f'"{operation}": client.' in calls for operation in local("store_operations"))


def test_the_plan_tests_cover_every_run_that_they_name() -> None:
    text = "\n".join(path.read_text() for path in sorted((MODULE / "tests").glob("*.tftest.hcl")))

    runs = re.findall(r'^run "(\w+)" \{(.*?)^\}', text, re.MULTILINE | re.DOTALL)
    assert len(runs) >= 20
    assert all("assert {" in body or "expect_failures" in body for _, body in runs)


def test_what_the_page_says_of_the_lambda_editions_variables_is_so() -> None:
    page = terraform_table.PAGE.read_text(encoding="utf-8")

    waits = [f"{pause.total_seconds():.0f}" for pause in START_BACKOFF]
    assert f"tried four times, after {waits[0]}, {waits[1]} and {waits[2]} seconds" in page
    assert len(waits) == 3
    assert f"events are kept for {EVENTS.days} days" in page
    assert f"the default is {default_of('log_retention_days')} and not 30" in page


def test_the_rules_about_jobs_match_the_events_that_the_program_reads() -> None:
    made = local("announced").values()

    assert {
        (each["source"], each["type"], each["setting"]): frozenset(state[0]["anything-but"])
        for each in made
        for state in each["states"].values()
    } == {(each.source, each.detail_type, each.type.value): each.running for each in STATE_CHANGES}
    assert [list(each["states"]) for each in made] == [
        [change.state] for each in made for change in STATE_CHANGES if change.source == each["source"]
    ]
