import pytest

from stepwell.capabilities.skills.allow_list import AllowList

OFFERED = ("bash", "read_file", "search_files", "load_skill", "mcp__jira__get", "mcp__jira__set")


@pytest.mark.parametrize(
    ("written", "entries"),
    [
        (("Read", "Grep"), ("read_file", "search_files")),
        (("read",), ("read_file",)),
        (("read_file",), ("read_file",)),
        (("Grep", "Glob"), ("search_files",)),
        (("mcp__jira__*",), ("mcp__jira__get", "mcp__jira__set")),
        (("Bash",), ("bash",)),
        (("Bash(*)",), ("bash",)),
        (("Bash(git:*)",), ("bash(git:*)",)),
        (("WebFetch",), ()),
        (("Read(src/**)",), ()),
        (("Read(*)",), ("read_file",)),
        (("Bash()", "Bash( )", "Read()"), ()),
        (("Bash(:*)",), ("bash",)),
        (("Bash(git",), ()),
        (("Bash(a))",), ("bash(a))",)),
        (("Write",), ()),
    ],
)
def test_entries_become_the_names_of_offered_tools(
    written: tuple[str, ...], entries: tuple[str, ...]
):
    assert AllowList.of(written, OFFERED).entries == entries


def test_a_tool_of_the_host_with_the_foreign_name_is_meant():
    assert AllowList.of(["Read"], ["Read", "read_file"]).entries == ("Read",)


def test_without_knowing_the_offered_tools_foreign_names_become_ours():
    assert AllowList.of(["Read", "WebFetch"], None).entries == ("read_file", "WebFetch")


def test_a_tool_is_allowed_by_name_and_what_has_no_effect_outside_always():
    allowed = AllowList(("read_file",))

    assert allowed.permits("read_file", {})
    assert all(allowed.permits(name, {}) for name in ("load_skill", "user_input", "todo_write"))
    assert not allowed.permits("bash", {"command": "ls"})
    assert not allowed.permits("read_files", {})
    assert allowed.names == {"read_file", "load_skill", "user_input", "todo_write"}


@pytest.mark.parametrize(
    ("limit", "command"),
    [
        ("git add:*", "git add ."),
        ("git add:*", "git add"),
        ("git add:*", "  git add 'a;b' \"c(d)\" "),
        ("git:*", "git commit -m 'feat(x): $y; z'"),
        ("git *", "git status --short"),
        ("git add:*, git commit:*", "git commit"),
        ("npm run test", "npm run test"),
        ("python scripts/*.py", "python scripts/a.py"),
        ("*", "anything at all"),
        ("git add *, git commit *", "git commit -m x"),
        ("echo a, b", "echo a, b"),
        ("echo a, b:*", "echo a, b c"),
    ],
)
def test_a_command_within_the_limit_is_allowed(limit: str, command: str):
    assert AllowList((f"bash({limit})",)).permits("bash", {"command": command})


@pytest.mark.parametrize(
    ("limit", "command"),
    [
        ("git add:*", "git addx"),
        ("git add:*", "git commit"),
        ("git add:*", "git"),
        ("git:*", "git status; rm x"),
        ("git:*", "git status && rm x"),
        ("git:*", "git status | sh"),
        ("git:*", "git status & rm x"),
        ("git:*", "git log > x"),
        ("git:*", "git log < x"),
        ("git:*", "git log $(rm x)"),
        ("git:*", "git log `rm x`"),
        ("git:*", 'git log "$(rm x)"'),
        ("git:*", 'git log "`rm x`"'),
        ("git:*", "git log\nrm x"),
        ("git:*", "git log\rrm x"),
        ("git:*", "git log $HOME"),
        ("git:*", "git log 'a"),
        ("git:*", "git log \\; rm"),
        ("git:*", 'git log "a\\" ; rm x; "'),
        ("git:*", "FOO=1 git log"),
        ("git:*", "/tmp/git log"),
        ("npm run test", "npm run test x"),
        ("python scripts/*.py", "python scripts/a.sh"),
        ("python scripts/*.py", "python scripts/.p"),
        (":*", "ls"),
        (" , ", "ls"),
        (",", "ls"),
        (" ", ""),
        ("echo a, b:*", "echo a"),
        ("echo a, rm:*", "rm x"),
        ("git add:*, rm", "rm"),
    ],
)
def test_a_command_beyond_the_limit_is_not(limit: str, command: str):
    assert not AllowList((f"bash({limit})",)).permits("bash", {"command": command})


@pytest.mark.parametrize("arguments", [{}, {"command": 3}, {"cmd": "git add"}])
def test_a_limited_bash_without_a_command_is_refused(arguments: dict[str, object]):
    assert not AllowList(("bash(git:*)",)).permits("bash", arguments)


def test_many_stars_are_matched_in_no_time():
    allowed = AllowList((f"bash({'*a' * 2_000}b)",))

    assert not allowed.permits("bash", {"command": "a" * 20_000})
