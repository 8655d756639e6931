"""``stepwell models``: which can be asked, and a small trial of one."""

from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import ClassVar

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
        (["nothing:x"], ExitCode.CONFIGURATION, "Unknown model preset 'nothing:x'"),
        (["openai:gpt-5"], ExitCode.CONFIGURATION, "OPENAI_API_KEY"),
        (["openai:gpt-5", "--key-env", "KEY"], ExitCode.USAGE, "--key-env needs --base-url"),
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


class Heard(BaseHTTPRequestHandler):
    """Refuses, and keeps what it was sent."""

    headers_heard: ClassVar[list[dict[str, str]]] = []

    def do_POST(self) -> None:
        self.headers_heard.append({name.lower(): value for name, value in self.headers.items()})
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self.send_response(401)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        del format, args


@pytest.mark.parametrize("preset", ["openai:gpt-5", "anthropic:claude-x", "gpt-5"])
def test_the_key_of_a_provider_is_not_sent_to_another_address(
    preset: str, stepwell: CommandLine, monkeypatch: pytest.MonkeyPatch
):
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.setenv(name, "sk-canary-0f3a")
    monkeypatch.setenv("OTHER_KEY", "sk-for-the-other")
    Heard.headers_heard.clear()
    with HTTPServer(("127.0.0.1", 0), Heard) as server:
        serving = Thread(target=server.serve_forever)
        serving.start()
        address = f"http://127.0.0.1:{server.server_port}/v1"
        ran = stepwell("models", "test", preset, "--base-url", address)
        without_key = [*Heard.headers_heard]
        stepwell("models", "test", preset, "--base-url", address, "--key-env", "OTHER_KEY")
        server.shutdown()
        serving.join()
    assert ran.code == ExitCode.FAILED
    assert without_key
    assert "canary" not in str(Heard.headers_heard)
    assert not {"authorization", "x-api-key"} & {name for one in without_key for name in one}
    assert "sk-for-the-other" in str(Heard.headers_heard[len(without_key) :])


def test_a_password_in_an_address_is_not_shown(
    stepwell: CommandLine, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OPENAI_BASE_URL", "https://ada:canary@proxy.example/v1")
    for ran in (stepwell("models"), stepwell("models", "--json")):
        assert "https://ada:***@proxy.example/v1" in ran.out
        assert "canary" not in ran.out + ran.err
