"""The providers that are known by name."""

import msgspec
import pytest

from stepwell import Message
from stepwell.errors import ConfigurationError
from stepwell.models import ModelRequest, ModelSettings, ToolSchema
from stepwell.models.presets import ModelPresets
from stepwell.models.provider import Provider
from stepwell.models.providers import KNOWN_PROVIDERS
from stepwell.models.wire import ChatCompletions

NEED_KEYS = [known for known in KNOWN_PROVIDERS.values() if known.key_env is not None]
NEED_NONE = [known for known in KNOWN_PROVIDERS.values() if known.key_env is None]


def named(provider: Provider) -> str:
    return provider.name


def test_each_is_known_by_its_name() -> None:
    assert all(known.name == name for name, known in KNOWN_PROVIDERS.items())
    assert {"openai", "anthropic", "gemini", "ollama", "openrouter"} <= set(KNOWN_PROVIDERS)


@pytest.mark.parametrize("known", NEED_KEYS, ids=named)
def test_a_missing_key_is_named_by_its_variable(
    known: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert known.key_env is not None
    monkeypatch.delenv(known.key_env, raising=False)
    monkeypatch.setenv(known.base_url_env or "UNUSED", "https://acme.example/v1")
    with pytest.raises(ConfigurationError, match=rf"{known.name} needs a key: .*{known.key_env}"):
        ModelPresets().model(f"{known.name}:any")


@pytest.mark.parametrize("known", NEED_KEYS, ids=named)
def test_with_its_key_it_gives_a_model(known: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    assert known.key_env is not None
    monkeypatch.setenv(known.key_env, "sk-1")
    if known.base_url_env:
        monkeypatch.delenv(known.base_url_env, raising=False)
    if not known.base_url:
        with pytest.raises(ConfigurationError, match=rf"set {known.base_url_env}"):
            ModelPresets().model(f"{known.name}:any")
        return
    model = ModelPresets().model(f"{known.name}:any/model:8b")

    assert model.name == f"{known.name}:any/model:8b"
    assert known.base_url.startswith("https://"), "a key is sent encrypted only"


@pytest.mark.parametrize("known", NEED_NONE, ids=named)
def test_local_servers_need_no_key(known: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    assert known.base_url_env is not None
    monkeypatch.delenv(known.base_url_env, raising=False)
    assert known.base_url.startswith("http://localhost:")
    assert ModelPresets().model(f"{known.name}:any").name == f"{known.name}:any"

    monkeypatch.setenv(known.base_url_env, "http://other:9/v1")
    assert "http://other:9/v1" in repr(ModelPresets().model(f"{known.name}:any"))


def test_a_provider_alone_means_its_default_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-1")
    monkeypatch.delenv("OLLAMA_BASE_URL", raising=False)

    assert ModelPresets().model("anthropic").name.startswith("anthropic:claude-")
    assert ModelPresets().model("ollama").name == "ollama:qwen3"
    with pytest.raises(ConfigurationError, match="vllm:<model>"):
        ModelPresets().model("vllm")


def test_anthropic_pins_the_version() -> None:
    """Newer versions refuse temperature and top_p."""
    assert KNOWN_PROVIDERS["anthropic"].headers["anthropic-version"] == "2023-06-01"


@pytest.mark.parametrize("known", KNOWN_PROVIDERS.values(), ids=named)
def test_chat_completions_are_spoken_as_each_takes_them(known: Provider) -> None:
    if not isinstance(known.wire, ChatCompletions):
        return
    asked = ModelRequest(
        messages=[Message.user("Hi")],
        tools=(ToolSchema(name="clock", description="The time.", parameters={"type": "object"}),),
        response_format={"type": "json_object"},
        instruction=Message.system("Answer now."),
        settings=ModelSettings(seed=7),
    )
    body = known.wire.body(asked, "any", streaming=True)
    is_openai, is_mistral = known.name in ("openai-chat", "azure"), known.name == "mistral"

    assert ("response_format" in body) == is_openai
    assert (body["messages"][-1]["role"] == "system") == is_openai
    assert ("random_seed" in body, "stream_options" in body) == (is_mistral, not is_mistral)


@pytest.mark.parametrize("known", KNOWN_PROVIDERS.values(), ids=named)
def test_nothing_secret_is_in_the_table(known: Provider) -> None:
    assert "sk-" not in repr(msgspec.structs.asdict(known))


def test_own_providers_come_before_the_known_ones() -> None:
    mine = Provider(name="openai", base_url="http://mine.example/v1")
    presets = ModelPresets().with_provider(mine)

    assert "http://mine.example/v1" in repr(presets.model("openai:gpt"))
    assert presets.with_preset("x", "openai:gpt").model("x").name == "openai:gpt"


def test_presets_may_name_presets() -> None:
    presets = ModelPresets({"fast": "local", "local": "ollama:qwen3"}).with_preset("f", "fast")

    assert presets.model("f").name == "ollama:qwen3"


def test_presets_that_go_in_a_circle_are_refused() -> None:
    presets = ModelPresets({"a": "b", "b": "c", "c": "a"})
    with pytest.raises(ConfigurationError, match="a -> b -> c -> a form a cycle"):
        presets.model("a")
    with pytest.raises(ConfigurationError, match="form a cycle"):
        ModelPresets({"a": "a"}).model("a")


@pytest.mark.parametrize(
    ("wanted", "meant"), [("antropic:claude", "anthropic"), ("opnai", "openai"), ("fst", "fast")]
)
def test_a_slip_is_met_with_a_guess(wanted: str, meant: str) -> None:
    presets = ModelPresets({"fast": "ollama:qwen3"})
    with pytest.raises(ConfigurationError, match=f"Did you mean '{meant}'"):
        presets.model(wanted)
