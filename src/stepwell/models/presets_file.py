"""Presets and providers from a TOML file. Unknown fields and keys in the file are refused."""

import re
import tomllib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, cast

from msgspec import Struct, ValidationError, convert
from msgspec.structs import replace

from stepwell.errors import ConfigurationError
from stepwell.models.fallback import FallbackModel
from stepwell.models.model import Model
from stepwell.models.provider import CONNECT_TIMEOUT, READ_TIMEOUT, Auth, Provider
from stepwell.models.providers import KNOWN_PROVIDERS
from stepwell.models.settings import ModelSettings
from stepwell.models.wire import AnthropicMessages, ChatCompletions, Gemini, OpenAIResponses

_KEYS = re.compile(
    r"key|token|secret|password|.*(api_?key|authorization|(auth|access)_token|secret|password)"
)
_WIRES = (ChatCompletions(), OpenAIResponses(), AnthropicMessages(), Gemini())
_FORMATS = {wire.name: wire for wire in _WIRES}


class ProviderEntry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A ``[providers.<name>]`` table."""

    base_url: str
    format: str = "chat_completions"
    key_env: str | None = None
    auth_header: str | None = None
    auth_prefix: str | None = None
    headers: dict[str, str] = {}
    default_model: str | None = None
    prices: str | None = None
    connect_timeout: float = CONNECT_TIMEOUT
    read_timeout: float = READ_TIMEOUT


class PresetEntry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A ``[presets.<name>]`` table."""

    model: str
    base_url: str | None = None
    key_env: str | None = None
    settings: ModelSettings = ModelSettings()
    fallbacks: tuple[str, ...] = ()


class PresetsFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file."""

    providers: dict[str, ProviderEntry] = {}
    presets: dict[str, PresetEntry] = {}


def read_presets(
    path: Path,
) -> tuple[dict[str, Callable[[], Model] | str], dict[str, Provider]]:
    """Load presets and providers. Raises ``ConfigurationError`` that names the place."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(f"the presets file {path} can't be read: {error}") from error
    except ValueError as error:
        raise ConfigurationError(f"the presets file {path} is not TOML: {error}") from error
    _refuse_keys(data, str(path))
    try:
        file = convert(data, PresetsFile)
    except ValidationError as error:
        raise ConfigurationError(f"the presets file {path}: {error}") from error
    providers = {name: _provider(name, entry, path) for name, entry in file.providers.items()}
    known = {**KNOWN_PROVIDERS, **providers}
    presets: dict[str, Callable[[], Model] | str] = {}
    for name, entry in file.presets.items():
        for fallback in entry.fallbacks:
            if fallback not in file.presets or fallback == name:
                raise ConfigurationError(
                    f"the presets file {path}: fallback {fallback!r} of {name!r} is not another "
                    "preset of the file"
                )
        # An alias is resolved later, so that it finds providers from code.
        is_plain = entry == PresetEntry(model=entry.model)
        presets[name] = entry.model if is_plain else partial(_model, name, file.presets, known)
    return presets, providers


def _model(
    name: str, entries: Mapping[str, PresetEntry], providers: Mapping[str, Provider]
) -> Model:
    chain = [_one(entries[chosen], providers) for chosen in (name, *entries[name].fallbacks)]
    return chain[0] if len(chain) == 1 else FallbackModel(*chain)


def _one(entry: PresetEntry, providers: Mapping[str, Provider]) -> Model:
    provider_name, _, model = entry.model.partition(":")
    provider = providers.get(provider_name)
    if provider is None:
        raise ConfigurationError(
            f"Unknown provider {provider_name!r} (in model = {entry.model!r}). Known providers: "
            f"{', '.join(sorted(providers))}"
        )
    if entry.key_env is not None:
        provider = replace(provider, key_env=entry.key_env)
    return provider.model(model or None, base_url=entry.base_url, settings=entry.settings)


def _provider(name: str, entry: ProviderEntry, path: Path) -> Provider:
    wire = _FORMATS.get(entry.format)
    if wire is None:
        raise ConfigurationError(
            f"the presets file {path}: unknown format {entry.format!r} of provider {name!r}; "
            f"known: {', '.join(_FORMATS)}"
        )
    alike = next(known for known in KNOWN_PROVIDERS.values() if known.wire.name == entry.format)
    usual = alike.auth
    return Provider(
        name=name,
        wire=wire,
        base_url=entry.base_url,
        key_env=entry.key_env,
        auth=Auth(
            header=usual.header if entry.auth_header is None else entry.auth_header,
            prefix=usual.prefix if entry.auth_prefix is None else entry.auth_prefix,
        ),
        headers={**alike.headers, **entry.headers},
        default_model=entry.default_model,
        prices=entry.prices,
        connect_timeout=entry.connect_timeout,
        read_timeout=entry.read_timeout,
    )


def _refuse_keys(data: Any, where: str) -> None:
    """Refuse keys: files end up in repositories. They name environment variables instead."""
    if isinstance(data, list):
        for item in cast("list[Any]", data):
            _refuse_keys(item, where)
    if not isinstance(data, dict):
        return
    for name, value in cast("dict[str, Any]", data).items():
        if isinstance(value, str) and _KEYS.fullmatch(name.lower().replace("-", "_")):
            raise ConfigurationError(
                f"{where} contains a key under {name!r}. Put it into an environment variable and "
                'name that with key_env = "..."'
            )
        _refuse_keys(value, where)
