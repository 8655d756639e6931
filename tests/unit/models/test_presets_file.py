"""Presets and providers from a TOML file."""

import re
from pathlib import Path

import pytest

from stepwell import AgentBuilder
from stepwell.errors import ConfigurationError
from stepwell.models import FallbackModel, ModelPresets, ModelSettings, ThinkingEffort
from stepwell.models.provider import Auth, Provider, ProviderModel
from stepwell.models.wire import AnthropicMessages, ChatCompletions, Gemini, OpenAIResponses

FULL = """
[providers.acme]
base_url = "https://llm.acme.example/v1"
format = "chat_completions"
key_env = "ACME_KEY"
auth_header = "X-Key"
auth_prefix = "Token "
headers = { x-team = "search" }
default_model = "large"
prices = "openai"
connect_timeout = 3
read_timeout = 60.5

[providers.claude]
base_url = "https://claude.acme.example"
format = "messages"
key_env = "ACME_KEY"
headers = { x-team = "search" }

[presets.deep]
model = "acme"
fallbacks = ["local", "there"]

[presets.deep.settings]
model = "huge"
temperature = 0.2
top_p = 0.9
max_tokens = 100
stop = ["END"]
tool_choice = "auto"
parallel_tool_calls = false
thinking = "high"
seed = 7
extra_body = { prompt_cache_key = "team" }
extra_headers = { x-a = "b" }

[presets.local]
model = "ollama:qwen3:8b"
base_url = "http://localhost:7777/v1"

[presets.there]
model = "claude:claude-x"
key_env = "OTHER_KEY"
"""


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACME_KEY", "sk-acme")
    monkeypatch.setenv("OTHER_KEY", "sk-other")
    monkeypatch.delenv("OLLAMA_BASE_URL", raising=False)


def presets(tmp_path: Path, text: str) -> ModelPresets:
    path = tmp_path / "models.toml"
    path.write_text(text, encoding="utf-8")
    return ModelPresets.from_toml(path)


def one(table: ModelPresets, name: str) -> ProviderModel:
    model = table.model(name)
    assert isinstance(model, ProviderModel)
    return model


def refusal(tmp_path: Path, text: str) -> str:
    with pytest.raises(ConfigurationError) as raised:
        presets(tmp_path, text)
    assert "models.toml" in str(raised.value)
    return str(raised.value)


def test_a_file_with_everything(tmp_path: Path) -> None:
    table = presets(tmp_path, FULL)
    deep = table.model("deep")

    assert table.names == ("deep", "local", "there")
    assert isinstance(deep, FallbackModel)
    assert table.model("local").name == "ollama:qwen3:8b"


async def test_a_provider_with_all_options(tmp_path: Path) -> None:
    acme = one(presets(tmp_path, FULL), "acme:small")
    provider = acme.provider

    assert (acme.name, provider.base_url) == ("acme:small", "https://llm.acme.example/v1")
    assert provider.wire == ChatCompletions()
    assert provider.auth == Auth(header="X-Key", prefix="Token ")
    assert provider.headers == {"x-team": "search"}
    assert (provider.default_model, provider.prices) == ("large", "openai")
    assert (provider.connect_timeout, provider.read_timeout) == (3.0, 60.5)
    assert acme.key is not None
    assert await acme.key.reveal() == "sk-acme"


def test_a_preset_with_all_settings(tmp_path: Path) -> None:
    text = FULL.replace('fallbacks = ["local", "there"]\n', "")

    assert one(presets(tmp_path, text), "deep").provider.settings == ModelSettings(
        model="huge",
        temperature=0.2,
        top_p=0.9,
        max_tokens=100,
        stop=("END",),
        tool_choice="auto",
        parallel_tool_calls=False,
        thinking=ThinkingEffort.HIGH,
        seed=7,
        extra_body={"prompt_cache_key": "team"},
        extra_headers={"x-a": "b"},
    )


async def test_a_preset_can_name_another_address_and_key(tmp_path: Path) -> None:
    table = presets(tmp_path, FULL)
    there = one(table, "there")

    assert one(table, "local").provider.base_url == "http://localhost:7777/v1"
    assert there.key is not None
    assert await there.key.reveal() == "sk-other"


def test_a_provider_of_a_known_format_has_its_headers_and_its_way_to_show_the_key(
    tmp_path: Path,
) -> None:
    provider = one(presets(tmp_path, FULL), "there").provider

    assert provider.wire == AnthropicMessages()
    assert provider.auth == Auth(header="x-api-key", prefix="")
    assert provider.headers == {"anthropic-version": "2023-06-01", "x-team": "search"}


@pytest.mark.parametrize(
    ("word", "wire", "auth"),
    [
        ("chat_completions", ChatCompletions(), Auth()),
        ("responses", OpenAIResponses(), Auth()),
        ("messages", AnthropicMessages(), Auth(header="x-api-key", prefix="")),
        ("gemini", Gemini(), Auth(header="x-goog-api-key", prefix="")),
    ],
)
def test_all_formats(tmp_path: Path, word: str, wire: object, auth: Auth) -> None:
    text = f'[providers.acme]\nbase_url = "https://acme.example"\nformat = "{word}"\n'
    provider = one(presets(tmp_path, text), "acme:m").provider

    assert (provider.wire, provider.auth) == (wire, auth)


def test_known_providers_and_own_presets_go_together(tmp_path: Path) -> None:
    table = presets(tmp_path, FULL).with_preset("mine", "local")

    assert table.model("mine").name == "ollama:qwen3:8b"
    assert table.model("ollama:x").name == "ollama:x"
    agent = AgentBuilder.base().with_model_presets(table).with_llm_preset("local").build()
    assert agent is not None


def test_an_empty_file_has_no_presets(tmp_path: Path) -> None:
    assert presets(tmp_path, "").names == ()


def test_the_environment_counts_when_the_model_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ACME_KEY")
    table = presets(tmp_path, FULL)
    with pytest.raises(ConfigurationError, match=r"acme needs a key: .* ACME_KEY"):
        table.model("acme:m")

    monkeypatch.setenv("ACME_KEY", "sk-late")
    assert table.model("acme:m").name == "acme:m"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[presets.a]\nmodel = 'ollama:x'\ntemprature = 1", "temprature"),
        ("[presets.a]\nmodel = 'ollama:x'\n[presets.a.settings]\ntemprature = 1", "temprature"),
        ("[presets.a.settings]\nseed = 1", "model"),
        ("[presets.a]\nmodel = 7", "str"),
        ("[presets.a]\nmodel = 'ollama:x'\n[presets.a.settings]\nmax_tokens = 0", "max_tokens"),
        ("[presets.a]\nmodel = 'ollama:x'\n[presets.a.settings]\nthinking = 'hard'", "hard"),
        ("[presets.a]\nmodel = 'ollama:x'\n[presets.a.settings]\nstop = 'END'", "stop"),
        ("[provider.a]\nbase_url = 'https://a.example'", "provider"),
        ("[providers.a]\nformat = 'gemini'", "base_url"),
        ("[providers.a]\nbase_url = 'https://a.example'\nbase = 1", "base"),
        (
            "[providers.a]\nbase_url = 'https://a.example'\nformat = 'grpc'",
            "'grpc' of provider 'a'",
        ),
        ("[presets.a]\nmodel = 'ollama:x'\nfallbacks = ['b']", "'b' of 'a'"),
        ("[presets.a]\nmodel = 'ollama:x'\nfallbacks = ['a']", "'a' of 'a'"),
        ("[presets.a\n", "TOML"),
        ("presets = 7", "presets"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(tmp_path: Path, text: str, named: str) -> None:
    assert named in refusal(tmp_path, text)


def test_the_known_formats_are_told(tmp_path: Path) -> None:
    text = "[providers.a]\nbase_url = 'https://a.example'\nformat = 'grpc'"

    assert "known: chat_completions, responses, messages, gemini" in refusal(tmp_path, text)


def test_an_unknown_provider_is_named_when_the_model_is_made(tmp_path: Path) -> None:
    table = presets(tmp_path, "[presets.a]\nmodel = 'acmee:x'")
    with pytest.raises(ConfigurationError, match=r"'acmee:x'. Known presets: a.*openrouter"):
        table.model("a")


def test_a_preset_finds_a_provider_that_is_added_in_code(tmp_path: Path) -> None:
    table = presets(tmp_path, "[presets.a]\nmodel = 'acme:x'")
    acme = Provider(name="acme", base_url="https://acme.example/v1")

    assert table.with_provider(acme).model("a").name == "acme:x"


def test_an_unknown_provider_of_a_preset_with_settings_is_named(tmp_path: Path) -> None:
    table = presets(tmp_path, "[presets.a]\nmodel = 'acmee:x'\nsettings = { seed = 1 }")
    with pytest.raises(
        ConfigurationError, match=r"'acmee' \(in model = 'acmee:x'\). Known providers: .*xai"
    ):
        table.model("a")


def test_a_bad_address_is_named_when_the_model_is_made(tmp_path: Path) -> None:
    table = presets(tmp_path, "[providers.a]\nbase_url = 'a.example'")
    with pytest.raises(ConfigurationError, match=r"'a\.example' is not a valid address for a"):
        table.model("a:x")


@pytest.mark.parametrize(
    "text",
    [
        "[providers.a]\nbase_url = 'https://a.example'\napi_key = 'sk-canary'",
        "[providers.a]\nbase_url = 'https://a.example'\nAPI_KEY = 'sk-canary'",
        "[providers.a]\nbase_url = 'https://a.example'\nheaders = { Authorization = 'sk-canary' }",
        "[providers.a]\nbase_url = 'https://a.example'\nheaders = { x-api-key = 'sk-canary' }",
        "[providers.a]\nbase_url = 'https://a.example'\nheaders = { api-key = 'sk-canary' }",
        "[providers.a]\nbase_url = 'https://a.example'\nheaders = { x-auth-token = 'sk-canary' }",
        "[presets.a]\nmodel = 'ollama:x'\ntoken = 'sk-canary'",
        "[presets.a]\nmodel = 'ollama:x'\nkey = 'sk-canary'",
        "[presets.a]\nmodel = 'ollama:x'\n[presets.a.settings.extra_headers]\n"
        "x-goog-api-key = 'sk-canary'",
        "[presets.a]\nmodel = 'ollama:x'\n[presets.a.settings.extra_body]\n"
        "openai_api_key = 'sk-canary'",
        "[presets.a]\nmodel = 'ollama:x'\n[[presets.a.settings.extra_body.list]]\n"
        "secret = 'sk-canary'",
        "api_key = 'sk-canary'",
    ],
)
def test_a_key_in_the_file_is_refused_and_not_shown(tmp_path: Path, text: str) -> None:
    said = refusal(tmp_path, text)

    assert "key_env" in said
    assert "sk-canary" not in said


@pytest.mark.parametrize("name", ["key", "token", "api_key"])
def test_a_preset_may_be_called_like_a_key(tmp_path: Path, name: str) -> None:
    table = presets(tmp_path, f"[presets.{name}]\nmodel = 'ollama:x'")

    assert table.model(name).name == "ollama:x"


def test_settings_that_only_sound_like_keys_are_taken(tmp_path: Path) -> None:
    text = (
        "[presets.a]\nmodel = 'ollama:x'\n[presets.a.settings]\nmax_tokens = 9\n"
        "[presets.a.settings.extra_body]\nprompt_cache_key = 'a'\nmax_completion_tokens = 7\n"
        "monkey = 'b'\n"
    )

    assert one(presets(tmp_path, text), "a").provider.settings.max_tokens == 9


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = tmp_path / "nowhere.toml"
    with pytest.raises(ConfigurationError, match=re.escape(str(path))):
        ModelPresets.from_toml(path)
    with pytest.raises(ConfigurationError, match="can't be read"):
        ModelPresets.from_toml(str(tmp_path))


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "models.toml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigurationError, match="is not TOML"):
        ModelPresets.from_toml(path)


def test_a_provider_of_a_file_is_as_patient_as_one_from_code(tmp_path: Path) -> None:
    table = presets(tmp_path, "[providers.acme]\nbase_url = 'https://acme.example/v1'")
    made = table.model("acme:x")

    assert isinstance(made, ProviderModel)
    usual = Provider(name="acme", base_url="https://acme.example/v1")
    assert made.provider.read_timeout == usual.read_timeout
    assert made.provider.connect_timeout == usual.connect_timeout
