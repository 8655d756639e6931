"""Wrong settings are refused when the object is made, and the message names the parameter."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from stepwell import (
    Agent,
    AgentBuilder,
    AgentRegistry,
    AgentSpec,
    BashPolicy,
    ConfigurationError,
    ErrorPolicy,
    FilePolicy,
    McpServer,
    ModelSettings,
    UseBash,
    UseFileTools,
    UseMcp,
    UseSelfCritique,
    UseStructuredOutputs,
    UseSummarization,
    UseTelemetry,
)
from stepwell.agent import AgentDescriptor
from stepwell.app import RetentionPolicy, ServerSettings, SessionSettings
from stepwell.backoff import Backoff
from stepwell.broadcasting import BroadcastConfig, PusherBroadcaster
from stepwell.capabilities.extraction import SchemaDefinition, StructuredOutputPolicy
from stepwell.models import RetryingModel
from stepwell.sandbox import ExecutionPolicy
from stepwell.specs import AgentSpecParser
from stepwell.state import Budget
from stepwell.testing import ScriptedModel
from stepwell.tools import LlmQueryTool

NAN, INFINITE = float("nan"), float("inf")
NO_SECONDS = (NAN, INFINITE, 0, -1, True, "3")
NO_NUMBERS = (NAN, INFINITE, -1, True, "3")
NO_TEXTS = ("one", 3, [3], None)
NO_TEXT = (3, "", " ", b"x")
NO_FLAGS = ("yes", 1, None)
NO_SETTINGS = (3, "x", {"temperature": 1})

MODEL = ScriptedModel(["Hi."])
SPEC = partial(AgentSpec, name="a", description="b", system_prompt="c")
PUSHER = partial(PusherBroadcaster, "1", "key", "secret", cluster="eu")
SERVER = partial(McpServer.http, "https://example.com/mcp")
FILES = partial(UseFileTools, Path(__file__).parent)

AGENT = partial(Agent, MODEL)

WRONG: tuple[tuple[Callable[..., Any], str, tuple[Any, ...]], ...] = (
    (AGENT, "system_prompt", (3, b"x", ["x"], 0)),
    (AGENT, "cached_context", (3, "x", 0, [])),
    (partial(AGENT, output_type=int), "output_retries", (NAN, INFINITE, -1, 1.5, True, "3")),
    (AGENT, "output_retries", (NAN, -1, True)),
    (AgentBuilder.base().with_system_prompt, "prompt", NO_TEXT),
    (AgentBuilder.base().with_cached_context, "context", (3, "x", None)),
    (AgentDescriptor, "tools", NO_TEXTS),
    (AgentDescriptor, "capabilities", NO_TEXTS),
    (SPEC, "trusted", NO_FLAGS),
    (AgentSpecParser, "strict", NO_FLAGS),
    (AgentRegistry().discover, "trust_project", NO_FLAGS),
    (AgentRegistry().discover, "allowed_models", NO_TEXTS),
    (AgentRegistry().discover, "packages", ("one", Path("one"))),
    (partial(AgentRegistry().load_directory, "."), "trusted", NO_FLAGS),
    (partial(AgentRegistry().load_directory, "."), "allowed_models", NO_TEXTS),
    (Backoff, "initial", NO_NUMBERS),
    (Backoff, "factor", NO_NUMBERS),
    (Backoff, "maximum", NO_NUMBERS),
    (Backoff, "jitter", NO_NUMBERS),
    (BashPolicy, "max_output_chars", (0, 1.5, NAN, True, "3")),
    (BashPolicy, "head_chars", (-1, 1.5, NAN, True, "3", None)),
    (BashPolicy, "tail_chars", (-1, 1.5, NAN, True, "3")),
    (BashPolicy, "denied", (*NO_TEXTS, [""], [b"x"])),
    (BashPolicy, "max_timeout", NO_SECONDS),
    (BroadcastConfig, "send_timeout", NO_SECONDS),
    (Budget, "steps", NO_NUMBERS),
    (Budget, "cost", NO_NUMBERS),
    (partial(ExecutionPolicy.in_, "."), "readable", ([""], [3], [b"x"])),
    (partial(ExecutionPolicy.in_, "."), "writable", ([""], [3], [b"x"])),
    (ExecutionPolicy.in_, "directory", ("", " ", 3, b"x", None)),
    (ErrorPolicy, "max_retries", (-1, 1.5, NAN, True, "3")),
    (FILES, "read_only", NO_FLAGS),
    (FILES, "policy", (3, None)),
    (FilePolicy, "skipped_directories", NO_TEXTS),
    (UseBash, "base_dir", (3, "", " ", b"x")),
    (UseFileTools, "base_dir", (3, None, "")),
    (partial(LlmQueryTool, MODEL), "settings", NO_SETTINGS),
    (SERVER, "headers", (3, "a", [("a", "b")])),
    (SERVER, "name", NO_TEXT),
    (partial(McpServer.stdio, "server"), "args", ("one", 3)),
    (partial(McpServer.stdio, "server"), "env", (3, "a")),
    (partial(McpServer.stdio, "server"), "cwd", (3,)),
    (partial(UseMcp, SERVER()), "include", ("one", 3, [3])),
    (partial(UseMcp, SERVER()), "exclude", ("one", 3, [3])),
    (ModelSettings, "model", NO_TEXT),
    (ModelSettings, "tool_choice", NO_TEXT),
    (ModelSettings, "temperature", NO_NUMBERS),
    (ModelSettings, "top_p", NO_NUMBERS),
    (ModelSettings, "max_tokens", (0, 1.5, NAN, True, "3")),
    (ModelSettings, "seed", (1.5, NAN, True, "3")),
    (ModelSettings, "parallel_tool_calls", ("yes", 1)),
    (ModelSettings, "stop", NO_TEXTS),
    (ModelSettings, "extra_body", (3, "x", [("a", 1)], {1: 2}, None)),
    (ModelSettings, "extra_headers", (3, "x", {"a": 1}, {1: "a"}, None)),
    (PUSHER, "private", NO_FLAGS),
    (PUSHER, "timeout", NO_SECONDS),
    (partial(RetryingModel, MODEL), "max_retries", (-1, 1.5, True, "3")),
    (partial(RetryingModel, MODEL), "backoff", (3, None)),
    (RetentionPolicy, "events_days", (NAN, INFINITE, 0, -1)),
    (RetentionPolicy, "sessions_days", (NAN, INFINITE, 0, -1)),
    (partial(SchemaDefinition, int), "prompt", NO_TEXT),
    (partial(SchemaDefinition, int), "description", NO_TEXT),
    (ServerSettings, "ping_seconds", (NAN, INFINITE, 0, -1)),
    (SessionSettings, "lease_seconds", (NAN, INFINITE, 0, -1)),
    (SessionSettings, "poll_seconds", (NAN, INFINITE, 0, -1)),
    (SessionSettings, "shutdown_seconds", (NAN, INFINITE, -1)),
    (SessionSettings, "snapshot_growth", (NAN, INFINITE, 0)),
    (SessionSettings, "max_message_characters", (0, -1)),
    (StructuredOutputPolicy, "llm_preset", NO_TEXT),
    (StructuredOutputPolicy, "reserved_keys", NO_TEXTS),
    (StructuredOutputPolicy, "settings", NO_SETTINGS),
    (StructuredOutputPolicy, "timeout", NO_SECONDS),
    (UseSelfCritique, "criteria", (3, [3], None)),
    (UseSelfCritique, "model", ("", " ")),
    (UseSelfCritique, "prompt", (*NO_TEXT, None)),
    (UseSelfCritique, "settings", NO_SETTINGS),
    (UseSelfCritique, "timeout", NO_SECONDS),
    (partial(UseStructuredOutputs, {"age": int}), "model", ("", " ")),
    (partial(UseStructuredOutputs, {"age": int}), "policy", (3, "x")),
    (UseSummarization, "model", ("", " ")),
    (UseSummarization, "prompt", NO_TEXT),
    (UseTelemetry, "content", NO_FLAGS),
    (UseTelemetry, "name", NO_TEXT),
    (UseTelemetry, "tracer_provider", (3, "x")),
    (UseTelemetry, "meter_provider", (3, "x")),
)
CASES = [
    pytest.param(make, name, value, id=f"{name}-{value!r}-{number}")
    for number, (make, name, values) in enumerate(WRONG)
    for value in values
]


@pytest.mark.parametrize(("make", "name", "value"), CASES)
def test_a_wrong_value_is_refused_by_the_name_of_its_parameter(
    make: Callable[..., Any], name: str, value: Any
) -> None:
    told = "base_dir|base directory" if name == "base_dir" else name
    needed = {"name": "a", "description": "b"} if make is AgentDescriptor else {}

    with pytest.raises(ConfigurationError, match=told):
        make(**{**needed, name: value})


def test_values_of_headers_are_not_shown() -> None:
    with pytest.raises(ConfigurationError) as refused:
        ModelSettings(extra_headers={"Authorization": b"s3cret"})  # type: ignore[dict-item]

    assert "s3cret" not in str(refused.value)


def test_texts_that_are_lists_become_tuples() -> None:
    assert ModelSettings(stop=["END"]).stop == ("END",)  # type: ignore[arg-type]
    assert AgentDescriptor(name="a", description="", tools=["x"]).tools == ("x",)  # type: ignore[arg-type]
