"""What a shell is told when a person presses the tab key."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.builders.command_line import interlock

BIN = Path(sys.executable).parent  # where the program is installed


@pytest.mark.parametrize(
    ("shell", "mark"),
    [("bash", "complete -o default -F"), ("zsh", "#compdef interlock"), ("fish", "complete --command")],
)
def test_each_shell_gets_a_script_of_its_own(shell: str, mark: str) -> None:
    result = interlock("completion", shell)

    assert result.exit_code == 0
    assert mark in result.stdout
    assert f"complete_{shell}" in result.stdout


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        (["interlock", "st"], {"store", "status"}),
        (["interlock", "sensor", "pu"], {"put"}),
        (["interlock", "store", "init", "--cr"], {"--create-tables"}),
    ],
)
def test_bash_completes_commands_and_options_by_the_script(words: list[str], completed: set[str]) -> None:
    script = (
        f'eval "$(interlock completion bash)"; COMP_WORDS=({" ".join(words)}); COMP_CWORD={len(words) - 1}; '
        '_interlock_completion interlock; echo "${COMPREPLY[@]}"'
    )
    environment = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}

    done = subprocess.run(
        ["bash", "-c", script], env=environment, capture_output=True, text=True, timeout=60, check=True
    )

    assert set(done.stdout.split()) == completed
