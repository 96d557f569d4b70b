"""`interlock probe`: send one probe now, and list what probes found."""

import asyncio
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Final

import typer

from worker.cli.terminal.arguments import PipelineArgument, read_period
from worker.cli.terminal.console import Screen, counted, json_text
from worker.cli.terminal.pipeline_lookup import say_unknown
from worker.cli.terminal.store_access import EXIT_CODES, AsJson, StoreUrl, on_store
from worker.cli.terminal.store_session import Exit, StoreAccess, show_failure
from worker.cli.terminal.truncation import Truncation, report
from worker.config.settings import read_settings
from worker.config.suggestions import suggest
from worker.core.errors import ConfigError
from worker.core.model.ids import PipelineId
from worker.core.model.pipeline import Pipeline
from worker.core.model.probes import Probe
from worker.core.model.rules import Rule, RuleResult, evaluate_rule, leaves
from worker.core.model.values import Json
from worker.core.probes.expected_periods import current_period
from worker.core.probes.trait import ProbeAnswer, ProbeResult, Trait, age
from worker.core.time.periods import Period
from worker.core.time.timestamps import format_utc
from worker.operations.pipelines.lookup import version_of
from worker.store.repos.probes.traits import ProbeTraits
from worker.store.table import Tables

LISTED_MAX: Final = 1000


# --- test -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeTest:
    source: str
    key: str
    period: str | None
    as_json: bool


async def run_test(screen: Screen, at: StoreAccess, request: ProbeTest) -> int:
    """Send the probe once and show its result and how the rules would evaluate it; store nothing."""
    pipeline = await _pipeline(screen, at, request.source)
    if pipeline is None:
        return Exit.WRONG
    probe = pipeline.probe(request.key)
    if probe is None:
        names = [each.key for each in pipeline.probes]
        hint = suggest(request.key, names) or (f"it has {', '.join(names)}" if names else "it has no probes")
        show_failure(screen, f"pipeline {pipeline.id} has no probe {request.key}", hint)
        return Exit.WRONG
    now = at.clock.now()
    period = read_period(request.period) if request.period else current_period(pipeline.schedules[0], now)
    answer, took_ms = await _answer(at, pipeline, probe, period)
    results = _results(pipeline, probe, answer, at.clock.now())
    if request.as_json:
        screen.record(_record(pipeline, probe, period, answer, results, took_ms))
    else:
        _show(screen, probe, period, answer, results, took_ms)
    return Exit.DONE if isinstance(answer, ProbeResult) else Exit.PROBLEMS


async def _answer(at: StoreAccess, pipeline: Pipeline, probe: Probe, period: Period) -> tuple[ProbeAnswer, int]:
    """Return the answer, and how many milliseconds it took."""
    from worker.app.probes import open_prober  # noqa: PLC0415  the wiring takes long to load
    from worker.probes.prober import ProbeCall  # noqa: PLC0415  as above

    settings = read_settings(os.environ, store=at.url)
    call = ProbeCall(pipeline=pipeline.id, schedule=pipeline.schedules[0].id, period=period, probe=probe)
    async with open_prober(settings, os.environ, at.clock) as prober:
        began_s = at.clock.monotonic()
        answer = await prober.send(call)
        return answer, round(1000 * (at.clock.monotonic() - began_s))


async def _pipeline(screen: Screen, at: StoreAccess, source: str) -> Pipeline | None:
    """Return the pipeline of a file, or of the store if no such file exists; None after showing a problem."""
    path = Path(source)
    if not await asyncio.to_thread(path.is_file):
        if path.suffix in {".yaml", ".yml"}:
            raise ConfigError(f"there is no file {source}; name a pipeline file, or a pipeline of the store")
        async with at.tables() as tables:
            version = await version_of(tables, PipelineId(source))
            if version is None:
                await say_unknown(screen, tables, PipelineId(source))
            return version.pipeline if version else None
    from worker.config.load import load_directory  # noqa: PLC0415  loading it is slow

    found = load_directory([path], upstreams_required=False)
    for problem in found.errors:
        screen.remark(str(problem), style="red")
    return next(iter(found.pipelines), None)


def _results(pipeline: Pipeline, probe: Probe, answer: ProbeAnswer, now: datetime) -> list[tuple[str, RuleResult]]:
    """Evaluate every rule on the probe, each with the part of the file that it belongs to."""
    data = answer.data if isinstance(answer, ProbeResult) else None
    return [(part, evaluate_rule(rule, data, now)) for part, rule in _rules(pipeline) if rule.key == probe.key and data]


def _rules(pipeline: Pipeline) -> Iterator[tuple[str, Rule]]:
    for schedule in pipeline.schedules:
        if schedule.trigger:
            yield "trigger", schedule.trigger.rule
    for rule in leaves(pipeline.rules):
        yield "rule", rule
    for rule in leaves(pipeline.post_run.rules) if pipeline.post_run else ():
        yield "post-run rule", rule


def _record(  # noqa: PLR0917  one value for each part of the record
    pipeline: Pipeline,
    probe: Probe,
    period: Period,
    answer: ProbeAnswer,
    results: list[tuple[str, RuleResult]],
    took_ms: int,
) -> dict[str, Json]:
    is_result = isinstance(answer, ProbeResult)
    return {
        "type": "probe",
        "pipeline": pipeline.id,
        "key": probe.key,
        "probeType": probe.type.value,
        "period": str(period),
        "result": dict(answer.data) if is_result else None,
        "failure": None if is_result else answer.reason,
        "durationMs": took_ms,
        "rules": [
            {"part": part, "passed": result.passed, "reason": result.reason, "wanted": result.wanted}
            for part, result in results
        ],
    }


def _show(  # noqa: PLR0917  one value for each part of the output
    screen: Screen,
    probe: Probe,
    period: Period,
    answer: ProbeAnswer,
    results: list[tuple[str, RuleResult]],
    took_ms: int,
) -> None:
    about = f"probe {probe.key} ({probe.type}) for {period}"
    if not isinstance(answer, ProbeResult):
        screen.line(f"{about}: unknown after {took_ms / 1000:.1f} s", style="red")
        screen.line(f"  {answer.reason}")
        screen.line("  a rule on it does not hold until a request succeeds")
        return
    screen.line(f"{about}: result after {took_ms / 1000:.1f} s", style="green")
    screen.table([(name, json_text(value)) for name, value in answer.data.items()])
    for part, result in results:
        word, style = ("holds", "green") if result.passed else ("does not hold", "yellow")
        screen.line(f"{part} {word}: {result.reason}", style=style)
    if not results:
        screen.line("no rule or trigger names it", style="yellow")


# --- list -------------------------------------------------------------------------------------------------------------


async def run_list(screen: Screen, at: StoreAccess, pipeline: PipelineId, *, limit: int, as_json: bool) -> int:
    async with at.tables() as tables:
        version = await version_of(tables, pipeline)
        if version is None:
            return await say_unknown(screen, tables, pipeline)
        traits = await _first(tables, pipeline, limit + 1)
    now, is_cut = at.clock.now(), len(traits) > limit
    known = {trait.key for trait in traits}
    never = [Trait(key=probe.key) for probe in version.pipeline.probes if probe.key not in known]
    shown = [*traits[:limit], *never]
    if as_json:
        for trait in shown:
            screen.record(_listed(pipeline, trait, now))
    else:
        screen.table(
            [(trait.name, *_state(trait, now), _found(trait)) for trait in shown],
            styles=["" if trait.is_valid(now) and not trait.failure else "yellow" for trait in shown],
        )
        screen.line(f"{counted(len(shown), 'probe result')}{' shown, and there are more' if is_cut else ''}")
    if is_cut:
        report(screen, [Truncation(what="probe results", shown=limit, hint="use a larger --limit")], as_json=as_json)
    return Exit.DONE


async def _first(tables: Tables, pipeline: PipelineId, limit: int) -> list[Trait]:
    found: list[Trait] = []
    async for trait in ProbeTraits(tables).list(pipeline):
        found.append(trait)
        if len(found) == limit:
            break
    return found


def _state(trait: Trait, now: datetime) -> tuple[str, str]:
    """Return whether a result is valid, and how old it is."""
    if trait.checked_at is None or trait.stale_at is None:
        return "no result", ""
    if trait.is_valid(now):
        return "valid", f"{age(trait.checked_at, now)} old"
    return "stale", f"since {age(trait.stale_at, now)}"


def _found(trait: Trait) -> str:
    data = "" if trait.data is None else json_text(dict(trait.data))
    failed = f"failing since {format_utc(trait.failure.since)}: {trait.failure.reason}" if trait.failure else ""
    return "  ".join(filter(None, (failed, data)))


def _listed(pipeline: PipelineId, trait: Trait, now: datetime) -> dict[str, Json]:
    failure = trait.failure
    return {
        "type": "probeResult",
        "pipeline": pipeline,
        "key": trait.key,
        "period": None if trait.period is None else str(trait.period),
        "valid": trait.is_valid(now),
        "result": None if trait.data is None else dict(trait.data),
        "checkedAt": _time(trait.checked_at),
        "changedAt": _time(trait.changed_at),
        "staleAt": _time(trait.stale_at),
        "failure": failure.reason if failure else None,
        "failingSince": _time(failure.since if failure else None),
    }


def _time(at: datetime | None) -> str | None:
    return None if at is None else format_utc(at)


# --- the commands -----------------------------------------------------------------------------------------------------

probe_app = typer.Typer(
    name="probe",
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="""Test probes, and list their results, ages and failures.

A probe asks about data whose producer does not report it. Rules use its result like a sensor.""",
)

TEST_HELP = f"""Send one probe now, from this machine, and show what it finds.

The request uses the secrets and limits of this environment, as a worker would. Nothing is stored. FILE is a pipeline \
file, or the id of a pipeline in the store.

\b
Examples:
  interlock probe test pipelines/fx.yaml rates
  interlock probe test pipelines/fx.yaml rates --period 2026-03-03
  interlock probe test fx rates --json | jq .result

{EXIT_CODES}"""

LIST_HELP = f"""List the stored results of a pipeline's probes: valid or stale, their age, and failures.

\b
Examples:
  interlock probe list fx
  interlock probe list fx --json | jq 'select(.failure)'

{EXIT_CODES}"""


@probe_app.command("test", help=TEST_HELP)
def send_probe(
    context: typer.Context,
    file: Annotated[str, typer.Argument(metavar="FILE", help="A pipeline file, or a pipeline's id.")],
    key: Annotated[str, typer.Argument(metavar="KEY", help="The probe's key.")],
    *,
    period: Annotated[
        str | None, typer.Option(metavar="PERIOD", help="The period to ask about.", show_default="the current one")
    ] = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    request = ProbeTest(source=file, key=key, period=period, as_json=as_json)
    on_store(context, store, lambda screen, at: run_test(screen, at, request))


@probe_app.command("list", help=LIST_HELP)
def list_results(
    context: typer.Context,
    pipeline: PipelineArgument,
    *,
    limit: Annotated[int, typer.Option(metavar="N", min=1, max=100_000, help="How many at most.")] = LISTED_MAX,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    async def work(screen: Screen, at: StoreAccess) -> int:
        return await run_list(screen, at, PipelineId(pipeline), limit=limit, as_json=as_json)

    on_store(context, store, work)
