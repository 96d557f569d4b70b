"""`interlock store`: make, check, migrate and measure the store."""

from collections.abc import Sequence
from dataclasses import asdict

from worker.cli.terminal.console import Screen, counted
from worker.cli.terminal.store_access import Exit
from worker.store.admin import Figure, Migration, StoreAdmin, Verdict


async def run_init(screen: Screen, admin: StoreAdmin, *, create_tables: bool, as_json: bool) -> int:
    """Make the store, or what it lacks; one that is whole stays as it is."""
    made = await admin.init(may_create=create_tables)
    if as_json:
        screen.record({"type": "init", "place": admin.place, "made": made})
    else:
        screen.line(f"made {admin.place}" if made else f"nothing to do: {admin.place} is there and whole")
    return Exit.DONE


async def run_check(screen: Screen, admin: StoreAdmin, *, as_json: bool) -> int:
    verdicts = await admin.check()
    if as_json:
        show_verdict_records(screen, verdicts)
    else:
        show_verdicts(screen, verdicts)
    return Exit.DONE if all(verdict.is_sound for verdict in verdicts) else Exit.PROBLEMS


def show_verdict_records(screen: Screen, verdicts: Sequence[Verdict]) -> None:
    for verdict in verdicts:
        screen.record({"type": "verdict", "ok": verdict.is_sound, **asdict(verdict)})


def show_verdicts(screen: Screen, verdicts: Sequence[Verdict]) -> None:
    rows = [("ok" if verdict.is_sound else "PROBLEM", verdict.subject, _sentence(verdict)) for verdict in verdicts]
    screen.table(rows, styles=["green" if verdict.is_sound else "red" for verdict in verdicts], indent=0)
    wrong = sum(not verdict.is_sound for verdict in verdicts)
    screen.line(f"{counted(wrong, 'problem')} found" if wrong else "the store is sound", "red" if wrong else "green")


def _sentence(verdict: Verdict) -> str:
    return verdict.finding if verdict.is_sound else f"{verdict.finding}; {verdict.remedy}"


async def run_migrate(screen: Screen, admin: StoreAdmin, *, backup: bool, as_json: bool) -> int:
    done = await admin.migrate(backup=backup)
    if as_json:
        record = {"before": None, "after": None, "backup": None} if done is None else asdict(done)
        screen.record({"type": "migration", "place": admin.place, **record})
    else:
        show_migration(screen, admin.place, done)
    return Exit.DONE


def show_migration(screen: Screen, place: str, done: Migration | None) -> None:
    if done is None:
        screen.line(f"{place} have no version to migrate; `interlock store check` says what they lack")
    elif done.before == done.after:
        screen.line(f"{place} has version {done.after} already")
    else:
        screen.line(f"{place} was migrated from version {done.before} to {done.after}")
        screen.line(f"the store as it was is in {done.backup}" if done.backup else "no copy was kept")


async def run_stats(screen: Screen, admin: StoreAdmin, *, as_json: bool) -> int:
    figures = await admin.stats()
    if as_json:
        for figure in figures:
            screen.record({"type": "figure", **asdict(figure)})
    else:
        screen.table([(figure.name, _shown(figure), figure.note) for figure in figures], indent=0)
    return Exit.DONE


def _shown(figure: Figure) -> str:
    return f"{figure.value:,}" if isinstance(figure.value, int) else figure.value
