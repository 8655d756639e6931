"""Every public name exists and says what it is."""

import inspect
import pydoc
from collections.abc import Iterator
from functools import cached_property
from importlib import import_module
from typing import Any, get_type_hints

import pytest

import stepwell
import stepwell.app
import stepwell.events
import stepwell.testing
from stepwell.public import MOVED_TO, ROOM_OF


def public_objects() -> Iterator[tuple[str, Any]]:
    for room in (stepwell, stepwell.app, stepwell.events, stepwell.testing):
        for name in room.__all__:
            value = getattr(room, name)
            if inspect.isclass(value) or inspect.isroutine(value):
                yield f"{room.__name__}.{name}", value
    for name, room in MOVED_TO.items():
        value = getattr(import_module(room), name)
        if inspect.isclass(value) or inspect.isroutine(value):
            yield f"{room}.{name}", value


def methods_of(owner: type) -> Iterator[tuple[str, Any]]:
    for name, value in vars(owner).items():
        if name.startswith("_"):
            continue
        if isinstance(value, property):
            yield name, value.fget
        elif isinstance(value, cached_property):
            yield name, value.func
        elif inspect.isroutine(value) or isinstance(value, staticmethod | classmethod):
            yield name, inspect.unwrap(getattr(owner, name))


def has_docstring(value: Any) -> bool:
    return bool((value.__doc__ or "").strip())


OBJECTS = dict(public_objects())


def test_every_name_of_all_exists() -> None:
    missing = [name for name in stepwell.__all__ if not hasattr(stepwell, name)]

    assert missing == []
    assert len(stepwell.__all__) == len(set(stepwell.__all__)) < 75
    assert set(stepwell.__all__) <= set(dir(stepwell))
    assert set(stepwell.__all__) == set(ROOM_OF)


@pytest.mark.parametrize("name", MOVED_TO)
def test_a_name_that_moved_says_where_it_is(name: str) -> None:
    with pytest.warns(DeprecationWarning, match=f"write `from {MOVED_TO[name]} import {name}`"):
        value = getattr(stepwell, name)
    assert value is getattr(import_module(MOVED_TO[name]), name)
    assert name not in stepwell.__all__


def test_the_warning_points_to_the_use() -> None:
    with pytest.warns(DeprecationWarning, match="StepsLimit has moved") as found:
        _ = stepwell.StepsLimit  # type: ignore[attr-defined]
    assert found[0].filename == __file__


def test_help_works_on_every_public_name() -> None:
    for name, value in OBJECTS.items():
        assert pydoc.render_doc(value), name


LOADED_LATER = {
    "stepwell.McpServer.call": "the mcp package is optional",
    "stepwell.models.provider.Provider.model": "httpx2 takes long to load",
    "stepwell.models.ModelPresets.providers": "providers take long to load",
    "stepwell.models.ModelPresets.with_provider": "providers take long to load",
}
"""Methods with a type that is not imported with them, and why."""


def test_type_hints_of_every_public_name_can_be_resolved() -> None:
    broken: list[str] = []
    for owner, value in OBJECTS.items():
        for name, method in [("", value), *(methods_of(value) if inspect.isclass(value) else ())]:
            try:
                get_type_hints(method)
            except (NameError, TypeError):
                broken.append(f"{owner}.{name}")
    assert sorted(broken) == sorted(LOADED_LATER)


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
