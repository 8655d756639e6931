"""Runs agents with an adapter and gives back what was broadcast."""

from collections.abc import Mapping
from typing import Any

from stepwell import Agent, AgentState, Cancellation
from stepwell.broadcasting.adapter import AgentEventEnvelopeAdapter
from stepwell.broadcasting.broadcasters.recorder import RecordingBroadcaster
from stepwell.broadcasting.config import BroadcastConfig
from stepwell.testing import SequentialIds

Data = Mapping[str, Any]

STEP_AND_TEXT = BroadcastConfig.standard()


class Followed:
    """An agent whose runs are broadcast to a recorder."""

    def __init__(self, agent: Agent, config: BroadcastConfig = STEP_AND_TEXT) -> None:
        self.agent = agent
        self.screen = RecordingBroadcaster()
        self.adapter = AgentEventEnvelopeAdapter(
            self.screen, "s1", "e1", config, new_id=SequentialIds("envelope")
        )
        agent.wiretap(self.adapter.wiretap())

    async def run(
        self, task: str | AgentState = "Go.", cancellation: Cancellation | None = None
    ) -> AgentState:
        state = await self.agent.run(task, cancellation=cancellation)
        await self.adapter.flush()
        return state

    @property
    def envelopes(self) -> tuple[Data, ...]:
        return self.screen.envelopes

    def payloads(self, type: str, execution_id: str | None = None) -> list[Data]:
        return [
            envelope["payload"]
            for envelope in self.screen.of_type(type)
            if execution_id in (None, envelope["execution_id"])
        ]

    def statuses(self, execution_id: str | None = "e1") -> list[str]:
        return [payload["status"] for payload in self.payloads("agent.status", execution_id)]

    @property
    def types(self) -> list[str]:
        return [envelope["type"].removeprefix("agent.") for envelope in self.envelopes]


def assert_in_order(envelopes: tuple[Data, ...]) -> None:
    """What holds for whatever was broadcast of finished runs."""
    numbers = [envelope["seq"] for envelope in envelopes]
    assert numbers == list(range(1, len(envelopes) + 1))
    assert len({envelope["id"] for envelope in envelopes}) == len(envelopes)
    open_calls: dict[str, set[str]] = {}
    open_text: dict[str, bool] = {}
    ended: set[str] = set()
    for envelope in envelopes:
        who, payload = envelope["execution_id"], envelope["payload"]
        calls = open_calls.setdefault(who, set())
        match envelope["type"]:
            case "agent.status":
                assert who not in ended, "a status after the terminal one"
                if payload["status"] in ("completed", "failed", "cancelled", "stopped"):
                    ended.add(who)
            case "agent.tool.started":
                assert payload["tool_call_id"] not in calls
                calls.add(payload["tool_call_id"])
            case "agent.tool.completed":
                calls.remove(payload["tool_call_id"])
            case "agent.stream.chunk":
                is_first = payload["chunk_index"] == 0
                assert is_first != open_text.get(who, False)
                open_text[who] = not payload["is_complete"]
            case _:
                pass
    assert not any(open_calls.values()), f"calls without a result: {open_calls}"
    assert not any(open_text.values()), f"responses without an end: {open_text}"
