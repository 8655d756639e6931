import pytest

from stepwell.capabilities.skills.arguments import SkillArguments, has_argument_placeholder
from stepwell.specs.front_matter import DefinitionError


def filled(body: str, arguments: str | None) -> str:
    return SkillArguments.of(
        arguments, directory="/skills/demo", shown_directory="/skills/demo", body=body
    ).fill(body)


@pytest.mark.parametrize(
    ("body", "arguments", "expected"),
    [
        ("Fix $ARGUMENTS now", "issue 12", "Fix issue 12 now"),
        ("Fix $ARGUMENTS now", None, "Fix  now"),
        ("Fix $1 and $2", "a b", "Fix a and b"),
        ("Fix $1 and $2", "'a b' c", "Fix a b and c"),
        ("Fix $0 and $1", "a b", "Fix a and b"),
        ("Fix $ARGUMENTS[0], $ARGUMENTS[1], $ARGUMENTS[7].", "a b", "Fix a, b, ."),
        ("Fix $1 and $2.", "a", "Fix a and ."),
        ("Fix $1 and $2.", None, "Fix  and ."),
        ("Fix $0 and $1.", "a", "Fix a and ."),
        ("Run `awk '{print $2}'` on $1", "a", "Run `awk '{print $2}'` on a"),
        ("Run `awk '{print $1}'` on $1", None, "Run `awk '{print $1}'` on "),
        ("```sh\ncut $1\n```\nFor $1", None, "```sh\ncut $1\n```\nFor "),
        ("~~~\n`x $1\n~~~ $2\n$1 `$2`", None, "~~~\n`x $1\n~~~ $2\n `$2`"),
        ("Compare `$1` with `$2`", "a b", "Compare `a` with `b`"),
        ("Fix ${ARGUMENTS}", "a", "Fix a"),
        (
            "Don't fill $ARGUMENTS_FILE, $10, $1x, $1.50",
            "a",
            "Don't fill $ARGUMENTS_FILE, $10, $1x, $1.50",
        ),
        ("Not \\$1", "a", "Not \\$1"),
        ("It's $1", "it's", "It's it's"),
        ("$1 $ARGUMENTS", "$2 $ARGUMENTS", "$2 $2 $ARGUMENTS"),
        ("See ${CLAUDE_SKILL_DIR}/a", None, "See /skills/demo/a"),
        (
            "See ${SKILL_DIR}/a $SKILL_DIR {baseDir}/b",
            None,
            "See /skills/demo/a /skills/demo /skills/demo/b",
        ),
    ],
)
def test_placeholders_are_filled(body: str, arguments: str | None, expected: str):
    assert filled(body, arguments) == expected


def test_hostile_texts_take_no_time():
    for text in ("`" * 200_000, "```\n" * 50_000, "`a" * 100_000 + " $1" * 10_000):
        assert len(filled(text, None)) <= len(text)


def test_a_directory_alone_is_no_place_for_arguments():
    assert not has_argument_placeholder("See ${CLAUDE_SKILL_DIR}")
    assert has_argument_placeholder("Do $2")


def test_without_a_directory_its_placeholder_stays():
    given = SkillArguments.of(None, directory=None)

    assert given.fill("See ${SKILL_DIR}") == "See ${SKILL_DIR}"
    assert given.environment == {"ARGUMENTS": ""}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x" * 10_001, "the arguments have 10,001 characters"),
        ("a\0b", "a NUL character"),
        ("\ud800", "half a character"),
    ],
)
def test_odd_arguments_are_refused(text: str, said: str):
    with pytest.raises(DefinitionError, match=said):
        SkillArguments.of(text, directory=None)


def test_a_text_that_grows_without_bounds_is_refused():
    with pytest.raises(DefinitionError, match="pass shorter ones"):
        filled("$ARGUMENTS" * 200, "x" * 9_000)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("gh issue view $1", "gh issue view $1"),
        ("awk '{print $1}'", "awk '{print $1}'"),
        ("git log $ARGUMENTS", "git log ${ARGUMENTS}"),
        ('grep "$ARGUMENTS[1]" x', 'grep "${2}" x'),
        ("cat ${CLAUDE_SKILL_DIR}/a {baseDir}/b", "cat ${SKILL_DIR}/a ${SKILL_DIR}/b"),
    ],
)
def test_commands_get_parameters_and_never_the_arguments_themselves(command: str, expected: str):
    given = SkillArguments.of("$(rm -rf x) `y`; z", directory="/d", body=command)

    assert given.shell_command(command) == expected


def test_commands_that_count_from_zero_get_the_shells_parameters():
    given = SkillArguments.of("a b", directory=None, body="$0 $1")

    assert given.shell_command("echo $0 $1") == "echo ${1} ${2}"


def test_the_pieces_of_one_skill_are_bounded_together():
    given = SkillArguments.of("x" * 9_000, directory=None)

    assert given.fill_all(["a $1", "b"]) == [f"a {'x' * 9_000}", "b"]
    with pytest.raises(DefinitionError, match="pass shorter ones"):
        given.fill_all(["$1"] * 200)
