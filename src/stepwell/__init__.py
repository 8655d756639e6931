"""Stepwell: tool-calling agents whose every step and every stop is explained."""

from stepwell.agent import (
    Agent,
    AgentBuilder,
    AgentCapability,
    AgentContract,
    AgentContractRegistry,
    AgentDefinition,
    AgentDescriptor,
    AgentFactory,
    AgentPlan,
    Final,
    RunPart,
    StepCompleted,
    ToolCompleted,
    ToolStarted,
)
from stepwell.continuation import (
    AgentStatus,
    AgentStop,
    Cancellation,
    ContinuationDecision,
    ContinuationEvaluation,
    ContinuationOutcome,
    ContinueRequest,
    StopReason,
    StopSignal,
)
from stepwell.criteria import (
    Backoff,
    ContinuationCriteria,
    CostLimit,
    Criterion,
    CumulativeExecutionTimeLimit,
    ErrorContext,
    ErrorHandling,
    ErrorPolicy,
    ErrorPolicyCriterion,
    ExecutionTimeLimit,
    FinishReasonCheck,
    ResponseContentCheck,
    StepsLimit,
    TokenUsageLimit,
    ToolCallPresenceCheck,
)
from stepwell.drivers import Driver, ToolCallingDriver
from stepwell.errors import (
    ConfigurationError,
    ErrorType,
    LimitReachedError,
    ModelError,
    RunNotCompletedError,
    StepwellError,
)
from stepwell.events import EventBus
from stepwell.hooks import HookContext, HookTrigger, make_hook
from stepwell.loop import AgentLoop, AtLimit
from stepwell.messages import (
    FilePart,
    FinishReason,
    History,
    ImagePart,
    Message,
    Role,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolResult,
    Usage,
)
from stepwell.models import (
    CachedContext,
    Model,
    ModelPresets,
    ModelRequest,
    ModelResponse,
    TextDelta,
)
from stepwell.state import (
    AgentState,
    AgentStep,
    Budget,
    ErrorInfo,
    ExecutionState,
    Pending,
    StepExecution,
    StepType,
    ToolExecution,
    ToolOutcome,
)
from stepwell.tools import (
    BaseTool,
    FunctionTool,
    InputRequired,
    Tool,
    ToolContext,
    ToolEffect,
    ToolExecutor,
    ToolFailure,
    ToolOutput,
    Tools,
    tool,
)

__version__ = "0.1.0"
