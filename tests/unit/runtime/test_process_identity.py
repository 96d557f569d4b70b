"""The proof that a process has ended: right about real processes, and silent wherever anything could mislead it."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from worker.runtime.process_identity import ProcessIdentity, ProcessWitness, parse_identity

BOOT = "0b7e1b0c-6f0e-4f6e-9b57-8d0d5e0f6c11"
ME, OTHER = 100, 200


def a_proc(at: Path, **changes: str) -> Path:
    """A /proc with this process in it, as the kernel shows it."""
    about = {"boot": BOOT, "pid_ns": "pid:[4026531836]", "time_ns": "time:[4026531834]", "self": str(ME), **changes}
    (at / "sys/kernel/random").mkdir(parents=True)
    (at / "sys/kernel/random/boot_id").write_text(about["boot"] + "\n")
    (at / str(ME) / "ns").mkdir(parents=True)
    (at / "self").symlink_to(about["self"])
    if about["self"] != str(ME):
        (at / about["self"] / "ns").mkdir(parents=True)
    (at / about["self"] / "ns/pid").symlink_to(about["pid_ns"])
    if about["time_ns"]:
        (at / about["self"] / "ns/time").symlink_to(about["time_ns"])
    show(at, ME, began="500")
    return at


def show(proc: Path, pid: int, *, began: str, state: str = "S", threads: int = 1) -> None:
    for number in range(threads):
        (proc / str(pid) / "task" / str(pid + number)).mkdir(parents=True, exist_ok=True)
    fields = [state, *("0" for _ in range(18)), began, "1", "2"]
    (proc / str(pid) / "stat").write_text(f"{pid} (odd) name) {' '.join(fields)}\n")


def exists(_pid: int, _signal: int) -> None:
    return


def is_missing(_pid: int, _signal: int) -> None:
    raise ProcessLookupError


def is_foreign(_pid: int, _signal: int) -> None:
    raise PermissionError


def a_witness(proc: Path, probe: Callable[[int, int], None] = exists) -> ProcessWitness:
    return ProcessWitness(proc, pid=ME, probe=probe)


def its(witness: ProcessWitness, began: str = "700") -> ProcessIdentity:
    assert witness.own is not None
    return ProcessIdentity(witness.own.place, OTHER, began)


# --- real processes ---------------------------------------------------------------------------------------------------


def test_a_real_process_is_alive_until_it_is_killed_and_gone_afterwards() -> None:
    show_own = "from worker.runtime.process_identity import ProcessWitness as W; print(W().own, flush=True); input()"
    witness = ProcessWitness()
    with subprocess.Popen(
        [sys.executable, "-c", show_own], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout
        identity = parse_identity(child.stdout.readline().strip())
        assert identity is not None
        assert identity.pid == child.pid
        assert not witness.has_ended(identity)

        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert witness.has_ended(identity), "it is a zombie, since nobody has waited for it"
        child.wait()
        assert witness.has_ended(identity)


# --- whatever could mislead it ----------------------------------------------------------------------------------------


def test_a_pid_that_another_process_has_now_proves_that_the_first_has_ended(tmp_path: Path) -> None:
    witness = a_witness(a_proc(tmp_path))
    show(tmp_path, OTHER, began="900")

    assert witness.has_ended(its(witness, began="700"))
    assert not witness.has_ended(its(witness, began="900"))


@pytest.mark.parametrize(
    "other",
    [
        {"boot": "11111111-6f0e-4f6e-9b57-8d0d5e0f6c11"},
        {"pid_ns": "pid:[4026532999]"},
        {"time_ns": "time:[4026532888]"},
        {"time_ns": ""},
    ],
    ids=["another boot", "another pid namespace", "another time namespace", "another kernel"],
)
def test_nothing_is_proven_about_a_process_of_another_place(tmp_path: Path, other: dict[str, str]) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    here = a_witness(a_proc(tmp_path / "here"), is_missing)
    there = a_witness(a_proc(tmp_path / "there", **other), is_missing)

    assert here.has_ended(its(here))
    assert not here.has_ended(its(there))


def test_a_process_that_proc_hides_is_not_taken_for_gone(tmp_path: Path) -> None:
    witness = a_witness(a_proc(tmp_path), is_foreign)

    assert not witness.has_ended(its(witness))


def test_a_process_whose_first_thread_has_ended_lives_as_long_as_another_thread(tmp_path: Path) -> None:
    witness = a_witness(a_proc(tmp_path))
    show(tmp_path, OTHER, began="700", state="Z", threads=2)
    assert not witness.has_ended(its(witness))

    (tmp_path / str(OTHER) / "task" / str(OTHER + 1)).rmdir()
    assert witness.has_ended(its(witness))


def test_a_proc_of_another_namespace_identifies_nobody(tmp_path: Path) -> None:
    witness = a_witness(a_proc(tmp_path, self="4711"), is_missing)

    assert witness.own is None
    assert not witness.has_ended(ProcessIdentity("anywhere", OTHER, "700"))


def test_a_system_without_proc_proves_nothing(tmp_path: Path) -> None:
    witness = a_witness(tmp_path, is_missing)

    assert witness.own is None
    assert not witness.has_ended(ProcessIdentity("anywhere", OTHER, "700"))


@pytest.mark.parametrize("text", ["", "place", "place|12", "place|x|1", "|12|1", "place|-1|7", "place|²|7"])
def test_a_text_that_names_no_process_is_no_identity(text: str) -> None:
    assert parse_identity(text) is None


def test_a_signal_to_everybody_is_never_sent(tmp_path: Path) -> None:
    witness = a_witness(a_proc(tmp_path), is_missing)

    assert not witness.has_ended(its(witness)._replace(pid=0))
