"""The dashboard and the alert rules name metrics that workers have, with labels that they have."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, cast

import pytest
import yaml

from worker.telemetry.meters import Metric, MetricKind
from worker.telemetry.prometheus import name_of

MONITORING: Final = Path(__file__).parents[2] / "deploy" / "monitoring"
DASHBOARD: Final = cast("dict[str, Any]", json.loads((MONITORING / "grafana-dashboard.json").read_text("utf-8")))
RULES: Final = cast("dict[str, Any]", yaml.safe_load((MONITORING / "prometheus-rules.yaml").read_text("utf-8")))
PROMTOOL: Final = shutil.which("promtool")
RULE_TESTS: Final = cast(
    "dict[str, Any]", yaml.safe_load((MONITORING / "prometheus-rules.test.yaml").read_text("utf-8"))
)
OF_HISTOGRAMS: Final = ("_bucket", "_sum", "_count")


def known_names() -> set[str]:
    histograms = {name_of(each) for each in Metric if each.meaning.kind is MetricKind.HISTOGRAM}
    others = {name_of(each) for each in Metric if each.meaning.kind is not MetricKind.HISTOGRAM}
    return others | {f"{name}{ending}" for name in histograms for ending in OF_HISTOGRAMS}


def expressions() -> Iterator[str]:
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            yield target["expr"]
    for group in RULES["groups"]:
        for rule in group["rules"]:
            yield rule["expr"]


def test_every_expression_names_metrics_that_exist() -> None:
    named = {name for each in expressions() for name in re.findall(r"\binterlock_\w+", each)}

    assert named - known_names() == set()
    assert len(named) > 15


def test_every_counter_is_used_by_its_increase_and_every_histogram_by_its_buckets() -> None:
    counters = [name_of(each) for each in Metric if each.meaning.kind is MetricKind.COUNTER]
    for expression in expressions():
        for counter in counters:
            for found in re.finditer(rf"(\w+)\({counter}\b", expression):
                assert found[1] in {"rate", "increase", "absent"}, expression


def test_only_labels_that_a_metric_has_are_told_apart() -> None:
    labels = {name_of(each): set(each.meaning.labels) for each in Metric}
    of_scrapes = {"job", "instance", "le"}
    for expression in expressions():
        for name, matchers in re.findall(r"\b(interlock_\w+)\{([^}]*)\}", expression):
            used = set(re.findall(r'(\w+)[=!]~?"', matchers))
            assert used <= labels[name.removesuffix("_bucket").removesuffix("_count")] | of_scrapes, expression
        for grouped, name in re.findall(r"by \(([^)]*)\) \([^()]*(?:\w+\()?(interlock_\w+)", expression):
            used = set(re.split(r",\s*", grouped))
            assert used <= labels[name.removesuffix("_bucket").removesuffix("_count")] | of_scrapes, expression


def test_a_test_lets_each_rule_fire() -> None:
    rules = {rule["alert"] for group in RULES["groups"] for rule in group["rules"]}
    tests = [each for test in RULE_TESTS["tests"] for each in test["alert_rule_test"]]

    assert {each["alertname"] for each in tests if each["exp_alerts"]} == rules


def test_every_rule_says_how_bad_it_is_what_it_means_and_what_to_do() -> None:
    for rule in (rule for group in RULES["groups"] for rule in group["rules"]):
        assert rule["labels"]["severity"] in {"warning", "critical"}
        assert re.fullmatch(r"Interlock[A-Z][A-Za-z]+", rule["alert"])
        assert rule["annotations"]["summary"]
        assert rule["annotations"]["description"].endswith(".")


def test_the_panels_of_the_dashboard_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed; Debian's package `prometheus` has it")
def test_prometheus_accepts_the_rules_and_they_fire_when_they_should() -> None:
    assert PROMTOOL is not None
    for arguments in (["check", "rules", "prometheus-rules.yaml"], ["test", "rules", "prometheus-rules.test.yaml"]):
        done = subprocess.run([PROMTOOL, *arguments], cwd=MONITORING, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
