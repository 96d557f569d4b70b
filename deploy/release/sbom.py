"""Makes a CycloneDX bill of materials from the lock file: what an installation of a release contains."""

import json
import uuid
from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Final

from deploy.release.lockfile import LockedPackage
from deploy.release.source import Source

SPECIFICATION: Final = "1.6"
_NAMESPACE: Final = uuid.uuid5(uuid.NAMESPACE_OID, "interlock release")


def bill_of_materials(source: Source, packages: Iterable[LockedPackage]) -> str:
    """Return the bill as JSON; the same source and packages always give the same text."""
    locked = sorted(packages, key=lambda package: package.name)
    main = {
        "type": "application",
        "bom-ref": f"pkg:pypi/{source.name}@{source.version}",
        "name": source.name,
        "version": source.version,
        "purl": f"pkg:pypi/{source.name}@{source.version}",
        "licenses": [{"license": {"id": "Apache-2.0"}}],
    }
    document: dict[str, Any] = {
        "$schema": f"http://cyclonedx.org/schema/bom-{SPECIFICATION}.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": SPECIFICATION,
        # By content and not by chance, so that two builds of a commit are equal.
        "serialNumber": f"urn:uuid:{uuid.uuid5(_NAMESPACE, source.commit)}",
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(source.epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": main,
        },
        "components": [_component(package) for package in locked],
        "dependencies": _dependencies(main["bom-ref"], source.name, locked),
    }
    return json.dumps(document, indent=2, sort_keys=True) + "\n"


def _component(package: LockedPackage) -> dict[str, Any]:
    component: dict[str, Any] = {
        "type": "library",
        "bom-ref": package.purl,
        "name": package.name,
        "version": package.version,
        "purl": package.purl,
        # The files that may be installed, one for each platform: any of these digests is right.
        "properties": [{"name": "interlock:lock:sha256", "value": digest} for digest in package.hashes],
    }
    if package.marker:
        component["properties"].append({"name": "interlock:lock:marker", "value": package.marker})
    return component


def _dependencies(main: object, name: str, locked: list[LockedPackage]) -> list[dict[str, Any]]:
    by_name = {package.name: package.purl for package in locked}
    needs: dict[str, set[str]] = defaultdict(set)
    for package in locked:
        for parent in package.needed_by:
            needs[str(main) if parent == name else by_name[parent]].add(package.purl)
    return [{"ref": ref, "dependsOn": sorted(needs[ref])} for ref in (str(main), *sorted(by_name.values()))]
