"""Model settings and response formats that work for all providers. Unset values are not sent."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, cast

from msgspec import Struct
from msgspec.structs import asdict, force_setattr, replace

from stepwell.errors import ConfigurationError
from stepwell.parameters import (
    check_flag,
    check_integer,
    check_mapping,
    check_number,
    check_text,
    check_texts,
)


class ThinkingEffort(StrEnum):
    """How much a model should think. Each provider uses its closest level."""

    NONE = "none"
    MINIMAL = "minimal"
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


class ModelSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of a turn. None is not sent, so the provider's default applies.

    ``tool_choice`` is ``auto``, ``none``, ``required`` or the name of the tool that must be called.
    ``max_tokens`` limits one response. ``extra_body`` is merged into the request's JSON, for
    provider-specific fields.

    >>> ModelSettings(temperature=0.2).over(ModelSettings(temperature=1.0, seed=7)).seed
    7
    """

    model: str | None = None
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    tool_choice: str | None = None
    parallel_tool_calls: bool | None = None
    thinking: ThinkingEffort | None = None
    seed: int | None = None
    extra_body: Mapping[str, Any] = {}
    extra_headers: Mapping[str, str] = {}

    def __post_init__(self) -> None:
        for name in ("model", "tool_choice"):
            if getattr(self, name) is not None:
                check_text(getattr(self, name), name)
        for name in ("temperature", "top_p"):
            if getattr(self, name) is not None:
                check_number(getattr(self, name), name)
        if self.max_tokens is not None:
            check_integer(self.max_tokens, "max_tokens", least=1)
        if self.seed is not None and type(self.seed) is not int:
            raise ConfigurationError(f"seed must be a whole number, got {self.seed!r:.80}")
        if self.parallel_tool_calls is not None:
            check_flag(self.parallel_tool_calls, "parallel_tool_calls")
        force_setattr(self, "stop", check_texts(self.stop, "stop"))
        check_mapping(self.extra_body, "extra_body")
        headers = check_mapping(self.extra_headers, "extra_headers")
        if not all(isinstance(value, str) for value in headers.values()):
            raise ConfigurationError("extra_headers must have texts as values")
        if self.thinking is not None:
            force_setattr(self, "thinking", _effort(self.thinking))

    def __repr__(self) -> str:
        """Show only what is set, and header names without values, which may be secret."""
        said = self._set_values()
        if self.extra_headers:
            said["extra_headers"] = list(self.extra_headers)
        return f"ModelSettings({', '.join(f'{name}={value!r}' for name, value in said.items())})"

    def over(self, base: "ModelSettings") -> "ModelSettings":
        """Return these settings, with those of ``base`` where these are unset."""
        if base == NO_SETTINGS or self is base:
            return self
        if self == NO_SETTINGS:
            return base
        both = {
            "extra_body": {**base.extra_body, **self.extra_body},
            "extra_headers": {**base.extra_headers, **self.extra_headers},
        }
        return replace(base, **{**self._set_values(), **both})

    def _set_values(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value not in (None, (), {})}


NO_SETTINGS = ModelSettings()
"""No settings."""


def _effort(word: str) -> ThinkingEffort:
    try:
        return ThinkingEffort(word)
    except ValueError:
        raise ConfigurationError(
            f"Unknown thinking effort {word!r}. Known efforts: {', '.join(ThinkingEffort)}"
        ) from None


class ResponseFormat(Struct, frozen=True, kw_only=True):
    """Requires a JSON response: any object, or one that matches a schema.

    >>> ResponseFormat.of({"type": "json_object"}).schema is None
    True
    """

    schema: Mapping[str, Any] | None = None
    name: str = "response"
    strict: bool = True

    @classmethod
    def of(cls, given: "ResponseFormat | Mapping[str, Any]") -> "ResponseFormat":
        """Create one from a format, a JSON schema, or the mapping of chat completions."""
        if isinstance(given, ResponseFormat):
            return given
        if not isinstance(given, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(
                f"a response format must be a ResponseFormat or a JSON schema, got {given!r:.80}. "
                "For typed output use Agent(output_type=YourModel)"
            )
        if given.get("type") == "json_object":
            return cls(schema=given.get("schema"))
        if given.get("type") == "json_schema":
            inner = cast("Mapping[str, Any]", given.get("json_schema", given) or {})
            if not isinstance(inner.get("schema"), Mapping):
                raise ConfigurationError("a json_schema format needs a schema; give schema={...}")
            return cls(
                schema=inner.get("schema"),
                name=inner.get("name", "response"),
                strict=inner.get("strict", True) is not False,
            )
        if given.get("type") == "text" or not given:
            raise ConfigurationError("plain text needs no response format; remove it")
        return cls(schema=given)
