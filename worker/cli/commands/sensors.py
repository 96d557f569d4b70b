"""`interlock sensor`: write and read sensors."""

from typing import Annotated

import typer

from worker.cli.commands.sensor_rows import PutRequest, put_sensor, run_get, run_list
from worker.cli.terminal.confirm import Consent
from worker.cli.terminal.console import Screen
from worker.cli.terminal.store_access import EXIT_CODES, AsJson, StoreUrl, on_store
from worker.cli.terminal.store_session import StoreAccess
from worker.core.model.ids import PipelineId
from worker.operations.sensors.names import sensor_name

sensor_app = typer.Typer(
    name="sensor",
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Write and read sensors.",
)

PUT_HELP = f"""Write a sensor, replacing its previous value.

Numbers, true, false, null and JSON are stored as such, everything else as text; quote to force text: \
code='"42"'. Fields given in addition to --data replace those of the object. Prints what was stored, as JSON on a pipe.

\b
Examples:
  interlock sensor put orders-daily orders-export status=complete rows=1200
  interlock sensor put orders-daily orders-export rows=9 --period 2026-03-03
  interlock sensor put orders-daily orders-export --data @sensor.json

{EXIT_CODES}"""

GET_HELP = f"""Show one sensor, or with --period the one that rules of that period see.

\b
Examples:
  interlock sensor get orders-daily orders-export
  interlock sensor get orders-daily orders-export --period 2026-03-03
  interlock sensor get orders-daily orders-export --json

{EXIT_CODES}"""

LIST_HELP = f"""List the sensors of a pipeline, in order of their keys.

\b
Examples:
  interlock sensor list orders-daily
  interlock sensor list orders-daily --prefix orders-
  interlock sensor list orders-daily --json

{EXIT_CODES}"""

REMOVE_HELP = f"""Remove a sensor, for example a mistyped one.

Shows the sensor before it is removed. A removal starts nothing; waiting runs notice it at their next evaluation. \
With --period, only a sensor of this period is removed, never the one of all periods.

\b
Examples:
  interlock sensor remove orders-daily orders-exprot --yes
  interlock sensor remove orders-daily orders-export --period 2026-03-03 --yes
  interlock sensor remove orders-daily maintenance -y --json

{EXIT_CODES}"""

PipelineName = Annotated[str, typer.Argument(metavar="PIPELINE", help="The pipeline's id.")]
SensorKey = Annotated[str, typer.Argument(metavar="KEY", help="The sensor's key, as rules name it.")]
OfPeriod = Annotated[
    str | None,
    typer.Option("--period", metavar="PERIOD", help="2026-03-03, 2026-03-03T07 or 2026-03-03T0730: added to KEY."),
]


@sensor_app.command(help=PUT_HELP)
def put(
    context: typer.Context,
    pipeline: PipelineName,
    key: SensorKey,
    fields: Annotated[list[str] | None, typer.Argument(metavar="FIELD=VALUE", help="The sensor's fields.")] = None,
    *,
    data: Annotated[
        str | None, typer.Option(metavar="JSON|@FILE|@-", help="A JSON object: typed, from a file, from input.")
    ] = None,
    period: OfPeriod = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    request = PutRequest(pipeline=pipeline, key=key, fields=fields or [], data=data, period=period, as_json=as_json)
    raise typer.Exit(put_sensor(context.obj, store, request))


@sensor_app.command(help=GET_HELP)
def get(
    context: typer.Context,
    pipeline: PipelineName,
    key: SensorKey,
    *,
    period: OfPeriod = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    async def work(screen: Screen, at: StoreAccess) -> int:
        return await run_get(screen, at, sensor_name(pipeline, key, period), as_json=as_json)

    on_store(context, store, work)


@sensor_app.command("list", help=LIST_HELP)
def list_sensors(
    context: typer.Context,
    pipeline: PipelineName,
    *,
    prefix: Annotated[str, typer.Option(help="Only keys that begin so.")] = "",
    limit: Annotated[int, typer.Option(metavar="N", min=1, max=100_000, help="How many at most.")] = 1000,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    async def work(screen: Screen, at: StoreAccess) -> int:
        return await run_list(screen, at, PipelineId(pipeline), prefix=prefix, limit=limit, as_json=as_json)

    on_store(context, store, work)


@sensor_app.command(help=REMOVE_HELP)
def remove(
    context: typer.Context,
    pipeline: PipelineName,
    key: SensorKey,
    *,
    period: OfPeriod = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask. Needed where there is no terminal.")] = False,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    async def work(screen: Screen, at: StoreAccess) -> int:
        from worker.cli.commands.sensor_removal import run_remove  # noqa: PLC0415  it loads pipelines

        name = sensor_name(pipeline, key, period)
        return await run_remove(screen, at, name, consent=Consent.by_option(yes), as_json=as_json)

    on_store(context, store, work)
