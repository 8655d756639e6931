"""The page's message list shows what it showed before, whatever came: many cases in one Node.js."""

import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import stepwell
from stepwell.broadcasting.config import BroadcastConfig
from tests import message_list as lists
from tests.property.live_runs import TEXTS, TOOLS, Json, Session, Turn, session_of
from tests.servers.node import HERE, printed, why_missing

MODULE = Path(stepwell.__file__).parent / "ui" / "message_list.js"
SCRIPT = HERE / "message_list.mjs"
KILOBYTE = 1024

Step = list[Any]
Case = dict[str, Any]
GOLDEN: list[Case] = json.loads(
    (Path(__file__).parents[2] / "golden" / "message_list.json").read_text("utf-8")
)
"""Cases written by hand, with what the page shows at their end."""

needs_node = pytest.mark.skipif(why_missing(SCRIPT) is not None, reason=str(why_missing(SCRIPT)))

ODD: list[Any] = [None, True, -1, 1.5, 2**60, "", "x", "idle", "e1", [], {}, ["x"], {"x": 1}]


def played(case: Case) -> list[Json]:
    """What the list shows after a case, or after each of its steps."""
    verbs = {"received": lists.received, "said": lists.said, "reconciled": lists.reconciled}
    list = lists.empty_list()
    looks: list[Json] = []
    for verb, *given in case["steps"]:
        list = lists.from_history(*given) if verb == "fromHistory" else verbs[verb](list, *given)
        if case["look_often"]:
            looks.append(list.seen)
    return [*looks, list.seen]


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
    for case in GOLDEN:
        yield {"steps": case["steps"], "look_often": True}


@pytest.mark.parametrize("case", GOLDEN)
def test_what_is_shown_has_not_changed(case: Case) -> None:
    assert played({**case, "look_often": False})[-1] == case["shown"]


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
