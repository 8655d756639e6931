"""Whether a body has the shape that a provider's own SDK documents: the params are typed dicts, and
here a key that they don't name is a fault, as it would be at the provider.
"""

import types
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Literal, NotRequired, Required, Union, get_args, get_origin

import typing_extensions


def misfits(value: Any, kind: Any, where: str = "$") -> list[str]:
    """What does not fit the annotation, as texts that name the place; nothing if all fits."""
    if kind is Any or kind is object:
        return []
    if typing_extensions.is_typeddict(kind):
        return _of_typed_dict(value, kind, where)
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Required, NotRequired, typing_extensions.Annotated):
        return misfits(value, args[0], where)
    if origin in (Union, types.UnionType):
        tried = [misfits(value, arg, where) for arg in args]
        # The alternative that went deepest tells best what is wrong.
        return [] if [] in tried else max(tried, key=_depth)
    if origin is Literal:
        return [] if value in args else [f"{where}: {value!r} is not one of {args}"]
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _of_mapping(value, args, where)
    if isinstance(origin, type) and issubclass(origin, Iterable):
        return _of_items(value, args, where)
    return _of_class(value, kind, where)


def _depth(found: list[str]) -> int:
    places = [text.partition(":")[0] for text in found]
    return max(place.count(".") + place.count("[") for place in places)


def _of_typed_dict(value: Any, kind: Any, where: str) -> list[str]:
    if not isinstance(value, Mapping):
        return [f"{where}: {value!r:.60} is no {kind.__name__}"]
    hints = _hints(kind)
    wrong = [
        f"{where}.{name}: missing"
        for name, hint in hints.items()
        # Where annotations are kept as texts, the class itself does not know what is required.
        if (name in kind.__required_keys__ or get_origin(hint) is Required) and name not in value
    ]
    for name, inner in value.items():
        if name in hints:
            wrong += misfits(inner, hints[name], f"{where}.{name}")
        else:
            wrong.append(f"{where}.{name}: {kind.__name__} has no such field")
    return wrong


def _of_mapping(value: Any, args: Sequence[Any], where: str) -> list[str]:
    if not isinstance(value, Mapping):
        return [f"{where}: {value!r:.60} is no mapping"]
    inner = args[1] if args else Any
    return [m for name, item in value.items() for m in misfits(item, inner, f"{where}.{name}")]


def _of_items(value: Any, args: Sequence[Any], where: str) -> list[str]:
    if isinstance(value, str | Mapping) or not isinstance(value, Iterable):
        return [f"{where}: {value!r:.60} is no list"]
    inner = args[0] if args else Any
    return [m for i, item in enumerate(value) for m in misfits(item, inner, f"{where}[{i}]")]


def _of_class(value: Any, kind: Any, where: str) -> list[str]:
    if kind is float:
        fits = isinstance(value, int | float) and not isinstance(value, bool)
    elif kind is int:
        fits = isinstance(value, int) and not isinstance(value, bool)
    elif kind in (None, type(None)):
        fits = value is None
    elif isinstance(kind, type):
        fits = isinstance(value, kind)
    else:
        fits = True  # a type variable or a protocol: nothing that JSON could break
    return [] if fits else [f"{where}: {value!r:.60} is no {getattr(kind, '__name__', kind)}"]


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return typing_extensions.get_type_hints(kind, include_extras=True)
