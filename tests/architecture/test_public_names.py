"""Every public name exists and says what it is."""

import inspect
from collections.abc import Iterator
from typing import Any

import pytest

import stepwell
import stepwell.app
import stepwell.events
import stepwell.testing


def public_objects() -> Iterator[tuple[str, Any]]:
    for room in (stepwell, stepwell.app, stepwell.events, stepwell.testing):
        for name in room.__all__:
            value = getattr(room, name)
            if inspect.isclass(value) or inspect.isroutine(value):
                yield f"{room.__name__}.{name}", value


def methods_of(owner: type) -> Iterator[tuple[str, Any]]:
    for name, value in vars(owner).items():
        if name.startswith("_"):
            continue
        if isinstance(value, property):
            yield name, value.fget
        elif inspect.isroutine(value) or isinstance(value, staticmethod | classmethod):
            yield name, inspect.unwrap(getattr(owner, name))


def has_docstring(value: Any) -> bool:
    return bool((value.__doc__ or "").strip())


OBJECTS = dict(public_objects())


def test_every_name_of_all_exists() -> None:
    missing = [name for name in stepwell.__all__ if not hasattr(stepwell, name)]

    assert missing == []
    assert len(stepwell.__all__) == len(set(stepwell.__all__)) > 50
    assert set(stepwell.__all__) <= set(dir(stepwell))


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'stepwell' has no attribute 'Agnet'"):
        _ = stepwell.Agnet  # type: ignore[attr-defined]


def test_every_public_class_and_function_has_a_docstring() -> None:
    assert [name for name, value in OBJECTS.items() if not has_docstring(value)] == []


def test_every_public_method_has_a_docstring() -> None:
    methods = {
        f"{owner}.{name}": method
        for owner, value in OBJECTS.items()
        if inspect.isclass(value)
        for name, method in methods_of(value)
    }

    assert [name for name, method in methods.items() if not has_docstring(method)] == []
