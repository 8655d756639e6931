"""Descriptions of tools and parameters, read from docstrings of the three usual styles."""

from collections.abc import Callable
from typing import Any

import pytest

from stepwell import FunctionTool


def google(city: str, days: int = 1, units: str = "c") -> str:
    """Tell the weather.

    Looks at the forecast: today and later.

    Args:
        city: Where to look,
            also outside towns.
        days (int, optional): How far ahead: at most 7.
        units: Either "c" or "f".

    Returns:
        The forecast.

    Raises:
        ValueError: If the city is unknown.
    """
    return city


def numpy(city: str, days: int = 1, units: str = "c") -> str:
    """Tell the weather.

    Looks at the forecast: today and later.

    Parameters
    ----------
    city : str
        Where to look,
        also outside towns.
    days : int, optional
        How far ahead: at most 7.
    units
        Either "c" or "f".

    Returns
    -------
    str
        The forecast.
    """
    return city


def sphinx(city: str, days: int = 1, units: str = "c") -> str:
    """Tell the weather.

    Looks at the forecast: today and later.

    :param city: Where to look,
        also outside towns.
    :type city: str
    :param int days: How far ahead: at most 7.
    :param units: Either "c" or "f".
    :returns: The forecast.
    :raises ValueError: If the city is unknown.
    """
    return city


def descriptions(function: Callable[..., Any]) -> dict[str, Any]:
    properties = FunctionTool(function).schema.parameters["properties"]
    return {name: shown.get("description") for name, shown in properties.items()}


@pytest.mark.parametrize("function", [google, numpy, sphinx])
def test_the_description_is_the_text_before_the_sections(function: Callable[..., Any]) -> None:
    assert FunctionTool(function).schema.description == (
        "Tell the weather.\n\nLooks at the forecast: today and later."
    )


@pytest.mark.parametrize("function", [google, numpy, sphinx])
def test_each_parameter_has_its_description(function: Callable[..., Any]) -> None:
    assert descriptions(function) == {
        "city": "Where to look, also outside towns.",
        "days": "How far ahead: at most 7.",
        "units": 'Either "c" or "f".',
    }


def test_a_section_that_is_not_known_does_not_spoil_the_parameters() -> None:
    def add(a: int, b: int) -> int:
        """Add.

        Args:
            a: First.
            b: Second.

        Warning:
            Slow for large numbers.
        """
        return a + b

    assert descriptions(add) == {"a": "First.", "b": "Second."}


def test_a_numpy_section_that_is_not_known_does_not_spoil_the_parameters() -> None:
    def add(a: int, b: int) -> int:
        """Add.

        Parameters
        ----------
        a : int
            First.
        b : int
            Second.

        See Also
        --------
        subtract : the other way round
        """
        return a + b

    assert descriptions(add) == {"a": "First.", "b": "Second."}


def test_a_sphinx_return_line_is_not_part_of_the_description() -> None:
    def now() -> str:
        """Tell the time.

        :returns: The time.
        """
        return "noon"

    assert FunctionTool(now).schema.description == "Tell the time."


def test_without_docstring_nothing_is_described() -> None:
    def bare(x: int) -> int:
        return x

    assert FunctionTool(bare).schema.description == ""
    assert descriptions(bare) == {"x": None}


def test_a_described_parameter_that_does_not_exist_is_ignored() -> None:
    def add(a: int) -> int:
        """Add.

        Args:
            a: First.
            z: Gone.
        """
        return a

    assert descriptions(add) == {"a": "First."}
