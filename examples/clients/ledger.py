"""A client of record ledgers without dependencies: which records changed, and that they are processed now.

Inside a command job it knows its run by itself. Processing is at least once: a job that dies before it saves gets the
same records again.
"""

import json
import os
import urllib.request
from collections.abc import Iterable, Iterator
from typing import Any

REQUEST_MAX = 1000  # records in one request
CHECKPOINT = 100  # records that are processed between two saves


class Ledger:
    """The ledger `name` of the Interlock at `url`. `run` and `attempt` name the run that processes its records."""

    def __init__(self, url: str, token: str, name: str, run: str = "", attempt: int = 0) -> None:
        of_job = [os.environ.get(f"INTERLOCK_{part}", "") for part in ("PIPELINE", "SCHEDULE", "PERIOD")]
        self._address = f"{url}/api/v1/ledgers/{name}"
        self._token = token
        self._run = {
            "run": run or "/".join(of_job),
            "attempt": attempt or int(os.environ.get("INTERLOCK_ATTEMPT", "1")),
        }
        self._unsaved: list[dict[str, Any]] = []

    def diff(self, records: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """Yield the records that are new or changed, and take the ledger for this run."""
        for part in _parts(records):
            yield from self._post("diff", {**self._run, "records": part})["items"]

    def processed(self, record: dict[str, Any]) -> None:
        """Say that a record is processed; every 100 of them are saved."""
        self._unsaved.append({"id": record["id"], "hash": record["hash"]})
        if len(self._unsaved) >= CHECKPOINT:
            self.save()

    def save(self) -> None:
        """Save what is processed; call it at the end."""
        if self._unsaved:
            self._post("commit", {**self._run, "records": self._unsaved})
            self._unsaved = []

    def seed(self, records: Iterable[dict[str, Any]]) -> int:
        """Save records without processing them; return how many were not in the ledger."""
        parts = _parts({"id": each["id"], "hash": each["hash"]} for each in records)
        return sum(self._post("seed", {"records": part})["saved"] for part in parts)

    def _post(self, action: str, body: dict[str, Any]) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        content = json.dumps(body).encode()
        request = urllib.request.Request(f"{self._address}/{action}", content, headers)  # noqa: S310  your own server
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
            return json.load(answer)


def _parts(records: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    part: list[dict[str, Any]] = []
    for record in records:
        part.append(record)
        if len(part) == REQUEST_MAX:
            yield part
            part = []
    if part:
        yield part
