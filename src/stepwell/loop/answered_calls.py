"""The step that follows an answer: no model turn, only the calls that asked, run again."""

from stepwell.drivers.tool_calling import spent
from stepwell.messages import Usage
from stepwell.state import AgentState, AgentStep
from stepwell.tools import ToolExecutor


async def run_answered_calls(state: AgentState, executor: ToolExecutor) -> AgentState:
    """The state with a step in which the answered calls ran; their results are where the
    placeholders were, so the conversation is as if they had never waited."""
    batch = await executor.run([answered.call for answered in state.answered], state)
    usage, cost = spent(Usage(), 0.0, batch.executions)
    step = AgentStep(
        tool_executions=batch.executions, failures=batch.failures, usage=usage, cost=cost
    )
    return batch.state.with_answers_used(batch.executions).with_current_step(step)
