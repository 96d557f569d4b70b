"""Python loads this by itself where this directory is on its path: it notes the calls to AWS of a process of a test.

`tests/support/worlds/live_worker.py` puts it there; nothing of the program knows of it. Every process that inherits the
path loads it, so it looks first whether there is anything to note: the client's library takes long to load.
"""

import os
import sys
from pathlib import Path

directory = os.environ.get("TESTS_AWS_CALLS")
words = (*sys.orig_argv, os.environ.get("INTERLOCK_STORE", ""))

if directory and any("dynamodb://" in word for word in words):
    from tests.support.aws.calls import Recorder
    from tests.support.aws.task_roles import WEB_OPERATOR, WEB_VIEWER
    from worker.config.roles import ALL_ROLES

    said = {role.strip() for role in os.environ.get("INTERLOCK_ROLES", "").split(",")} - {""}
    # Any other command is a person's, who has rights of their own.
    roles = frozenset(said or ALL_ROLES) if "run" in sys.orig_argv else None
    if "web" in sys.orig_argv:
        roles = WEB_VIEWER if os.environ.get("INTERLOCK_WEB_READONLY") == "1" else WEB_OPERATOR
    Recorder(Path(directory), roles).install()
