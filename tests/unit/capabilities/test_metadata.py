"""The model's scratchpad: what it may write, what it can read, and in which order."""

import asyncio
from typing import Any

import pytest
from msgspec import json

from stepwell import (
    Agent,
    AgentState,
    AgentStatus,
    ConfigurationError,
    ToolContext,
    ToolOutput,
    tool,
)
from stepwell.capabilities.metadata import (
    MetadataListTool,
    MetadataPolicy,
    MetadataReadTool,
    MetadataWriteTool,
    UseMetadataTools,
)
from stepwell.messages import ToolCall
from stepwell.state import ToolExecution, ToolOutcome
from stepwell.testing import ScriptedModel, call


def write(key: str, value: Any) -> ToolCall:
    return call("metadata_write", key=key, value=value)


def read(key: str) -> ToolCall:
    return call("metadata_read", key=key)


LIST = call("metadata_list")


async def ran(
    *calls: ToolCall,
    policy: MetadataPolicy | None = None,
    given: dict[str, Any] | None = None,
    tools: tuple[Any, ...] = (),
) -> tuple[AgentState, list[ToolExecution]]:
    """The state after one response with these calls, and what came of each."""
    agent = Agent(
        ScriptedModel([calls, "Done."]), tools=tools, capabilities=[UseMetadataTools(policy)]
    )
    state = await agent.run(AgentState.empty().with_metadata(given or {}).with_user_message("Go."))
    assert state.status is AgentStatus.COMPLETED
    return state, list(state.steps[0].step.tool_executions)


async def refused(
    asked: ToolCall, policy: MetadataPolicy | None = None, given: dict[str, Any] | None = None
) -> str:
    """What the model is told of a call that fails, after which nothing is stored."""
    state, (execution,) = await ran(asked, policy=policy, given=given)
    assert execution.outcome is ToolOutcome.FAILED
    assert state.metadata == (given or {})
    assert not state.had_errors
    return execution.text


# Writing


@pytest.mark.parametrize(
    "value",
    ["text", "", 3, 2.5, True, None, [1, [2, "three"]], {"name": "Ann", "tags": [None]}, 2**80],
)
async def test_any_json_value_is_stored_and_read_back(value: Any) -> None:
    state, (written, found) = await ran(write("lead", value), read("lead"))

    assert state.metadata == {"lead": value}
    assert written.succeeded
    assert found.value == value


async def test_a_value_is_replaced_by_a_later_one() -> None:
    state, _ = await ran(write("lead", "Ann"), write("lead", ["Bob"]))

    assert state.metadata == {"lead": ["Bob"]}


async def test_the_model_is_told_what_was_stored() -> None:
    _, (written,) = await ran(write("lead", {"name": "Ann"}))

    assert written.text == "Stored 'lead' (object, 14 bytes)."


async def test_white_space_around_a_key_is_trimmed() -> None:
    state, (_, found) = await ran(write(" lead\n", 1), read("\tlead "))

    assert state.metadata == {"lead": 1}
    assert found.value == 1


@pytest.mark.parametrize("key", ["", "   ", "\n"])
async def test_b214_an_empty_key_is_refused(key: str) -> None:
    assert "the key is empty" in await refused(write(key, 1))


@pytest.mark.parametrize(
    "key", ["tasks", "active_skill", "summary", "critique", "stepwell.anything", " tasks "]
)
async def test_b214_the_keys_of_capabilities_are_refused(key: str) -> None:
    told = await refused(write(key, 1))

    assert f"the key {key.strip()!r} is reserved; choose another one" in told


async def test_b214_a_value_may_have_65536_bytes_and_not_one_more() -> None:
    fits = "x" * (65_536 - 2)

    state, _ = await ran(write("text", fits))

    assert len(json.encode(state.metadata["text"])) == 65_536
    told = await refused(write("text", f"{fits}x"))
    assert "'text' has 65537 bytes as JSON, at most 65536 are allowed" in told


async def test_the_size_is_counted_in_bytes_of_the_json_and_not_in_characters() -> None:
    policy = MetadataPolicy(max_value_size_bytes=8)

    state, _ = await ran(write("word", "äöü"), policy=policy)

    assert state.metadata == {"word": "äöü"}
    assert "has 10 bytes" in await refused(write("word", "äöüß"), policy)
    assert "has 9 bytes" in await refused(write("list", ["a", 1, 2]), policy)


async def test_b215_more_keys_than_allowed_are_refused_but_known_ones_are_written_again() -> None:
    policy = MetadataPolicy(max_keys=2)

    state, executions = await ran(
        write("a", 1), write("b", 2), write("c", 3), write("a", 4), policy=policy
    )

    assert state.metadata == {"a": 4, "b": 2}
    assert [e.outcome for e in executions] == ["completed", "completed", "failed", "completed"]
    assert "there are 2 keys, at most 2 are allowed; use one of them again: a, b" in (
        executions[2].text
    )


async def test_by_default_fifty_keys_are_allowed() -> None:
    fifty = {f"key{n}": n for n in range(50)}

    assert "there are 50 keys" in await refused(write("one more", 1), given=fifty)


async def test_keys_that_the_model_can_not_see_do_not_count() -> None:
    policy = MetadataPolicy(max_keys=1, hidden_keys={"secret"})
    given = {"tasks": [], "secret": 1}

    state, _ = await ran(write("a", 1), policy=policy, given=given)

    assert state.metadata == {**given, "a": 1}


async def test_a_key_that_is_too_long_is_refused() -> None:
    policy = MetadataPolicy(max_key_length=5)

    state, _ = await ran(write("short", 1), policy=policy)

    assert state.metadata == {"short": 1}
    told = await refused(write("longer", 1), policy)
    assert "the key has 6 characters, at most 5 are allowed" in told


async def test_text_that_can_not_be_encoded_does_not_reach_the_state() -> None:
    state, _ = await ran(write("odd \ud800", ["\ud800"]))

    assert state.metadata == {"odd \ufffd": ["\ufffd"]}


# Reading


async def test_b216_a_missing_key_is_told_with_the_existing_ones() -> None:
    told = await refused(read("leed"), given={"lead": 1, "score": 2, "tasks": []})

    assert told == "Error: there is no key 'leed'; existing keys: lead, score"


async def test_b216_a_missing_key_in_an_empty_scratchpad_is_told_with_a_hint() -> None:
    told = await refused(read("lead"))

    assert "there is no key 'lead'; nothing is stored yet" in told
    assert "metadata_write" in told


async def test_the_application_s_values_can_be_read_whatever_they_are() -> None:
    _, (found,) = await ran(read("pair"), given={"pair": (1, "two")})

    assert found.text == '[1,"two"]'


async def test_a_written_value_can_be_read_in_a_later_execution() -> None:
    model = ScriptedModel([write("lead", "Ann"), "Noted.", read("lead"), "It is Ann."])
    agent = Agent(model, capabilities=[UseMetadataTools()])
    state = await agent.run("Note it.")

    state = await agent.run(state.with_user_message("Who is it?"))

    assert state.steps[0].step.tool_executions[0].text == "Ann"


# Listing


async def test_b216_the_list_tells_count_and_types() -> None:
    given = {"s": "x", "n": 1.5, "i": 2, "b": False, "z": None, "l": [1], "o": {"a": 1}}

    _, (found,) = await ran(LIST, given={**given, "summary": "hidden"})

    assert found.value == {
        "count": 7,
        "keys": {
            "s": "string",
            "n": "number",
            "i": "number",
            "b": "boolean",
            "z": "null",
            "l": "array",
            "o": "object",
        },
    }


async def test_b216_an_empty_list_gives_a_hint() -> None:
    _, (found,) = await ran(LIST, given={"tasks": []})

    assert found.value["count"] == 0
    assert found.value["keys"] == {}
    assert "metadata_write" in found.value["hint"]


# Order


async def test_calls_of_one_response_see_what_the_calls_before_them_wrote() -> None:
    calls = [
        read("a"),
        write("a", 1),
        read("a"),
        LIST,
        write("a", 2),
        write("b", 3),
        read("a"),
        LIST,
    ]

    _, executions = await ran(*calls)

    assert [e.outcome for e in executions][:3] == ["failed", "completed", "completed"]
    assert executions[2].value == 1
    assert executions[3].value["count"] == 1
    assert executions[6].value == 2
    assert executions[7].value["keys"] == {"a": "number", "b": "number"}


async def test_what_a_slow_tool_beside_others_writes_is_readable_by_the_next_call() -> None:
    @tool
    async def find_lead() -> ToolOutput:
        """Find the lead."""
        for _ in range(20):
            await asyncio.sleep(0)
        return ToolOutput(value="found", metadata={"lead": "Ann"})

    _, executions = await ran(
        call("find_lead"), call("find_lead"), read("lead"), tools=(find_lead,)
    )

    assert executions[2].text == "Ann"


async def test_what_is_written_is_seen_by_other_tools_of_the_same_response() -> None:
    @tool
    def greet(context: ToolContext) -> str:
        """Greet the lead."""
        return f"Hello {context.state.metadata.get('lead')}"

    calls = [call("greet"), write("lead", "Ann"), call("greet")]

    _, executions = await ran(*calls, tools=(greet,))

    assert [e.text for e in executions][::2] == ["Hello None", "Hello Ann"]


# Reserved and hidden keys


@pytest.mark.parametrize("key", ["tasks", "stepwell.budget", "secret"])
async def test_a_hidden_key_can_not_be_read_listed_or_written(key: str) -> None:
    policy = MetadataPolicy(hidden_keys=["secret"])
    given = {key: "canary", "open": 1}

    state, executions = await ran(read(key), LIST, write(key, 1), policy=policy, given=given)

    assert executions[0].text == f"Error: there is no key {key!r}; existing keys: open"
    assert executions[1].value["keys"] == {"open": "number"}
    assert "reserved" in executions[2].text
    assert state.metadata == given
    assert not any("canary" in message.text for message in state.messages)


async def test_b214_a_reserved_key_can_be_read_and_listed_but_not_written() -> None:
    policy = MetadataPolicy(reserved_keys=["user_id"])

    state, executions = await ran(
        write("user_id", 1), read("user_id"), LIST, policy=policy, given={"user_id": 7}
    )

    assert "the key 'user_id' is reserved" in executions[0].text
    assert executions[1].value == 7
    assert executions[2].value["count"] == 1
    assert state.metadata == {"user_id": 7}


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize("value", [nested(300), nested(400), {"\ud800": 1}])
async def test_a_value_that_is_no_plain_json_is_refused_with_a_text(value: Any) -> None:
    model = ScriptedModel([call("metadata_write", key="k", value=value), "Done."])
    state = await Agent(model, capabilities=[UseMetadataTools()]).run("Go")

    [execution] = state.steps[0].step.tool_executions
    assert state.final_response == "Done."
    assert "nothing was stored: the value can't be stored as JSON" in execution.text
    assert "k" not in state.metadata


# What the developer is told


@pytest.mark.parametrize("name", ["max_keys", "max_value_size_bytes", "max_key_length"])
@pytest.mark.parametrize("value", [0, -1, 1.5, None, True, "9"])
def test_a_limit_must_be_a_number_above_zero(name: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=f"MetadataPolicy.{name} must be"):
        MetadataPolicy(**{name: value})


@pytest.mark.parametrize("name", ["reserved_keys", "hidden_keys"])
@pytest.mark.parametrize("value", ["user_id", 3, [1]])
def test_keys_must_be_a_list_of_names(name: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=f"MetadataPolicy.{name} wants"):
        MetadataPolicy(**{name: value})


def test_later_changes_of_the_given_list_do_not_change_the_policy() -> None:
    keys = ["a"]
    policy = MetadataPolicy(hidden_keys=keys)

    keys.clear()

    assert not policy.may_see("a")


@pytest.mark.parametrize(
    "make", [UseMetadataTools, MetadataWriteTool, MetadataReadTool, MetadataListTool]
)
def test_a_policy_of_another_kind_is_a_mistake(make: Any) -> None:
    with pytest.raises(ConfigurationError, match="must be a MetadataPolicy"):
        make({"max_keys": 3})


def test_the_model_is_told_what_the_arguments_mean() -> None:
    properties = MetadataWriteTool().schema.parameters["properties"]

    assert properties["key"]["type"] == "string"
    assert "Any JSON value" in properties["value"]["description"]
    assert set(properties) == {"key", "value"}
