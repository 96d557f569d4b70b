"""`interlock demo`: a walk through the examples, for someone who sees Interlock for the first time."""

from datetime import date
from pathlib import Path

from worker.cli.agenda import Span
from worker.cli.console import Screen
from worker.cli.plan import PlanRequest, run_plan
from worker.cli.sources import Sources
from worker.cli.validate import run_validate, show_problems
from worker.config import load_text

# A fixed long weekend, so that everyone sees the same: an exchange holiday, a clock change in Europe, a bank holiday.
WEEKEND = Span(first=date(2027, 3, 26), days=4)

EXAMPLES = Path(__file__).parents[2] / "examples"

INTRODUCTION = """Interlock decides whether a data pipeline may run. A pipeline is one YAML file: what starts it, which
conditions its data must meet, which job it starts, and by when it must be done.

Today Interlock checks such files and tells what to expect of them. The engine that starts jobs is not part of this
version yet, so this demo starts nothing, stores nothing and sends nothing."""

MISTAKES = (("check: gte", "check: gtee"), ("Europe/Berlin", "Europe/Berlim"), ("window: 2h", "window: 2 hours"))


def run_demo(screen: Screen, examples: Path = EXAMPLES) -> int:
    """Show the three things that can be done with files; the answer is the exit code."""
    if not examples.is_dir():
        screen.remark(f"no examples at {examples}: they come with a checkout, not with the installed package", "red")
        screen.remark("clone the project and run `make demo` there, or try `interlock validate` on files of your own")
        return 1
    screen.line(INTRODUCTION)
    codes = [show_validation(screen, examples), show_mistakes(screen, examples), show_plan(screen, examples)]
    show_next_steps(screen)
    return max(codes)


def show_validation(screen: Screen, examples: Path) -> int:
    heading(screen, "1. Are the files sound?", "interlock validate examples/")
    return run_validate(screen, Sources(paths=[examples], today=WEEKEND.first), strict_warnings=True)


def show_mistakes(screen: Screen, examples: Path) -> int:
    """Break a copy of an example in memory, and show what a person would be told."""
    heading(screen, "2. What does a mistake look like?", "interlock validate broken.yaml")
    text = (examples / "orders-daily.yaml").read_text(encoding="utf-8")
    for sound, broken in MISTAKES:
        text = text.replace(sound, broken, 1)
    screen.line(f"orders-daily.yaml with {len(MISTAKES)} typing errors; all are found in one go:\n")
    problems = load_text(text, file="broken.yaml", today=WEEKEND.first).problems
    show_problems(screen, problems)
    return 0 if problems else 1


def show_plan(screen: Screen, examples: Path) -> int:
    command = f"interlock plan examples/ --from {WEEKEND.first} --days {WEEKEND.days}"
    heading(screen, "3. What will happen, and what will not?", command)
    screen.line(
        "Four days in March 2027: exchanges rest on Good Friday, banks on Easter Monday, and on Sunday the clocks of\n"
        "Berlin skip the hour in which `warehouse-refresh` would start. `on signal` means that data starts the run;\n"
        "its deadline is known all the same, so that silence is noticed.\n"
    )
    return run_plan(screen, Sources(paths=[examples], today=WEEKEND.first), PlanRequest(span=WEEKEND))


def show_next_steps(screen: Screen) -> None:
    heading(screen, "Where to go from here", "")
    screen.line(
        "Read examples/orders-daily.yaml: every line is explained. Copy it, change it, and run the commands above."
    )
    screen.line("docs/store.md shows how pipelines and sensors get into a store; `interlock store init` makes one.")
    screen.line("docs/pipeline-file.md describes everything a file can say; `interlock --help` lists the commands.")


def heading(screen: Screen, title: str, command: str) -> None:
    screen.line(f"\n== {title}", style="bold cyan")
    if command:
        screen.line(f"$ {command}\n", style="dim")
