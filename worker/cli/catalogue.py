"""List every command of `interlock` for its help page; loading one command loads no other.

The summaries repeat the commands' own help; a test compares them.
"""

from typing import TYPE_CHECKING, Final

from worker.cli.terminal.command_list import CommandEntry, CommandPanel, RootPage

if TYPE_CHECKING:
    from typer import Typer


def _demo() -> "Typer":
    from worker.cli.demo.demo import demo_app

    return demo_app


def _init() -> "Typer":
    from worker.cli.commands.configure.init import init_app

    return init_app


def _run() -> "Typer":
    from worker.cli.run.command import run_app

    return run_app


def _completion() -> "Typer":
    from worker.cli.commands.completion import completion_app

    return completion_app


def _validate() -> "Typer":
    from worker.cli.commands.validate import validate_app

    return validate_app


def _plan() -> "Typer":
    from worker.cli.plan.command import plan_app

    return plan_app


def _render() -> "Typer":
    from worker.cli.commands.configure.render import render_app

    return render_app


def _schema() -> "Typer":
    from worker.cli.commands.schema import schema_app

    return schema_app


def _pipelines() -> "Typer":
    from worker.cli.commands.pipelines import pipelines_app

    return pipelines_app


def _inbox() -> "Typer":
    from worker.cli.commands.operate.inbox import inbox_app

    return inbox_app


def _store() -> "Typer":
    from worker.cli.commands.configure.store import store_app

    return store_app


def _status() -> "Typer":
    from worker.cli.commands.status import status_app

    return status_app


def _cascade() -> "Typer":
    from worker.cli.commands.control.cascade import cascade_app

    return cascade_app


def _lineage() -> "Typer":
    from worker.cli.commands.control.lineage import lineage_app

    return lineage_app


def _explain() -> "Typer":
    from worker.cli.commands.explain import explain_app

    return explain_app


def _history() -> "Typer":
    from worker.cli.commands.history import history_app

    return history_app


def _events() -> "Typer":
    from worker.cli.commands.events import events_app

    return events_app


def _schedule() -> "Typer":
    from worker.cli.commands.schedule import schedule_app

    return schedule_app


def _sensor() -> "Typer":
    from worker.cli.commands.sensors import sensor_app

    return sensor_app


def _requests() -> "Typer":
    from worker.cli.commands.requests import asking_app

    return asking_app


def _runs() -> "Typer":
    from worker.cli.commands.bulk.group import all_runs_app

    return all_runs_app


def _reruns() -> "Typer":
    from worker.cli.commands.bulk.recorded import reruns_app

    return reruns_app


def _replays() -> "Typer":
    from worker.cli.commands.bulk.recorded import replays_app

    return replays_app


def _late_data() -> "Typer":
    from worker.cli.commands.bulk.recorded import late_data_app

    return late_data_app


def _logs() -> "Typer":
    from worker.cli.commands.bulk.job_logs import logs_app

    return logs_app


def _settings() -> "Typer":
    from worker.cli.commands.configure.settings import settings_app

    return settings_app


def _trigger() -> "Typer":
    from worker.cli.commands.control.trigger import trigger_app

    return trigger_app


def _doctor() -> "Typer":
    from worker.cli.commands.doctor import doctor_app

    return doctor_app


def _dlq() -> "Typer":
    from worker.cli.commands.dlq import dlq_app

    return dlq_app


def _leases() -> "Typer":
    from worker.cli.commands.leases import leases_app

    return leases_app


def _probe() -> "Typer":
    from worker.cli.commands.operate.probes import probe_app

    return probe_app


def _watchdog() -> "Typer":
    from worker.cli.commands.watchdog import watchdog_app

    return watchdog_app


def _alerts() -> "Typer":
    from worker.cli.commands.operate.alerts import alerts_app

    return alerts_app


def _archive() -> "Typer":
    from worker.cli.commands.operate.archive import archive_app

    return archive_app


def _web() -> "Typer":
    from worker.cli.commands.web.serve import web_app

    return web_app


def _ledger() -> "Typer":
    from worker.cli.commands.operate.ledger import ledger_app

    return ledger_app


def _summary() -> "Typer":
    from worker.cli.commands.operate.summary import summary_app

    return summary_app


def _migrate() -> "Typer":
    from worker.cli.commands.migrate import migrate_app

    return migrate_app


PAGE: Final = RootPage(
    introduction="""A safety controller for data pipelines: starts jobs only when declarative rules hold, and says why.

Start with `interlock demo`; each command has its own --help, with examples.""",
    epilogue="""\b
Exit codes:
  0  done
  1  problems were found; the output says which
  2  the command, the settings or the store is wrong: a person must act
     (also if there is no such pipeline, run or dead letter)
  3  the store does not answer: try again later
  4  `run` only: nobody reads its output or its log any more""",
    options=(("--version", "Print the version and stop."), ("--help, -h", "Show this message and exit.")),
    panels=(
        CommandPanel(
            "Get started",
            (
                CommandEntry(
                    "demo", "Watch three pipelines with real jobs run on this machine, in under a minute.", _demo
                ),
                CommandEntry(
                    "init", "Create a folder with a first pipeline, a calendar, inbox rules and a CI file.", _init
                ),
                CommandEntry("run", "Run a worker: evaluate rules, start jobs, watch deadlines, send alerts.", _run),
                CommandEntry("completion", "Print a completion script for bash, zsh or fish.", _completion),
            ),
        ),
        CommandPanel(
            "Configure",
            (
                CommandEntry(
                    "validate", "Check pipeline files and report every problem with its line and its fix.", _validate
                ),
                CommandEntry("plan", "List the runs that pipeline files expect, or compare two sets of files.", _plan),
                CommandEntry(
                    "render",
                    "Print a pipeline file with its archetype merged in, and where each line is written.",
                    _render,
                ),
                CommandEntry(
                    "schema", "Print the JSON Schema of pipeline, archetype or calendar files, for editors.", _schema
                ),
                CommandEntry("pipelines", "Push, list, show and remove pipelines in the store.", _pipelines),
                CommandEntry("inbox", "Check and test the rules that turn messages into sensors.", _inbox),
                CommandEntry("settings", "Show every setting: its value in force and where it comes from.", _settings),
                CommandEntry("store", "Create, check, migrate and measure the store.", _store),
            ),
        ),
        CommandPanel(
            "Inspect",
            (
                CommandEntry("status", "Show active and recent runs, failures first.", _status),
                CommandEntry(
                    "explain", "Explain why a pipeline runs or does not, and what would make it run.", _explain
                ),
                CommandEntry("lineage", "Show which pipelines run after which.", _lineage),
                CommandEntry("history", "Show everything recorded about one run, oldest first.", _history),
                CommandEntry("runs", "List, count, rerun, cancel and delete runs, also of the past.", _runs),
                CommandEntry("logs", "Show the output of a run's job, or where it is.", _logs),
                CommandEntry("reruns", "List accepted and rejected reruns, latest first.", _reruns),
                CommandEntry("replays", "List reruns that replays requested, latest first.", _replays),
                CommandEntry(
                    "late-data", "List data that changed after its run had started, latest first.", _late_data
                ),
                CommandEntry("events", "List events, oldest first (default: last 24 hours).", _events),
                CommandEntry("schedule", "Show the next cron times and the runs that were missed.", _schedule),
                CommandEntry("sensor", "Write and read sensors.", _sensor),
                CommandEntry(
                    "ledger",
                    "Find the records that changed since a job last processed them, and save that it did.",
                    _ledger,
                ),
                CommandEntry(
                    "summary",
                    "Save how many records a running job saw, processed, skipped and failed on.",
                    _summary,
                ),
                CommandEntry("probe", "Test probes, and list their results, ages and failures.", _probe),
            ),
        ),
        CommandPanel(
            "Control",
            (
                CommandEntry("trigger", "Start one run without waiting for its sensor or cron time.", _trigger),
                CommandEntry("cascade", "Start one run because an upstream outside Interlock completed.", _cascade),
                CommandEntry("rerun", "Request another attempt at one run.", _requests),
                CommandEntry("replay", "Request reruns over a range of periods, outside the budgets.", _requests),
                CommandEntry("cancel", "Cancel a run: stop its job and do not retry it.", _requests),
                CommandEntry("pause", "Pause a pipeline: no new run or attempt starts.", _requests),
                CommandEntry("resume", "Resume a paused pipeline.", _requests),
            ),
        ),
        CommandPanel(
            "Operate",
            (
                CommandEntry("doctor", "Check this worker's environment (read-only).", _doctor),
                CommandEntry("alerts", "Test the targets of alerts: Slack, webhook, PagerDuty, Teams.", _alerts),
                CommandEntry("dlq", "List, show, replay and drop dead letters.", _dlq),
                CommandEntry("leases", "Show workers, their leases and how far each has read.", _leases),
                CommandEntry(
                    "watchdog", "Run the watchdog's checks now: missed runs, late data, stuck jobs.", _watchdog
                ),
                CommandEntry(
                    "archive",
                    "Archive events and ended runs before the store deletes them.",
                    _archive,
                ),
                CommandEntry("web", "Serve the console and the HTTP API on this store, without a worker.", _web),
                CommandEntry("migrate", "Migrate in place from the Lambda edition: check, shadow, cut over.", _migrate),
            ),
        ),
    ),
)
