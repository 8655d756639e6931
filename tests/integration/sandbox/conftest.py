"""What the tests of sandboxes share: a place to work, and sandboxes where they work."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from stepwell.sandbox import Sandbox, cgroups
from stepwell.sandbox.bubblewrap import BubblewrapSandbox
from stepwell.sandbox.cgroups import _parent
from stepwell.sandbox.sandlock import SandlockSandbox
from stepwell.sandbox.unconfined import UnconfinedSandbox
from tests.integration.sandbox.watching import Marker, own_groups, private_folders, zombies


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where commands work."""
    folder = tmp_path / "place"
    folder.mkdir()
    return folder


@pytest.fixture
def marker() -> Marker:
    """By which processes of this test are found."""
    return Marker()


@pytest.fixture
def parents() -> list[Path]:
    """Where this process can make control groups."""
    found = [_parent(controller) for controller in ("memory", "pids")]
    if None in found:
        pytest.skip("no control groups can be made here")
    return [parent for parent in found if parent is not None]


@pytest.fixture
def no_control_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine that lets nobody make one."""
    monkeypatch.setattr(cgroups, "_parent", lambda _: None)


@pytest.fixture
def bubblewrap() -> BubblewrapSandbox:
    """Bubblewrap, where it is installed."""
    sandbox = BubblewrapSandbox()
    if reason := sandbox.unavailable():
        pytest.skip(reason)
    return sandbox


@pytest.fixture
def sandlock() -> SandlockSandbox:
    """Sandlock, where it works."""
    sandbox = SandlockSandbox()
    if reason := sandbox.unavailable():
        pytest.skip(reason)
    return sandbox


@pytest.fixture(params=["bubblewrap", "sandlock", "unconfined"])
def sandbox(request: pytest.FixtureRequest) -> Sandbox:
    """Each of the ways to end what a command leaves behind."""
    if request.param == "unconfined":
        return UnconfinedSandbox()
    return request.getfixturevalue(request.param)


@pytest.fixture
def nothing_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fails a test that leaves folders, control groups or zombies behind."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield
    assert private_folders() == []
    assert own_groups() == []
    assert zombies() == []
