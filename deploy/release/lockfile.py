"""Reads a lock file of `make lock`: packages, their hashes, and which package needs which."""

import re
from dataclasses import dataclass

_PACKAGE = re.compile(r"(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;\\]+)(?:\s*;\s*(?P<marker>[^\\]+?))?\s*\\?")
_HASH = re.compile(r"\s+--hash=sha256:(?P<digest>[0-9a-f]{64})\s*\\?")
_VIA = re.compile(r"\s+#\s+(?:via\s+)?(?P<parent>[A-Za-z0-9._-]+)(?: \((?P<file>[^)]+)\))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedPackage:
    """LockedPackage is one line of a lock file with its hashes. `marker` says where it is needed; "" is everywhere."""

    name: str
    version: str
    marker: str
    hashes: tuple[str, ...]
    needed_by: tuple[str, ...]

    @property
    def purl(self) -> str:
        """Return the package's URL, as scanners of bills of materials know it."""
        return f"pkg:pypi/{self.name.lower().replace('_', '-')}@{self.version}"


def read_lock(text: str) -> tuple[LockedPackage, ...]:
    """Read a lock file, in its order. Raises `ValueError` for a line that is none of its kinds."""
    found: list[LockedPackage] = []
    hashes: list[str] = []
    parents: list[str] = []

    def close() -> None:
        if found:
            last = found[-1]
            found[-1] = LockedPackage(
                name=last.name,
                version=last.version,
                marker=last.marker,
                hashes=tuple(hashes),
                needed_by=tuple(parents),
            )
        hashes.clear()
        parents.clear()

    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip() in {"", "# via"} or line.startswith("#"):
            continue
        if package := _PACKAGE.fullmatch(line):
            close()
            found.append(
                LockedPackage(
                    name=package["name"],
                    version=package["version"],
                    marker=package["marker"] or "",
                    hashes=(),
                    needed_by=(),
                )
            )
        elif digest := _HASH.fullmatch(line):
            hashes.append(digest["digest"])
        elif via := _VIA.fullmatch(line):
            parents.append(via["parent"])
        else:
            raise ValueError(f"line {number} of the lock file is neither package, hash nor comment: {line!r}")
    close()
    return tuple(found)
