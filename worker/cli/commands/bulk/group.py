"""Adds the commands that change runs to `interlock runs`."""

from worker.cli.commands.bulk.deletion import deletion_app
from worker.cli.commands.bulk.requests import bulk_app
from worker.cli.commands.runs.group import runs_app

runs_app.add_typer(bulk_app)
runs_app.add_typer(deletion_app)

all_runs_app = runs_app
