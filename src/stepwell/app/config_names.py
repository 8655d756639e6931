"""Names that the configuration does not know: told before values are looked at, with the known."""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any, cast, get_args

from msgspec import Struct, structs

from stepwell.errors import ConfigurationError


def check_names(shape: type[Struct], data: Mapping[str, Any], section: str = "") -> None:
    """Raise for a field that the shape has not, or a word that its field does not take."""
    fields = {field.name: field.type for field in structs.fields(shape)}
    for name, value in data.items():
        if name not in fields:
            where = f" in [{section}]" if section else ""
            raise ConfigurationError(f"{name!r} is no setting{where}; known: {', '.join(fields)}")
        path = f"{section}.{name}" if section else name
        for kind in _classes(fields[name]):
            if issubclass(kind, Struct) and isinstance(value, Mapping):
                check_names(kind, cast("Mapping[str, Any]", value), path)
            elif issubclass(kind, StrEnum) and value is not None and value not in list(kind):
                raise ConfigurationError(f"{path} is {value!r}; give {' or '.join(kind)}")


def _classes(type_: Any) -> Iterator[type[Any]]:
    for each in (type_, *get_args(type_)):
        if isinstance(each, type):
            yield each
