"""Short texts for arguments and results, and data that is always valid JSON."""

import json
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from pathlib import PurePosixPath
from typing import Any

import pytest

from stepwell.journal.summaries import (
    MOST_VALUES,
    args_summary,
    result_summary,
    truncated_args,
)


class Colour(Enum):
    RED = ("r", 1)


class Awkward:
    def __str__(self) -> str:
        raise RuntimeError("not for you")

    __repr__ = __str__


class Closed(Mapping[str, Any]):
    """As of a database whose connection is gone."""

    def __getitem__(self, key: str) -> Any:
        raise RuntimeError("closed")

    def __iter__(self) -> Iterator[str]:
        raise RuntimeError("closed")

    def __len__(self) -> int:
        raise RuntimeError("closed")


class ClosedDict(dict[str, Any]):
    def items(self) -> Any:
        raise RuntimeError("closed")

    __iter__ = items


class ClosedList(list[int]):
    def __iter__(self) -> Iterator[int]:
        raise RuntimeError("closed")


@pytest.mark.parametrize(
    ("args", "summary"),
    [
        ({}, ""),
        ({"q": "dbplus"}, "q: 'dbplus'"),
        ({"a": 1, "b": True, "c": None, "d": 4}, "a: 1, b: true, c: null"),
        ({"types": ["program", "x"]}, 'types: ["program","x"]'),
        ({"where": {"id": 3}}, 'where: {"id":3}'),
        ({"q": "it's"}, "q: 'it's'"),
        ({"q": "é" * 28}, f"q: '{'é' * 28}'"),
        ({"q": "é" * 29}, f"q: '{'é' * 26}..."),
        (
            {"n": list(range(100))},
            f"n: {json.dumps(list(range(100)), separators=(',', ':'))[:27]}...",
        ),
        ({"n": 1.5, "bad": float("nan")}, 'n: 1.5, bad: "nan"'),
        ({"k" * 31: 1}, f"{'k' * 27}...: 1"),
        ({"odd": Awkward()}, 'odd: "(Awkward)"'),
        ({"rows": Closed()}, 'rows: "(Closed)"'),
        ({"rows": ClosedDict(a=1)}, 'rows: {"a":1}'),
        ({"rows": ClosedList([1])}, "rows: [1]"),
        ({"rows": OrderedDict(a=(1, 2))}, 'rows: {"a":[1,2]}'),
        (Closed(), ""),
        (ClosedDict(a=1), "a: 1"),
    ],
)
def test_arguments_in_one_short_text(args: Mapping[str, Any], summary: str) -> None:
    """B144."""
    assert args_summary(args) == summary


@pytest.mark.parametrize(
    ("value", "summary"),
    [
        (None, None),
        ("", ""),
        ("Found 3 entities", "Found 3 entities"),
        ("x" * 100, "x" * 100),
        ("x" * 101, "x" * 97 + "..."),
        (False, "false"),
        (0, "0"),
        ([], "[]"),
        ({"a": "ü"}, '{"a":"ü"}'),
        ({"text": "y" * 200}, '{"text":"' + "y" * 88 + "..."),
        (list(range(10**6)), json.dumps(list(range(40)), separators=(",", ":"))[:97] + "..."),
    ],
)
def test_a_result_in_a_hundred_characters(value: Any, summary: str | None) -> None:
    assert result_summary(value) == summary


def test_values_that_are_no_json_become_what_can_be_told_of_them() -> None:
    args = {
        "when": datetime(2026, 1, 2, tzinfo=UTC),
        "path": PurePosixPath("a/b"),
        "price": Decimal("1.50"),
        "colour": Colour.RED,
        "bytes": b"abc",
        "names": ("a", "b"),
        "odd": Awkward(),
        3: float("-inf"),
        "huge": 2**64,
    }

    assert truncated_args(args, 500) == {  # pyright: ignore[reportArgumentType]
        "when": "2026-01-02 00:00:00+00:00",
        "path": "a/b",
        "price": "1.50",
        "colour": ["r", 1],
        "bytes": "(3 bytes)",
        "names": ["a", "b"],
        "odd": "(Awkward)",
        "3": "-inf",
        "huge": str(2**64),
    }


def test_texts_are_clipped_by_characters_at_any_depth() -> None:
    told = truncated_args({"a": "ü" * 6, "b": [{"c": "x" * 5}, ["y" * 6]]}, 5)

    assert told == {"a": "ü" * 5 + "...", "b": [{"c": "x" * 5}, ["y" * 5 + "..."]]}


def test_a_mapping_that_cant_be_read_is_told_by_its_name() -> None:
    assert result_summary(Closed()) == '"(Closed)"'
    assert result_summary([Closed(), ClosedDict(a=1)]) == '["(Closed)",{"a":1}]'
    assert truncated_args({"rows": Closed()}, 500) == {"rows": "(Closed)"}
    assert truncated_args(Closed(), 500) == {}


def test_a_value_that_contains_itself_ends() -> None:
    knot: list[Any] = []
    knot.extend([knot] * 3)

    text = json.dumps(truncated_args({"knot": knot}, 500))

    assert "..." in text
    assert args_summary({"knot": knot}).endswith("...")


def test_what_is_too_much_is_left_out() -> None:
    told = truncated_args({"many": list(range(MOST_VALUES * 2))}, 500)

    assert len(told["many"]) <= MOST_VALUES + 1
    assert told["many"][-1] == "..."


def test_halves_of_surrogate_pairs_are_replaced_and_pairs_are_joined() -> None:
    told = truncated_args({"half\udcff": "\ud83d", "pair": "\ud83d\ude00", "fine": "ü😀"}, 500)

    assert told == {"half\ufffd": "\ufffd", "pair": "😀", "fine": "ü😀"}
