"""What a model is asked, and the names that models go by."""

import pytest

from stepwell import Agent, AgentBuilder, Message, ModelRequest, ModelResponse, Usage
from stepwell.errors import ConfigurationError
from stepwell.models import CachedContext, ModelPresets, ResponseEnd, TextDelta, ToolCallDelta
from stepwell.testing import MockTool, ScriptedModel, call


def test_presets_are_built_when_asked_for_and_the_table_never_changes() -> None:
    built: list[str] = []

    def fast() -> ScriptedModel:
        built.append("fast")
        return ScriptedModel(["Hi."], name="fast-1")

    empty = ModelPresets()
    presets = empty.with_preset("fast", fast)

    assert empty.names == ()
    assert presets.names == ("fast",)
    assert built == []
    assert presets.model("fast").name == "fast-1"
    assert built == ["fast"]


async def test_an_agent_asks_the_model_that_its_preset_names() -> None:
    presets = ModelPresets({"fast": lambda: ScriptedModel(["From fast."])})
    agent = AgentBuilder.base().with_model_presets(presets).with_llm_preset("fast").build()

    assert (await agent.run("Go")).final_response == "From fast."


def test_an_unknown_preset_is_refused_with_the_known_names_and_advice() -> None:
    presets = ModelPresets({"fast": lambda: ScriptedModel([]), "deep": lambda: ScriptedModel([])})
    builder = AgentBuilder.base().with_model_presets(presets).with_llm_preset("slow")

    with pytest.raises(ConfigurationError, match=r"'slow'. Known presets: deep.*Model object"):
        builder.build()
    with pytest.raises(ConfigurationError, match=r"'slow'. Known presets: \(none\)"):
        Agent("slow")


async def test_a_request_holds_the_stable_context_first_then_conversation_and_tools() -> None:
    model = ScriptedModel([call("add", id="c1"), "ok"])
    agent = (
        AgentBuilder.base()
        .with_model(model)
        .with_cached_context(CachedContext(messages=(Message.system("Be brief."),)))
        .with_system_prompt("Be kind.")
        .with_response_format({"type": "json_object"})
        .with_tools(MockTool.returning("add", 3))
        .build()
    )
    await agent.run("Go")
    first, second = model.requests

    assert [m.text for m in first.context.messages] == ["Be brief.", "Be kind."]
    assert first.response_format == {"type": "json_object"}
    assert [m.text for m in first.messages] == ["Go"]
    assert [m.text for m in second.messages] == ["Go", "", "3"]
    assert [tool.name for tool in first.tools] == ["add"]
    assert second.context is first.context
    assert first.instruction is None


async def test_the_system_prompt_is_not_part_of_the_conversation() -> None:
    agent = Agent(ScriptedModel(["ok"]), system_prompt="Be kind.")
    state = await agent.run("Go")

    assert [str(m.role) for m in state.messages] == ["user", "assistant"]


def test_a_response_is_empty_by_default() -> None:
    response = ModelResponse()

    assert (response.text, response.tool_calls, response.usage) == ("", (), Usage())
    assert (response.finish_reason, response.cost, response.model) == (None, 0.0, None)


async def test_a_stream_ends_with_the_whole_response() -> None:
    model = ScriptedModel(["One two  three"])
    parts = [part async for part in model.stream(ModelRequest(messages=()))]

    assert isinstance(parts[-1], ResponseEnd)
    assert parts[-1].response.text == "One two  three"
    texts = [part.text for part in parts if isinstance(part, TextDelta)]
    assert "".join(texts) == "One two  three"


def test_a_piece_of_a_tool_call_is_not_text() -> None:
    delta = ToolCallDelta(index=0, arguments='{"a": ')

    assert not isinstance(delta, TextDelta)
    assert not hasattr(delta, "text")
