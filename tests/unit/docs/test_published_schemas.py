"""The schemas behind the fakes are able to refuse."""

import json
from pathlib import Path

import jsonschema
import pytest

from tests.support.builders.runners import TOKEN
from tests.support.fakes.published_schemas import Violation, check

SCHEMAS = sorted((Path(__file__).parents[2] / "published").glob("*.json"))


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda path: path.stem)
def test_every_schema_is_one(schema: Path) -> None:
    jsonschema.Draft202012Validator.check_schema(json.loads(schema.read_text(encoding="utf-8")))


@pytest.mark.parametrize(
    ("interface", "name", "value"),
    [
        # What the reference sent: a submission of parameters, with nothing to run.
        ("databricks", "SubmitRun", {"run_name": "7", "notebook_params": {"day": "3"}}),
        ("databricks", "SubmitRun", {"tasks": [{"task_key": "load"}]}),
        ("databricks", "RunNow", {"job_id": "7"}),
        ("databricks", "RunNow", {"job_id": 7, "idempotency_token": TOKEN * 2}),
        ("databricks", "RunNow", {"job_id": 7, "job_parameters": {"rows": 5}}),
        ("databricks", "Run", {"run_id": 7, "state": {"life_cycle_state": "DONE"}}),
        ("airflow-v1", "TriggerDAGRun", {"dag_run_id": TOKEN, "logical_date": None}),
        ("airflow-v1", "TriggerDAGRun", {"dag_run_id": TOKEN, "conf": "{}"}),
        ("airflow-v2", "TriggerDAGRun", {"dag_run_id": TOKEN, "conf": {}}),
        ("airflow-v2", "TriggerDAGRun", {"dag_run_id": TOKEN, "logical_date": "yesterday"}),
        ("airflow-v2", "PatchDAGRun", {"state": "cancelled"}),
    ],
)
def test_what_a_target_would_refuse_is_refused(interface: str, name: str, value: object) -> None:
    with pytest.raises(Violation, match=f"{interface} {name}"):
        check(interface, name, value)
