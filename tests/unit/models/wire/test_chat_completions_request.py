"""Chat completions: what is sent."""

from typing import Any

import pytest

from stepwell import Message
from stepwell.errors import ModelError, ModelErrorKind
from stepwell.messages import FilePart, ImagePart, Role, TextPart, ThinkingPart, ToolCall
from stepwell.models import ModelSettings, ResponseFormat, ThinkingEffort
from stepwell.models.wire import ChatCompletions
from tests.unit.models.wire.oracles import request_types
from tests.unit.models.wire.samples import (
    CLOCK,
    PERSON,
    WEATHER,
    answered,
    call,
    called,
    context,
    request,
)
from tests.unit.models.wire.shapes import misfits

MODEL = "gpt-5.4-mini"
PLAIN = ChatCompletions()
OPENAI = ChatCompletions(
    max_tokens_field="max_completion_tokens", has_developer_role=True, formats_with_tools=True
)
MISTRAL = ChatCompletions(asks_for_usage=False, seed_field="random_seed", user_after_tools=False)


def body(*messages: Message, wire: ChatCompletions = PLAIN, **more: Any) -> dict[str, Any]:
    sent = wire.body(request(*messages, **more), MODEL, streaming=False)
    assert misfits(sent, request_types("chat_completions")[0]) == []
    return sent


def messages(*given: Message, **more: Any) -> list[Any]:
    return body(*given, **more)["messages"]


def test_the_least_that_is_sent_is_model_and_messages() -> None:
    assert body(Message.user("Hi")) == {
        "model": MODEL,
        "messages": [{"role": "user", "content": "Hi"}],
    }


def test_a_stream_is_asked_for_with_its_usage() -> None:
    sent = PLAIN.body(request(), MODEL, streaming=True)

    assert (sent["stream"], sent["stream_options"]) == (True, {"include_usage": True})


def test_a_server_that_tells_its_usage_unasked_is_not_asked() -> None:
    """Mistral answers 422 to stream_options."""
    sent = MISTRAL.body(request(), MODEL, streaming=True)

    assert sent["stream"] is True
    assert "stream_options" not in sent


@pytest.mark.parametrize("seed", [0, 7])
def test_the_seed_may_have_another_name(seed: int) -> None:
    sent = MISTRAL.body(request(seed=seed), MODEL, streaming=False)

    assert sent["random_seed"] == seed
    assert "seed" not in sent


def test_context_first_then_the_conversation_then_the_instruction() -> None:
    sent = messages(
        Message.user("Hi"),
        Message.assistant("Hello"),
        Message.system("Be brief."),
        context=context(Message.system("Be kind."), Message.user("2+2?"), Message.assistant("4")),
        instruction=Message.system("Answer now."),
    )

    assert [(message["role"], message["content"]) for message in sent] == [
        ("system", "Be kind."),
        ("user", "2+2?"),
        ("assistant", "4"),
        ("user", "Hi"),
        ("assistant", "Hello"),
        ("system", "Be brief."),
        ("user", "Answer now."),
    ]


def test_the_instruction_at_the_end_is_a_users_where_systems_must_come_first() -> None:
    """Chat templates of local models: system message must be at the beginning."""
    asked = Message.system("Answer now.")
    sent, to_openai = messages(instruction=asked), messages(instruction=asked, wire=OPENAI)

    assert sent[-1] == {"role": "user", "content": "Answer now."}
    assert to_openai[-1] == {"role": "system", "content": "Answer now."}


def test_a_user_does_not_speak_right_after_a_tool_where_that_is_refused() -> None:
    """Mistral: unexpected role 'user' after role 'tool'."""
    asked = request(
        Message.user("Hi"),
        called(call("c1"), call("c2")),
        answered("c1"),
        answered("c2"),
        instruction=Message.system("Answer now."),
    )
    talk = ["user", "assistant", "tool", "tool"]
    sent, plain = (
        [message["role"] for message in wire.body(asked, MODEL, streaming=False)["messages"]]
        for wire in (MISTRAL, PLAIN)
    )

    assert sent == [*talk, "assistant", "user"]
    assert plain == [*talk, "user"]


def test_the_developer_role_is_sent_where_it_is_known() -> None:
    assert messages(Message.developer("Be kind."), wire=OPENAI)[0]["role"] == "developer"
    assert messages(Message.developer("Be kind."), wire=PLAIN)[0]["role"] == "system"


def test_messages_of_the_same_speaker_stay_apart() -> None:
    sent = messages(Message.user("One"), Message.user("Two"))

    assert [message["content"] for message in sent] == ["One", "Two"]


def test_an_empty_message_has_an_empty_text() -> None:
    assert messages(Message.user("")) == [{"role": "user", "content": ""}]


def test_parallel_calls_and_their_results() -> None:
    _, assistant, *results = messages(
        Message.user("Hi"),
        called(call("c1", city="Rome"), call("c2", "clock"), text="Let me see."),
        answered("c1", "sunny"),
        answered("c2", "", name="clock", error=True),
    )

    assert assistant == {
        "role": "assistant",
        "content": "Let me see.",
        "tool_calls": [
            {
                "id": "c1",
                "type": "function",
                "function": {"name": "weather", "arguments": '{"city":"Rome"}'},
            },
            {"id": "c2", "type": "function", "function": {"name": "clock", "arguments": "{}"}},
        ],
    }
    assert results == [
        {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
        {"role": "tool", "tool_call_id": "c2", "content": ""},
    ]


def test_a_message_of_calls_alone_has_no_content() -> None:
    _, assistant, _ = messages(Message.user("Hi"), called(call("c1")), answered("c1"))

    assert assistant["content"] is None


def test_a_malformed_call_is_sent_back_without_arguments() -> None:
    malformed = ToolCall(id="c1", name="weather", malformed='{"city": ')
    _, assistant, _ = messages(Message.user("Hi"), called(malformed), answered("c1", "bad JSON"))

    assert assistant["tool_calls"][0]["function"]["arguments"] == "{}"


@pytest.mark.parametrize(("name", "sent"), [("files.read", "files_read"), ("", "unnamed")])
def test_the_name_of_a_tool_that_the_model_made_up_is_made_acceptable(name: str, sent: str) -> None:
    """OpenAI refuses the whole conversation otherwise, now and in every later step."""
    _, assistant, _ = messages(
        Message.user("Hi"), called(call("c1", name)), answered("c1", "not found", name=name)
    )

    assert assistant["tool_calls"][0]["function"]["name"] == sent


def test_own_thinking_is_sent_back_with_calls_where_the_server_wants_it() -> None:
    thought = [ThinkingPart("Hm", origin="chat_completions"), ThinkingPart("m", origin="messages")]
    talk = (
        Message.user("Hi"),
        called(call("c1"), thinking=thought),
        answered("c1"),
        called(text="Sunny.", thinking=thought),
    )
    wants = ChatCompletions(replays_thinking=True).body(request(*talk), MODEL, streaming=False)

    assert wants["messages"][1]["reasoning_content"] == "Hm"
    assert "reasoning_content" not in wants["messages"][3], "only calls need it"
    assert not any("reasoning_content" in message for message in messages(*talk))


def test_images_and_files() -> None:
    (sent,) = messages(
        Message.user(
            [
                TextPart("Look:"),
                ImagePart(url="https://example.com/cat.png"),
                ImagePart(data="aGk=", media_type="image/jpeg"),
                ImagePart(data="aGk="),
                FilePart(data="aGk=", name="a.pdf"),
                FilePart(data="aGk=", media_type="text/csv", url="https://example.com/a.csv"),
            ]
        )
    )

    assert sent["content"] == [
        {"type": "text", "text": "Look:"},
        {"type": "image_url", "image_url": {"url": "https://example.com/cat.png"}},
        {"type": "image_url", "image_url": {"url": "data:image/jpeg;base64,aGk="}},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}},
        {
            "type": "file",
            "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,aGk="},
        },
        {"type": "file", "file": {"filename": "file", "file_data": "data:text/csv;base64,aGk="}},
    ]


@pytest.mark.parametrize(
    ("part", "advice"),
    [
        (FilePart(url="https://example.com/a.pdf"), "give data="),
        (FilePart(name="a.pdf"), "neither url nor data"),
        (ImagePart(), "neither url nor data"),
        (ThinkingPart("Hmm."), "can't contain a ThinkingPart"),
    ],
)
def test_what_cannot_be_sent_is_refused_with_advice(part: Any, advice: str) -> None:
    with pytest.raises(ModelError, match=advice) as raised:
        body(Message.user([TextPart("Look:"), part]))

    assert raised.value.kind is ModelErrorKind.INVALID_REQUEST


@pytest.mark.parametrize("role", [Role.SYSTEM, Role.DEVELOPER])
@pytest.mark.parametrize("wire", [PLAIN, OPENAI])
def test_an_instruction_with_an_image_is_refused_and_not_cut(
    role: Role, wire: ChatCompletions
) -> None:
    asked = Message.of(role, [TextPart("Be kind."), ImagePart(data="aGk=")])
    with pytest.raises(ModelError, match=rf"{role} message.*ImagePart.*user"):
        body(asked, Message.user("Hi"), wire=wire)


def test_tools() -> None:
    sent = body(tools=(WEATHER, CLOCK))

    assert sent["tools"] == [
        {
            "type": "function",
            "function": {
                "name": "weather",
                "description": "The weather of a city.",
                "parameters": WEATHER.parameters,
            },
        },
        {
            "type": "function",
            "function": {
                "name": "clock",
                "description": "The time.",
                "parameters": CLOCK.parameters,
            },
        },
    ]
    assert "tool_choice" not in sent


@pytest.mark.parametrize(
    ("choice", "sent"),
    [
        ("auto", "auto"),
        ("none", "none"),
        ("required", "required"),
        ("weather", {"type": "function", "function": {"name": "weather"}}),
    ],
)
def test_tool_choice(choice: str, sent: Any) -> None:
    assert body(tools=(WEATHER,), tool_choice=choice)["tool_choice"] == sent
    assert "tool_choice" not in body(tool_choice=choice), "without tools there is nothing to choose"


@pytest.mark.parametrize("parallel", [True, False])
def test_parallel_tool_calls(parallel: bool) -> None:
    sent = body(tools=(WEATHER,), parallel_tool_calls=parallel)

    assert sent["parallel_tool_calls"] is parallel
    assert "parallel_tool_calls" not in body(parallel_tool_calls=parallel)


@pytest.mark.parametrize("effort", list(ThinkingEffort))
def test_thinking(effort: ThinkingEffort) -> None:
    assert body(thinking=effort)["reasoning_effort"] == str(effort)


def test_settings_have_their_words() -> None:
    settings = ModelSettings(temperature=0.0, top_p=0.5, max_tokens=7, stop=("END",), seed=0)
    sent = body(settings=settings)

    assert (sent["temperature"], sent["top_p"], sent["max_tokens"]) == (0.0, 0.5, 7)
    assert (sent["stop"], sent["seed"]) == (["END"], 0)
    assert body(settings=settings, wire=OPENAI)["max_completion_tokens"] == 7
    assert "max_tokens" not in body(settings=settings, wire=OPENAI)


def test_response_formats() -> None:
    def form(given: Any, **more: Any) -> Any:
        return body(response_format=given, **more)["response_format"]

    strict = {
        "type": "json_schema",
        "json_schema": {"name": "person", "schema": PERSON, "strict": True},
    }
    assert form({"type": "json_object"}) == {"type": "json_object"}
    assert form(ResponseFormat(schema=PERSON, name="person")) == strict
    assert form(strict) == strict
    assert form(strict, tools=(WEATHER,), wire=OPENAI) == strict
    loose = form(ResponseFormat(schema=PERSON, strict=False))["json_schema"]
    assert (loose["strict"], loose["schema"]) == (False, PERSON)
    open_object = {"type": "object", "properties": {"a": {}}}
    assert form(open_object)["json_schema"]["strict"] is False, "OpenAI can't promise this one"


@pytest.mark.parametrize("form", [ResponseFormat(schema=PERSON), ResponseFormat()])
def test_with_tools_a_format_is_asked_for_in_words_where_it_would_hinder_calls(
    form: ResponseFormat,
) -> None:
    """Ollama compiles the format into a grammar, in which there is no call; Groq refuses both."""
    sent = body(response_format=form, tools=(WEATHER,))
    asked, hi = sent["messages"]

    assert "response_format" not in sent
    assert asked["role"] == "system"
    assert "JSON object" in asked["content"]
    assert ('"name"' in asked["content"]) == (form.schema is not None)
    assert hi == {"role": "user", "content": "Hi"}


@pytest.mark.parametrize("first", [Message.system("Be kind."), Message.developer("Be kind.")])
def test_a_format_in_words_belongs_to_the_first_instruction(first: Message) -> None:
    told = (first, Message.user("Hi"), Message.system("Be brief."))
    sent = messages(*told, response_format=PERSON, tools=(WEATHER,))
    later = messages(*told, Message.user("Bye"), response_format=PERSON, tools=(WEATHER,))

    assert [message["role"] for message in sent] == ["system", "user", "system"]
    assert sent[0]["content"].startswith("Be kind.\n\nAnswer with one JSON object")
    assert later[: len(sent)] == sent, "a prompt cache hits"


def test_extra_body_is_merged_one_level_deep_and_wins() -> None:
    sent = PLAIN.body(
        request(
            temperature=0.5,
            extra_body={
                "temperature": 0.7,
                "stream_options": {"more": 1},
                "logprobs": True,
                "nothing": None,
            },
        ),
        MODEL,
        streaming=True,
    )

    assert sent["temperature"] == 0.7
    assert sent["stream_options"] == {"include_usage": True, "more": 1}
    assert sent["logprobs"] is True
    assert sent["nothing"] is None
