"""All names that telemetry uses.

``gen_ai.*`` and ``error.type`` follow OpenTelemetry's GenAI conventions as of 2026; everything else
is under ``stepwell.*``. If the conventions change, only this file has to.
"""

SCOPE = "stepwell"
"""The name of the tracer and of the meter."""

# Operations; a span is called "{operation} {agent, model or tool}".
CHAT = "chat"
EXECUTE_TOOL = "execute_tool"
INVOKE_AGENT = "invoke_agent"

# Attributes of the conventions
AGENT_ID = "gen_ai.agent.id"
AGENT_NAME = "gen_ai.agent.name"
CONVERSATION_ID = "gen_ai.conversation.id"
ERROR_TYPE = "error.type"
OPERATION = "gen_ai.operation.name"
OUTPUT_TYPE = "gen_ai.output.type"
PROVIDER = "gen_ai.provider.name"
REQUEST_MAX_TOKENS = "gen_ai.request.max_tokens"
REQUEST_MODEL = "gen_ai.request.model"
REQUEST_SEED = "gen_ai.request.seed"
REQUEST_TEMPERATURE = "gen_ai.request.temperature"
REQUEST_TOP_P = "gen_ai.request.top_p"
RESPONSE_FINISH_REASONS = "gen_ai.response.finish_reasons"
RESPONSE_ID = "gen_ai.response.id"
RESPONSE_MODEL = "gen_ai.response.model"
TOKEN_TYPE = "gen_ai.token.type"
TOOL_CALL_ID = "gen_ai.tool.call.id"
TOOL_NAME = "gen_ai.tool.name"
TOOL_TYPE = "gen_ai.tool.type"
USAGE_CACHE_READ = "gen_ai.usage.cache_read.input_tokens"
USAGE_CACHE_WRITE = "gen_ai.usage.cache_write.input_tokens"
USAGE_INPUT = "gen_ai.usage.input_tokens"
USAGE_OUTPUT = "gen_ai.usage.output_tokens"
USAGE_REASONING = "gen_ai.usage.reasoning.output_tokens"

# Attributes with content, recorded only on request
INPUT_MESSAGES = "gen_ai.input.messages"
OUTPUT_MESSAGES = "gen_ai.output.messages"
SYSTEM_INSTRUCTIONS = "gen_ai.system_instructions"
TOOL_ARGUMENTS = "gen_ai.tool.call.arguments"
TOOL_RESULT = "gen_ai.tool.call.result"

# Values of the conventions
FUNCTION = "function"
INPUT = "input"
JSON = "json"
OTHER = "_OTHER"
OUTPUT = "output"
PROVIDERS = {
    "azure": "azure.ai.openai",
    "bedrock": "aws.bedrock",
    "gemini": "gcp.gemini",
    "mistral": "mistral_ai",
    "moonshot": "moonshot_ai",
    "openai-chat": "openai",
    "xai": "x_ai",
}
"""Providers whose name in the conventions differs from ours."""
UNKNOWN_PROVIDER = "custom"
"""For models whose name does not start with a provider."""

# Our own attributes
ATTEMPT = "stepwell.attempt"
DECISION = "stepwell.decision"
EXECUTION_ID = "stepwell.execution.id"
RESOLVED_BY = "stepwell.decision.resolved_by"
SESSION_ID = "stepwell.session.id"
STATUS = "stepwell.status"
STEP_COUNT = "stepwell.step.count"
STEP_NUMBER = "stepwell.step.number"
STOP_REASON = "stepwell.stop_reason"
TOOL_OUTCOME = "stepwell.tool.outcome"

# Events of an invoke_agent span: one decision for each step, and each vote of the last one
DECISION_EVENT = "stepwell.decision"
DECISION_VOTES = "stepwell.decision.votes"
EVALUATION_EVENT = "stepwell.evaluation"
RETRY_EVENT = "stepwell.inference.retry"
RETRY_ATTEMPT = "stepwell.inference.attempt"
RETRY_DELAY = "stepwell.inference.delay_seconds"
EVALUATION_CRITERION = "stepwell.evaluation.criterion"
EVALUATION_DECISION = "stepwell.evaluation.decision"
EVALUATION_NUMBER = "stepwell.evaluation.number."
"""Prefix of the attributes for the numbers of a vote."""
EVALUATION_REASON = "stepwell.evaluation.reason"
"""May quote the conversation, so it counts as content."""

# Metrics
AGENT_DURATION = "gen_ai.invoke_agent.duration"
OPERATION_DURATION = "gen_ai.client.operation.duration"
STEPS = "stepwell.agent.steps"
STOPS = "stepwell.agent.stops"
TOKEN_USAGE = "gen_ai.client.token.usage"
TOOL_CALLS = "stepwell.tool.calls"
TOOL_DURATION = "gen_ai.execute_tool.duration"

# The boundaries of histograms that the conventions recommend
TOKEN_BOUNDARIES = tuple(4.0**power for power in range(14))
OPERATION_BOUNDARIES = tuple(0.01 * 2**power for power in range(14))
AGENT_BOUNDARIES = tuple(0.1 * 2**power for power in range(13))

TRACE_KEY = "stepwell.trace"
"""Metadata key under which a state keeps the span of its run, for the link from a resumed run."""
