"""The pure parts of the execution page: numbers in words, the axis of time, differences, events."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from tests.servers.node import find_node, printed, why_missing

SCRIPT = Path(__file__).parent / "execution_cases.mjs"
pytestmark = pytest.mark.skipif(find_node() is None, reason=str(why_missing(SCRIPT)))

NOTHING = "\N{EN DASH}"


def run(part: str, given: Any) -> Any:
    return json.loads(printed(str(SCRIPT), part, given=json.dumps(given)))


def formatted(name: str, *values: Any) -> list[Any]:
    return run("formats", [[name, value] for value in values])


def test_spans_are_written_in_units_that_fit() -> None:
    seconds = [None, 0, 0.0004, 0.012, 0.9994, 0.9996, 3.44, 59.94, 59.96, 125, 3600, 11_520]
    assert formatted("duration", *seconds, 187_200) == [
        *(NOTHING, "0 ms", "0 ms", "12 ms", "999 ms", "1.0 s", "3.4 s", "59.9 s", "1 min"),
        *("2 min 5 s", "1 h", "3 h 12 min", "2 d 4 h"),
    ]


def test_a_takeover_names_the_worker_if_there_was_one() -> None:
    entry = {"attempt": 2, "step": 3, "worker": "w1", "silent_seconds": 4.5}
    assert formatted("takeover", entry, entry | {"worker": None, "silent_seconds": 0}) == [
        "attempt 2 took over at step 3: its worker (w1) sent no heartbeat for 4.5 s",
        "attempt 2 took over at step 3: its worker released it",
    ]


def test_money_counts_and_tokens() -> None:
    assert formatted("money", None, 0, 0.00001, 0.0042, 0.12345, 12.5) == [
        *(NOTHING, "$0", "< $0.0001", "$0.0042", "$0.123", "$12.50"),
    ]
    usage = {"input_tokens": 1200, "output_tokens": 85, "cached_tokens": 0}
    assert run(
        "formats", [["tokens", 1285, usage], ["tokens", 1, None], ["counted", 0, "step"]]
    ) == ["1,285 tokens (1,200 input, 85 output)", "1 token", "0 steps"]


def test_times_are_told_in_a_zone_and_nothing_is_told_of_no_time() -> None:
    moment = run("formats", [["moment", "2026-01-06T12:34:56.5Z", "UTC"], ["moment", None]])
    assert moment == ["6 Jan 2026, 12:34:56", NOTHING]
    between = [["secondsBetween", "2026-01-06T12:00:00Z", "2026-01-06T12:01:00.5Z"]]
    assert run("formats", [*between, ["secondsBetween", None, "2026-01-06T12:00:00Z"]]) == [
        60.5,
        None,
    ]


def test_each_status_has_a_word_and_a_sign_of_its_own() -> None:
    names = ["pending", "running", "paused", "completed", "stopped", "failed", "cancelled"]
    looks = formatted("statusLook", *names, "new one")
    assert len({look["word"] for look in looks}) == len({look["sign"] for look in looks}) == 8


def at(second: float) -> str:
    return f"2026-01-06T{int(second) // 3600:02}:{int(second) // 60 % 60:02}:{second % 60:06.3f}Z"


def step(number: int, start: float, end: float, *tools: tuple[str, float, float]) -> Any:
    ran = [
        {"name": name, "outcome": "completed", "started_at": at(a), "completed_at": at(b)}
        for name, a, b in tools
    ]
    return {
        "number": number,
        "model": "m",
        "started_at": at(start),
        "completed_at": at(end),
        "tool_executions": ran,
    }


def test_a_step_is_the_model_then_its_tools_those_at_once_in_lanes() -> None:
    tools = [("a", 1, 3), ("b", 1.5, 2), ("c", 2.2, 4), ("d", 3.5, 4)]
    (shown,) = run("axis", [[step(1, 0, 4, *tools), step(2, 4, 5)]])
    first, second = shown["rows"]
    assert [(bar["name"], bar["lane"]) for bar in first["bars"]] == [
        *(("m", 0), ("a", 0), ("b", 1), ("c", 1), ("d", 0)),
    ]
    assert (first["model"], first["tools"], first["lanes"]) == (1, 3, 2)
    assert (second["model"], second["tools"], second["lanes"]) == (1, 0, 1)
    assert shown["places"] == [[0, 0.8], [0.8, 1]]
    assert shown["gaps"] == []


def test_a_long_wait_is_cut_out_of_the_axis_and_told() -> None:
    (shown,) = run("axis", [[step(1, 0, 2), step(2, 7202, 7204), step(3, 7204.2, 7206)]])
    (gap,) = shown["gaps"]
    assert gap["seconds"] == 7200
    assert 0.3 < gap["left"] < gap["right"] < 0.4
    assert shown["seconds"] == 7206
    assert shown["worked"] == pytest.approx(5.8)
    starts = [place[0] for place in shown["places"]]
    assert starts == sorted(starts)
    assert shown["places"][-1][1] == pytest.approx(1)


def test_an_axis_takes_steps_without_times_or_of_no_length() -> None:
    odd = {"number": 1, "model": None, "started_at": None, "completed_at": None}
    none, empty, instant = run(
        "axis", [[], [{**odd, "tool_executions": []}], [step(1, 5, 5, ("a", 5, 5))]]
    )
    assert none["gaps"] == empty["gaps"] == []
    assert instant["places"] == [[0, 0]]
    assert all(0 <= place <= 1 for pair in empty["places"] for place in pair)


def test_differences_are_told_by_path() -> None:
    before = {"a": 1, "b": {"c": [1, 2, 3], "d": None}, "gone": True, "odd name": 1}
    after = {"a": 1, "b": {"c": [1, 9, 3, 4], "d": {}}, "odd name": 2, "new": "x"}
    (told,) = run("differences", [[before, after]])
    assert told["isCut"] is False
    kinds = {(one["path"], one["kind"]) for one in told["found"]}
    assert kinds == {
        ("b.c[1]", "changed"),
        ("b.c[3]", "added"),
        ("b.d", "changed"),
        ("gone", "removed"),
        ('["odd name"]', "changed"),
        ("new", "added"),
    }


def json_value(chance: random.Random, depth: int = 0) -> Any:
    kind = chance.randint(0, 7 if depth < 4 else 4)
    if kind <= 4:
        return chance.choice([None, True, False, 0, 1, -2.5, "", "a", "b"])
    if kind <= 6:
        names = chance.sample(
            ["a", "b", "c", "d e", "__proto__x", '"', "0"], k=chance.randint(0, 4)
        )
        return {name: json_value(chance, depth + 1) for name in names}
    return [json_value(chance, depth + 1) for _ in range(chance.randint(0, 5))]


def test_what_differences_say_leads_from_one_value_to_the_other() -> None:
    chance = random.Random(11)
    pairs = [[json_value(chance), json_value(chance)] for _ in range(2000)]
    pairs += [[value, value] for value, _ in pairs[:50]]
    results = run("applied", pairs)
    wrong = [pair for pair, one in zip(pairs, results, strict=True) if not one["isRight"]]
    assert wrong == []
    assert [one["count"] for one in results[-50:]] == [0] * 50


def test_differences_are_counted_in_words_and_bounded() -> None:
    pairs = [[1, 1], [{"a": 1}, {"b": 2}], [[1], [1, 2]]]
    assert run("summary", pairs) == ["no difference", "1 added, 1 removed", "1 added"]
    large = run("large", None)
    assert large["told"] == [[0, False], [1000, True], [1, False]]
    assert large["seconds"] < 60


def test_events_are_read_however_they_are_cut() -> None:
    text = ': hello\nid: 7\nevent: agent.status\ndata: {"a":\ndata: 1}\n\ndata:x\r\n\r\nid: 8\n\n'
    expected = [
        {"id": "7", "event": "agent.status", "data": '{"a":\n1}'},
        {"id": "7", "event": "message", "data": "x"},
    ]
    pieces = [[text], list(text), [text[:20], text[20:33], text[33:]]]
    assert run("events", pieces) == [expected] * 3
