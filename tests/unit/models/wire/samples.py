"""Requests, histories and answers that the tests of the wire formats share."""

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from stepwell import Message
from stepwell.messages import (
    FilePart,
    ImagePart,
    Part,
    Role,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolResult,
)
from stepwell.models import (
    CachedContext,
    ModelRequest,
    ModelSettings,
    StreamPart,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolCallStart,
    ToolSchema,
)
from stepwell.models.wire import (
    AnthropicMessages,
    ChatCompletions,
    Gemini,
    OpenAIResponses,
    StreamReader,
    WireFormat,
)

CHAT = ChatCompletions()
RESPONSES = OpenAIResponses()
MESSAGES = AnthropicMessages()
GEMINI = Gemini()
FORMATS: tuple[WireFormat, ...] = (CHAT, RESPONSES, MESSAGES, GEMINI)
MODELS = {
    "chat_completions": "gpt-5.4-mini",
    "responses": "gpt-5.4-mini",
    "messages": "claude-sonnet-4-6",
    "gemini": "gemini-3.5-flash",
}

WEATHER = ToolSchema(
    name="weather",
    description="The weather of a city.",
    parameters={
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
    },
)
CLOCK = ToolSchema(
    name="clock", description="The time.", parameters={"type": "object", "properties": {}}
)
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}},
    "required": ["name"],
    "additionalProperties": False,
}


def request(*messages: Message, **more: Any) -> ModelRequest:
    """A request with these messages; settings may be given one by one."""
    known = set(ModelSettings.__struct_fields__)
    settings = {name: more.pop(name) for name in tuple(more) if name in known}
    if settings:
        more["settings"] = ModelSettings(**settings)
    return ModelRequest(messages=messages or (Message.user("Hi"),), **more)


def body_of(wire: WireFormat, asked: ModelRequest, *, streaming: bool = False) -> dict[str, Any]:
    """The body that is sent for a request."""
    return wire.body(asked, MODELS[wire.name], streaming=streaming)


def context(*messages: Message) -> CachedContext:
    """A stable context."""
    return CachedContext(messages=messages)


def called(*calls: ToolCall, text: str = "", thinking: Sequence[ThinkingPart] = ()) -> Message:
    """A model's message as a step stores it: thinking, text, calls."""
    said = (TextPart(text),) if text else ()
    return Message.of(Role.ASSISTANT, (*thinking, *said, *calls))


def call(id: str, name: str = "weather", **arguments: Any) -> ToolCall:
    """A call with its id."""
    return ToolCall(id=id, name=name, arguments=arguments)


def answered(id: str, content: str = "sunny", *, name: str = "weather", error: bool = False):
    """The result of a call."""
    result = ToolResult(call_id=id, tool_name=name, content=content, is_error=error)
    return Message.tool(result)


texts = st.text(alphabet=st.characters(codec="utf-8"), max_size=12) | st.sampled_from(
    ["", " ", "\n\n", "hello", "{}", "ü 🙂"]
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | texts,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=4,
)
arguments = st.dictionaries(texts, json_values, max_size=3)
signatures = st.none() | st.sampled_from(["", "c2lnbmVk", "bW9yZQ=="])


def thoughts(origin: str) -> st.SearchStrategy[ThinkingPart]:
    """What models thought: of this wire format, of another one, or of nobody knows whom."""
    return st.builds(
        ThinkingPart,
        texts,
        signatures,
        id=st.sampled_from(["rs_1", "rs_2"]),
        origin=st.sampled_from([origin, origin, "elsewhere", None]),
        redacted=st.booleans(),
    )


images = st.sampled_from(
    [
        ImagePart(url="https://example.com/cat.png"),
        ImagePart(data="aGk=", media_type="image/jpeg"),
        ImagePart(data="aGk="),
    ]
)
files = st.sampled_from([FilePart(data="aGk=", name="a.pdf"), FilePart(data="aGk=")])
user_parts: st.SearchStrategy[list[Part]] = st.lists(
    texts.map(TextPart) | images | files, min_size=1, max_size=3
)
instructions = st.builds(
    Message.of, st.sampled_from([Role.SYSTEM, Role.DEVELOPER]), texts.filter(bool)
)
users = st.builds(Message.user, user_parts)


@st.composite
def turns(draw: st.DrawFn, number: int, origin: str) -> list[Message]:
    """What one step adds: the model's message, then a result for each of its calls, in order."""
    count = draw(st.integers(0, 3))
    calls = [
        ToolCall(
            id=f"call_{number}_{index}",
            name=draw(st.sampled_from(["weather", "clock"])),
            arguments=draw(arguments),
            malformed=draw(st.none() | texts),
            signature=draw(signatures),
        )
        for index in range(count)
    ]
    said = draw(texts.filter(bool)) if not calls or draw(st.booleans()) else ""
    thinking = draw(st.lists(thoughts(origin), max_size=2))
    if thinking and draw(st.booleans()):  # cut off while it thought
        return [called(thinking=thinking)]
    results = [
        answered(made.id, draw(texts), name=made.name, error=draw(st.booleans())) for made in calls
    ]
    return [called(*calls, text=said, thinking=thinking), *results]


@st.composite
def conversations(draw: st.DrawFn, origin: str) -> list[Message]:
    """A history as states guarantee it: every call is followed by its result, in order."""
    messages = draw(st.lists(instructions, max_size=2))
    messages.append(Message.user([TextPart("Go."), *draw(user_parts)]))
    for number in range(draw(st.integers(0, 4))):
        messages += draw(turns(number, origin))
        messages += draw(st.lists(users | instructions, max_size=2))
    if messages[-1].is_assistant():
        messages.append(Message.user("And now?"))
    return messages


def requests(origin: str) -> st.SearchStrategy[ModelRequest]:
    """Any request; some of its history came from this wire format."""
    return st.builds(
        ModelRequest,
        messages=conversations(origin),
        context=st.builds(context)
        | st.builds(context, instructions)
        | st.builds(context, instructions, st.just(Message.user("An example.")))
        | st.just(context(Message.user("Q"), Message.assistant("A"), Message.system("Be kind."))),
        tools=st.sampled_from([(), (WEATHER,), (WEATHER, CLOCK)]),
        instruction=st.none() | st.just(Message.system("Answer now.")),
    )


def read(wire: WireFormat, *events: Any) -> tuple[list[StreamPart], StreamReader]:
    """The parts of these stream events, and the reader behind them."""
    reader = wire.reader()
    return [part for event in events for part in reader.read(event)], reader


def text_of(parts: Sequence[StreamPart]) -> str:
    """The text that a stream told."""
    return "".join(part.text for part in parts if isinstance(part, TextDelta))


def thinking_of(parts: Sequence[StreamPart]) -> str:
    """The thinking that a stream told."""
    return "".join(part.text for part in parts if isinstance(part, ThinkingDelta))


def started(parts: Sequence[StreamPart]) -> list[tuple[int, str, str]]:
    """The calls that a stream told of: index, id and name."""
    return [(p.index, p.id, p.name) for p in parts if isinstance(p, ToolCallStart)]


def arguments_of(parts: Sequence[StreamPart]) -> dict[int, str]:
    """The arguments that a stream told, by the index of their call."""
    told: dict[int, str] = {}
    for part in parts:
        if isinstance(part, ToolCallDelta):
            told[part.index] = told.get(part.index, "") + part.arguments
    return told
