"""Loading many files: one bad file never hides the others."""

import os
from datetime import date
from pathlib import Path

from worker.config.load import Directory, Problem, load_directory

TODAY = date(2026, 1, 5)


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def a_pipeline(name: str, *, key: str = "", calendar: str = "") -> str:
    extra = f", calendar: {calendar}" if calendar else ""
    trigger = f"trigger: {{key: {key or name + '-in'}, check: exists}}{extra}"
    return f"pipeline: {{id: {name}}}\nschedule: {{{trigger}}}\njob: {{type: command, config: {{command: run}}}}\n"


def load(*paths: Path, calendars: Path | None = None, lenient: bool = False) -> Directory:
    return load_directory(paths, calendars_dir=calendars, lenient=lenient, today=TODAY)


def described(problems: tuple[Problem, ...], root: Path) -> list[str]:
    return [str(problem).replace(f"{root}{os.sep}", "") for problem in problems]


def test_the_yaml_files_of_a_directory_are_loaded_by_name_and_nothing_else(tmp_path: Path) -> None:
    for name in ("b.yaml", "a.yml", "c.txt", "sub/d.yaml"):
        write(tmp_path / name, a_pipeline(Path(name).stem))
    (tmp_path / "x.yaml").mkdir()

    found = load(tmp_path)

    assert [pipeline.id for pipeline in found.pipelines] == ["a", "b"]
    assert found.problems == ()


def test_one_bad_file_does_not_hide_the_others(tmp_path: Path) -> None:
    write(tmp_path / "a.yaml", "{{")
    write(tmp_path / "b.yaml", a_pipeline("b"))
    (tmp_path / "c.yaml").write_bytes(b"pipeline: {id: c}\nowner: \xff\n")
    (tmp_path / "d.yaml").symlink_to(tmp_path / "d.yaml")
    (tmp_path / "e.yaml").symlink_to(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "f.yaml")
    (tmp_path / "g.yaml").write_bytes(b"a: " + b"x" * 300_000)

    found = load(tmp_path)

    assert [pipeline.id for pipeline in found.pipelines] == ["b"]
    assert described(found.errors, tmp_path) == [
        (
            "a.yaml:2:1: error: while parsing a flow node, did not find expected node content; "
            "add the value that is missing; text that begins with `:` must be quoted"
        ),
        "c.yaml:2:8: error: is not UTF-8 text (byte 0xff)",
        "d.yaml:1:1: error: cannot be read: Too many levels of symbolic links",
        "e.yaml:1:1: error: cannot be read: No such file or directory",
        "f.yaml:1:1: error: is not a regular file",
        "g.yaml:1:1: error: is larger than 256 KiB",
    ]


def test_files_may_be_named_one_by_one_and_a_missing_one_is_a_problem(tmp_path: Path) -> None:
    file = write(tmp_path / "a.yaml", a_pipeline("a"))

    found = load(file, file, tmp_path / "b.yaml")

    assert [loaded.file for loaded in found.files] == [str(file), str(tmp_path / "b.yaml")]
    assert described(found.problems, tmp_path) == ["b.yaml:1:1: error: cannot be read: No such file or directory"]


def test_an_id_belongs_to_one_file(tmp_path: Path) -> None:
    write(tmp_path / "1" / "a.yaml", a_pipeline("a"))
    write(tmp_path / "2" / "a.yaml", a_pipeline("a"))

    found = load(tmp_path / "1", tmp_path / "2")

    assert len(found.pipelines) == 1
    assert described(found.errors, tmp_path) == [
        "2/a.yaml:1:16: error: pipeline.id: `a` is also the id of 1/a.yaml; pipeline ids must differ"
    ]


def test_a_file_named_otherwise_than_its_pipeline_is_a_warning(tmp_path: Path) -> None:
    write(tmp_path / "a.yaml", a_pipeline("b"))

    assert described(load(tmp_path).problems, tmp_path) == [
        (
            "a.yaml:1:16: warning: pipeline.id: the file is called `a`, and the pipeline `b`; "
            "give both the same name, so that people find it"
        )
    ]


def test_calendars_come_from_the_directory_beside_the_files(tmp_path: Path) -> None:
    write(tmp_path / "calendars" / "us.yaml", "name: us\ndates: [2026-12-25]\n")
    file = write(tmp_path / "a.yaml", a_pipeline("a", calendar="us"))

    for found in (load(tmp_path), load(file)):
        [pipeline] = found.pipelines
        assert [calendar.name for calendar in pipeline.schedules[0].exclusion.calendars] == ["us"]
        assert found.problems == ()


def test_calendars_come_from_the_directory_given_and_the_last_of_a_name_counts(tmp_path: Path) -> None:
    write(tmp_path / "calendars" / "us.yaml", "name: us\ndates: [2026-12-25]\n")
    write(tmp_path / "other" / "1.yaml", "name: us\ndates: [2026-01-01]\n")
    write(tmp_path / "other" / "2.yaml", "name: us\ndates: [2026-01-02]\n")

    found = load(tmp_path, calendars=tmp_path / "other")

    assert list(found.calendars["us"].dates) == [date(2026, 1, 2)]


def test_a_bad_calendar_is_a_problem_and_so_is_a_pipeline_that_needs_it(tmp_path: Path) -> None:
    write(tmp_path / "calendars" / "us.yaml", "name: us\ndates: [soon]\n")
    write(tmp_path / "calendars" / "ok.yaml", "name: uk\n")
    write(tmp_path / "a.yaml", a_pipeline("a", calendar="us"))

    assert described(load(tmp_path).problems, tmp_path) == [
        'calendars/us.yaml:2:9: error: dates[0]: the text "soon" is not a date; write YYYY-MM-DD, a day that exists',
        'a.yaml:2:59: error: schedule.calendar: there is no calendar "us"; calendars here: uk',
    ]


def test_progress_is_told_after_each_file(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        write(tmp_path / f"{name}.yaml", a_pipeline(name))
    seen: list[tuple[str, int, int]] = []

    load_directory([tmp_path], on_file=lambda path, done, total: seen.append((path.name, done, total)), today=TODAY)

    assert seen == [("a.yaml", 1, 3), ("b.yaml", 2, 3), ("c.yaml", 3, 3)]


def test_a_trigger_key_that_begins_anothers_is_a_warning_in_its_file(tmp_path: Path) -> None:
    write(tmp_path / "a.yaml", a_pipeline("a", key="orders"))
    write(tmp_path / "b.yaml", a_pipeline("b", key="orders-debug"))
    write(tmp_path / "c.yaml", a_pipeline("c", key="orders"))
    write(tmp_path / "d.yaml", a_pipeline("d", key="order-lines"))

    assert described(load(tmp_path).problems, tmp_path) == [
        f"{name}.yaml:2:27: warning: schedule.trigger.key: `orders` is the beginning of `orders-debug`, the trigger "
        "key of pipeline `b`: the keys are easily mistaken for each other; "
        "with `match: prefix` it would fire on that one's sensor too"
        for name in ("a", "c")
    ]
