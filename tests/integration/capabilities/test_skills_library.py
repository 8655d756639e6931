"""Libraries on a real disk: what is found, what is refused, and what is never followed."""

import os
from pathlib import Path

import pytest

from stepwell.capabilities.skills import SkillLibrary, SkillNotFoundError
from stepwell.capabilities.skills import library as library_module
from stepwell.specs.front_matter import DefinitionError


def write(root: Path, directory: str, text: str) -> Path:
    path = root / directory / "SKILL.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def skill(name: str, body: str = "Do it.") -> str:
    return f"---\nname: {name}\ndescription: About {name}.\n---\n{body}"


def test_b191_only_skill_files_one_directory_down_are_found(tmp_path: Path):
    write(tmp_path, "one", skill("one"))
    write(tmp_path, "group/two", skill("two"))
    (tmp_path / "one" / "OTHER.md").write_text(skill("other"))
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("x")

    library = SkillLibrary(tmp_path)

    assert library.names == ("one",)
    assert len(library) == 1
    assert "one" in library
    assert library.problems == ()


def test_b191_a_missing_root_is_an_empty_library_with_a_note(tmp_path: Path):
    (tmp_path / "file").write_text("x")
    roots = (tmp_path / "nowhere", tmp_path / "file" / "below")
    library = SkillLibrary(*roots)

    assert (library.names, library.skills, library.problems) == ((), (), ())
    assert [str(note) for note in library.notes] == [f"{root}: does not exist" for root in roots]


def test_the_directory_of_one_skill_is_no_root_and_what_lies_below_is_read(tmp_path: Path):
    root = tmp_path / "skills" / "one"
    (root / "below").mkdir(parents=True)
    (root / "SKILL.md").write_text(skill("one"))
    (root / "below" / "SKILL.md").write_text(skill("below"))

    library = SkillLibrary(root)

    assert library.names == ("below",)
    assert [str(problem) for problem in library.problems] == [
        f"{root}: is the directory of one skill; pass its parent directory: {tmp_path / 'skills'}"
    ]


def test_a_root_that_can_not_be_looked_at_is_a_problem(tmp_path: Path):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    library = SkillLibrary(tmp_path / "loop")

    assert "can't be read" in str(library.problems)
    assert library.notes == ()


@pytest.mark.parametrize("name", ["SKILL.md", "notes.md"])
def test_a_file_is_no_root(tmp_path: Path, name: str):
    write(tmp_path / "skills", "one", skill("one"))
    (tmp_path / "skills" / "one" / "notes.md").write_text("x")
    path = tmp_path / "skills" / "one" / name

    (problem,) = SkillLibrary(path).problems

    assert problem.path == str(path)
    assert problem.message == (
        "is a file; pass the directory that contains the directories of the skills"
        + (f": {tmp_path / 'skills'}" if name == "SKILL.md" else "")
    )


def test_a_file_in_lower_case_is_not_read_but_noted(tmp_path: Path):
    (tmp_path / "low").mkdir()
    (tmp_path / "low" / "skill.md").write_text(skill("low"))

    library = SkillLibrary(tmp_path)

    assert library.names == ()
    assert "rename it to SKILL.md" in str(library.notes[0])


def test_b193_broken_files_are_reported_and_the_rest_still_loads(tmp_path: Path):
    write(tmp_path, "bad", "---\nname: bad\nnever closed")
    write(tmp_path, "good", skill("good"))

    library = SkillLibrary(tmp_path)

    assert library.names == ("good",)
    assert [Path(problem.path).parent.name for problem in library.problems] == ["bad"]
    assert "line 1: the front matter that starts here is not closed" in str(library.problems[0])


def test_b197_of_two_skills_with_one_name_the_first_wins(tmp_path: Path):
    write(tmp_path / "a", "x", skill("same", "First."))
    write(tmp_path / "b", "x", skill("same", "Second."))

    library = SkillLibrary(tmp_path / "a", tmp_path / "b")

    assert library.get("same").body == "First."
    assert SkillLibrary(tmp_path / "b", tmp_path / "a").get("same").body == "Second."
    assert [note.message for note in library.notes if "found first" in note.message] == [
        f"not used: {tmp_path}/a/x/SKILL.md has the name 'same' as well and was found first"
    ]


def test_b197_a_loaded_skill_is_kept(tmp_path: Path):
    path = write(tmp_path, "one", skill("one"))
    library = SkillLibrary(tmp_path)

    first = library.get("one")
    path.unlink()

    assert library.get("one") is first
    assert library.skills == (first,)


def test_the_text_is_read_when_it_is_first_asked_for(tmp_path: Path):
    path = write(tmp_path, "one", skill("one", "Old."))
    library = SkillLibrary(tmp_path)
    assert library.names == ("one",)

    path.write_text(skill("renamed", "New."))

    assert (library.get("one").name, library.get("one").body) == ("one", "New.")


def test_a_file_that_was_broken_meanwhile_is_named(tmp_path: Path):
    path = write(tmp_path, "one", skill("one"))
    library = SkillLibrary(tmp_path)
    assert library.names == ("one",)
    path.unlink()

    with pytest.raises(DefinitionError, match=r"SKILL\.md: can't be read: No such file"):
        library.get("one")


def test_an_unknown_name_lists_the_known(tmp_path: Path):
    write(tmp_path, "one", skill("one"))
    write(tmp_path, "two", skill("two"))

    with pytest.raises(SkillNotFoundError, match="no skill is called 'three'; known: one, two"):
        SkillLibrary(tmp_path).get("three")


def test_b196_files_in_four_directories_become_resources(tmp_path: Path):
    write(tmp_path, "one", skill("one"))
    for name in (
        *("scripts/b.sh", "scripts/a.py", "references/r.md", "assets/logo.svg", "examples/e.txt"),
        *("scripts/deep/c.py", "other/o.md", "references/.hidden", "notes.md"),
    ):
        path = tmp_path / "one" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"text of {name}")
    library = SkillLibrary(tmp_path)
    found = library.get("one")

    assert found.resources == (
        *("scripts/a.py", "scripts/b.sh", "references/r.md", "assets/logo.svg", "examples/e.txt"),
    )
    assert library.read_resource(found, "./references/r.md") == "text of references/r.md"


def test_named_resources_count_when_they_lie_in_the_directory(tmp_path: Path):
    names = "[notes.md, sub/x.md, ../secret.md, /etc/passwd, missing.md]"
    write(tmp_path, "one", f"---\nname: one\ndescription: x\nresources: {names}\n---\nDo it.")
    (tmp_path / "one" / "notes.md").write_text("notes")
    (tmp_path / "one" / "sub").mkdir()
    (tmp_path / "one" / "sub" / "x.md").write_text("deep")
    (tmp_path / "secret.md").write_text("secret")
    library = SkillLibrary(tmp_path)

    assert library.get("one").resources == ("notes.md", "sub/x.md")
    assert library.read_resource(library.get("one"), "sub/x.md") == "deep"
    assert [note.message for note in library.notes] == [
        "the resource '../secret.md' is not a file in its directory",
        "the resource '/etc/passwd' is not a file in its directory",
        "the resource 'missing.md' is not a file in its directory",
    ]


@pytest.mark.parametrize(
    "path", ["../two/SKILL.md", "SKILL.md", "/etc/passwd", "references/../SKILL.md"]
)
def test_only_listed_resources_are_read(tmp_path: Path, path: str):
    write(tmp_path, "one", skill("one"))
    write(tmp_path, "two", skill("two"))
    (tmp_path / "one" / "references").mkdir()
    (tmp_path / "one" / "references" / "r.md").write_text("r")
    library = SkillLibrary(tmp_path)

    with pytest.raises(DefinitionError, match=r"has no resource .*; resources: references/r.md"):
        library.read_resource(library.get("one"), path)


def test_a_resource_that_became_a_link_out_is_not_read(tmp_path: Path):
    root = tmp_path / "skills"
    write(root, "one", skill("one"))
    (root / "one" / "references").mkdir()
    resource = root / "one" / "references" / "r.md"
    resource.write_text("r")
    (tmp_path / "secret").write_text("secret")
    library = SkillLibrary(root)
    found = library.get("one")

    resource.unlink()
    resource.symlink_to(tmp_path / "secret")

    with pytest.raises(DefinitionError, match="is a link out of"):
        library.read_resource(found, "references/r.md")


def test_links_among_resources_are_not_listed_unless_trusted(tmp_path: Path):
    root = tmp_path / "skills"
    write(root, "one", skill("one"))
    (root / "one" / "references").mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "s.md").write_text("secret")
    (root / "one" / "references" / "link.md").symlink_to(tmp_path / "outside" / "s.md")
    (root / "one" / "assets").symlink_to(tmp_path / "outside")

    trusting = SkillLibrary(root, trust_links=True)

    assert SkillLibrary(root).get("one").resources == ()
    assert trusting.get("one").resources == ("references/link.md", "assets/s.md")
    assert trusting.read_resource(trusting.get("one"), "assets/s.md") == "secret"


@pytest.mark.parametrize("what", ["file", "directory"])
def test_links_out_of_the_root_are_followed_only_when_trusted(tmp_path: Path, what: str):
    root = tmp_path / "skills"
    outside = write(tmp_path / "outside", "one", skill("one"))
    root.mkdir()
    if what == "directory":
        (root / "one").symlink_to(outside.parent)
    else:
        (root / "one").mkdir()
        (root / "one" / "SKILL.md").symlink_to(outside)

    library = SkillLibrary(root)

    assert library.names == ()
    assert "is a link out of" in library.problems[0].message
    assert SkillLibrary(root, trust_links=True).names == ("one",)


@pytest.mark.parametrize("what", ["file", "directory"])
def test_a_link_that_appears_between_the_look_and_the_opening_is_refused(
    tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch
):
    outside = write(tmp_path / "outside", "one", skill("secret"))
    path = write(tmp_path / "skills", "one", skill("one"))
    link, target = (path, outside) if what == "file" else (path.parent, outside.parent)

    def looked(found: str | os.PathLike[str]) -> str:
        """What was there when it was looked at; then it is swapped."""
        if str(found).endswith("SKILL.md") and not link.is_symlink():
            path.unlink()
            if what == "directory":
                link.rmdir()
            link.symlink_to(target)
        return os.path.abspath(found)

    monkeypatch.setattr(os.path, "realpath", looked)
    library = SkillLibrary(tmp_path / "skills")

    assert library.names == ()
    assert link.is_symlink()
    assert library.problems[0].message in (
        "can't be read: Too many levels of symbolic links",
        "can't be read: Not a directory",
    )


def test_links_within_the_root_are_followed(tmp_path: Path):
    write(tmp_path, "one", skill("one"))
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "SKILL.md").symlink_to("../one/SKILL.md")

    library = SkillLibrary(tmp_path)

    assert library.names == ("one",)
    assert library.problems == ()
    assert "found first" in library.notes[0].message


def test_a_root_that_is_a_link_was_chosen_by_the_host(tmp_path: Path):
    write(tmp_path / "real", "one", skill("one"))
    (tmp_path / "link").symlink_to(tmp_path / "real")

    assert SkillLibrary(tmp_path / "link").names == ("one",)


def test_a_loop_of_links_and_a_dangling_one_are_problems(tmp_path: Path):
    for name, target in (("loop", "SKILL.md"), ("gone", "nothing.md")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "SKILL.md").symlink_to(target)

    messages = [problem.message for problem in SkillLibrary(tmp_path).problems]

    assert len(messages) == 2
    assert all(message.startswith("can't be read") for message in messages)


def test_a_pipe_or_a_directory_in_place_of_the_file_is_a_problem(tmp_path: Path):
    (tmp_path / "pipe").mkdir()
    os.mkfifo(tmp_path / "pipe" / "SKILL.md")
    (tmp_path / "folder" / "SKILL.md").mkdir(parents=True)

    messages = sorted(problem.message for problem in SkillLibrary(tmp_path).problems)

    assert messages == ["is not a regular file"] * 2


def test_sizes_are_bounded(tmp_path: Path):
    write(tmp_path, "big", skill("big", "x" * 1000))
    write(tmp_path, "one", skill("one"))
    (tmp_path / "one" / "assets").mkdir()
    (tmp_path / "one" / "assets" / "big.txt").write_text("x" * 20)
    library = SkillLibrary(tmp_path, max_file_bytes=500, max_resource_bytes=10)

    assert library.names == ("one",)
    assert library.problems[0].message == "is larger than 500 bytes"
    with pytest.raises(DefinitionError, match=r"'assets/big\.txt' is larger than 10 bytes"):
        library.read_resource(library.get("one"), "assets/big.txt")


def test_a_binary_resource_is_not_shown(tmp_path: Path):
    write(tmp_path, "one", skill("one"))
    (tmp_path / "one" / "assets").mkdir()
    (tmp_path / "one" / "assets" / "a.png").write_bytes(b"\x89PNG\r\n")
    (tmp_path / "one" / "assets" / "b.bin").write_bytes(b"a\0b")
    library = SkillLibrary(tmp_path)

    with pytest.raises(DefinitionError, match="byte 0x89 is not UTF-8"):
        library.read_resource(library.get("one"), "assets/a.png")
    with pytest.raises(DefinitionError, match="this is not a text file"):
        library.read_resource(library.get("one"), "assets/b.bin")


def test_the_number_of_skills_and_resources_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(library_module, "MAX_SKILLS", 2)
    for name in ("a", "b", "c"):
        write(tmp_path, name, skill(name))
    (tmp_path / "a" / "assets").mkdir()
    for number in range(201):
        (tmp_path / "a" / "assets" / f"{number:03}.txt").touch()

    library = SkillLibrary(tmp_path)

    assert library.names == ("a", "b")
    assert "contains more than 2 skills" in library.problems[0].message
    assert len(library.get("a").resources) == 200
    assert "has 201 resources; only the first 200" in library.notes[0].message


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="descriptors are not listed here")
def test_what_is_no_file_leaves_nothing_open(tmp_path: Path):
    for number in range(30):
        (tmp_path / f"s{number}" / "SKILL.md").mkdir(parents=True)
    before = open_descriptors()

    assert len(SkillLibrary(tmp_path).problems) == 30
    assert open_descriptors() <= before


def test_a_link_to_itself_among_the_skills_hides_no_others(tmp_path: Path):
    write(tmp_path, "good", skill("good"))
    (tmp_path / "loop").symlink_to("loop")

    library = SkillLibrary(tmp_path)

    assert library.names == ("good",)
    [problem] = library.problems
    assert problem.path == str(tmp_path / "loop")
    assert problem.message == "can't be read: Too many levels of symbolic links"


def test_a_link_to_itself_among_the_resources_hides_no_others(tmp_path: Path):
    write(tmp_path, "one", skill("one"))
    (tmp_path / "one" / "assets").mkdir()
    (tmp_path / "one" / "assets" / "a.txt").touch()
    (tmp_path / "one" / "assets" / "loop").symlink_to("loop")

    for trusts in (False, True):
        library = SkillLibrary(tmp_path, trust_links=trusts)
        assert library.get("one").resources == ("assets/a.txt",)


@pytest.mark.parametrize("named", ['"a\\0b"', '"\\n"', '"."', '"~"', f"{'a' * 5000}", "a/" * 3000])
def test_no_name_of_a_resource_breaks_the_library(tmp_path: Path, named: str):
    write(tmp_path, "good", skill("good"))
    write(tmp_path, "odd", f"---\nname: odd\ndescription: x\nresources: [{named}]\n---\nDo it.")

    library = SkillLibrary(tmp_path)

    assert library.names == ("good", "odd")
    assert library.get("odd").resources == ()


def test_no_more_named_resources_are_looked_for_than_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    names = ", ".join(f"r{number}" for number in range(5_000))
    write(tmp_path, "one", f"---\nname: one\ndescription: x\nresources: [{names}]\n---\nDo it.")
    looked: list[str] = []
    real = os.path.realpath
    monkeypatch.setattr(os.path, "realpath", lambda path: looked.append(str(path)) or real(path))

    library = SkillLibrary(tmp_path)

    assert "names 5,000 resources; only the first 200 are used" in library.notes[0].message
    assert len([path for path in looked if Path(path).name.startswith("r")]) == 200
