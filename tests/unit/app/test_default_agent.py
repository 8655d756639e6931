"""The built-in agent says whether its words are scripted, and its tool is real all the same."""

from stepwell.app.default_agent import DefaultAgent
from stepwell.testing import FakeClock


def test_without_a_model_it_says_that_it_is_scripted() -> None:
    agent = DefaultAgent(clock=FakeClock())
    assert "Scripted: no model is called" in agent.descriptor().description
    state = agent.run_sync("Hello,\nyou two.")
    assert [m.tool_result.tool_name for m in state.messages if m.tool_result] == ["current_time"]
    assert "> Hello,\n> you two." in (state.final_response or "")
    assert "stepwell demo" in (state.final_response or "")


def test_with_a_model_it_does_not() -> None:
    descriptor = DefaultAgent("ollama:qwen3").descriptor()
    assert "Scripted" not in descriptor.description
    assert descriptor.examples
