"""What commands see of the environment."""

from pathlib import Path

import pytest

from stepwell.errors import SandboxError
from stepwell.sandbox import ExecutionPolicy
from stepwell.sandbox.environment import command_environment, leaked_variables
from stepwell.secrets import is_secret_variable

ANYWHERE = Path("/somewhere/to/work")


def seen(policy: ExecutionPolicy) -> dict[str, str]:
    return command_environment(policy, home="/the/home", temporary="/the/tmp")


def test_a_command_sees_fixed_variables_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANARY", "secret")
    monkeypatch.setenv("PATH", "/evil")
    variables = seen(ExecutionPolicy(directory=ANYWHERE))
    assert variables["HOME"] == "/the/home"
    assert variables["TMPDIR"] == "/the/tmp"
    assert variables["LANG"] == "C.UTF-8"
    assert "/evil" not in variables["PATH"]
    assert "CANARY" not in variables


def test_named_variables_are_inherited_and_missing_ones_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("EDITOR", "ed")
    monkeypatch.delenv("NOT_SET_HERE", raising=False)
    policy = ExecutionPolicy(directory=ANYWHERE, inherited_environment=("EDITOR", "NOT_SET_HERE"))
    assert seen(policy)["EDITOR"] == "ed"
    assert "NOT_SET_HERE" not in seen(policy)


def test_given_variables_win(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDITOR", "ed")
    policy = ExecutionPolicy(
        directory=ANYWHERE,
        inherited_environment=("EDITOR",),
        environment={"EDITOR": "vi", "HOME": "/mine"},
    )
    assert (seen(policy)["EDITOR"], seen(policy)["HOME"]) == ("vi", "/mine")


def test_an_inherited_variable_that_is_no_text_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ODD", "\udcff")
    with pytest.raises(SandboxError, match="ODD is not UTF-8"):
        seen(ExecutionPolicy(directory=ANYWHERE, inherited_environment=("ODD",)))


def test_leaks_are_variables_of_this_process_that_were_not_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CANARY", "secret")
    monkeypatch.setenv("EDITOR", "nano")
    policy = ExecutionPolicy(directory=ANYWHERE, inherited_environment=("EDITOR",))
    assert leaked_variables({"CANARY": "secret", "EDITOR": "nano"}, policy) == ["CANARY"]
    assert leaked_variables({"CANARY": "other"}, policy) == []


@pytest.mark.parametrize(
    "name",
    [
        *("OPENAI_API_KEY", "GEMINI_API_KEY", "SOME_APIKEY", "API_KEY", "SSH_KEY", "HF_TOKEN"),
        *(
            "NPM_TOKEN",
            "CLIENT_SECRET",
            "MYSQL_PWD",
            "PGPASSWORD",
            "AWS_SESSION_TOKEN",
            "AWS_REGION",
        ),
        *("GOOGLE_APPLICATION_CREDENTIALS", "SENTRY_DSN", "DATABASE_URL", "SSH_AUTH_SOCK"),
        *("GITHUB_PAT", "openai_api_key", "DOCKER_HOST", "AZURE_CLIENT_ID", "KUBECONFIG"),
    ],
)
def test_names_of_secrets_are_known(name: str) -> None:
    assert is_secret_variable(name)


@pytest.mark.parametrize(
    "name",
    [*("EDITOR", "PWD", "LC_ALL", "TZ", "CI", "HTTP_PROXY", "PYTHONPATH", "KEYBOARD", "MONKEY")],
)
def test_names_of_other_variables_are_no_secrets(name: str) -> None:
    assert not is_secret_variable(name)
