"""Makes the provenance of a release: an in-toto statement of SLSA's form with every digest and the commit.

It says how the files came to be, so that anyone can build them again and compare. It is not signed here: the release
workflow signs the same digests with its own identity.
"""

import json
from collections.abc import Mapping
from typing import Final

from deploy.release.source import Source

STATEMENT: Final = "https://in-toto.io/Statement/v1"
PREDICATE: Final = "https://slsa.dev/provenance/v1"
BUILD_TYPE: Final = "urn:interlock:release:v1"
BUILDER: Final = "urn:interlock:make-release"


def provenance(source: Source, files: Mapping[str, str], inputs: Mapping[str, str]) -> str:
    """Return the statement as JSON. `files` are what was built, `inputs` the lock files, both by their SHA-256."""
    document = {
        "_type": STATEMENT,
        "subject": [{"name": name, "digest": {"sha256": digest}} for name, digest in sorted(files.items())],
        "predicateType": PREDICATE,
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": {"version": source.version},
                "internalParameters": {"SOURCE_DATE_EPOCH": str(source.epoch)},
                "resolvedDependencies": [
                    {"name": "source", "digest": {"gitCommit": source.commit}},
                    *({"name": name, "digest": {"sha256": digest}} for name, digest in sorted(inputs.items())),
                ],
            },
            "runDetails": {"builder": {"id": BUILDER}},
        },
    }
    return json.dumps(document, indent=2) + "\n"


def subjects(statement: str) -> dict[str, str]:
    """Return the digests of the files that a statement is about. Raises `ValueError` if it is no such statement."""
    document = json.loads(statement)
    if (document.get("_type"), document.get("predicateType")) != (STATEMENT, PREDICATE):
        raise ValueError("the statement is not a provenance of SLSA version 1")
    return {each["name"]: each["digest"]["sha256"] for each in document["subject"]}


def commit_of(statement: str) -> str:
    """Return the commit that a statement names."""
    [source] = [
        each
        for each in json.loads(statement)["predicate"]["buildDefinition"]["resolvedDependencies"]
        if each["name"] == "source"
    ]
    return str(source["digest"]["gitCommit"])
