import pytest

from stepwell.capabilities.skills.skill import Skill
from stepwell.capabilities.skills.skill_fields import ParsedSkill, parse_skill, split_entries
from stepwell.specs.front_matter import DefinitionError, read_document


def read(front_matter: str, body: str = "Do it.", directory: str = "demo") -> ParsedSkill:
    return parse_skill(read_document(f"---\n{front_matter}\n---\n{body}"), directory)


def test_b192_without_front_matter_the_directory_is_the_name_and_the_whole_file_the_body():
    found = parse_skill(read_document("# Title\n\nJust do it.\n"), "plain").skill

    assert found == Skill(name="plain", description="Just do it.", body="# Title\n\nJust do it.")


def test_b195_all_known_fields_are_read():
    skill = read(
        "name: demo\ndescription: Shows it.\nlicense: MIT\ncompatibility: Needs git\n"
        "metadata: {author: me, version: 1.0}\nmodel: opus\ncontext: fork\nagent: Explore\n"
        "argument-hint: '[issue]'\nuser-invocable: false\ndisable-model-invocation: true\n"
        "tags: [a, b]\nallowed-tools: Read\nhomepage: example.org"
    ).skill

    assert skill == Skill(
        name="demo",
        description="Shows it.",
        body="Do it.",
        license="MIT",
        compatibility="Needs git",
        metadata={"author": "me", "version": 1.0},
        model="opus",
        context="fork",
        agent="Explore",
        argument_hint="[issue]",
        user_invocable=False,
        disable_model_invocation=True,
        tags=("a", "b"),
        allowed_tools=("Read",),
        extra={"homepage": "example.org"},
    )
    assert skill.is_fork


def test_b195_what_is_not_given_has_its_default():
    skill = read("name: demo\ndescription: Shows it.").skill

    assert skill == Skill(name="demo", description="Shows it.", body="Do it.")
    assert (skill.license, skill.model, skill.context, skill.agent) == (None, None, None, None)
    assert (skill.compatibility, skill.argument_hint) == (None, None)
    assert (skill.metadata, skill.tags, skill.allowed_tools, skill.extra) == ({}, (), (), {})
    assert (skill.user_invocable, skill.disable_model_invocation) == (True, False)


@pytest.mark.parametrize(
    ("written", "entries"),
    [
        ("Read Grep Glob", ("Read", "Grep", "Glob")),
        ("Read, Grep,Glob", ("Read", "Grep", "Glob")),
        ("[Read, Grep, Glob]", ("Read", "Grep", "Glob")),
        ("\n  - Read\n  - Grep\n  - Glob", ("Read", "Grep", "Glob")),
        ("Bash(git add:*), Read", ("Bash(git add:*)", "Read")),
        (
            "Bash(git add:*) Bash(npm run test) Read",
            ("Bash(git add:*)", "Bash(npm run test)", "Read"),
        ),
        ('["Bash(git add:*, git commit:*)", Read]', ("Bash(git add:*, git commit:*)", "Read")),
        ("", ()),
        ("[]", ()),
        ('"*"', ()),
        ("all", ()),
        ("Read Read", ("Read",)),
    ],
)
def test_b194_allowed_tools_are_read_in_all_their_forms(written: str, entries: tuple[str, ...]):
    assert read(f"name: demo\nallowed-tools: {written}").skill.allowed_tools == entries


@pytest.mark.parametrize("key", ["allowed-tools", "allowed_tools", "allowedTools", "tools"])
def test_the_field_of_allowed_tools_has_several_spellings(key: str):
    assert read(f"name: demo\n{key}: Read").skill.allowed_tools == ("Read",)


@pytest.mark.parametrize(
    ("text", "entries"),
    [
        ("Bash (git:*) Read", ("Bash(git:*)", "Read")),
        ("Bash(git, Read", ("Bash(git, Read",)),
        ('`Read`, "Grep"', ("Read", "Grep")),
        ("Bash(a (b) c) Read", ("Bash(a (b) c)", "Read")),
        ("Bash(a)) Read", ("Bash(a))", "Read")),
    ],
)
def test_odd_brackets_never_allow_more(text: str, entries: tuple[str, ...]):
    assert split_entries(text) == entries


@pytest.mark.parametrize(
    ("written", "is_on"),
    [("true", True), ("yes", True), ("'false'", False), ("No", False), ("off", False)],
)
def test_switches_are_read_as_people_write_them(written: str, is_on: bool):
    assert read(f"name: demo\nuser-invocable: {written}").skill.user_invocable is is_on


@pytest.mark.parametrize(
    ("front_matter", "said"),
    [
        ("name: 12", "name must be text"),
        ("name: a/b", "looks like a path"),
        ("name: demo\ndescription: [a]", "description must be text"),
        ("name: demo\nuser-invocable: maybe", "user-invocable is 'maybe'; write true or false"),
        ("name: demo\ndisable-model-invocation: 3", "disable-model-invocation is 3"),
        ("name: demo\nallowed-tools: 7", "allowed-tools is 7; write a list of names"),
        ("name: demo\nallowed-tools: [1]", "allowed-tools contains 1; write names"),
        ("name: demo\nallowed-tools: {Bash: true}", "write a list of names"),
        ("name: demo\nmodel: [a]", "model must be text"),
        ("name: demo\ntools: Read\nallowed-tools: Bash", "allowed-tools is given twice"),
    ],
)
def test_a_wrong_value_of_a_field_with_an_effect_is_named(front_matter: str, said: str):
    with pytest.raises(DefinitionError) as failure:
        read(front_matter)

    assert said in str(failure.value)


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("metadata: [a]", "metadata"),
        ("license: [MIT]", "license"),
        ("compatibility: {node: 18}", "compatibility"),
        ("tags: {a: 1}", "tags"),
        ("context: {a: 1}", "context"),
        ("context: A web project", "context"),
    ],
)
def test_an_odd_value_of_a_field_without_effect_is_kept_and_noted(written: str, name: str):
    found = read(f"name: demo\ndescription: x\n{written}")

    assert name in found.skill.extra
    assert len(found.notes) == 1
    assert found.notes[0].startswith(name)


def test_a_hint_in_brackets_is_a_text_again():
    assert read("name: demo\nargument-hint: [file, mode]").skill.argument_hint == "[file, mode]"


def test_a_missing_description_is_the_first_paragraph():
    found = read("name: demo", "# Title\n\nFirst line\nsecond line.\n\nMore.")

    assert found.skill.description == "First line second line."
    assert "lacks a description; took the first paragraph" in found.notes


def test_odd_names_are_noted():
    found = read("name: PDF Tools\ndescription: x", directory="pdf")

    assert found.skill.name == "PDF Tools"
    assert found.notes == (
        "the name 'PDF Tools' is not in lower case with hyphens",
        "is called 'PDF Tools', unlike its directory",
    )
