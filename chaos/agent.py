"""The agent that the workers run: a scripted model and four tools that tell the witness."""

import asyncio
from collections.abc import AsyncIterator

from chaos.crash_points import CrashPoints
from chaos.scenario import PlannedCall, order_fault, results_in, scenario_in
from stepwell import (
    Agent,
    FinishReason,
    InputRequired,
    ModelRequest,
    ModelResponse,
    ResponseEnd,
    StepwellError,
    StreamPart,
    TextDelta,
    ToolCall,
    ToolContext,
    Usage,
    tool,
)
from stepwell.tools import FunctionTool

AGENT = "chaos"


class ChaosModel:
    """Plays the scenario that the last user message names; the same history, the same turn."""

    name = "chaos"

    def __init__(self, pause: float) -> None:
        self._pause = pause

    async def respond(self, request: ModelRequest) -> ModelResponse:
        """The turn that follows from the history."""
        await asyncio.sleep(self._pause)
        return self._turn(request)

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamPart]:
        """The same, word by word."""
        response = self._turn(request)
        for index, word in enumerate(response.text.split(" ")):
            await asyncio.sleep(self._pause / 6)
            yield TextDelta(word if index == 0 else f" {word}")
        yield ResponseEnd(response)

    def _turn(self, request: ModelRequest) -> ModelResponse:
        if (fault := order_fault(request.messages)) is not None:
            raise StepwellError(f"a provider would refuse this: {fault}")
        asked = [index for index, said in enumerate(request.messages) if said.is_user()]
        planned = scenario_in(request.messages[asked[-1]].text) if asked else None
        if planned is None:
            raise StepwellError("no scenario was asked for")
        since = request.messages[asked[-1] + 1 :]
        turn = sum(1 for message in since if message.is_assistant())
        usage = Usage(input_tokens=10, output_tokens=5)
        if turn >= len(planned.turns):
            return ModelResponse(
                text=planned.answer(results_in(since)),
                finish_reason=FinishReason.STOP,
                usage=usage,
            )
        calls = [
            ToolCall(id=c.id, name=c.tool, arguments={"id": c.id}) for c in planned.turns[turn]
        ]
        return ModelResponse(
            text=f"turn {turn + 1} of scenario {planned.number} calls tools",
            tool_calls=tuple(calls),
            finish_reason=FinishReason.TOOL_CALLS,
            usage=usage,
        )


class WitnessedTools:
    """One tool of each effect, and one that asks a person."""

    def __init__(self, points: CrashPoints, pause: float) -> None:
        self._points = points
        self._pause = pause

    def all(self) -> list[FunctionTool]:
        """The tools, named by their effects."""
        return [
            tool(name="pure", effect="pure")(self.pure),
            tool(name="idempotent", effect="idempotent")(self.idempotent),
            tool(name="external", effect="external")(self.external),
            tool(name="ask", effect="pure")(self.ask),
        ]

    async def pure(self, id: str, context: ToolContext) -> str:
        """Compute a value."""
        await self._effect("pure", id, context)
        return PlannedCall(id, "pure").pure_result

    async def idempotent(self, id: str, context: ToolContext) -> str:
        """Do something once for its key."""
        return await self._effect("idempotent", id, context)

    async def external(self, id: str, context: ToolContext) -> str:
        """Do something that must not be done twice."""
        return await self._effect("external", id, context)

    def ask(self, id: str) -> InputRequired:
        """Ask a person."""
        return InputRequired(prompt=f"chaos asks {id}")

    async def _effect(self, effect: str, id: str, context: ToolContext) -> str:
        told = {"effect": effect, "call": id, "key": context.idempotency_key}
        execution = context.state.execution
        told["execution"] = "" if execution is None else execution.id
        self._points.reach("before:tool")
        self._points.witness.tell("begin", **told)
        await asyncio.sleep(self._pause)
        self._points.reach("in:tool")
        done = self._points.witness.tell("effect", **told)
        await asyncio.sleep(self._pause / 2)
        self._points.reach("after:tool")
        return f"receipt {done['receipt']}"


def chaos_agent(points: CrashPoints, pause: float) -> Agent:
    """The agent of every scenario."""
    return Agent(
        ChaosModel(pause),
        tools=WitnessedTools(points, pause).all(),
        system_prompt="You play a script.",
        timeout=None,
        max_tokens=None,
    )
