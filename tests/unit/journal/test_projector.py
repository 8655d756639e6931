"""The projector gives the entries of an event at once, with the full detail of tool calls."""

from datetime import UTC, datetime

import pytest

from stepwell.agent import Agent
from stepwell.broadcasting import AgentEventEnvelopeAdapter, BroadcastConfig, RecordingBroadcaster
from stepwell.events import AgentEvent
from stepwell.journal import Entry, Projector
from stepwell.journal.entry import payload_data
from stepwell.journal.envelope import ToolCompletedPayload, ToolStartedPayload
from stepwell.testing import MockTool, ScriptedModel, call

LONG = "x" * 5_000
AT = datetime(2026, 1, 1, tzinfo=UTC)


async def events_of_a_run() -> list[AgentEvent]:
    events: list[AgentEvent] = []
    model = ScriptedModel([call("look", id="c1", path=LONG), "Three."])
    agent = Agent(model, tools=[MockTool.returning("look", LONG)])
    agent.wiretap(events.append)
    await agent.run("How many?")
    return events


async def test_the_same_events_make_the_same_entries() -> None:
    events = await events_of_a_run()
    one, other = Projector("e"), Projector("e")
    assert [one.entries(event) for event in events] == [other.entries(event) for event in events]


async def test_an_entry_has_the_whole_call_beside_its_summary() -> None:
    projector = Projector("e")
    made = [entry for event in await events_of_a_run() for entry in projector.entries(event)]
    [started] = [entry for entry in made if isinstance(entry.payload, ToolStartedPayload)]
    [completed] = [entry for entry in made if isinstance(entry.payload, ToolCompletedPayload)]
    assert started.detail is not None
    assert completed.detail is not None
    assert started.detail.args == {"path": LONG}
    assert completed.detail.value == LONG
    assert all(LONG not in str(payload_data(entry.payload)) for entry in made)


@pytest.mark.parametrize("config", [BroadcastConfig.minimal(), BroadcastConfig.debug()])
async def test_an_adapter_sends_what_the_projector_makes(config: BroadcastConfig) -> None:
    events, screen = await events_of_a_run(), RecordingBroadcaster()
    adapter = AgentEventEnvelopeAdapter(screen, "s", "e", config)
    projector, made = Projector("e", config), list[Entry]()
    for event in events:
        adapter(event)
        made += projector.entries(event)
    await adapter.flush()
    sent = [(envelope["type"], envelope["payload"]) for envelope in screen.envelopes]
    assert sent == [(entry.type, payload_data(entry.payload)) for entry in made]


async def test_a_reset_ends_the_run_that_is_under_way() -> None:
    projector = Projector("first")
    for event in (await events_of_a_run())[:4]:
        projector.entries(event)
    [left] = projector.reset("second", AT)
    assert payload_data(left.payload)["status"] == "stopped"
    assert (left.execution_id, projector.execution_id, projector.status) == (
        "first",
        "second",
        "idle",
    )
