"""The bridge to pydantic-ai models: making one, agents that use it, and real HTTP turns."""

import asyncio
import json
import queue
import subprocess
import sys
import threading

import pytest
from msgspec.structs import replace
from pydantic_ai import messages as theirs
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.models.function import DeltaToolCall, FunctionModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from stepwell import (
    Agent,
    AgentStatus,
    ConfigurationError,
    ModelError,
    ModelSettings,
    TextDelta,
    Usage,
    tool,
)
from stepwell.errors import ModelErrorKind
from stepwell.models.pydantic_ai import PydanticAiModel
from tests.integration.models.pydantic_ai_doubles import (
    asking,
    parts_of,
)
from tests.servers.byte_server import Answer, ByteServer, Ending, Framing


def test_the_name_is_the_models_own_or_the_given_one():
    assert PydanticAiModel("test").name == "test:test"
    assert PydanticAiModel("test", name="mine").name == "mine"
    assert repr(PydanticAiModel("test", name="mine")) == "PydanticAiModel(mine)"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("no-such-provider:x", "can't create the model 'no-such-provider:x'"),
        ("bedrock:amazon.nova-pro-v1:0", "needs a package that is not installed"),
        (42, "not 42"),
    ],
)
def test_a_model_that_can_not_be_made_is_named(given, words):
    with pytest.raises(ConfigurationError, match=words):
        PydanticAiModel(given)


def test_a_model_in_the_settings_is_a_mistake():
    with pytest.raises(ConfigurationError, match="first argument"):
        PydanticAiModel("test", settings=ModelSettings(model="x"))


def test_without_the_package_the_message_says_what_to_install():
    program = (
        "import sys\n"
        "sys.modules['pydantic_ai'] = None\n"
        "from stepwell import ConfigurationError\n"
        "from stepwell.models.pydantic_ai import PydanticAiModel\n"
        "try:\n"
        "    PydanticAiModel('test')\n"
        "except ConfigurationError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert "install stepwell[pydantic-ai]" in done.stdout


def test_importing_the_bridge_does_not_load_pydantic_ai():
    program = "import stepwell.models.pydantic_ai, sys; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    loaded = set(done.stdout.split())
    assert "stepwell.models.pydantic_ai" in loaded
    assert not loaded & {"pydantic_ai", "pydantic", "httpx2"}


@tool(effect="pure")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def two_steps(messages, info):
    """Calls the tool, then tells its result."""
    last = messages[-1].parts[-1]
    if isinstance(last, theirs.ToolReturnPart):
        return theirs.ModelResponse(parts=[theirs.TextPart(f"It is {last.content}.")])
    return theirs.ModelResponse(
        parts=[theirs.TextPart("Let me add."), theirs.ToolCallPart("add", '{"a": 2, "b": 3}', "c1")]
    )


async def two_steps_streamed(messages, info):
    for part in two_steps(messages, info).parts:
        if isinstance(part, theirs.TextPart):
            for word in part.content.split(" "):
                yield f"{word} "
        else:
            yield {1: DeltaToolCall(part.tool_name, part.args, tool_call_id=part.tool_call_id)}


def adding_agent() -> Agent:
    model = FunctionModel(two_steps, stream_function=two_steps_streamed, model_name="acme-1")
    return Agent(PydanticAiModel(model), tools=[add])


async def test_a_run_with_a_tool():
    state = await adding_agent().run("2 + 3?")

    assert (state.status, state.final_response) == (AgentStatus.COMPLETED, "It is 5.")
    assert [step.step.model for step in state.steps] == ["acme-1", "acme-1"]
    assert state.usage.total_tokens > 0


async def test_a_streamed_run_with_a_tool_tells_text_only():
    told = [part async for part in adding_agent().stream("2 + 3?")]
    text = "".join(part.text for part in told if isinstance(part, TextDelta))

    assert text == "Let me add. It is 5. "
    assert told[-1].state.final_response == "It is 5. "


def test_runs_in_several_event_loops():
    agent = adding_agent()

    assert [agent.run_sync("2 + 3?").final_response for _ in range(2)] == ["It is 5."] * 2


async def test_a_failed_turn_ends_the_run_explained():
    def fail(messages, info):
        raise ModelHTTPError(401, "acme-1", {"error": {"message": "bad key"}})

    state = await Agent(PydanticAiModel(FunctionModel(fail), name="acme")).run("Hi")

    assert state.status is AgentStatus.FAILED
    assert state.steps[0].step.errors[0].kind == "authentication"
    assert "bad key" in state.explain()


def chat(server: ByteServer, **options) -> PydanticAiModel:
    provider = OpenAIProvider(base_url=f"{server.url}/v1", api_key="sk-secret")
    return PydanticAiModel(
        OpenAIChatModel("gpt-4o", provider=provider, settings={"max_retries": 0})
    )


def completion(**message) -> Answer:
    usage = {
        "prompt_tokens": 100,
        "completion_tokens": 10,
        "total_tokens": 110,
        "prompt_tokens_details": {"cached_tokens": 40},
        "completion_tokens_details": {"reasoning_tokens": 4},
    }
    reason = "tool_calls" if "tool_calls" in message else "stop"
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": reason}
    return Answer.json(
        {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": "gpt-4o",
            "choices": [choice],
            "usage": usage,
        }
    )


CALL = {
    "index": 0,
    "id": "c1",
    "type": "function",
    "function": {"name": "add", "arguments": '{"a": 2, "b": 3}'},
}


def chunks(*deltas: dict, reason: str | None = "stop") -> Answer:
    ends = [({}, reason)] if reason else []
    events = [
        {
            "id": "chatcmpl-1",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": "gpt-4o",
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
        }
        for delta, finish in [*((delta, None) for delta in deltas), *ends]
    ]
    usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
    last = {**events[-1], "choices": [], "usage": usage}
    lines = [f"data: {json.dumps(event)}\n\n".encode() for event in [*events, last]]
    return Answer.sse(*lines, b"data: [DONE]\n\n")


async def test_a_tool_loop_with_cached_tokens_and_a_price(byte_server):
    byte_server.script(completion(content=None, tool_calls=[CALL]), completion(content="5"))
    state = await Agent(chat(byte_server), tools=[add]).run("2 + 3?")

    assert state.final_response == "5"
    assert state.usage == Usage(
        input_tokens=200, output_tokens=20, cached_tokens=80, reasoning_tokens=8
    )
    assert state.cost > 0
    first, second = [request.json for request in byte_server.requests]
    assert first["messages"][-1] == {"role": "user", "content": "2 + 3?"}
    assert first["tools"][0]["function"]["name"] == "add"
    assert second["messages"][-1] == {"role": "tool", "tool_call_id": "c1", "content": "5"}
    assert byte_server.requests[0].headers["authorization"] == "Bearer sk-secret"


async def test_a_streamed_tool_loop(byte_server):
    byte_server.script(
        chunks({"role": "assistant", "tool_calls": [CALL]}, reason="tool_calls"),
        chunks({"role": "assistant", "content": "It is "}, {"content": "5."}),
    )
    told = [p async for p in Agent(chat(byte_server), tools=[add]).stream("2 + 3?")]
    text = [part.text for part in told if isinstance(part, TextDelta)]

    assert text == ["It is ", "5."]
    assert told[-1].state.final_response == "It is 5."
    assert told[-1].state.usage.total_tokens == 220


async def test_a_rate_limit_is_told_with_its_wait_and_without_the_key(byte_server):
    said = {"error": {"message": "Slow down.", "code": "rate_limit_exceeded"}}
    byte_server.script(Answer.json(said, status=429, retry_after="3", x_request_id="req_1"))
    with pytest.raises(ModelError, match=r"Slow down\.") as caught:
        await chat(byte_server).respond(asking())

    error = caught.value
    assert (error.kind, error.status, error.retry_after) == ("rate_limit", 429, 3.0)
    assert error.request_id == "req_1"
    assert "sk-secret" not in f"{error} {error.provider_text}"


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (Answer.json({"choices": []}), ModelErrorKind.MALFORMED_RESPONSE),
        (Answer(silent=True, ending=Ending.RESET), ModelErrorKind.DISCONNECTED),
        (Answer.json({"error": "busy"}, status=503), ModelErrorKind.OVERLOADED),
        (Answer.json(b"{not json"), ModelErrorKind.MALFORMED_RESPONSE),
    ],
)
async def test_a_broken_answer_is_a_typed_error(byte_server, answer, kind):
    byte_server.script(answer)
    with pytest.raises(ModelError) as caught:
        await chat(byte_server).respond(asking())

    assert caught.value.kind is kind


async def test_nobody_listening_is_a_failure_to_connect():
    async with ByteServer() as server:
        model = chat(server)
    with pytest.raises(ModelError) as caught:
        await model.respond(asking())

    assert (caught.value.kind, caught.value.retryable) == (ModelErrorKind.CONNECT, True)


@pytest.mark.parametrize("ending", [Ending.EOF, Ending.RESET])
async def test_a_stream_that_is_cut_is_never_taken_as_whole(byte_server, ending):
    whole = chunks({"role": "assistant", "content": "It is "}, {"content": "5."})
    byte_server.script(whole.cut_at(250, ending))
    seen = []
    with pytest.raises(ModelError) as caught:
        await parts_of(chat(byte_server), seen=seen)

    assert seen == [TextDelta("It is ")]
    assert caught.value.kind is ModelErrorKind.DISCONNECTED


async def test_a_stream_that_ends_politely_without_a_finish_reason_is_not_whole(byte_server):
    byte_server.script(chunks({"role": "assistant", "content": "It is "}, reason=None))
    with pytest.raises(ModelError, match="finish reason") as caught:
        await parts_of(chat(byte_server))

    assert caught.value.kind is ModelErrorKind.INCOMPLETE_STREAM
    assert caught.value.usage.total_tokens == 110
    assert caught.value.cost > 0


async def test_wherever_an_unframed_stream_is_cut_it_is_an_error_or_the_whole_answer(byte_server):
    whole = chunks({"role": "assistant", "content": "It is "}, {"content": "5."})
    unframed = replace(whole, framing=Framing.CLOSE)
    model, outcomes = chat(byte_server), set()
    for size in range(0, len(whole.body), 11):
        byte_server.script(unframed.cut_at(size))
        try:
            outcomes.add((await parts_of(model))[-1].response.text)
        except ModelError as error:
            outcomes.add(error.kind)

    assert outcomes <= {
        "It is 5.",
        ModelErrorKind.INCOMPLETE_STREAM,
        ModelErrorKind.MALFORMED_RESPONSE,
    }
    assert {"It is 5.", ModelErrorKind.INCOMPLETE_STREAM} <= outcomes


async def test_leaving_a_stream_lets_go_of_the_connection(byte_server):
    whole = chunks({"role": "assistant", "content": "It is "}, {"content": "5."})
    byte_server.script(whole.cut_at(250, Ending.HANG))
    stream = chat(byte_server).stream(asking())
    assert await anext(stream) == TextDelta("It is ")
    await stream.aclose()

    await asyncio.wait_for(byte_server.until(lambda: byte_server.disconnects), 90)


@pytest.fixture
def lasting_server():
    """A server in a thread of its own, which outlives the event loops of its clients."""
    started: queue.Queue = queue.Queue()

    async def serve() -> None:
        over = asyncio.Event()
        async with ByteServer(completion(content="5")) as server:
            started.put((server, asyncio.get_running_loop(), over))
            await over.wait()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    server, loop, over = started.get()
    yield server
    loop.call_soon_threadsafe(over.set)
    thread.join()


def test_each_event_loop_has_connections_of_its_own(lasting_server):
    agent = Agent(chat(lasting_server))

    assert [agent.run_sync("2 + 3?").final_response for _ in range(3)] == ["5"] * 3
