"""The agent that the workers run: a scripted model and five tools that report to the witness."""

import asyncio
from collections.abc import AsyncIterator, Sequence

from chaos.crash_points import CrashPoints
from chaos.scenario import (
    PlannedCall,
    Scenario,
    note_answer,
    note_in,
    order_fault,
    results_in,
    scenario_in,
)
from stepwell import (
    Agent,
    FinishReason,
    InputRequired,
    Message,
    ModelRequest,
    ModelResponse,
    StepwellError,
    TextDelta,
    ToolCall,
    ToolContext,
    Usage,
    tool,
)
from stepwell.capabilities.approvals import UseApprovals
from stepwell.models import ResponseEnd, StreamPart
from stepwell.tools import FunctionTool

AGENT = "chaos"
USAGE = Usage(input_tokens=10, output_tokens=5)


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
        planned, since = _open_scenario(request.messages)
        notes = [note for said in since if said.is_user() and (note := note_in(said.text))]
        if planned is None:
            if not notes:
                raise StepwellError("no scenario was asked for")
            return _answer(note_answer(notes))
        turn = sum(1 for message in since if message.is_assistant())
        if turn >= len(planned.turns):
            return _answer(planned.answer(results_in(since), notes))
        calls = [
            ToolCall(id=c.id, name=c.tool, arguments={"id": c.id}) for c in planned.turns[turn]
        ]
        return ModelResponse(
            text=f"turn {turn + 1} of scenario {planned.number} calls tools",
            tool_calls=tuple(calls),
            finish_reason=FinishReason.TOOL_CALLS,
            usage=USAGE,
        )


def _open_scenario(messages: Sequence[Message]) -> tuple[Scenario | None, Sequence[Message]]:
    """The scenario that has no final answer yet, and what was said since it was asked for; without
    one, what was said since the last final answer."""
    since: list[Message] = []
    for message in reversed(messages):
        if message.is_assistant() and not message.tool_calls:
            break
        if message.is_user() and (planned := scenario_in(message.text)) is not None:
            return planned, since[::-1]
        since.append(message)
    return None, since[::-1]


def _answer(text: str) -> ModelResponse:
    return ModelResponse(text=text, finish_reason=FinishReason.STOP, usage=USAGE)


class WitnessedTools:
    """One tool of each effect, one that asks a person, and one that a person has to approve."""

    def __init__(self, points: CrashPoints, pause: float) -> None:
        self._points = points
        self._pause = pause

    def all(self) -> list[FunctionTool]:
        """The tools, named by their effects."""
        return [
            tool(name="pure", effect="pure")(self.pure),
            tool(name="idempotent", effect="idempotent")(self.idempotent),
            tool(name="external", effect="external")(self.external),
            tool(name="guarded", effect="external")(self.guarded),
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

    async def guarded(self, id: str, context: ToolContext) -> str:
        """Do something that must not be done twice, nor without a person's approval."""
        return await self._effect("guarded", id, context)

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
        capabilities=[UseApprovals("guarded")],
        system_prompt="You play a script.",
        timeout=None,
        max_tokens=None,
    )
