"""OpenAI Responses: what is sent."""

from typing import Any

import pytest

from stepwell import Message
from stepwell.errors import ModelError, ModelErrorKind
from stepwell.messages import FilePart, ImagePart, Role, TextPart, ThinkingPart, ToolCall
from stepwell.models import ModelSettings, ResponseFormat, ThinkingEffort
from stepwell.models.wire import OpenAIResponses
from tests.unit.models.wire.oracles import documented, request_types
from tests.unit.models.wire.samples import (
    CLOCK,
    PERSON,
    RESPONSES,
    WEATHER,
    answered,
    call,
    called,
    context,
    request,
)
from tests.unit.models.wire.shapes import misfits

MODEL = "gpt-5.4-mini"


def body(*messages: Message, model: str = MODEL, **more: Any) -> dict[str, Any]:
    sent = RESPONSES.body(request(*messages, **more), model, streaming=False)
    assert (
        misfits({**sent, "input": documented(sent["input"])}, request_types("responses")[0]) == []
    )
    return sent


def items(*messages: Message, **more: Any) -> list[Any]:
    return body(*messages, **more)["input"]


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "input_text", "text": text}]}


def assistant(text: str) -> dict[str, Any]:
    said = {"type": "output_text", "text": text}
    return {"type": "message", "role": "assistant", "content": [said]}


def test_the_least_that_is_sent() -> None:
    assert body(Message.user("Hi")) == {
        "model": MODEL,
        "input": [user("Hi")],
        "store": False,
        "include": ["reasoning.encrypted_content"],
    }


@pytest.mark.parametrize("model", ["gpt-4.1", "gpt-4o-mini", "ft:gpt-4o:me", "gpt-3.5-turbo"])
def test_models_that_do_not_reason_are_not_asked_for_reasoning(model: str) -> None:
    assert "include" not in body(model=model)


def test_a_stream_is_asked_for() -> None:
    assert RESPONSES.body(request(), MODEL, streaming=True)["stream"] is True


def test_context_first_then_the_conversation_then_the_instruction() -> None:
    sent = items(
        Message.user("Hi"),
        Message.assistant("Hello"),
        Message.developer("Be brief."),
        context=context(Message.system("Be kind."), Message.user("2+2?")),
        instruction=Message.system("Answer now."),
    )

    assert sent == [
        {"role": "system", "content": "Be kind."},
        user("2+2?"),
        user("Hi"),
        assistant("Hello"),
        {"role": "developer", "content": "Be brief."},
        {"role": "system", "content": "Answer now."},
    ]


def test_messages_of_the_same_speaker_stay_apart() -> None:
    assert items(Message.user("One"), Message.user("Two")) == [user("One"), user("Two")]


def test_parallel_calls_and_their_results() -> None:
    _, said, *rest = items(
        Message.user("Hi"),
        called(call("c1", city="Rome"), call("c2", "clock"), text="Let me see."),
        answered("c1", "sunny"),
        answered("c2", "", name="clock", error=True),
    )

    assert said == assistant("Let me see.")
    assert rest == [
        {
            "type": "function_call",
            "call_id": "c1",
            "name": "weather",
            "arguments": '{"city":"Rome"}',
        },
        {"type": "function_call", "call_id": "c2", "name": "clock", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "sunny"},
        {"type": "function_call_output", "call_id": "c2", "output": ""},
    ]


def test_a_malformed_call_is_sent_back_without_arguments() -> None:
    malformed = ToolCall(id="c1", name="weather", malformed='{"city": ')
    _, sent, _ = items(Message.user("Hi"), called(malformed), answered("c1", "bad JSON"))

    assert sent["arguments"] == "{}"


@pytest.mark.parametrize(("name", "sent"), [("files.read", "files_read"), ("", "unnamed")])
def test_the_name_of_a_tool_that_the_model_made_up_is_made_acceptable(name: str, sent: str) -> None:
    _, item, _ = items(Message.user("Hi"), called(call("c1", name)), answered("c1", name=name))

    assert item["name"] == sent


def test_own_reasoning_is_sent_back_unchanged_and_before_the_rest() -> None:
    _, first, second, function_call, _ = items(
        Message.user("Hi"),
        called(
            call("c1"),
            thinking=[
                ThinkingPart("Hmm.", "ZW5j", id="rs_1", origin="responses"),
                ThinkingPart("", "ZW5jMg==", id="rs_2", origin="responses"),
            ],
        ),
        answered("c1"),
    )

    assert first == {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": "Hmm."}],
        "encrypted_content": "ZW5j",
    }
    assert (second["summary"], second["encrypted_content"]) == ([], "ZW5jMg==")
    assert function_call["type"] == "function_call"


@pytest.mark.parametrize("model", ["gpt-4.1", "gpt-4o-mini", "ft:gpt-4o:me", "gpt-3.5-turbo"])
def test_reasoning_is_not_sent_to_models_that_do_not_reason(model: str) -> None:
    thought = ThinkingPart("Hmm.", "ZW5j", id="rs_1", origin="responses")
    sent = items(
        Message.user("Hi"), called(call("c1"), thinking=[thought]), answered("c1"), model=model
    )

    assert [item.get("type") for item in sent] == [None, "function_call", "function_call_output"]


@pytest.mark.parametrize(
    "foreign",
    [
        ThinkingPart("Hmm.", "c2ln", origin="messages"),
        ThinkingPart("Hmm.", "c2ln"),
        ThinkingPart("Hmm.", origin="responses"),
    ],
)
def test_foreign_and_unsigned_thinking_is_dropped(foreign: ThinkingPart) -> None:
    assert items(Message.user("Hi"), called(text="Well.", thinking=[foreign])) == [
        user("Hi"),
        assistant("Well."),
    ]


def test_a_message_that_was_cut_off_while_it_thought_is_left_out() -> None:
    """OpenAI: item of type 'reasoning' was provided without its required following item."""
    thought = ThinkingPart("Hmm.", "ZW5j", id="rs_1", origin="responses")
    sent = items(Message.user("Hi"), called(thinking=[thought, thought]), Message.user("Go on."))

    assert sent == [user("Hi"), user("Go on.")]


def test_images_and_files() -> None:
    (sent,) = items(
        Message.user(
            [
                ImagePart(url="https://example.com/cat.png"),
                ImagePart(data="aGk=", media_type="image/jpeg"),
                FilePart(url="https://example.com/a.pdf"),
                FilePart(data="aGk=", name="a.pdf"),
                FilePart(data="aGk=", media_type="text/csv"),
            ]
        )
    )

    assert sent["content"] == [
        {
            "type": "input_image",
            "image_url": "https://example.com/cat.png",
            "detail": "auto",
        },
        {
            "type": "input_image",
            "image_url": "data:image/jpeg;base64,aGk=",
            "detail": "auto",
        },
        {"type": "input_file", "file_url": "https://example.com/a.pdf"},
        {
            "type": "input_file",
            "filename": "a.pdf",
            "file_data": "data:application/pdf;base64,aGk=",
        },
        {"type": "input_file", "filename": "file", "file_data": "data:text/csv;base64,aGk="},
    ]


@pytest.mark.parametrize(
    ("part", "advice"),
    [
        (FilePart(name="a.pdf"), "neither url nor data"),
        (ImagePart(), "neither url nor data"),
        (ThinkingPart("Hmm."), "can't contain a ThinkingPart"),
    ],
)
def test_what_cannot_be_sent_is_refused_with_advice(part: Any, advice: str) -> None:
    with pytest.raises(ModelError, match=advice) as raised:
        body(Message.user([part]))

    assert raised.value.kind is ModelErrorKind.INVALID_REQUEST


def test_an_instruction_with_an_image_is_refused_and_not_cut() -> None:
    asked = Message.of(Role.DEVELOPER, [TextPart("Be kind."), ImagePart(data="aGk=")])
    with pytest.raises(ModelError, match=r"developer message.*ImagePart.*user"):
        body(asked, Message.user("Hi"))


def test_tools_are_not_strict_because_their_schemas_are_not() -> None:
    sent = body(tools=(WEATHER, CLOCK))

    assert sent["tools"][0] == {
        "type": "function",
        "name": "weather",
        "description": "The weather of a city.",
        "parameters": WEATHER.parameters,
        "strict": False,
    }
    assert [tool["name"] for tool in sent["tools"]] == ["weather", "clock"]
    assert "tool_choice" not in sent


@pytest.mark.parametrize(
    ("choice", "sent"),
    [
        ("auto", "auto"),
        ("none", "none"),
        ("required", "required"),
        ("weather", {"type": "function", "name": "weather"}),
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
    assert body(thinking=effort)["reasoning"] == {"effort": str(effort)}


def test_summaries_of_the_reasoning_are_told_when_they_are_wanted() -> None:
    """OpenAI answers 400 to organisations that it has not verified."""
    wire = OpenAIResponses(summaries=True)

    def reasoning(model: str = MODEL, **more: Any) -> Any:
        return wire.body(request(**more), model, streaming=False).get("reasoning")

    assert reasoning(thinking="low") == {"effort": "low", "summary": "auto"}
    assert reasoning() == {"summary": "auto"}
    assert reasoning("gpt-4.1") is None


def test_settings_have_their_words() -> None:
    sent = body(settings=ModelSettings(temperature=0.0, top_p=0.5, max_tokens=7))

    assert (sent["temperature"], sent["top_p"], sent["max_output_tokens"]) == (0.0, 0.5, 7)


@pytest.mark.parametrize("setting", [{"stop": ("END",)}, {"seed": 7}, {"seed": 0}])
def test_what_the_format_has_no_word_for_is_refused_with_advice(setting: Any) -> None:
    with pytest.raises(ModelError, match=rf"{next(iter(setting))}; use openai-chat") as raised:
        body(**setting)

    assert raised.value.kind is ModelErrorKind.INVALID_REQUEST


def test_response_formats() -> None:
    def form(given: Any, **more: Any) -> Any:
        return body(response_format=given, **more)["text"]["format"]

    strict = {"type": "json_schema", "name": "person", "schema": PERSON, "strict": True}
    assert form({"type": "json_object"}) == {"type": "json_object"}
    assert form(ResponseFormat(schema=PERSON, name="person")) == strict
    assert form(strict) == strict
    assert form(strict, tools=(WEATHER,)) == strict
    assert form(ResponseFormat(schema=PERSON, strict=False))["strict"] is False


def test_extra_body_is_merged_one_level_deep() -> None:
    sent = RESPONSES.body(
        request(thinking="low", extra_body={"reasoning": {"summary": "detailed"}, "store": True}),
        MODEL,
        streaming=False,
    )

    assert sent["reasoning"] == {"effort": "low", "summary": "detailed"}
    assert sent["store"] is True
