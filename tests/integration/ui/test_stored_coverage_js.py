"""A session that is opened while its second execution runs: the journal repeats events of the first
one, whose messages are stored. Run in Node.js with the reducer and the modules of the page.
"""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from stepwell import Agent, AgentRegistry, AgentSpec, UseSubagents, tool
from stepwell.app import AgentApp, NewMessage, Principal
from stepwell.server.views import execution_view, message_view
from stepwell.sessions.occurrence import envelope_of
from stepwell.sessions.settled_seq import settled_seq
from stepwell.testing import ScriptedModel, call
from tests.integration.ui.test_stored_js import UI, played
from tests.servers.node import HERE, why_missing

WHO = Principal(user_id="ada")
STEPS_BETWEEN = 15
HELPER = AgentSpec(name="helper", description="Helps.", system_prompt="You help.")
SPAWN = call("spawn_subagent", subagent="helper", prompt="help")
pytestmark = pytest.mark.skipif(
    why_missing(HERE / "message_list.mjs") is not None, reason="no Node.js"
)


def play(request: Any) -> Any:
    """The first message: a gate and a helper; the second: steps, a helper and a gate."""
    said = [message for message in request.messages if message.is_user()][-1].text
    turn = sum(message.is_assistant() for message in request.messages)
    if said == "help":
        return f"HELPED {turn}"
    if said == "first":
        return [call("gate", name="a"), SPAWN, "ONE"][turn]
    looks = [call("look", number=number) for number in range(STEPS_BETWEEN)]
    return [*looks, SPAWN, call("gate", name="b"), "TWO"][turn - 3]


def an_app(folder: Path, gates: dict[str, asyncio.Event]) -> AgentApp:
    @tool
    async def gate(name: str) -> str:
        """Wait until it is opened."""
        gates[f"{name} reached"].set()
        await gates[name].wait()
        return "opened"

    @tool
    def look(number: int) -> str:
        """Look."""
        return f"seen {number}"

    capabilities = [UseSubagents(AgentRegistry([HELPER]))]
    agent = Agent(ScriptedModel(play), tools=[gate, look], capabilities=capabilities, max_steps=50)
    return AgentApp({"agent": agent}, db=f"sqlite:///{folder / 'session.db'}")


async def opened_mid_run(folder: Path, limit: int) -> dict[str, Any]:
    """The messages and the events that a page gets which is opened while the second runs."""
    gates = {name: asyncio.Event() for name in ("a", "b", "a reached", "b reached")}
    app = an_app(folder, gates)
    async with app.running():
        services = app.services
        first = await services.intake.send_message(WHO, NewMessage(content="first"))
        id = first.session.id
        await gates["a reached"].wait()
        await services.intake.send_message(WHO, NewMessage(content="second", session_id=id))
        gates["a"].set()
        async with asyncio.timeout(90):
            await gates["b reached"].wait()
        async with await services.feeds.subscribe(id, after=0) as feed:
            async for item in feed:  # what was told by then is in the log
                payload = item.event.payload
                if payload.get("tool_name") == "gate" and "b" in payload.get("args_summary", ""):
                    break

        async def look(tx: Any) -> Any:
            session, unfinished = await tx.session(id), await tx.unfinished(id)
            assert session is not None
            rows = await tx.messages(id, limit=limit)
            page = {
                "items": [message_view(row) for row in rows],
                "settled_seq": settled_seq(session, unfinished),
                "last_seq": session.last_seq,
                "unfinished": [execution_view(one) for one in unfinished],
            }
            return page, await tx.entries_after(id, page["settled_seq"], limit=9999)

        page, events = await services.store.read(look)
        gates["b"].set()
        return {
            "page": page,
            "events": [envelope_of(event) for event in events],
            "first": first.execution.id,
            "coverage": (UI / "page" / "stored_coverage.js").as_uri(),
        }


OPENED = """
const { StoredCoverage } = await import(given.coverage);
const { page } = given;
const coverage = new StoredCoverage();
coverage.adopt(page);
const history = asHistory(page.items, page.unfinished);
const start = lists.fromHistory(history, page.settled_seq);
const bare = ({ id, seq }) => ({ id, seq });
const take = (list, one) => lists.received(list, coverage.covers(one) ? bare(one) : one);
const list = given.events.reduce(take, start);
const naive = given.events.reduce(lists.received, start);
const words = (messages) => messages.flatMap(({ role, name, content, children = [] }) =>
  role === "status" ? [] : [role === "tool" ? name : content, ...words(children)]);
const shown = (one) => words(lists.messages(one));
const ended = lists.reconciled(naive, history, page.settled_seq, coverage.over);
console.log(JSON.stringify({
  shown: shown(list), naive: shown(naive), ended: shown(ended),
  needs: [list, ended, naive].map((one) => lists.needsHistory(one)), missing: lists.missing(list),
}));
"""


@pytest.mark.parametrize("limit", [500, 50])
async def test_a_finished_execution_is_shown_once_while_the_next_one_runs(
    tmp_path: Path, limit: int
) -> None:
    given = await opened_mid_run(tmp_path, limit)
    again = [one for one in given["events"] if one["execution_id"] == given["first"]]
    assert len(again) > 3
    stored = {one["agent_execution_id"] for one in given["page"]["items"]}
    # With a short page not even the ids of its messages are known.
    assert (given["first"] in stored) is (limit == 500)

    shown = played(OPENED, given)

    second = ["look"] * STEPS_BETWEEN + ["spawn_subagent", "HELPED 0", "gate"]
    first = ["first", "gate", "spawn_subagent", "ONE", "second"] if limit == 500 else []
    assert shown["shown"] == [*first, *second]
    assert shown["ended"] == shown["shown"]
    assert (shown["needs"], shown["missing"]) == ([False, False, True], [])
    assert limit == 500 or "ONE" in shown["naive"]


NEWER = """
const { StoredCoverage } = await import(given.coverage);
const coverage = new StoredCoverage();
const hear = (seq, id, parent) =>
  coverage.covers({ seq, execution_id: id, payload: { parent_execution_id: parent } });
const answers = [hear(1, "e1"), hear(2, "child", "e1"), hear(3, "e2"), hear(4, "deep", "child")];
coverage.adopt({ last_seq: 4, unfinished: [{ id: "e2" }] });
answers.push(hear(1, "e1"), hear(4, "deep", "child"), hear(3, "e2"), hear(4, null));
const [over, before] = [coverage.over, coverage.hasNewer(["e1", "e2"])];
answers.push(hear(5, "e1"), hear(6, "e2"));
const after = [coverage.hasNewer(["e1"]), coverage.hasNewer(["e2"])];
console.log(JSON.stringify({ answers, over, before, after, left: coverage.over }));
"""


def test_coverage_follows_from_the_newest_event_and_the_unfinished_executions() -> None:
    found = played(NEWER, {"coverage": (UI / "page" / "stored_coverage.js").as_uri()})
    nothing, known = [False] * 4, [True, True, False, True]
    assert found["answers"] == [*nothing, *known, False, False]
    assert found["over"] == ["e1", "child", "deep"]
    assert (found["before"], found["after"]) == (False, [True, False])
    assert found["left"] == ["child", "deep"]
