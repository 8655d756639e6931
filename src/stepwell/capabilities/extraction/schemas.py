"""Named schemas and the policy of the ``extract_data`` tool."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import force_setattr

from stepwell.errors import ConfigurationError
from stepwell.models import ModelSettings
from stepwell.models.settings import NO_SETTINGS
from stepwell.parameters import check_integer, check_kind, check_seconds, check_text, check_texts


class SchemaDefinition(Struct, frozen=True):
    """A type to extract data into: a pydantic model, a dataclass, a TypedDict, ``list[str]``.

    ``prompt`` is added to the prompt of the extracting model. ``description`` tells the agent what
    the schema is for; the default is the type's docstring. ``max_retries`` overrides the policy's.

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
    """An immutable set of named schemas. A bare type stands for ``SchemaDefinition(type)``.

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
        for name, schema in (schemas or {}).items():
            self._definitions[_checked_name(name, schema)] = _definition(schema)

    @property
    def names(self) -> tuple[str, ...]:
        """The registered names, sorted."""
        return tuple(sorted(self._definitions))

    def register(self, name: str, schema: Any) -> "SchemaRegistry":
        """Return a new registry with this type or ``SchemaDefinition`` added."""
        return SchemaRegistry({**self._definitions, name: schema})

    def find(self, name: str) -> SchemaDefinition | None:
        """Return the definition with that name, or None."""
        return self._definitions.get(name)

    def __iter__(self) -> Iterator[tuple[str, SchemaDefinition]]:
        return iter(sorted(self._definitions.items(), key=lambda entry: entry[0]))

    def __len__(self) -> int:
        return len(self._definitions)


class StructuredOutputPolicy(Struct, frozen=True, kw_only=True):
    """How data is extracted. Without ``llm_preset`` the agent's own model is used.

    ``max_retries`` counts the attempts after the first; a schema or a call can set another number,
    up to ``most_retries``. ``timeout`` applies to each attempt.
    """

    llm_preset: str | None = None
    max_retries: int = 3
    most_retries: int = 10
    settings: ModelSettings = NO_SETTINGS
    max_input_chars: int = 200_000
    timeout: float | None = 120.0
    reserved_keys: Collection[str] = ()
    """Metadata keys of the application that the tool must not write."""

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
                f"max_retries ({self.max_retries}) is above most_retries ({self.most_retries}); "
                "raise most_retries as well"
            )
        if check_integer(self.max_input_chars, "max_input_chars", least=0) == 0:
            raise ConfigurationError("max_input_chars must be 1 or more, got 0")
        if self.timeout is not None:
            check_seconds(self.timeout, "timeout")


def _checked_name(name: Any, schema: Any) -> str:
    if not isinstance(name, str) or not name.strip() or name != name.strip():
        raise ConfigurationError(
            f"{name!r} is not a valid name for the schema {schema!r:.80}. Write "
            "register('lead', LeadForm)"
        )
    return name


def _definition(schema: Any) -> SchemaDefinition:
    return schema if isinstance(schema, SchemaDefinition) else SchemaDefinition(schema)
