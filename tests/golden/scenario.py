"""One run with everything in it: tools, an error, a retry, a subagent, a question and a cancel.

Its clock and its ids are counted, so that two runs of it tell the same to the last byte.
"""

import asyncio
from collections.abc import Callable

from stepwell import (
    Agent,
    AgentRegistry,
    AgentSpec,
    AgentState,
    Approval,
    Cancellation,
    ErrorPolicy,
    FinishReason,
    ModelResponse,
    ToolCall,
    ToolContext,
    Usage,
    UseApprovals,
    UseSubagents,
    UseUserInput,
    tool,
)
from stepwell.events import AgentEvent
from stepwell.testing import FakeClock, ScriptedModel, SequentialIds, call
from stepwell.tools import Tool

QUESTION = "Which address?"


class Scenario:
    """The run, and the states that it comes through. ``tap`` hears every event of it."""

    def __init__(self, tap: Callable[[AgentEvent], object] | None = None) -> None:
        self._clock = FakeClock()
        self._cancellation = Cancellation()
        self._is_broken = True
        self.agent = self._agent()
        if tap is not None:
            self.agent.wiretap(tap)  # pyright: ignore[reportArgumentType]

    async def run(self) -> list[AgentState]:
        """Every state in order: after each step, after each answer, and the last one."""
        paused = await self._ran(self.agent.new_state("Send order 17."))
        approval, question = paused[-1].pending
        answered = paused[-1].with_answer(question, {"street": "High Street 1"})
        answered = answered.with_answer(approval, Approval.granted())
        return [*paused, answered, *await self._ran(answered)]

    async def _ran(self, state: AgentState) -> list[AgentState]:
        run = self.agent.iterator(state, cancellation=self._cancellation)
        return [state, *[reached async for reached in run]]

    def _agent(self) -> Agent:
        model = ScriptedModel(
            [
                [call("look", order=17), call("stock", item="lamp")],
                said("I will ask again.", call("stock", item="lamp")),
                call("spawn_subagent", subagent="researcher", prompt="What is in order 17?"),
                call("look", order=17),  # the researcher's
                "One blue lamp.",  # the researcher's
                said(
                    "Two questions.", call("user_input", question=QUESTION), call("send", order=17)
                ),
                call("wait"),
            ]
        )
        researcher = AgentSpec(
            name="researcher",
            description="Looks things up.",
            system_prompt="You look things up.",
            tools=("look",),
        )
        return Agent(
            model,
            tools=[self._look(), self._stock(), self._send(), self._wait()],
            capabilities=[
                UseUserInput(),
                UseApprovals("send"),
                UseSubagents(AgentRegistry([researcher])),
            ],
            error_policy=ErrorPolicy.retry_tool_errors(3),
            timeout=None,  # what is left of it is real time
            max_tokens=32_768,  # as it was when the files of version 1 were written
            repeated_calls=None,
            max_parallel_tools=1,  # calls that run together share what the clock is moved by
            clock=self._clock,
            new_id=SequentialIds(),
        )

    def _look(self) -> Tool:
        @tool
        async def look(order: int) -> dict[str, object]:
            """Look an order up."""
            self._clock.advance(0.25)
            return {"order": order, "items": ["lamp"], "paid": True}

        return look

    def _stock(self) -> Tool:
        @tool
        async def stock(item: str) -> str:
            """How many there are."""
            self._clock.advance(1.5)
            if self._is_broken:
                self._is_broken = False
                raise ConnectionError("the warehouse does not answer")
            return f"3 of {item}"

        return stock

    def _send(self) -> Tool:
        @tool
        async def send(order: int) -> str:
            """Send an order."""
            return f"order {order} is on its way"

        return send

    def _wait(self) -> Tool:
        @tool
        async def wait(context: ToolContext) -> str:
            """Wait for the parcel."""
            self._cancellation.request("the customer hung up")
            await asyncio.sleep(60)
            return "never"

        return wait


def said(text: str, *calls: ToolCall) -> ModelResponse:
    """A turn with text and calls."""
    return ModelResponse(
        text=text,
        tool_calls=calls,
        finish_reason=FinishReason.TOOL_CALLS,
        usage=Usage(input_tokens=9),
    )
