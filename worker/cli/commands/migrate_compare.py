"""`interlock migrate compare`: show where a shadow and the Lambda edition agree, and where not."""

from collections import Counter
from dataclasses import dataclass
from datetime import date
from typing import Final

from worker.cli.commands.migrate_check import PipelineSelector, chosen, require_said, unknown_names
from worker.cli.terminal.console import Screen, counted
from worker.cli.terminal.store_session import Exit, StoreAccess
from worker.core.errors import Rejected
from worker.core.time.timestamps import format_rfc3339
from worker.operations.migrate.agreement import AgreementResult, Compared, compare
from worker.operations.migrate.compare import SideBySide
from worker.store.shadow import ShadowTables

STYLES: Final = {
    AgreementResult.AGREED: "green",
    AgreementResult.WAITING: "",
    AgreementResult.OURS_ONLY: "red",
    AgreementResult.THEIRS_ONLY: "red",
}
_DISAGREE: Final = (AgreementResult.OURS_ONLY, AgreementResult.THEIRS_ONLY)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareRequest:
    which: PipelineSelector
    first: date
    last: date
    show_all: bool = False
    as_json: bool = False


async def run_compare(screen: Screen, access: StoreAccess, request: CompareRequest) -> int:
    """Compare run by run. Return exit code 1 if any run differs or a pipeline could not be compared."""
    require_said(request.which)
    tally: Counter[AgreementResult] = Counter()
    left_out = 0
    async with access.tables() as tables:
        pipelines = await chosen(screen, access, tables, request.which)
        unknown = await unknown_names(tables, request.which, pipelines)
        beside = SideBySide(tables, ShadowTables(tables, access.clock))
        since = await beside.since()
        for pipeline in pipelines:
            try:
                found = list(compare(await beside.read(pipeline, request.first, request.last)))
            except Rejected as problem:
                screen.remark(f"{pipeline} was left out: {problem}", style="red")
                left_out += 1
                continue
            tally.update(each.result for each in found)
            _show(screen, found, request)
    if request.as_json:
        counts = {result.value: tally[result] for result in AgreementResult}
        screen.record({"type": "summary", "since": format_rfc3339(since), "leftOut": left_out, **counts})
    else:
        counts = ", ".join(f"{tally[result]} {result.value}" for result in AgreementResult)
        screen.line(f"{counted(len(pipelines) - left_out, 'pipeline')} since {format_rfc3339(since)}: {counts}")
    if unknown:
        return Exit.WRONG
    return Exit.PROBLEMS if left_out or any(tally[result] for result in _DISAGREE) else Exit.DONE


def _show(screen: Screen, found: list[Compared], request: CompareRequest) -> None:
    if request.as_json:
        for each in found:
            screen.record(
                {
                    "type": "run",
                    "run": str(each.key),
                    "result": each.result.value,
                    "why": each.why,
                    "oursAt": format_rfc3339(each.ours_at) if each.ours_at else None,
                    "theirsAt": format_rfc3339(each.theirs_at) if each.theirs_at else None,
                }
            )
        return
    shown = [each for each in found if request.show_all or each.result is not AgreementResult.AGREED]
    rows = [(each.result.value, str(each.key), each.why) for each in shown]
    screen.table(rows, styles=[STYLES[each.result] for each in shown], indent=0)
