"""What can be extracted, and how: schemas by name, and the policy of the tool that fills them."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import force_setattr

from stepwell.errors import ConfigurationError
from stepwell.models import ModelSettings
from stepwell.models.settings import NO_SETTINGS
from stepwell.parameters import (
    check_integer,
    check_kind,
    check_seconds,
    check_text,
    check_texts,
)


class SchemaDefinition(Struct, frozen=True):
    """What data is extracted into: a pydantic model, a dataclass, a TypedDict, ``list[str]``.

    ``prompt`` is said to the model that extracts, ``description`` to the agent that chooses among
    schemas; without one the type's docstring is. ``max_retries`` goes before the policy's.

    >>> SchemaDefinition(list[str], prompt="Only first names.", max_retries=5).max_retries
    5
    """

    type: Any
    prompt: str | None = None
    max_retries: int | None = None
    description: str | None = None

    def __post_init__(self) -> None:
        for name in ("prompt", "description"):
            if getattr(self, name) is not None:
                check_text(getattr(self, name), name)
        if self.max_retries is not None:
            check_integer(self.max_retries, "max_retries of a schema", least=0)


class SchemaRegistry:
    """Schemas by name; immutable. A type alone stands for ``SchemaDefinition(type)``.

    >>> schemas = SchemaRegistry({"names": list[str]})
    >>> schemas.register("age", int).names, schemas.names
    (('age', 'names'), ('names',))
    """

    def __init__(self, schemas: Mapping[str, Any] | None = None) -> None:
        self._definitions: dict[str, SchemaDefinition] = {}
        if not isinstance(schemas, Mapping | None):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(
                f"SchemaRegistry takes schemas by name, got {schemas!r:.80}; write "
                "SchemaRegistry({'lead': LeadForm})"
            )
        for name, given in (schemas or {}).items():
            self._definitions[_checked_name(name, given)] = _definition(given)

    @property
    def names(self) -> tuple[str, ...]:
        """The known names, sorted."""
        return tuple(sorted(self._definitions))

    def register(self, name: str, schema: Any) -> "SchemaRegistry":
        """A registry that also knows this type or ``SchemaDefinition``; this one stays as it is."""
        return SchemaRegistry({**self._definitions, name: schema})

    def find(self, name: str) -> SchemaDefinition | None:
        """The definition of that name, or None."""
        return self._definitions.get(name)

    def __iter__(self) -> Iterator[tuple[str, SchemaDefinition]]:
        return iter(sorted(self._definitions.items(), key=lambda entry: entry[0]))

    def __len__(self) -> int:
        return len(self._definitions)


class StructuredOutputPolicy(Struct, frozen=True, kw_only=True):
    """How data is extracted. Without ``llm_preset`` the agent's own model is asked.

    ``max_retries`` counts the tries after the first; a schema and a call may ask for others, but
    never for more than ``most_retries``. ``timeout`` bounds each try.
    """

    llm_preset: str | None = None
    max_retries: int = 3
    most_retries: int = 10
    settings: ModelSettings = NO_SETTINGS
    max_input_chars: int = 200_000
    timeout: float | None = 120.0
    reserved_keys: Collection[str] = ()
    """Metadata keys of the application that no extraction may be stored under."""

    def __post_init__(self) -> None:
        if self.llm_preset is not None:
            check_text(self.llm_preset, "llm_preset")
        check_kind(self.settings, "settings", ModelSettings)
        reserved = frozenset(check_texts(self.reserved_keys, "reserved_keys"))
        force_setattr(self, "reserved_keys", reserved)
        check_integer(self.max_retries, "max_retries", least=0)
        check_integer(self.most_retries, "most_retries", least=0)
        if self.max_retries > self.most_retries:
            raise ConfigurationError(
                f"max_retries is {self.max_retries}, above most_retries, which is "
                f"{self.most_retries}; raise most_retries as well"
            )
        if check_integer(self.max_input_chars, "max_input_chars", least=0) == 0:
            raise ConfigurationError("max_input_chars is 0, so nothing could be extracted from")
        if self.timeout is not None:
            check_seconds(self.timeout, "timeout")


def _checked_name(name: Any, given: Any) -> str:
    if not isinstance(name, str) or not name.strip() or name != name.strip():
        raise ConfigurationError(
            f"{name!r} can't name the schema {given!r:.80}; write register('lead', LeadForm)"
        )
    return name


def _definition(given: Any) -> SchemaDefinition:
    return given if isinstance(given, SchemaDefinition) else SchemaDefinition(given)
