"""Definitions on a real disk: directories, discovery, links, pipes and sizes."""

import errno
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from stepwell.errors import AgentNotFoundError
from stepwell.specs import registry as registry_module
from stepwell.specs.front_matter import DefinitionError, read_file
from stepwell.specs.parser import AgentSpecParser
from stepwell.specs.registry import MAX_FILES, AgentRegistry, FileRemark
from stepwell.specs.spec import AgentSpec


def put(path: Path, name: str, more: str = "", prompt: str = "Do it.") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"---\nname: {name}\ndescription: From {path.name}.\n{more}---\n{prompt}\n")
    return path


def messages(remarks: Iterable[FileRemark]) -> str:
    return "\n".join(str(remark) for remark in remarks)


def test_one_bad_file_never_hides_the_others(tmp_path: Path) -> None:
    put(tmp_path / "a.md", "a")
    (tmp_path / "b.md").write_text("---\nname: b\n")
    put(tmp_path / "c.md", "c")

    registry = AgentRegistry().load_directory(tmp_path)

    assert registry.names == ("a", "c")
    [problem] = registry.problems
    assert problem.path == str(tmp_path / "b.md")
    assert problem.message.startswith("line 1: the front matter that starts here is not closed")


def test_b271_a_single_file_that_is_bad_raises_with_its_path(tmp_path: Path) -> None:
    missing = tmp_path / "none.md"

    with pytest.raises(DefinitionError) as caught:
        AgentRegistry().load_file(missing)

    assert str(caught.value) == f"{missing}: can't be read: No such file or directory"


def test_b276_every_format_is_loaded_by_its_extension(tmp_path: Path) -> None:
    spec = AgentSpecParser().parse("---\nname: x\ndescription: d\ntools: []\n---\nGo.")
    assert spec.tools == ()
    (tmp_path / "one.MD").write_text(spec.to_markdown())
    (tmp_path / "two.yml").write_text(spec.to_yaml())
    (tmp_path / "three.json").write_text(spec.to_json())

    for file in ("one.MD", "two.yml", "three.json"):
        assert AgentRegistry().load_file(tmp_path / file).get("x") == spec


def test_only_a_recursive_load_looks_below_and_never_into_hidden_places(tmp_path: Path) -> None:
    put(tmp_path / "top.md", "top")
    put(tmp_path / "team" / "inner.md", "inner")
    put(tmp_path / ".git" / "hidden.md", "hidden")
    put(tmp_path / ".draft.md", "draft")
    (tmp_path / "notes.txt").write_text("nothing")

    assert AgentRegistry().load_directory(tmp_path).names == ("top",)
    assert AgentRegistry().load_directory(tmp_path, recursive=True).names == ("inner", "top")


def test_a_readme_next_to_agents_is_no_problem(tmp_path: Path) -> None:
    put(tmp_path / "a.md", "a")
    (tmp_path / "README.md").write_text("# Our agents\n")

    registry = AgentRegistry().load_directory(tmp_path)

    assert registry.names == ("a",)
    assert registry.problems == ()
    assert "README.md: has no front matter" in messages(registry.notes)


def test_b273_files_of_a_directory_are_read_in_the_order_of_their_paths(tmp_path: Path) -> None:
    put(tmp_path / "2.md", "same", prompt="Second.")
    put(tmp_path / "1.md", "same", prompt="First.")

    registry = AgentRegistry().load_directory(tmp_path)

    assert registry.get("same").system_prompt == "Second."
    assert (
        messages(registry.notes) == f"{tmp_path / '2.md'}: replaces 'same' of {tmp_path / '1.md'}"
    )


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match="is not a directory"):
        AgentRegistry().load_directory(tmp_path / "none")


def test_a_directory_of_very_many_files_is_cut_and_says_so(tmp_path: Path) -> None:
    for number in range(MAX_FILES + 1):
        put(tmp_path / f"{number:04}.md", f"agent-{number}")

    registry = AgentRegistry().load_directory(tmp_path)

    assert len(registry) == MAX_FILES
    assert f"has {MAX_FILES + 1} definitions" in messages(registry.problems)


def places(tmp_path: Path) -> tuple[Path, Path, Path]:
    home, package, project = tmp_path / "home", tmp_path / "package", tmp_path / "project"
    for place in (home / ".stepwell/agents", package, project / ".stepwell/agents"):
        place.mkdir(parents=True)
    return home, package, project


def test_b273_later_places_win_from_user_over_package_to_project(tmp_path: Path) -> None:
    home, package, project = places(tmp_path)
    claude, own = project / ".claude/agents", project / ".stepwell/agents"
    for number, place in enumerate([home / ".stepwell/agents", package, claude, own]):
        for later in range(number + 1):
            put(place / f"{later}.md", f"agent-{later}", prompt=f"Place {number}.")
        put(place / "all.md", "all", prompt=f"Place {number}.")

    found = AgentRegistry().discover(project, user_home=home, packages=[package])

    assert found.get("all").system_prompt == "Place 3."
    assert [found.get(f"agent-{n}").system_prompt for n in range(4)] == ["Place 3."] * 4
    without_project = AgentRegistry().discover(tmp_path, user_home=home, packages=[package])
    assert without_project.get("all").system_prompt == "Place 1."
    assert f"replaces 'all' of {claude / 'all.md'}" in messages(found.notes)


def test_nothing_anywhere_is_an_empty_registry(tmp_path: Path) -> None:
    registry = AgentRegistry().discover(tmp_path, user_home=tmp_path / "none")

    assert registry.names == ()
    assert registry.problems == ()
    assert registry.notes == ()


def test_places_that_were_given_and_are_not_there_are_noted(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    registry = AgentRegistry().discover(
        tmp_path / "nope", user_home=tmp_path / "none", packages=[tmp_path / "file"]
    )

    assert (registry.names, registry.problems) == ((), ())
    assert [str(note) for note in registry.notes] == [
        f"{tmp_path / 'file'}: is not a directory, so it was not searched for agents",
        f"{tmp_path / 'nope'}: is not a directory, so it was not searched for agents",
    ]
    with pytest.raises(AgentNotFoundError, match="no agent is registered as 'x'"):
        registry.get("x")


def test_own_files_are_strict_and_files_of_others_are_not(tmp_path: Path) -> None:
    home, _, project = places(tmp_path)
    put(project / ".claude/agents/lenient.md", "lenient", "shoe_size: 43\n")
    put(project / ".stepwell/agents/strict.md", "strict", "shoe_size: 43\n")

    registry = AgentRegistry().discover(project, user_home=home)

    assert registry.names == ("lenient",)
    assert "strict.md: has unknown fields: shoe_size" in messages(registry.problems)
    assert "lenient.md: kept unknown fields as metadata: shoe_size" in messages(registry.notes)


def test_an_untrusted_project_chooses_no_model(tmp_path: Path) -> None:
    home, _, project = places(tmp_path)
    put(project / ".stepwell/agents/costly.md", "costly", "model: opus\n")
    put(project / ".stepwell/agents/cheap.md", "cheap", "model: haiku\n")
    put(home / ".stepwell/agents/mine.md", "mine", "model: opus\n")

    registry = AgentRegistry().discover(project, user_home=home, allowed_models=["haiku"])
    trusting = AgentRegistry().discover(project, user_home=home, trust_project=True)

    assert registry.get("costly").preset is None
    assert not registry.get("costly").trusted
    assert registry.get("cheap").preset == "haiku"
    assert registry.get("mine").preset == "opus"
    assert registry.get("mine").trusted
    assert "costly.md: ignored the model 'opus' of an untrusted file" in messages(registry.notes)
    assert trusting.get("costly").preset == "opus"
    assert trusting.get("costly").trusted


def test_links_out_of_a_project_are_not_followed(tmp_path: Path) -> None:
    home, _, project = places(tmp_path)
    agents = project / ".stepwell/agents"
    (agents / "out.md").symlink_to(put(tmp_path / "elsewhere.md", "elsewhere"))
    (agents / "secret.md").symlink_to(put(project / "secret.md", "secret"))
    put(agents / "real.md", "real")
    (agents / "inside.md").symlink_to("real.md")
    (agents / "loop.md").symlink_to("loop.md")
    (agents / "gone.md").symlink_to("nowhere.md")
    (agents / "below").symlink_to(tmp_path)

    registry = AgentRegistry().discover(project, user_home=home)

    assert registry.names == ("real",)
    refused = {Path(problem.path).name for problem in registry.problems}
    assert refused == {"out.md", "secret.md", "loop.md", "gone.md"}
    assert "out.md: is a link out of" in messages(registry.problems)


def test_a_linked_directory_out_of_a_project_is_not_read(tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / ".claude").mkdir(parents=True)
    put(tmp_path / "elsewhere" / "a.md", "a")
    (project / ".claude/agents").symlink_to(tmp_path / "elsewhere")

    registry = AgentRegistry().discover(project, user_home=tmp_path / "none")
    trusting = AgentRegistry().discover(project, user_home=tmp_path / "none", trust_project=True)

    assert registry.names == ()
    assert ".claude/agents: is a link out of" in messages(registry.problems)
    assert trusting.names == ("a",)


def test_a_trusted_directory_may_link_elsewhere(tmp_path: Path) -> None:
    agents = tmp_path / "agents"
    agents.mkdir()
    (agents / "out.md").symlink_to(put(tmp_path / "dotfiles" / "out.md", "out"))

    assert AgentRegistry().load_directory(agents).names == ("out",)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes on this system")
def test_a_named_pipe_is_refused_at_once(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.md"
    os.mkfifo(pipe)

    with pytest.raises(DefinitionError, match="is not a regular file"):
        read_file(pipe)


def test_directories_and_impossible_paths_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match=r"can't be read|is not a regular file"):
        read_file(tmp_path)
    with pytest.raises(DefinitionError, match="can't be read"):
        read_file("no\0thing.md")


def test_a_huge_file_is_refused_without_being_read_whole(tmp_path: Path) -> None:
    huge = tmp_path / "huge.md"
    with huge.open("wb") as file:
        file.truncate(10 * 1024**3)

    with pytest.raises(DefinitionError, match="is larger than 1,048,576 bytes"):
        read_file(huge)


def test_b271_an_unreadable_file_is_a_problem_of_its_own(tmp_path: Path) -> None:
    put(tmp_path / "a.md", "a")
    put(tmp_path / "b.md", "b").unlink()
    (tmp_path / "b.md").mkdir()
    (tmp_path / "c.md").symlink_to("nowhere")

    registry = AgentRegistry().load_directory(tmp_path)

    assert registry.names == ("a",)
    assert "c.md: can't be read: No such file or directory" in messages(registry.problems)


def test_the_library_is_loaded_when_the_first_file_is_read() -> None:
    code = (
        "import sys, stepwell.specs.registry as r; before = 'yaml' in sys.modules;"
        "from stepwell.specs.front_matter import read_document; read_document('---\\na: 1\\n---');"
        "print(before, 'yaml' in sys.modules)"
    )

    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert ran.stdout.split() == ["False", "True"]


def test_an_untrusted_file_that_is_swapped_for_a_link_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agents = tmp_path / "agents"
    path = put(agents / "a.md", "a")
    secret = put(tmp_path / "secret.md", "secret")

    def looked(found: str | os.PathLike[str]) -> str:
        """What was there when it was looked at; then it is swapped."""
        if str(found).endswith("a.md"):
            path.unlink()
            path.symlink_to(secret)
        return os.path.abspath(found)

    monkeypatch.setattr(os.path, "realpath", looked)

    registry = AgentRegistry().load_directory(agents, trusted=False)

    assert path.is_symlink()
    assert registry.names == ()
    assert "can't be read: Too many levels of symbolic links" in messages(registry.problems)


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="descriptors are not listed here")
def test_what_is_no_file_leaves_nothing_open(tmp_path: Path) -> None:
    (tmp_path / "x.md").mkdir()
    before = len(os.listdir("/proc/self/fd"))

    for _ in range(20):
        with pytest.raises(DefinitionError, match="is not a regular file"):
            AgentRegistry().load_file(tmp_path / "x.md")

    assert len(os.listdir("/proc/self/fd")) <= before


def test_a_very_deep_tree_is_read_to_a_depth_and_says_so(tmp_path: Path) -> None:
    put(tmp_path / "a.md", "top")
    here = os.open(tmp_path, os.O_RDONLY)
    for _ in range(1_200):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    deepest = tmp_path.joinpath(*["d"] * 16)
    put(deepest / "b.md", "deepest")
    put(deepest / "d" / "c.md", "deeper")

    try:
        registry = AgentRegistry().load_directory(tmp_path, recursive=True)
    finally:
        subprocess.run(["rm", "-rf", str(tmp_path / "d")], check=True)

    assert registry.names == ("deepest", "top")
    [problem] = registry.problems
    assert problem.path == str(tmp_path)
    assert problem.message == f"goes more than 16 directories deep; left out: {deepest}/d"


def test_a_very_wide_tree_is_read_in_part_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry_module, "MAX_ENTRIES", 20)
    put(tmp_path / "a.md", "top")
    for name in ("b", "c", "d"):
        for number in range(15):
            put(tmp_path / name / f"{number}.md", f"{name}{number}")

    registry = AgentRegistry().load_directory(tmp_path, recursive=True)

    assert "top" in registry
    assert len(registry) == 18
    [problem] = registry.problems
    assert problem.message.startswith("contains more than 20 entries; left out: parts of ")
    assert problem.message.endswith(", and 1 more directory")


def test_a_directory_that_can_not_be_looked_into_is_a_problem_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "a.md", "a")
    put(tmp_path / "closed" / "b.md", "b")
    scandir = os.scandir

    def closed_to_us(path: Path) -> Any:  # To the superuser, nothing is closed.
        if path.name == "closed":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", closed_to_us)

    registry = AgentRegistry().load_directory(tmp_path, recursive=True)

    assert registry.names == ("a",)
    assert "closed: can't be read: Permission denied" in messages(registry.problems)


def test_an_untrusted_file_does_not_replace_an_agent_of_the_host(tmp_path: Path) -> None:
    home, _, project = places(tmp_path)
    put(project / ".claude/agents/r.md", "reviewer", prompt="Evil.")
    put(home / ".stepwell/agents/mine.md", "mine", prompt="Mine.")
    put(project / ".claude/agents/mine.md", "mine", prompt="The project's.")
    host = AgentRegistry([AgentSpec(name="reviewer", description="d", system_prompt="Review.")])

    registry = host.discover(project, user_home=home)

    assert registry.get("reviewer").system_prompt == "Review."
    [problem] = registry.problems
    assert Path(problem.path).name == "r.md"
    assert "'reviewer' is an agent of the host, which an untrusted file" in problem.message
    assert registry.get("mine").system_prompt == "The project's."
    trusting = host.discover(project, user_home=home, trust_project=True)
    assert trusting.get("reviewer").system_prompt == "Evil."
