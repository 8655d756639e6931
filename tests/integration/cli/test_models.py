"""``stepwell models``: which can be asked, and a small trial of one."""

from pathlib import Path

import pytest

from stepwell.cli.exit_codes import ExitCode
from tests.docs import model_server
from tests.integration.cli.command_line import CommandLine


def test_providers_say_whether_their_key_is_set_and_never_the_key(
    stepwell: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret-key")
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    (tmp_path / "models.toml").write_text('[presets.fast]\nmodel = "ollama:qwen3"\n')
    ran = stepwell("models")
    assert "OPENAI_API_KEY is set" in ran.out
    assert "ANTHROPIC_API_KEY is not set" in ran.out
    assert "fast  ollama:qwen3" in ran.out
    told = stepwell("models", "--json")
    assert {"name": "fast", "model": "ollama:qwen3"} in told.document["presets"]
    assert "secret" not in ran.out + told.out


def test_a_model_that_does_all_is_good(stepwell: CommandLine, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(model_server.ARGUMENTS, "get_weather", {"city": "Oslo"})
    with model_server.serving() as address:
        ran = stepwell("models", "test", "qwen3", "--base-url", address)
        as_json = stepwell("models", "test", "ollama:qwen3", "--base-url", address, "--json")
    assert ran.code == ExitCode.COMPLETED, ran.out
    lines = {line[5:18].strip(): line for line in ran.out.splitlines()}
    assert list(lines) == ["text", "streaming", "tool calling", "usage", "cost"]
    assert "first part after" in lines["streaming"]
    assert "80 tokens in, 20 out" in lines["usage"]
    assert as_json.document["is_good"] is True
    assert as_json.document["model"] == "ollama:qwen3"


def test_a_model_that_calls_wrongly_is_told_and_exits_so(
    stepwell: CommandLine, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(model_server.ARGUMENTS, "get_weather", {"town": "Oslo"})
    with model_server.serving() as address:
        ran = stepwell("models", "test", "qwen3", "--base-url", address)
    assert ran.code == ExitCode.FAILED
    assert "no   tool calling   called wrongly: get_weather with {'town': 'Oslo'}" in ran.out


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["x", "--base-url", "http://127.0.0.1:9/v1"], ExitCode.FAILED, "check the address"),
        (["nothing:x"], ExitCode.CONFIGURATION, "no model preset is called 'nothing:x'"),
        (["openai:gpt-5"], ExitCode.CONFIGURATION, "OPENAI_API_KEY"),
        (["openai:gpt-5", "--key-env", "KEY"], ExitCode.USAGE, "--key-env belongs to --base-url"),
    ],
)
def test_what_is_wrong_with_a_model_is_explained(
    arguments: list[str],
    code: ExitCode,
    told: str,
    stepwell: CommandLine,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    ran = stepwell("models", "test", *arguments)
    assert ran.code == code
    assert told in ran.out + ran.err
