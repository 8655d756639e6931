"""Tool loops and faults in all four wire formats, against aimock."""

import pytest

from stepwell import AgentStatus, FinishReason, StopReason, Usage
from stepwell.errors import ErrorType
from tests.servers.aimock_server import Aimock
from tests.servers.record import WIRES
from tests.servers.weather_agent import WeatherAgent, both_ways, model_at

# One event loop for all, and so one HTTP client, as in an application that lives for a while.
pytestmark = pytest.mark.asyncio(loop_scope="module")
BOTH_WAYS = pytest.mark.parametrize(("wire", "streamed"), both_ways(WIRES))


def weather_agent(aimock: Aimock, wire: str, **options) -> WeatherAgent:
    return WeatherAgent(model_at(aimock.base_url(wire), wire), **{"model_retries": 0, **options})


def ended_by_calls(wire: str) -> set[FinishReason]:
    # aimock ends such a turn with FUNCTION_CALL, a word that Gemini itself does not have.
    also = {FinishReason.OTHER} if wire == "gemini" else set()
    return {FinishReason.TOOL_CALLS} | also


def told_to_the_model(aimock: Aimock, role: str) -> list[str]:
    return [m["content"] for m in aimock.journal()[-1]["body"]["messages"] if m["role"] == role]


@BOTH_WAYS
async def test_a_two_step_tool_loop_runs_the_tool_and_ends_with_the_answer(aimock, wire, streamed):
    weather = weather_agent(aimock, wire, system_prompt="You know the weather.")
    run = await weather.run("What is the weather in Oslo?", streamed=streamed)
    state = run.state

    assert state.status is AgentStatus.COMPLETED
    assert state.final_response == "It is 3 degrees in Oslo, with light rain."
    assert weather.cities == ["Oslo"]
    assert run.texts == ["", state.final_response]
    first, second = [recorded.step for recorded in state.steps]
    assert first.tool_calls[0].arguments == {"city": "Oslo", "unit": "celsius"}
    assert first.finish_reason in ended_by_calls(wire)
    assert second.finish_reason is FinishReason.STOP
    assert (first.usage.total_tokens, second.usage.total_tokens) == (97, 134)
    assert state.usage == Usage(input_tokens=200, output_tokens=31)
    assert 0 < state.cost < 0.01
    [told] = told_to_the_model(aimock, "tool")
    assert "3 degrees celsius in Oslo" in told
    assert told_to_the_model(aimock, "system") == ["You know the weather."]


@BOTH_WAYS
async def test_two_calls_in_one_response_both_run_and_both_results_are_told(aimock, wire, streamed):
    weather = weather_agent(aimock, wire)
    run = await weather.run("Compare Oslo and Lima.", streamed=streamed)

    assert run.state.final_response == "Oslo has 3 degrees, Lima 19: pack for both. 🧳"
    assert sorted(weather.cities) == ["Lima", "Oslo"]
    first = run.state.steps[0].step
    assert [call.arguments["city"] for call in first.tool_calls] == ["Oslo", "Lima"]
    assert len({call.id for call in first.tool_calls}) == 2
    told = told_to_the_model(aimock, "tool")
    assert ["in Oslo" in told[0], "in Lima" in told[1]] == [True, True]
    assert run.texts == ["", run.state.final_response]


@pytest.mark.parametrize("wire", WIRES)
async def test_streamed_text_arrives_in_pieces_and_holds_no_arguments(aimock, wire):
    run = await weather_agent(aimock, wire).run("say what you do, then do it", streamed=True)

    assert run.texts == ["I look it up first.", "Done: 3 degrees."]
    assert run.chunks >= 4
    assert run.calls == [("get_weather", {"city": "Oslo", "unit": "celsius"})]
    assert [recorded.step.text for recorded in run.state.steps] == run.texts


@BOTH_WAYS
async def test_thinking_is_told_apart_from_the_text_and_kept(aimock, wire, streamed):
    run = await weather_agent(aimock, wire).run("think first, then call", streamed=streamed)

    thought = "The user wants the weather, so I call the tool."
    assert run.state.final_response == "Thought about it: 3 degrees."
    assert run.texts[0] == ""
    assert run.thoughts == (thought if streamed else "")
    response = run.state.steps[0].step.response
    assert response is not None
    assert getattr(response.parts[0], "text", None) == thought


@BOTH_WAYS
async def test_an_answer_that_was_cut_by_the_token_limit_says_so(aimock, wire, streamed):
    run = await weather_agent(aimock, wire).run("go on and on", streamed=streamed)

    assert run.state.final_response == "Once upon a time there was"
    # In Responses aimock says "incomplete" without saying why.
    expected = FinishReason.OTHER if wire == "responses" else FinishReason.LENGTH
    assert run.state.steps[-1].step.finish_reason is expected


@BOTH_WAYS
@pytest.mark.parametrize(
    ("status", "kind", "error_type"),
    [
        (429, "rate_limit", ErrorType.RATE_LIMIT),
        (500, "server", ErrorType.MODEL),
        (503, "overloaded", ErrorType.RATE_LIMIT),
        (401, "authentication", ErrorType.MODEL),
        (404, "not_found", ErrorType.MODEL),
    ],
)
async def test_an_error_answer_becomes_a_typed_error_that_ends_the_run(
    aimock, wire, streamed, status, kind, error_type
):
    aimock.fail_next(status, "the reason in words")
    run = await weather_agent(aimock, wire).run("say hello", streamed=streamed)

    assert run.state.status is AgentStatus.FAILED
    assert run.state.stop.stop_reason is StopReason.ERROR
    [error] = run.errors
    assert (error.kind, error.status, error.type) == (kind, status, error_type)
    assert error.exception == "ModelError"
    assert "the reason in words" in error.message
    assert error.request_id
    assert "test-key" not in error.message
    assert len(aimock.journal()) == 1


@BOTH_WAYS
async def test_a_hang_up_before_the_answer_becomes_a_typed_error(aimock, wire, streamed):
    aimock.load(
        {
            "match": {"userMessage": "hang up"},
            "response": {"content": "never said"},
            "chaos": {"disconnectRate": 1},
        }
    )
    run = await weather_agent(aimock, wire).run("hang up", streamed=streamed)

    assert run.kinds == ["disconnected"]
    assert (run.state.status, run.texts) == (AgentStatus.FAILED, [""])


@pytest.mark.parametrize("wire", WIRES)
async def test_a_hang_up_in_mid_stream_is_an_error_and_no_answer(aimock, wire):
    aimock.load(
        {
            "match": {"userMessage": "hang up"},
            "response": {"content": "A long answer that never comes to its end."},
            "truncateAfterChunks": 5,
        }
    )
    run = await weather_agent(aimock, wire).run("hang up", streamed=True)

    assert run.kinds in (["disconnected"], ["incomplete_stream"])
    assert run.state.status is AgentStatus.FAILED
    assert run.state.final_response is None
    assert "A long answer that never comes".startswith(run.texts[0])


@BOTH_WAYS
async def test_a_body_that_is_no_json_becomes_a_typed_error(aimock, wire, streamed):
    aimock.load(
        {
            "match": {"userMessage": "garble"},
            "response": {"content": "never said"},
            "chaos": {"malformedRate": 1},
        }
    )
    run = await weather_agent(aimock, wire).run("garble", streamed=streamed)

    assert run.kinds == ["malformed_response"]
