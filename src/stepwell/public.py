"""The front door: the names that ``stepwell`` exports, and where those went that it once had.

A name is loaded from its room when it is first used. ``stepwell/__init__.py`` alone calls this.
"""

import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stepwell.agent import (
        Agent,
        AgentBuilder,
        AgentDefinition,
        Final,
        StepCompleted,
        ToolCompleted,
        ToolStarted,
    )
    from stepwell.capabilities.approvals import (
        UseApprovals,
    )
    from stepwell.capabilities.bash import (
        BashPolicy,
        UseBash,
    )
    from stepwell.capabilities.critique import (
        UseSelfCritique,
    )
    from stepwell.capabilities.extraction import (
        UseStructuredOutputs,
    )
    from stepwell.capabilities.files import (
        FilePolicy,
        UseFileTools,
    )
    from stepwell.capabilities.mcp import (
        McpServer,
        UseMcp,
    )
    from stepwell.capabilities.metadata import (
        UseMetadataTools,
    )
    from stepwell.capabilities.skills import (
        SkillLibrary,
        UseSkills,
    )
    from stepwell.capabilities.subagents import (
        UseSubagents,
    )
    from stepwell.capabilities.summarization import (
        UseSummarization,
    )
    from stepwell.capabilities.tasks import (
        UseTaskPlanning,
    )
    from stepwell.capabilities.telemetry import (
        UseTelemetry,
    )
    from stepwell.capabilities.user_input import (
        UseUserInput,
    )
    from stepwell.continuation import (
        AgentStatus,
        Cancellation,
        ContinuationDecision,
        ContinuationEvaluation,
        StopReason,
    )
    from stepwell.criteria import (
        ContinuationCriteria,
        ErrorPolicy,
    )
    from stepwell.errors import (
        ConfigurationError,
        LimitReachedError,
        ModelError,
        RunNotCompletedError,
        StepwellError,
    )
    from stepwell.hooks import (
        HookContext,
        HookTrigger,
        make_hook,
    )
    from stepwell.loop import (
        AtLimit,
    )
    from stepwell.messages import (
        FinishReason,
        Message,
        ToolCall,
        Usage,
    )
    from stepwell.models import (
        FallbackModel,
        Model,
        ModelRequest,
        ModelResponse,
        ModelSettings,
        TextDelta,
        ThinkingDelta,
    )
    from stepwell.run_context import (
        Principal,
        RunContext,
    )
    from stepwell.serialization import (
        AgentStateSerializer,
    )
    from stepwell.specs import (
        AgentRegistry,
        AgentSpec,
    )
    from stepwell.state import (
        AgentState,
        Approval,
    )
    from stepwell.tools import (
        BaseTool,
        FunctionTool,
        InputRequired,
        ToolContext,
        ToolFailure,
        ToolOutput,
        Tools,
        tool,
    )


__all__ = [
    "Agent",
    "AgentBuilder",
    "AgentDefinition",
    "AgentRegistry",
    "AgentSpec",
    "AgentState",
    "AgentStateSerializer",
    "AgentStatus",
    "Approval",
    "AtLimit",
    "BaseTool",
    "BashPolicy",
    "Cancellation",
    "ConfigurationError",
    "ContinuationCriteria",
    "ContinuationDecision",
    "ContinuationEvaluation",
    "ErrorPolicy",
    "FallbackModel",
    "FilePolicy",
    "Final",
    "FinishReason",
    "FunctionTool",
    "HookContext",
    "HookTrigger",
    "InputRequired",
    "LimitReachedError",
    "McpServer",
    "Message",
    "Model",
    "ModelError",
    "ModelRequest",
    "ModelResponse",
    "ModelSettings",
    "Principal",
    "RunContext",
    "RunNotCompletedError",
    "SkillLibrary",
    "StepCompleted",
    "StepwellError",
    "StopReason",
    "TextDelta",
    "ThinkingDelta",
    "ToolCall",
    "ToolCompleted",
    "ToolContext",
    "ToolFailure",
    "ToolOutput",
    "ToolStarted",
    "Tools",
    "Usage",
    "UseApprovals",
    "UseBash",
    "UseFileTools",
    "UseMcp",
    "UseMetadataTools",
    "UseSelfCritique",
    "UseSkills",
    "UseStructuredOutputs",
    "UseSubagents",
    "UseSummarization",
    "UseTaskPlanning",
    "UseTelemetry",
    "UseUserInput",
    "make_hook",
    "tool",
]

_ROOMS = {
    "stepwell.agent": """
        Agent AgentBuilder AgentDefinition Final StepCompleted ToolCompleted ToolStarted
    """,
    "stepwell.capabilities.approvals": "UseApprovals",
    "stepwell.capabilities.bash": "BashPolicy UseBash",
    "stepwell.capabilities.critique": "UseSelfCritique",
    "stepwell.capabilities.extraction": "UseStructuredOutputs",
    "stepwell.capabilities.files": "FilePolicy UseFileTools",
    "stepwell.capabilities.mcp": "McpServer UseMcp",
    "stepwell.capabilities.metadata": "UseMetadataTools",
    "stepwell.capabilities.skills": "SkillLibrary UseSkills",
    "stepwell.capabilities.subagents": "UseSubagents",
    "stepwell.capabilities.summarization": "UseSummarization",
    "stepwell.capabilities.tasks": "UseTaskPlanning",
    "stepwell.capabilities.telemetry": "UseTelemetry",
    "stepwell.capabilities.user_input": "UseUserInput",
    "stepwell.continuation": """
        AgentStatus Cancellation ContinuationDecision ContinuationEvaluation StopReason
    """,
    "stepwell.criteria": "ContinuationCriteria ErrorPolicy",
    "stepwell.errors": """
        ConfigurationError LimitReachedError ModelError RunNotCompletedError StepwellError
    """,
    "stepwell.hooks": "HookContext HookTrigger make_hook",
    "stepwell.loop": "AtLimit",
    "stepwell.messages": "FinishReason Message ToolCall Usage",
    "stepwell.models": """
        FallbackModel Model ModelRequest ModelResponse ModelSettings TextDelta ThinkingDelta
    """,
    "stepwell.run_context": "Principal RunContext",
    "stepwell.serialization": "AgentStateSerializer",
    "stepwell.specs": "AgentRegistry AgentSpec",
    "stepwell.state": "AgentState Approval",
    "stepwell.tools": """
        BaseTool FunctionTool InputRequired ToolContext ToolFailure ToolOutput Tools tool
    """,
}

_MOVED = {
    "stepwell.agent": """
        AgentCapability AgentContract AgentContractRegistry AgentDescriptor AgentFactory AgentPlan
        RunPart
    """,
    "stepwell.backoff": "Backoff",
    "stepwell.broadcasting": """
        AgentEventEnvelopeAdapter BroadcastConfig BroadcastError BroadcastStatus
        CanBroadcastAgentEvents CompositeBroadcaster ConsoleBroadcaster Envelope EnvelopeType
        JsonLinesBroadcaster PusherBroadcaster RecordingBroadcaster RedisBroadcaster channel_auth
        envelope_json_schema envelope_typescript read_json_lines
    """,
    "stepwell.capabilities.extraction": "SchemaDefinition SchemaRegistry StructuredOutputPolicy",
    "stepwell.capabilities.metadata": "MetadataPolicy",
    "stepwell.capabilities.skills": "ShellPreprocessing Skill",
    "stepwell.capabilities.subagents": "SubagentPolicy",
    "stepwell.capabilities.tasks": "TodoPolicy tasks_of",
    "stepwell.continuation": "AgentStop ContinuationOutcome ContinueRequest StopSignal",
    "stepwell.criteria": """
        CostLimit Criterion CumulativeExecutionTimeLimit ErrorContext ErrorHandling
        ErrorPolicyCriterion ExecutionTimeLimit FinishReasonCheck RepeatedCallCheck
        ResponseContentCheck StepsLimit TokenUsageLimit ToolCallPresenceCheck
    """,
    "stepwell.drivers": "BindableDriver Driver ReActDriver ToolCallingDriver",
    "stepwell.errors": """
        AgentNotFoundError DriverError ErrorType HookError InvalidToolArgumentsError
        InvalidToolError ModelErrorKind NoSandboxError SandboxError SerializationError
        SyncInsideLoopError ToolError ToolExecutionError ToolNotFoundError
    """,
    "stepwell.events": "AgentEvent EventBus",
    "stepwell.hooks": "Hook HookStack",
    "stepwell.loop": "AgentLoop",
    "stepwell.messages": "FilePart History ImagePart Role TextPart ThinkingPart ToolResult",
    "stepwell.models": """
        CachedContext ModelPresets ResponseEnd ResponseFormat RetryingModel StreamPart
        ThinkingEffort ToolCallDelta ToolCallEnd ToolCallStart ToolSchema UsageReport
    """,
    "stepwell.models.api_key": "ApiKey",
    "stepwell.models.frames": "JsonLines ServerSentEvents",
    "stepwell.models.provider": "Auth Provider ProviderModel",
    "stepwell.models.wire": "AnthropicMessages ChatCompletions Gemini OpenAIResponses WireFormat",
    "stepwell.protocols.ag_ui": "AG_UI_HEADERS ag_ui_stream state_from_ag_ui",
    "stepwell.protocols.ai_sdk": """
        AI_SDK_HEADERS ai_sdk_stream response_message_id state_from_ai_sdk
    """,
    "stepwell.protocols.client_stream": "ClientInputError",
    "stepwell.sandbox": "ExecutionPolicy Sandbox SandboxResult default_sandbox interpreter_paths",
    "stepwell.sandbox.bubblewrap": "BubblewrapSandbox",
    "stepwell.sandbox.containers": "ContainerSandbox",
    "stepwell.sandbox.sandlock": "SandlockSandbox",
    "stepwell.sandbox.unconfined": "UnconfinedSandbox",
    "stepwell.serialization": """
        CanSerializeAgentState SlimAgentStateSerializer SlimSerializationConfig
    """,
    "stepwell.specs": "AgentModel AgentSpecParser DefinitionError",
    "stepwell.state": """
        AgentStep Budget ErrorInfo ExecutionState Pending PendingKind Question RepeatedCalls
        StepExecution StepType ToolExecution ToolOutcome
    """,
    "stepwell.tools": "LlmQueryTool Tool ToolEffect ToolExecutor",
}
"""What was imported from ``stepwell`` itself up to version 0.1. Goes with version 0.3."""

ROOM_OF = {name: room for room, names in _ROOMS.items() for name in names.split()}
MOVED_TO = {name: room for room, names in _MOVED.items() for name in names.split()}


def load(name: str) -> Any:
    """Return the object of a public name. Warns if the name has moved; raises ``AttributeError`` if
    it never was one."""
    if (room := ROOM_OF.get(name)) is not None:
        return getattr(import_module(room), name)
    if (room := MOVED_TO.get(name)) is None:
        raise AttributeError(f"module 'stepwell' has no attribute {name!r}")
    warnings.warn(
        f"stepwell.{name} has moved: write `from {room} import {name}`",
        DeprecationWarning,
        stacklevel=3,
    )
    return getattr(import_module(room), name)
