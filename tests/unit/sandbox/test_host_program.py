"""Programs that are opened once: what a name leads to later does not matter."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from stepwell.errors import SandboxError
from stepwell.sandbox.host.program import Program, find_programs, host_python


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A program of our own that says who it is."""
    path = tmp_path / "bin" / "tool"
    path.parent.mkdir()
    path.write_text("#!/bin/sh\necho original\n")
    path.chmod(0o755)
    return path


def output(program: Program) -> str:
    ran = subprocess.run(
        [program.path], executable=program.executable, capture_output=True, text=True, check=True
    )
    return ran.stdout.strip()


def test_a_file_in_its_place_is_not_run(program: Path) -> None:
    opened = Program(str(program))
    program.unlink()
    program.write_text("#!/bin/sh\necho other\n")
    program.chmod(0o755)
    assert output(opened) == "original"


def test_a_changed_file_is_refused_and_a_touched_one_is_not(program: Path, tmp_path: Path) -> None:
    opened = Program(str(program))
    os.link(program, tmp_path / "link")
    program.touch()
    assert output(opened) == "original"
    with (tmp_path / "link").open("a") as link:
        link.write("echo more\n")
    with pytest.raises(SandboxError, match="was changed since this process opened it"):
        assert opened.executable


def test_the_search_path_comes_before_the_systems_folders_and_relative_ones_never(
    program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(program, program.with_name("env"))
    program.with_name("env").chmod(0o777)
    monkeypatch.setenv("PATH", f".:{program.parent}")
    monkeypatch.chdir(program.parent)
    assert [found.path for found in find_programs("tool")] == [str(program)]
    first, *others = find_programs("env")
    assert first.path == str(program.with_name("env"))
    assert not first.is_system
    assert any(found.is_system for found in others)


@pytest.mark.parametrize("kind", ["missing", "folder", "not executable"])
def test_what_is_no_program_is_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "x"
    if kind == "folder":
        path.mkdir()
    elif kind == "not executable":
        path.write_text("")
    with pytest.raises(OSError, match=r"ermission|No such"):
        Program(str(path))


def test_the_interpreter_is_the_one_beneath_the_environment() -> None:
    assert not Path(host_python().path).is_symlink()
    assert output(Program("/bin/true")) == ""
