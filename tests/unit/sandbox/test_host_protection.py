"""What is kept read-only within writable paths, by name and because this process executes it."""

import sys
from pathlib import Path

import pytest

from stepwell.errors import ConfigurationError, SandboxError
from stepwell.sandbox.host.names import PROTECTED_NAMES, protected_name
from stepwell.sandbox.host.protection import host_path_of, protect
from stepwell.sandbox.policy import ExecutionPolicy


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with some of the protected names in it."""
    folder = tmp_path.resolve() / "project"
    for name in (".git/hooks", "node_modules/.bin", "src"):
        (folder / name).mkdir(parents=True)
    for name in (".git/config", "a.pth", "b.pth", "src/conftest.py", "conftest.py"):
        (folder / name).write_text("")
    return folder


def test_existing_names_are_read_only_and_the_folders_above_pinned(project: Path) -> None:
    found = protect(ExecutionPolicy.in_(project))
    names = {str(path.relative_to(project)) for path in found.read_only}
    assert names == {
        *(".git/hooks", ".git/config", "node_modules/.bin", "a.pth", "b.pth", "conftest.py"),
    }
    assert found.pinned == (project / ".git", project / "node_modules")


def test_a_path_that_the_developer_opens_is_open(project: Path) -> None:
    hooks = project / ".git" / "hooks"
    found = protect(ExecutionPolicy.in_(project, writable=[hooks]))
    assert hooks not in found.read_only
    assert protect(ExecutionPolicy.in_(project, protected=())).read_only == ()


def test_a_folder_that_is_read_only_already_stays_so(project: Path) -> None:
    found = protect(ExecutionPolicy.in_(project, readable=[project / ".git"]))
    assert project / ".git" not in found.pinned


@pytest.mark.parametrize("kind", ["folder on the path", "environment", "package"])
def test_what_the_host_executes_is_read_only(
    project: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    deep = project / "src" / "deep"
    deep.mkdir()
    if kind == "folder on the path":
        monkeypatch.setenv("PATH", f"/usr/bin:{deep}")
    elif kind == "environment":
        monkeypatch.setattr(sys, "prefix", str(deep))
    else:
        deep = deep / "site-packages"
        deep.mkdir()
        monkeypatch.setattr(sys, "path", [*sys.path, str(deep)])
    policy = ExecutionPolicy.in_(project, protected=())
    assert protect(policy).read_only == (deep,)
    assert project / "src" in protect(policy).pinned
    assert protect(ExecutionPolicy.in_(project, protected=(), protect_host=False)).read_only == ()
    assert host_path_of(str(deep / "tool")) is not None


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("{project}", "is the same, or lies in it"),
        ("{project}/later", "does not exist yet"),
        ("{project}/link", "is a symlink"),
        ("{project}/link/../real", "is a symlink"),
    ],
)
def test_what_can_not_be_protected_is_refused(
    project: Path, monkeypatch: pytest.MonkeyPatch, where: str, words: str
) -> None:
    (project / "real").mkdir()
    (project / "link").symlink_to("real")
    place = where.format(project=project)
    monkeypatch.setenv("PATH", f"/usr/bin:{place}")
    if ".." in place:
        monkeypatch.setattr(sys, "prefix", place)
    with pytest.raises(SandboxError, match=f"{words}.*protect_host=False"):
        protect(ExecutionPolicy.in_(project))


def test_a_directory_within_the_environment_is_refused(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "prefix", str(project))
    (project / "lib" / "deep").mkdir(parents=True)
    for part in ("lib/deep", "lib", ""):
        with pytest.raises(SandboxError, match="the Python environment of this process"):
            protect(ExecutionPolicy.in_(project / part))
    assert protect(ExecutionPolicy.in_(project / "src", protected=())).read_only == ()


def test_a_writable_file_on_the_path_is_refused(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"/usr/bin:{project}")
    with pytest.raises(SandboxError, match="on the PATH of this process"):
        protect(ExecutionPolicy.in_(project / "src", writable=[project / "a.pth"]))


@pytest.mark.parametrize(
    ("path", "pattern"),
    [
        (".venv/bin/python", ".venv"),
        ("deep/down/.VENV/x", ".venv"),
        ("x/.git", ".git/hooks"),
        (".git/info/exclude", None),
        (".github/hooks", None),
        ("node_modules/left-pad/index.js", None),
        ("node_modules/.bin", "node_modules/.bin"),
        ("lib/Evil.PTH", "*.pth"),
        ("conftest.py.txt", None),
    ],
)
def test_names_at_any_depth(path: str, pattern: str | None) -> None:
    assert protected_name(path.split("/"), PROTECTED_NAMES) == pattern


@pytest.mark.parametrize("names", ["conftest.py", ["/etc"], ["a/../b"], [""], [3]])
def test_what_is_no_list_of_names_is_refused(project: Path, names: object) -> None:
    with pytest.raises(ConfigurationError, match="protected"):
        ExecutionPolicy.in_(project, protected=names)  # type: ignore[arg-type]
