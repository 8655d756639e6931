"""The page for those who come from PHP: every name it gives exists, and no name is left out."""

import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest

import stepwell
from stepwell import Agent, AgentState, Message
from stepwell.public import MOVED_TO
from stepwell.state import AgentStep
from tests.docs.pages import DOCS, prose, rows, words

PAGE = DOCS / "howto/from-php.md"
MODULES = (
    *("stepwell", "stepwell.app", "stepwell.events", "stepwell.testing"),
    *sorted({"stepwell.criteria", *MOVED_TO.values()}),
)
RECEIVERS = {"agent": Agent, "message": Message, "state": AgentState, "step": AgentStep}
NAME = re.compile(r"(?:(stepwell(?:\.[a-z_]+)*)\.)?([A-Z]\w+)(?:\.([a-zA-Z_]\w*))?(?:\((.*)\))?")

# What the PHP design documents call classes, interfaces, enums and their cases.
PHP_NAMES = """
AbstractAgentDefinition AgentBuilder AgentCapability AgentContract AgentContractRegistry
AgentDescriptor AgentErrorContextResolver AgentEvent AgentEventEmitter AgentEventEnvelopeAdapter
AgentException AgentExecution AgentExecutionService AgentFactory AgentFailed AgentFinished AgentLoop
AgentNotFoundException AgentRegistry AgentSpec AgentSpecParser AgentState AgentStateUpdated
AgentStatus AgentStep AgentStepCompleted AgentStepStarted AgentStepType AgentSteps
AgentStopException AllowContinuation AllowStop AssistantEventBroadcaster BaseTool BashPolicy
BashTool BroadcastConfig CachedContext CanAccessAgentState CanAccessAnyState
CanBroadcastAgentEvents CanDecideToContinue CanEmitAgentEvents CanExecuteToolCalls
CanExplainContinuation CanMarkExecutionStarted CanMarkStepStarted CanObserveAgentLifecycle
CanProvideStopReason CanReportObserverState CanResolveErrorContext CanSerializeAgentState
CanTrackExecutionTime CanUseTools ConsoleBroadcaster ContinuationAgentStateSerializer
ContinuationCriteria ContinuationDecision ContinuationEvaluated ContinuationEvaluation
ContinuationOutcome CumulativeExecutionTimeLimit DecisionWithDetails DeterministicAgentDriver
EditFileTool ErrorContext ErrorForbade ErrorHandlingDecision ErrorPolicy ErrorPolicyCriterion
ErrorPresenceCheck ErrorRecorder ErrorRecordingResult ErrorType EvaluationProcessor EventBus
ExecuteAgentJob ExecutionPolicy ExecutionState ExecutionTimeLimit FinalResponse FinishReason
FinishReasonCheck FinishReasonReceived ForbidContinuation FunctionTool GuardForbade
HandlesAgentSteps HandlesStepToolCalls HandlesStepToolExecutions HasStepToolCalls
HasStepToolExecutions HookContext HookStack HookStackObserver InProgress InferenceResponse
InvalidToolArgumentsException InvalidToolException LLMConfig LLMProvider LaravelReverbBroadcaster
ListDirTool LlmQueryTool LoadSkillTool MakeReActPrompt MakeToolCalls MessageRole Messages
MetadataListTool MetadataPolicy MetadataReadTool MetadataWriteTool MockTool NameList
OpenAIResponseAdapter PusherBroadcaster ReActDecision ReActDriver ReActFormatter ReActValidator
ReadFileTool RequestContinuation Result RetryLimit RetryLimitReached ReverbAgentEventAdapter
ScenarioStep SchemaDefinition SchemaRegistry SearchFilesTool SelfCriticProcessor SkillLibrary
SlimAgentStateSerializer SlimSerializationConfig SpawnSubagentTool StateInfo StateProcessors
StepByStep StepExecution StepRecorder StepsLimit StepsLimitReached StopOnFinalDecision StopReason
StopSignal StreamEventReceived StructuredOutputPolicy StructuredOutputTool SubagentPolicy
TimeLimitReached TodoPolicy TodoWriteTool TokenLimitReached TokenUsageLimit TokenUsageReported
ToolCall ToolCallCompleted ToolCallPresenceCheck ToolCallStarted ToolCalls ToolCallingDriver
ToolExecution ToolExecutionException ToolExecutionFormatter ToolExecutions ToolExecutor
ToolInterface Tools UseBash UseFileTools UseMetadataTools UseSelfCritique UseSkills
UseStructuredOutputs UseSubagents UseTaskPlanning UserRequested WriteFileTool
""".split()  # noqa: SIM905 - one name after the other, as data

PHP_METHODS = """
addContinuationCriteria addExecutionTime addProcessor autoDiscover base broadcast broadcastBatch
buildAgent canContinueWith content create currentStep cumulativeExecutionSeconds errorCount
executeTool executeTools executionStartedAt failWith finalStep fromArray fromString
getEvaluationFor getForbiddingCriterion hasErrors hasNextStep ignoreToolErrors inDirectory
inheritEnvironment iterator lastContinuationOutcome loadFromDirectory loadFromFile
markExecutionStarted new nextStep onEvent outputMessages payload pendingStopSignal recordStep
register retryAll retryToolErrors returning startedAt stepAt stepCount stopOnAnyError toArray
toToolSchema updatedAt using wiretap withCachedContext withCumulativeTimeout withDepth withDriver
withEventHandler withEvents withLibrary withLlmPreset withMaxRetries withMaxSteps withMaxTokens
withMessages withMetadata withNetwork withNewStepExecution withPolicy withReadablePaths
withResponseFormat withStepInProgressCleared withSystemPrompt withTaskPlanning withTimeout
withTools withWritablePaths
""".split()  # noqa: SIM905 - one name after the other, as data


def stepwell_cells() -> Iterator[str]:
    for row in rows(PAGE):
        if len(row) == 3:
            yield from words(row[1])


def is_in(module: str, name: str) -> bool:
    return (
        name in stepwell.__all__ if module == "stepwell" else hasattr(import_module(module), name)
    )


def found(module: str | None, name: str) -> Any:
    for each in (module,) if module else MODULES:
        if is_in(each, name):
            return getattr(import_module(each), name)
    raise AssertionError(f"{module or 'no documented module'} has no {name}")


def has(thing: Any, attribute: str) -> bool:
    return hasattr(thing, attribute) or attribute in getattr(thing, "__struct_fields__", ())


def test_the_tables_are_read() -> None:
    assert len(list(stepwell_cells())) > 150


@pytest.mark.parametrize("code", sorted(set(stepwell_cells())))
def test_what_a_table_names_exists(code: str) -> None:
    receiver = re.match(r"(agent|message|state|step)\.(\w+)", code)
    if receiver:
        assert has(RECEIVERS[receiver[1]], receiver[2])
        return
    match = NAME.fullmatch(code)
    if match is None:
        assert re.fullmatch(r'[a-z_]+(\(.*\))?|"[^"]+"|stepwell [a-z]+|\(\)', code), code
        return
    thing = found(match[1], match[2])
    if match[3]:
        assert has(thing, match[3])
        thing = getattr(thing, match[3])
    for keyword in re.findall(r"(\w+)=", match[4] or ""):
        assert keyword in inspect.signature(thing).parameters


@pytest.mark.parametrize("name", PHP_NAMES)
def test_a_php_class_is_public_under_its_name_or_explained(name: str) -> None:
    is_public = any(is_in(module, name) for module in MODULES)

    assert is_public or re.search(rf"\b{name}\b", prose(PAGE))


@pytest.mark.parametrize("name", PHP_METHODS)
def test_a_php_method_is_explained(name: str) -> None:
    assert re.search(rf"\b{name}\b", prose(PAGE))


def test_classes_that_come_from_elsewhere_name_their_module() -> None:
    """`stepwell.X` alone means that the name can be imported from `stepwell`."""
    for code in stepwell_cells():
        match = NAME.fullmatch(code)
        if match and match[1] is None:
            assert match[2] in stepwell.__all__, code
