"""A client that leaves between two steps ends its run, and who follows it live is told so."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

import pytest

from stepwell import Agent
from stepwell.broadcasting import AgentEventEnvelopeAdapter, BroadcastStatus, RecordingBroadcaster
from stepwell.events import AgentFinished
from stepwell.protocols.ag_ui import ag_ui_events
from stepwell.protocols.ai_sdk import ai_sdk_chunks
from stepwell.testing import EventRecorder, MockTool, ScriptedModel, call

Reading = Callable[[Agent], AsyncGenerator[Any, None]]


@pytest.mark.parametrize(
    "reading",
    [
        lambda agent: agent.stream("go"),
        lambda agent: ag_ui_events(agent, "go", thread_id="t", run_id="r"),
        lambda agent: ai_sdk_chunks(agent, "go"),
    ],
    ids=["stream", "ag_ui", "ai_sdk"],
)
async def test_the_run_is_told_as_cancelled_once(reading: Reading) -> None:
    agent = Agent(
        ScriptedModel([call("add"), call("add"), "ok"]), tools=[MockTool.returning("add", 3)]
    )
    recorder = EventRecorder()
    adapter = AgentEventEnvelopeAdapter(RecordingBroadcaster(), "s", "e")
    agent.wiretap(recorder)
    agent.wiretap(adapter)
    async with aclosing(reading(agent)) as told:
        async for _ in told:
            for _ in range(50):  # the run waits a step ahead
                await asyncio.sleep(0)
            break
    assert len(recorder.of(AgentFinished)) == 1
    assert adapter.status is BroadcastStatus.CANCELLED
