"""Read a manifest: a JSON object that lists the objects of a period.

Producers write it in several ways. A list of keys is enough; an object may hold the list as `files`, `entries`, `parts`
or `keys`. An entry is a key, an address such as `s3://bucket/key`, or an object that has one of both as `key`, `path`
or `url`.
"""

from collections.abc import Mapping
from typing import Final

from worker.core.collect.collection import PARTS_MAX
from worker.core.errors import Rejected
from worker.core.model.values import Json
from worker.runtime.json_bytes import from_json

_LISTS: Final = ("files", "entries", "parts", "keys")
_NAMES: Final = ("key", "path", "url")


class BadManifest(Rejected):
    """Reports a manifest that cannot be read."""

    def __init__(self, where: str, problem: str) -> None:
        super().__init__(
            f"the manifest {where} {problem}; write a JSON list of keys, or an object with such a list as `files`, "
            "then run `interlock dlq replay`"
        )


def read_manifest(body: bytes, bucket: str, key: str) -> list[str]:
    """Return the keys that a manifest lists, each once. Raises `BadManifest`."""
    where = f"s3://{bucket}/{key}"
    try:
        said: Json = from_json(body)
    except ValueError as error:
        raise BadManifest(where, f"is not JSON ({error})") from error
    if isinstance(said, Mapping):
        said = next((said[name] for name in _LISTS if name in said), None)
    if not isinstance(said, list | tuple):
        raise BadManifest(where, "has no list of objects")
    if len(said) > PARTS_MAX:
        raise BadManifest(where, f"lists {len(said):,} objects; {PARTS_MAX:,} is the most")
    return list(dict.fromkeys(_key_of(entry, bucket, where) for entry in said))


def _key_of(entry: Json, bucket: str, where: str) -> str:
    if isinstance(entry, Mapping):
        entry = next((entry[name] for name in _NAMES if name in entry), None)
    if not isinstance(entry, str) or not entry:
        raise BadManifest(where, "has an entry without a key")
    address = entry.partition("://")
    if not address[1]:
        return entry
    named, _, key = address[2].partition("/")
    if named != bucket or not key:
        raise BadManifest(where, f"lists {entry[:200]}, which is not in its bucket")
    return key
