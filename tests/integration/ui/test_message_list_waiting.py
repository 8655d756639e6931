"""What waits in a message list: calls for a person, and what the user typed for being stored."""

from stepwell import Agent, UseApprovals
from stepwell.broadcasting.adapter import AgentEventEnvelopeAdapter
from stepwell.broadcasting.broadcasters.recorder import RecordingBroadcaster
from stepwell.serialization.slim import SlimAgentStateSerializer
from stepwell.testing import MockTool, ScriptedModel, call
from tests.answers import answer_call
from tests.integration.ui.envelopes import (
    blocks,
    chunk,
    completed,
    envelope,
    listed,
    shown,
    started,
    state,
)
from tests.message_list import (
    empty_list,
    from_history,
    newest,
    received,
    reconciled,
    said,
)


def test_a_call_that_waits_for_a_person_is_neither_running_nor_done() -> None:
    asks = envelope(2, "tool.completed", tool_name="look", tool_call_id="c1", outcome="pending")
    list = listed([started(1, "c1"), asks, state(3, "paused")])
    assert [(one["state"], one["error"]) for one in blocks(list)] == [("waiting", False)]

    goes_on = [
        (envelope(4, "step.started", step_number=2), "done"),
        (state(4, "processing"), "done"),
        (started(4, "c1", step=2), "running"),
        (completed(4, "c1"), "done"),
        (completed(4, "c1", None, "Error: no"), "failed"),
        (state(4, "cancelled"), "unknown"),
        (envelope(4, "step.started", "e2", step_number=1), "unknown"),
        (chunk(4, 0, "Meanwhile"), "waiting"),
    ]
    for one, word in goes_on:
        assert [block["state"] for block in blocks(received(list, one))] == [word]


def test_a_subagent_whose_parent_call_waits_shows_what_it_waits_for() -> None:
    child = {"parent_execution_id": "e1", "parent_tool_call_id": "c1"}
    asked = [{"kind": "question", "prompt": "Which?"}]
    pending = {"tool_name": "look", "tool_call_id": "c1", "outcome": "pending"}
    list = listed(
        [
            started(1, "c1"),
            state(2, "paused", "e2", waits_for=asked, **child),
            envelope(3, "tool.completed", **pending),
        ]
    )

    assert [one["content"] for one in blocks(list)[0]["children"]] == [
        "Waiting for an answer: Which?"
    ]


async def test_a_page_opened_while_a_call_waits_shows_it_once() -> None:
    model = ScriptedModel([call("delete", id="c1", path="a"), "Gone."])
    tools = [MockTool.returning("delete", "gone")]
    agent = Agent(model, tools=tools, capabilities=[UseApprovals("delete")])
    start = agent.new_state("Go.").with_execution_started("e1", agent.plan.clock.now())
    screen = RecordingBroadcaster()
    adapter = AgentEventEnvelopeAdapter(screen, "s", "e1")
    agent.wiretap(adapter.wiretap())
    paused = await agent.run(start)
    await adapter.flush()
    stored = SlimAgentStateSerializer().serialize(paused)["messages"]
    before = len(screen.envelopes)
    opened = from_history(stored)
    assert [one["state"] for one in blocks(opened)] == ["waiting"]

    await agent.run(answer_call(paused, "c1", True))
    await adapter.flush()
    for missed in (screen.envelopes[before:], screen.envelopes):
        list = listed(missed, opened)
        assert [(one["state"], one["content"]) for one in blocks(list)] == [("done", "gone")]


def test_a_stored_call_that_waited_is_done_when_the_run_goes_on() -> None:
    result = {"tool_call_id": "c1", "tool_name": "ask", "waiting": True}
    stored = [{"id": "e1:1:1", "role": "tool", "content": "Waiting.", "metadata": result}]
    opened = from_history(stored)
    words = [(), (state(3, "paused"),), (state(3, "paused"), state(4, "processing"))]

    states = [blocks(listed(came, opened))[0]["state"] for came in words]
    assert states == ["waiting", "waiting", "done"]
    assert blocks(opened)[0]["state"] == "waiting"


def test_what_was_typed_stays_until_it_is_stored() -> None:
    first = {"id": "m1", "role": "user", "content": "yes"}
    list = received(empty_list(), state(1, "processing"))
    list = received(said(list, "second question", "m2"), state(2, "completed"))
    list = reconciled(list, [first], newest(list))
    assert shown(list) == ["user: yes", "user: second question"]

    list = said(said(list, "yes", "m3"), "yes", "m4")
    second = {"id": "m2", "role": "user", "content": "second..."}
    list = reconciled(list, [first, second])
    assert shown(list) == ["user: yes", "user: second...", "user: yes", "user: yes"]

    again = {"id": "of the server", "role": "user", "content": "yes"}
    assert shown(reconciled(list, [first, second, again])) == [
        "user: yes",
        "user: second...",
        "user: yes",
        "user: yes",
    ]
