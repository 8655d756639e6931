"""Modules that were written into a directory after it was opened to tools are not imported."""

import importlib
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from stepwell.sandbox.host import import_guard
from stepwell.sandbox.host.import_guard import ImportGuard, WrittenLaterError


def wait_for_clock(written: Path) -> None:
    """The kernel's clock for files moves in steps: wait for the next one."""
    while import_guard._now() <= written.stat().st_ctime_ns:
        time.sleep(0.001)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory in front of all others on the path, with two modules in it."""
    for name in ("early_one", "early_two"):
        (tmp_path / f"{name}.py").write_text("VALUE = 'early'\n")
    wait_for_clock(tmp_path / "early_two.py")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    known = set(sys.modules)
    importlib.invalidate_caches()
    yield tmp_path
    for name in set(sys.modules) - known:
        del sys.modules[name]


def test_what_was_there_is_imported_and_what_came_later_is_not(folder: Path) -> None:
    ImportGuard().add([folder])
    (folder / "late_one.py").write_text("VALUE = 'late'\n")
    (folder / "early_two.py").write_text("VALUE = 'late'\n")
    importlib.invalidate_caches()
    assert importlib.import_module("early_one").VALUE == "early"
    for name in ("late_one", "early_two"):
        with pytest.raises(WrittenLaterError, match=f"{name} is not imported.*protect_host=False"):
            importlib.import_module(name)


def test_the_module_further_along_the_path_is_taken(folder: Path) -> None:
    ImportGuard().add([folder])
    (folder / "colorsys.py").write_text("VALUE = 'late'\n")
    importlib.invalidate_caches()
    sys.modules.pop("colorsys", None)
    assert not hasattr(importlib.import_module("colorsys"), "VALUE")


def test_a_directory_that_was_opened_earlier_stays_guarded_from_then_on(folder: Path) -> None:
    guard = ImportGuard()
    guard.add([folder])
    (folder / "late_one.py").write_text("")
    guard.add([folder])
    importlib.invalidate_caches()
    with pytest.raises(WrittenLaterError):
        importlib.import_module("late_one")
    assert sys.meta_path.count(guard) == 1


def test_two_guards_ask_each_other_once(folder: Path) -> None:
    for _ in range(2):
        ImportGuard().add([folder])
    assert importlib.import_module("early_one").VALUE == "early"
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("there_is_no_such_module")


def test_modules_of_an_older_archive_are_imported_and_those_of_a_newer_are_not(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def archive(name: str) -> str:
        with zipfile.ZipFile(folder / f"{name}.zip", "w") as made:
            made.writestr(f"{name}_module.py", "VALUE = 1\n")
        return str(folder / f"{name}.zip")

    old = archive("old")
    wait_for_clock(Path(old))
    ImportGuard().add([folder])
    monkeypatch.setattr(sys, "path", [old, archive("new"), *sys.path])
    assert importlib.import_module("old_module").VALUE == 1
    with pytest.raises(WrittenLaterError):
        importlib.import_module("new_module")


def test_directories_that_are_gone_are_forgotten(folder: Path) -> None:
    guard = ImportGuard()
    guard.add([folder])
    guard.add(folder / f"gone-{number}" for number in range(1000))
    assert len(guard._guarded_since) == 1
