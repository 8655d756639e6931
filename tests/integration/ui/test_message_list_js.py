"""The ES module and its Python twin show the same, whatever came: many cases in one Node.js."""

import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import stepwell
from stepwell.broadcasting.config import BroadcastConfig
from stepwell.testing import message_list as lists
from tests.property.live_runs import TEXTS, TOOLS, Json, Session, Turn, session_of
from tests.servers.node import HERE, printed, why_missing

MODULE = Path(stepwell.__file__).parent / "ui" / "message_list.js"
SCRIPT = HERE / "message_list.mjs"
KILOBYTE = 1024

Step = list[Any]
Case = dict[str, Any]

needs_node = pytest.mark.skipif(why_missing(SCRIPT) is not None, reason=str(why_missing(SCRIPT)))

STORED: list[list[Any]] = [
    [],
    [{"role": "system", "content": "hidden"}, {"role": "developer", "content": "hidden"}],
    [{"id": "i1", "role": "info", "content": "Execution queued"}],
    [{"id": "n1", "role": "notification", "content": "Tool called", "metadata": {"a": 1}}],
    [{"role": "tool", "content": "alone", "metadata": {"tool_call_id": "c", "tool_name": "t"}}],
    [None, 3, "text", [], {}, {"role": "user"}, {"role": 4, "content": 5, "id": 6}],
    [{"role": "assistant", "content": None, "metadata": "text"}],
    [
        {"id": ":x", "role": "tool", "content": "x", "metadata": None},
        {"id": "a\n:b", "role": "tool"},
    ],
    [{"role": "assistant", "content": "", "metadata": {"tool_calls": [None, {}, {"id": "c"}]}}],
    [
        {
            "id": "e1:1:0",
            "role": "assistant",
            "content": "Two calls.",
            "metadata": {
                "tool_calls": [
                    {
                        "id": "c1",
                        "name": "search",
                        "arguments": {
                            "query": "\N{SNAKE}" * 40,
                            "types": ["program", None, True, 1.5],
                            "a name of more than thirty characters": {"quote": '"', "line": "\n"},
                            "left_out": 1,
                        },
                    },
                    {"id": "c2", "name": "short", "arguments": {"note": "\N{SNAKE}" * 20}},
                    {"id": "c1", "name": "again", "arguments": ["no", "mapping"]},
                ]
            },
        },
        {
            "id": "e1:1:1",
            "role": "tool",
            "content": "Error: no",
            "metadata": {"tool_call_id": "c1", "tool_name": "again", "is_error": True},
        },
    ],
]

STORED += [
    [
        {
            "role": "tool",
            "content": "Error: Blocked: no",
            "metadata": {"tool_call_id": "c", "is_error": is_error, "outcome": outcome},
        }
    ]
    for is_error, outcome in [(True, "blocked"), (False, "blocked"), (True, ["blocked"])]
]

STORED += [
    [
        {
            "id": "e1:1:0",
            "role": "assistant",
            "metadata": {"tool_calls": [{"id": "c1", "name": "t", "summary": "a: 1"}]},
        },
        {
            "id": "e1:1:1",
            "role": "tool",
            "metadata": {"tool_call_id": "c1", "duration_ms": duration},
        },
        {"id": "e1:n", "role": role, "content": "ended", "metadata": {"status": status}},
    ]
    for duration, role, status in [
        (12.5, "notification", "failed"),
        (0, "notification", "stopped"),
        (-1, "info", "cancelled"),
        (2**60, "info", "completed"),
        (True, "notification", ["failed"]),
        ("1", "notification", None),
    ]
]

ODD: list[Any] = [None, True, -1, 1.5, 2**60, "", "x", "idle", "e1", [], {}, ["x"], {"x": 1}]


def told(seq: int, type: str, **payload: Any) -> Step:
    head = {"id": f"{seq}", "seq": seq, "type": f"agent.{type}", "execution_id": "e1"}
    return ["received", {**head, "payload": {"step_number": 1, **payload}}]


WAITING: list[Json] = [
    {"id": "m3", "role": "user", "content": "yes"},
    {
        "id": "t9",
        "role": "tool",
        "content": "Waiting.",
        "metadata": {"tool_call_id": "c9", "waiting": True},
    },
]

BY_HAND: list[list[Step]] = [
    [
        told(n, "tool.completed", tool_call_id=f"c{n}", tool_name="t", success=ok, outcome=outcome)
        for n, ok, outcome in [(1, False, "blocked"), (2, True, "blocked"), (3, False, {})]
    ],
    [
        told(1, "step.started"),
        told(2, "stream.chunk", chunk_index=0, content="Broken "),
        told(3, "stream.chunk", chunk_index=1, content="off"),
        told(4, "tool.started", tool_call_id="c1", tool_name="first"),
        told(5, "tool.completed", tool_call_id="c1", tool_name="first", success=True),
        told(6, "tool.started", tool_call_id="c2", tool_name="second"),
        told(8, "tool.started", tool_call_id="c2", tool_name="again"),
        told(7, "step.started"),
        told(10, "step.completed"),
        told(9, "stream.chunk", chunk_index=0, content="Anew", is_complete=True),
        told(11, "step.started"),
        told(12, "tool.started", tool_call_id="c3", tool_name="late"),
    ],
    [
        told(1, "stream.chunk", chunk_index=0, content="Broken "),
        told(2, "stream.chunk", chunk_index=1, content="off"),
        told(3, "stream.chunk", chunk_index=0, content="Begun anew"),
    ],
    [
        told(1, "tool.started", tool_call_id="c1", tool_name="first", args_summary="a: 1"),
        told(2, "tool.completed", tool_call_id="c1", tool_name="second", success=True),
        told(3, "tool.started", tool_call_id="c1", tool_name="third", args_summary="b: 2"),
    ],
    [
        told(1, "tool.started", tool_call_id="c1", tool_name="first", args_summary="a: 1"),
        told(2, "tool.completed", tool_call_id="c1", tool_name="first", success=True),
        told(3, "step.completed"),
        told(4, "step.started", step_number=2),
        told(5, "tool.started", tool_call_id="c1", tool_name="reused", step_number=2),
        told(6, "tool.completed", tool_call_id="c1", tool_name="reused", outcome="pending"),
        told(7, "status", status="paused", step_number=2),
        told(8, "step.started", step_number=3),
        told(9, "tool.started", tool_call_id="c1", tool_name="reused", step_number=3),
        told(10, "step.started", step_number=4),
        told(11, "tool.started", tool_call_id="c1", tool_name="third", step_number=4),
        told(12, "tool.started", tool_call_id="c1", tool_name="again", step_number=4),
    ],
    [
        told(1, "tool.started", tool_call_id="c1", tool_name="ask"),
        told(2, "tool.completed", tool_call_id="c1", tool_name="ask", outcome="pending"),
        told(3, "status", status="paused"),
        ["said", "yes", "m1"],
        ["said", "yes", "m2"],
        ["reconciled", [{"id": "m0", "role": "user", "content": "yes"}], 1],
        ["reconciled", WAITING, 1],
        told(4, "step.started", step_number=2),
        told(5, "tool.started", tool_call_id="c9", tool_name="ask", step_number=2),
        told(2**50, "status", status="failed"),
    ],
    [
        *(
            told(n ^ 1, "stream.chunk", chunk_index=(n ^ 1) - 2, content=f"{n} ")
            for n in range(2, 80)
        ),
        told(90, "stream.chunk", chunk_index=78, content="after a gap"),
        told(1, "status", status="processing"),
    ],
    [told(4, "stream.chunk", chunk_index=0, content="late"), told(4, "status", status="failed")],
    [
        told(1, "tool.started", tool_call_id="c1", tool_name="t"),
        told(2, "tool.completed", tool_call_id="c1", tool_name="t", success=True, duration_ms=7.25),
        told(3, "status", status="completed"),
        ["received", {"id": "odd", "seq": 4, "execution_id": ["e1"]}],
        ["reconciled", [], 1, ["e2"]],
        ["reconciled", [], 1, ["e1"]],
        told(6, "step.started"),
    ],
]


def played(case: Case) -> list[Json]:
    """What the twin makes of a case."""
    verbs = {"received": lists.received, "said": lists.said, "reconciled": lists.reconciled}
    list = lists.empty_list()
    looks: list[Json] = []
    for verb, *given in case["steps"]:
        list = lists.from_history(*given) if verb == "fromHistory" else verbs[verb](list, *given)
        if case["look_often"]:
            looks.append(seen(list))
    return [*looks, seen(list)]


def seen(list: lists.MessageList) -> Json:
    return {
        "messages": lists.messages(list),
        "status": lists.status(list),
        "newest": lists.newest(list),
        "missing": [[first, last] for first, last in lists.missing(list)],
        "needs_history": [lists.needs_history(list), lists.needs_history(list, False)],
        "ignored": list.ignored,
    }


def random_session(chance: random.Random) -> Session:
    runs: list[list[Turn]] = [
        [
            "error"
            if chance.random() < 0.1
            else (chance.choice(TEXTS), tuple(chance.choices(TOOLS, k=chance.randint(0, 3))))
            for _ in range(chance.randint(0, 4))
        ]
        for _ in range(chance.randint(1, 3))
    ]
    if chance.random() < 0.2:
        runs[-1] = ["error"] * 3
    configs = [BroadcastConfig.minimal(), BroadcastConfig.standard(), BroadcastConfig.debug()]
    return session_of(runs, chance.choice(configs))


def mangled(session: Session, chance: random.Random) -> list[Step]:
    """Some lost, some doubled, some bent, in some other order."""
    kept = [one for one in session.envelopes if chance.random() < 0.8]
    kept += chance.choices(session.envelopes, k=5)
    for place in range(len(kept)):
        if chance.random() < 0.1:
            kept[place] = bent(kept[place], chance)
    if chance.random() < 0.7:
        kept.sort(key=lambda _: chance.random())
    steps: list[Step] = [["received", one] for one in [*kept, *ODD]]
    for text in session.said:
        steps.insert(chance.randint(0, len(steps)), ["said", text, f"typed {text}"])
    return steps


def bent(envelope: Json, chance: random.Random) -> Json:
    if chance.random() < 0.4:
        return {**envelope, chance.choice([*envelope]): chance.choice(ODD)}
    payload = {**envelope["payload"], chance.choice([*envelope["payload"]]): chance.choice(ODD)}
    return {**envelope, "payload": payload}


def cases() -> Iterator[Case]:
    chance = random.Random(5)
    for number in range(40):
        session = random_session(chance)
        in_order: list[Step] = [["received", one] for one in session.envelopes]
        steps = mangled(session, chance)
        point = chance.randint(0, len(in_order))
        reconciling: Step = ["reconciled", session.stored, point]
        opened: Step = ["fromHistory", session.stored]
        yield {"steps": in_order, "look_often": number % 4 == 0}
        yield {"steps": steps, "look_often": number % 4 == 1}
        yield {"steps": [*steps, ["reconciled", session.stored]], "look_often": False}
        yield {"steps": [*steps, reconciling, *in_order[-9:]], "look_often": False}
        yield {"steps": [opened, *steps[: len(steps) // 2]], "look_often": False}
    for steps in BY_HAND:
        yield {"steps": steps, "look_often": True}
    for stored in STORED:
        yield {"steps": [["fromHistory", stored]], "look_often": False}
        yield {"steps": [*in_order, ["reconciled", stored]], "look_often": False}


@needs_node
def test_the_module_and_its_twin_show_the_same() -> None:
    given = list(cases())
    lines = "".join(json.dumps(case) + "\n" for case in given)

    shown = [json.loads(line) for line in printed(str(SCRIPT), given=lines).splitlines()]
    assert len(shown) == len(given) == 247
    for case, by_module in zip(given, shown, strict=True):
        assert by_module == played(case)


@needs_node
def test_long_runs_are_read_in_a_moment() -> None:
    seconds = json.loads(printed(str(HERE / "message_list_cost.mjs")))
    assert seconds.pop("shown") == [2, 2]
    assert [name for name, spent in seconds.items() if spent > 20] == []


def test_the_cases_show_all_there_is_to_show() -> None:
    found = [look for case in cases() for look in played(case)]
    shown = [message for look in found for message in look["messages"]]
    children = [child for message in shown for child in message.get("children", ())]

    assert {message["role"] for message in shown} == {"user", "assistant", "tool", "status"}
    states = {message["state"] for message in shown if message["role"] == "tool"}
    assert states == {"running", "waiting", "done", "failed", "blocked", "unknown"}
    assert {child["role"] for child in children} == {"assistant", "tool", "status"}
    assert any(message.get("incomplete") for message in shown)
    assert any(look["missing"] for look in found)
    words = {look["status"] for look in found}
    assert words >= {"idle", "processing", "paused", "completed", "failed", "cancelled"}


def test_the_module_stays_small_and_needs_nothing() -> None:
    source = MODULE.read_text(encoding="utf-8")

    code = re.sub(r"/\*\*.*?\*/\n|//.*$", "", source, flags=re.DOTALL | re.MULTILINE)

    assert "TERMINAL" in code
    assert len(code.encode()) < 15 * KILOBYTE
    assert len(source.encode()) < 21_500
    assert not re.search(r"^\s*import\b|\bimport\(|\brequire\(", source, re.MULTILINE)
    assert "innerHTML" not in source
