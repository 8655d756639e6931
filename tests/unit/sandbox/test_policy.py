"""Policies: what they refuse, and what they never show."""

from pathlib import Path

import pytest

from stepwell.errors import ConfigurationError
from stepwell.sandbox import ExecutionPolicy

ANYWHERE = Path("/somewhere/to/work")


def policy(**changes: object) -> ExecutionPolicy:
    return ExecutionPolicy(**({"directory": ANYWHERE} | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize("part", ["timeout", "idle_timeout", "max_memory", "max_processes"])
@pytest.mark.parametrize("value", [0, -1, True, "5", float("inf"), float("nan")])
def test_limits_are_positive_numbers(part: str, value: object) -> None:
    with pytest.raises(ConfigurationError, match=f"{part} must be"):
        policy(**{part: value})


@pytest.mark.parametrize("part", ["timeout", "idle_timeout", "max_memory", "max_processes"])
def test_no_limit_is_none(part: str) -> None:
    assert getattr(policy(**{part: None}), part) is None


@pytest.mark.parametrize("part", ["max_memory", "max_processes"])
def test_there_is_no_half_byte_or_process(part: str) -> None:
    with pytest.raises(ConfigurationError, match=part):
        policy(**{part: 2.5})


@pytest.mark.parametrize(
    ("part", "most"), [("max_memory", 2**63 - 1), ("max_processes", 4_000_000)]
)
def test_a_limit_that_linux_can_not_count_is_refused(part: str, most: int) -> None:
    assert getattr(policy(**{part: most}), part) == most
    for value in (most + 1, 2**64 + 1):  # of which the kernel may see the 1
        with pytest.raises(ConfigurationError, match=f"{part} must be at most {most}"):
            policy(**{part: value})


@pytest.mark.parametrize("value", [-1, 1.5, None, True])
def test_the_output_limit_is_a_number_of_bytes(value: object) -> None:
    with pytest.raises(ConfigurationError, match="max_output must be"):
        policy(max_output=value)


def test_no_output_at_all_may_be_kept() -> None:
    assert policy(max_output=0).max_output == 0


def test_the_network_is_on_or_off() -> None:
    with pytest.raises(ConfigurationError, match="network must be True or False, got 'no'"):
        policy(network="no")


@pytest.mark.parametrize("name", ["", "1A", "A=B", "A B", "A\0", "Ä", 5])
def test_variables_have_names_that_programs_know(name: object) -> None:
    with pytest.raises(ConfigurationError, match="not a valid name of a variable"):
        policy(environment={name: "value"})
    with pytest.raises(ConfigurationError, match="not a valid name of a variable"):
        policy(inherited_environment=(name,))


def test_a_refused_value_of_a_variable_is_not_shown() -> None:
    with pytest.raises(ConfigurationError) as refusal:
        policy(environment={"KEY": "very\0secret"})
    assert "KEY" in str(refusal.value)
    assert "secret" not in str(refusal.value)
    with pytest.raises(ConfigurationError, match="is a int"):
        policy(environment={"KEY": 5})
    with pytest.raises(ConfigurationError, match="half a character") as refusal:
        policy(environment={"KEY": "secret \ud800"})
    assert refusal.value.__cause__ is None
    assert "secret" not in str(refusal.value)


@pytest.mark.parametrize(
    "name",
    [
        "OPENAI_API_KEY",
        "AWS_PROFILE",
        "GITHUB_TOKEN",
        "db_password",
        "MISTRAL_API_KEY",
        "MY_SECRET",
    ],
)
def test_secrets_are_not_inherited_but_may_be_given(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{name}, which looks like a secret"):
        policy(inherited_environment=(name,))
    assert policy(environment={name: "given"}).environment == {name: "given"}


def test_the_text_of_a_policy_names_variables_without_their_values() -> None:
    text = repr(policy(environment={"TOKEN": "canary-value"}, timeout=7))
    assert "canary-value" not in text
    assert "'TOKEN'" in text
    assert "timeout=7" in text
    assert "canary-value" not in str(policy(environment={"TOKEN": "canary-value"}))


@pytest.mark.parametrize("part", ["directory", "writable", "readable"])
@pytest.mark.parametrize("path", ["/", "/proc", "/proc/1", "/sys/fs", "/dev/shm"])
def test_the_system_itself_is_never_opened(part: str, path: str) -> None:
    value = Path(path) if part == "directory" else (Path(path),)
    with pytest.raises(ConfigurationError, match=f"{part} has {path}, which would open the system"):
        policy(**{part: value})


@pytest.mark.parametrize("path", ["/etc", "/usr", "/bin", "/lib", "/run"])
def test_the_folders_of_the_system_may_be_read_but_not_written(path: str) -> None:
    with pytest.raises(ConfigurationError, match="would open the system"):
        policy(directory=Path(path))
    with pytest.raises(ConfigurationError, match="would open the system"):
        policy(writable=(Path(path),))
    assert policy(readable=(Path(path),)).readable == (Path(path),)


def test_paths_are_absolute() -> None:
    with pytest.raises(ConfigurationError, match="not an absolute path"):
        policy(directory=Path("here"))
    with pytest.raises(ConfigurationError, match="not an absolute path"):
        policy(readable=("/as/text",))


def test_lists_are_lists() -> None:
    with pytest.raises(ConfigurationError, match=r"write readable=\['/usr'\]"):
        ExecutionPolicy.in_("/tmp", readable="/usr")
    with pytest.raises(ConfigurationError, match=r"write inherited_environment="):
        ExecutionPolicy.in_("/tmp", inherited_environment="EDITOR")


@pytest.mark.parametrize("part", ["readable", "writable"])
def test_paths_that_do_not_exist_are_named(part: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{part} names /no/such/place, which does not"):
        ExecutionPolicy.in_("/tmp", **{part: ["/no/such/place"]})


def test_the_directory_must_be_one() -> None:
    with pytest.raises(ConfigurationError, match="/no/such/place is not an existing directory"):
        ExecutionPolicy.in_("/no/such/place")
    with pytest.raises(ConfigurationError, match="is not a path"):
        ExecutionPolicy.in_("a\0b")
