"""The model turns of one ReAct step: what they changed, what they spent, and the step they make.
For the ReAct driver.
"""

from msgspec.structs import replace

from stepwell.drivers.inference import Inference
from stepwell.drivers.react_decision import THOUGHT_ORIGIN, ReActDecision
from stepwell.drivers.tool_calling import spent, step_messages
from stepwell.events import ThinkingReceived
from stepwell.messages import FinishReason, Part, TextPart, ThinkingPart, ToolCall, Usage
from stepwell.models import ModelRequest, ModelResponse
from stepwell.state import AgentState, AgentStep
from stepwell.tools import ToolBatch


class Turns:
    """The model turns of one step: the state as it flows through them, and what they spent."""

    __slots__ = (
        "_cost",
        "_inference",
        "_usage",
        "count",
        "decision",
        "last",
        "model",
        "state",
        "tells_text",
    )

    def __init__(self, inference: Inference, state: AgentState, *, tells_text: bool) -> None:
        self._inference = inference
        self._usage = Usage()
        self._cost = 0.0
        self.state = state
        self.tells_text = tells_text
        self.count = 0
        """How many turns the model has answered."""
        self.last: ModelResponse | None = None
        """The answer to the newest turn; None while there is none yet."""
        self.decision: ReActDecision | None = None
        self.model: str | None = None

    async def ask(self, request: ModelRequest, *, shows_text: bool) -> ModelResponse:
        """One more turn, with the hooks around it."""
        turn, self.last = self.count + 1, None
        self.state, response = await self._inference.ask(
            self.state, request, turn=turn, shows_text=shows_text
        )
        self.count, self.last = turn, response
        try:
            self.state, self.last = await self._inference.receive(
                self.state, response, turn=turn, shown_text=self._shown_text
            )
        finally:
            self._usage += self.last.usage
            self._cost += self.last.cost
            self.model = self.last.model
        return self.last

    def keep_cut(self, response: ModelResponse) -> None:
        """Count a turn that the end of the run cut, with what had arrived of it."""
        self.count, self.last, self.model = self.count + 1, response, response.model
        self._usage += response.usage
        self._cost += response.cost

    def _shown_text(self, response: ModelResponse) -> str:
        return response.text if self.tells_text else ""

    def failed_step(self, error: Exception) -> AgentStep:
        """The step as an error, with what the turns before it spent."""
        step = AgentStep.failed(error)
        return replace(
            step, usage=self._usage + step.usage, cost=self._cost + step.cost, model=self.model
        )

    def step(
        self, decision: ReActDecision, calls: tuple[ToolCall, ...], batch: ToolBatch
    ) -> AgentStep:
        """The step that the decision and its tool call add up to."""
        usage, cost = spent(self._usage, self._cost, batch.executions)
        reason = None if self.last is None else self.last.finish_reason
        if calls and reason is FinishReason.STOP:
            reason = FinishReason.TOOL_CALLS
        return AgentStep(
            messages=step_messages(batch.state, self._parts(decision, calls), batch.executions),
            tool_executions=batch.executions,
            failures=batch.failures,
            usage=usage,
            cost=cost,
            finish_reason=reason,
            model=self.model,
        )

    def _parts(self, decision: ReActDecision, calls: tuple[ToolCall, ...]) -> tuple[Part, ...]:
        said: tuple[Part, ...] = (TextPart(decision.answer),) if decision.answer else calls
        if not said or self.last is None:
            return said
        thought = ThinkingPart(decision.thought, origin=THOUGHT_ORIGIN)
        return (*self.last.thinking, *((thought,) if decision.thought else ()), *said)


def tell_thoughts(decision: ReActDecision, turns: Turns) -> None:
    """What the model thought before it decided."""
    parts = () if turns.last is None else turns.last.thinking
    for thought in (*(part.text for part in parts), decision.thought):
        if thought:
            turns.state.scope.emitter.emit(
                ThinkingReceived, step_number=turns.state.step_number, content=thought
            )
