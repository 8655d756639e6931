"""The state of an agent as immutable values: steps, executions, budgets, what is waited for."""

from stepwell.state.agent_state import AgentState
from stepwell.state.budget import NOTHING, UNLIMITED, Budget
from stepwell.state.errors import ErrorInfo
from stepwell.state.execution import ExecutionState, InFlight
from stepwell.state.pending import Answered, Approval, Pending, PendingKind, Question
from stepwell.state.repeated_calls import RepeatedCalls
from stepwell.state.step import AgentStep, StepExecution, StepType, ToolExecution, ToolOutcome

__all__ = [
    "NOTHING",
    "UNLIMITED",
    "AgentState",
    "AgentStep",
    "Answered",
    "Approval",
    "Budget",
    "ErrorInfo",
    "ExecutionState",
    "InFlight",
    "Pending",
    "PendingKind",
    "Question",
    "RepeatedCalls",
    "StepExecution",
    "StepType",
    "ToolExecution",
    "ToolOutcome",
]
