"""Anthropic Messages: what is sent."""

from typing import Any

import pytest

from stepwell import Message
from stepwell.errors import ModelError, ModelErrorKind
from stepwell.messages import FilePart, ImagePart, Role, TextPart, ThinkingPart, ToolCall
from stepwell.models import ModelSettings, ResponseFormat, ThinkingEffort
from stepwell.models.wire import AnthropicMessages
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

MODEL = "claude-sonnet-4-6"
UNMARKED = AnthropicMessages(cache_ttl=None)


def body(
    *messages: Message, wire: AnthropicMessages = UNMARKED, model: str = MODEL, **more: Any
) -> dict[str, Any]:
    sent = wire.body(request(*messages, **more), model, streaming=False)
    newest = {name: sent[name] for name in sent if name not in ("temperature", "top_p")}
    assert misfits(newest, request_types("messages")[0]) == []
    return sent


def turns(*messages: Message, **more: Any) -> list[Any]:
    return body(*messages, **more)["messages"]


def said(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


def test_the_least_that_is_sent_is_model_bound_and_messages() -> None:
    assert body(Message.user("Hi")) == {
        "model": MODEL,
        "max_tokens": 8192,
        "messages": [{"role": "user", "content": [said("Hi")]}],
    }


def test_a_stream_is_asked_for() -> None:
    assert UNMARKED.body(request(), MODEL, streaming=True)["stream"] is True


def test_the_path_is_the_same_for_every_model() -> None:
    assert UNMARKED.path("any", streaming=True) == UNMARKED.path("x", streaming=False)
    assert UNMARKED.path("any", streaming=True) == "/v1/messages"


def test_context_first_then_the_conversation_then_the_instruction() -> None:
    sent = body(
        Message.user("Hi"),
        Message.assistant("Hello"),
        Message.user("Bye"),
        context=context(Message.system("Be kind."), Message.developer("Be brief.")),
        instruction=Message.system("Answer now."),
    )

    assert sent["system"] == [said("Be kind."), said("Be brief.")]
    assert sent["messages"] == [
        {"role": "user", "content": [said("Hi")]},
        {"role": "assistant", "content": [said("Hello")]},
        {"role": "user", "content": [said("Bye"), said("Answer now.")]},
    ]


def test_leading_instructions_of_the_conversation_are_instructions() -> None:
    sent = body(Message.system("Be kind."), Message.developer("Be brief."), Message.user("Hi"))

    assert sent["system"] == [said("Be kind."), said("Be brief.")]
    assert sent["messages"] == [{"role": "user", "content": [said("Hi")]}]


def test_instructions_in_the_middle_stay_where_they_were_said() -> None:
    sent = body(Message.user("Hi"), Message.assistant("Hello"), Message.developer("Be brief."))

    assert "system" not in sent
    assert sent["messages"][-1] == {"role": "user", "content": [said("Be brief.")]}


def test_messages_of_the_stable_context_come_before_the_conversation() -> None:
    examples = context(Message.user("2+2?"), Message.system("Be kind."), Message.assistant("4"))
    sent = body(Message.user("3+3?"), context=examples)

    assert sent["system"] == [said("Be kind.")]
    assert [turn["role"] for turn in sent["messages"]] == ["user", "assistant", "user"]
    assert sent["messages"][0]["content"] == [said("2+2?")]


def test_messages_of_the_same_speaker_become_one_turn() -> None:
    assert turns(Message.user("One"), Message.user("Two")) == [
        {"role": "user", "content": [said("One"), said("Two")]}
    ]


@pytest.mark.parametrize("nothing", ["", " ", "\n\t "])
def test_a_text_of_blanks_is_left_out_because_anthropic_refuses_it(nothing: str) -> None:
    sent = body(
        Message.system([TextPart(nothing)]),
        Message.user([TextPart(nothing), TextPart("Hi")]),
        called(call("c1", city="Rome"), text=nothing),
        answered("c1", nothing),
        instruction=Message.system([TextPart(nothing)]),
    )

    assert "system" not in sent
    user, assistant, result = sent["messages"]
    assert user["content"] == [said("Hi")]
    assert [block["type"] for block in assistant["content"]] == ["tool_use"]
    assert result["content"] == [{"type": "tool_result", "tool_use_id": "c1"}]


def test_parallel_calls_and_their_results() -> None:
    _, assistant, results = turns(
        Message.user("Hi"),
        called(call("c1", city="Rome"), call("c2", "clock"), text="Let me see."),
        answered("c1", "sunny"),
        answered("c2", "no clock here", name="clock", error=True),
        Message.user("Thanks"),
    )

    assert assistant["content"] == [
        said("Let me see."),
        {"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Rome"}},
        {"type": "tool_use", "id": "c2", "name": "clock", "input": {}},
    ]
    assert results["content"] == [
        {"type": "tool_result", "tool_use_id": "c1", "content": "sunny"},
        {
            "type": "tool_result",
            "tool_use_id": "c2",
            "content": "no clock here",
            "is_error": True,
        },
        said("Thanks"),
    ]


def test_a_malformed_call_is_sent_back_without_arguments() -> None:
    malformed = ToolCall(id="c1", name="weather", malformed='{"city": ')
    _, assistant, _ = turns(Message.user("Hi"), called(malformed), answered("c1", "bad JSON"))

    assert assistant["content"][0]["input"] == {}


def test_ids_and_names_of_another_providers_calls_are_made_acceptable() -> None:
    """Kimi's ids are ``functions.weather:0``; Anthropic takes letters, digits, _ and -."""
    _, assistant, results = turns(
        Message.user("Hi"),
        called(call("functions.weather:0"), call("functions.a/b:1", "a/b"), call("toolu_1-x")),
        answered("functions.weather:0"),
        answered("functions.a/b:1", name="a/b"),
        answered("toolu_1-x"),
    )

    ids = ["functions_weather_0", "functions_a_b_1", "toolu_1-x"]
    assert [block["id"] for block in assistant["content"]] == ids
    assert [block["tool_use_id"] for block in results["content"]] == ids
    assert [block["name"] for block in assistant["content"]] == ["weather", "a_b", "weather"]


def test_a_call_without_a_name_gets_one() -> None:
    _, assistant, _ = turns(Message.user("Hi"), called(call("c1", "")), answered("c1", name=""))

    assert assistant["content"][0]["name"] == "unnamed"


def test_own_thinking_is_sent_back_unchanged_and_before_the_rest() -> None:
    thinking = [
        ThinkingPart("Hmm.", "c2ln", origin="messages"),
        ThinkingPart("", "b21pdHRlZA==", origin="messages"),
        ThinkingPart("", "cmVk", origin="messages", redacted=True),
    ]
    _, assistant, _ = turns(
        Message.user("Hi"),
        called(call("c1"), text="Well.", thinking=thinking),
        answered("c1"),
    )

    assert assistant["content"][:3] == [
        {"type": "thinking", "thinking": "Hmm.", "signature": "c2ln"},
        {"type": "thinking", "thinking": "", "signature": "b21pdHRlZA=="},
        {"type": "redacted_thinking", "data": "cmVk"},
    ]
    assert [block["type"] for block in assistant["content"][3:]] == ["text", "tool_use"]


@pytest.mark.parametrize(
    "foreign",
    [
        ThinkingPart("Hmm.", "c2ln", origin="responses"),
        ThinkingPart("Hmm.", "c2ln"),
        ThinkingPart("Hmm.", origin="messages"),
        ThinkingPart("Hmm.", "", origin="messages"),
    ],
)
def test_foreign_and_unsigned_thinking_is_dropped(foreign: ThinkingPart) -> None:
    _, assistant = turns(Message.user("Hi"), called(text="Well.", thinking=[foreign]))

    assert assistant["content"] == [said("Well.")]


@pytest.mark.parametrize("redacted", [True, False])
def test_a_message_that_was_cut_off_while_it_thought_is_left_out(redacted: bool) -> None:
    """Anthropic: the final block in an assistant message cannot be `thinking`."""
    thought = ThinkingPart("Hmm.", "c2ln", origin="messages", redacted=redacted)
    sent = turns(Message.user("Hi"), called(thinking=[thought]), Message.user("Go on."))

    assert sent == [{"role": "user", "content": [said("Hi"), said("Go on.")]}]


def test_images_and_files() -> None:
    (turn,) = turns(
        Message.user(
            [
                ImagePart(url="https://example.com/cat.png"),
                ImagePart(data="aGk=", media_type="image/jpeg"),
                ImagePart(data="aGk="),
                FilePart(url="https://example.com/a.pdf"),
                FilePart(data="aGk=", name="a.pdf"),
            ]
        )
    )

    def data(media_type: str) -> dict[str, str]:
        return {"type": "base64", "media_type": media_type, "data": "aGk="}

    assert turn["content"] == [
        {"type": "image", "source": {"type": "url", "url": "https://example.com/cat.png"}},
        {"type": "image", "source": data("image/jpeg")},
        {"type": "image", "source": data("image/png")},
        {"type": "document", "source": {"type": "url", "url": "https://example.com/a.pdf"}},
        {"type": "document", "source": data("application/pdf"), "title": "a.pdf"},
    ]


@pytest.mark.parametrize(
    ("part", "advice"),
    [
        (FilePart(data="aGk=", media_type="text/csv"), "TextPart"),
        (FilePart(name="a.pdf"), "neither url nor data"),
        (ImagePart(), "neither url nor data"),
    ],
)
def test_what_cannot_be_sent_is_refused_with_advice(part: Any, advice: str) -> None:
    with pytest.raises(ModelError, match=advice) as raised:
        body(Message.user([part]))

    assert raised.value.kind is ModelErrorKind.INVALID_REQUEST


def test_an_instruction_with_an_image_is_refused_and_not_cut() -> None:
    asked = Message.of(Role.SYSTEM, [TextPart("Be kind."), ImagePart(data="aGk=")])
    with pytest.raises(ModelError, match=r"system message.*ImagePart.*user"):
        body(asked, Message.user("Hi"))


def test_tools_and_the_choice_among_them() -> None:
    sent = body(tools=(WEATHER, CLOCK))

    assert sent["tools"] == [
        {
            "name": "weather",
            "description": "The weather of a city.",
            "input_schema": WEATHER.parameters,
        },
        {"name": "clock", "description": "The time.", "input_schema": CLOCK.parameters},
    ]
    assert "tool_choice" not in sent


@pytest.mark.parametrize(
    ("settings", "sent"),
    [
        ({"tool_choice": "auto"}, {"type": "auto"}),
        ({"tool_choice": "none"}, {"type": "none"}),
        ({"tool_choice": "required"}, {"type": "any"}),
        ({"tool_choice": "weather"}, {"type": "tool", "name": "weather"}),
        ({"parallel_tool_calls": False}, {"type": "auto", "disable_parallel_tool_use": True}),
        (
            {"parallel_tool_calls": True, "tool_choice": "required"},
            {"type": "any", "disable_parallel_tool_use": False},
        ),
        (
            {"parallel_tool_calls": False, "tool_choice": "weather"},
            {"type": "tool", "name": "weather", "disable_parallel_tool_use": True},
        ),
        ({"parallel_tool_calls": False, "tool_choice": "none"}, {"type": "none"}),
    ],
)
def test_tool_choice(settings: dict[str, Any], sent: dict[str, Any]) -> None:
    assert body(tools=(WEATHER,), **settings)["tool_choice"] == sent
    assert "tool_choice" not in body(**settings), "without tools there is nothing to choose"


def test_tools_that_were_called_are_declared_but_not_offered_when_there_are_none() -> None:
    """Anthropic: requests which include tool_use or tool_result blocks must define tools. A run
    that wraps up at a limit offers none."""
    sent = body(
        Message.user("Hi"),
        called(call("c1", city="Rome"), call("c2", "a/b")),
        answered("c1"),
        answered("c2", name="a/b"),
        called(call("c3")),
        answered("c3"),
        tool_choice="required",
    )

    assert [tool["name"] for tool in sent["tools"]] == ["weather", "a_b"]
    assert sent["tool_choice"] == {"type": "none"}
    assert "tools" not in body(Message.user("Hi"), Message.assistant("Hello"), Message.user("Bye"))


@pytest.mark.parametrize(
    ("effort", "thinking", "level"),
    [
        (ThinkingEffort.NONE, {"type": "disabled"}, None),
        (ThinkingEffort.MINIMAL, {"type": "adaptive"}, "low"),
        (ThinkingEffort.LOW, {"type": "adaptive"}, "low"),
        (ThinkingEffort.MEDIUM, {"type": "adaptive"}, "medium"),
        (ThinkingEffort.HIGH, {"type": "adaptive"}, "high"),
    ],
)
def test_thinking_is_adaptive(effort: ThinkingEffort, thinking: Any, level: str | None) -> None:
    sent = body(thinking=effort)

    assert sent["thinking"] == thinking
    assert sent.get("output_config") == (None if level is None else {"effort": level})


@pytest.mark.parametrize("effort", [e for e in ThinkingEffort if e is not ThinkingEffort.NONE])
def test_older_models_get_a_budget_within_the_bound(effort: ThinkingEffort) -> None:
    sent = body(thinking=effort, wire=AnthropicMessages(thinking_budgets=True))

    assert sent["thinking"]["type"] == "enabled"
    assert 1024 <= sent["thinking"]["budget_tokens"] < sent["max_tokens"]
    assert "output_config" not in sent


@pytest.mark.parametrize(
    "model",
    [
        "claude-3-7-sonnet-20250219",
        "claude-3-7-sonnet-latest",
        "claude-sonnet-4-20250514",
        "claude-opus-4-0",
        "claude-opus-4-1-20250805",
        "claude-sonnet-4-5",
        "claude-haiku-4-5-20251001",
        "claude-opus-4-5@20251101",
        "us.anthropic.claude-sonnet-4-20250514-v1:0",
        "anthropic/claude-sonnet-4.5",
    ],
)
def test_models_before_4_6_are_known_by_their_names(model: str) -> None:
    sent = body(thinking="high", model=model)

    assert sent["thinking"]["type"] == "enabled"
    assert sent["max_tokens"] <= 32_000, "the least that any of them can write"
    adaptive = body(thinking="low", model=model, wire=AnthropicMessages(thinking_budgets=False))
    assert adaptive["thinking"] == {"type": "adaptive"}


@pytest.mark.parametrize(
    "model",
    ["claude-opus-4-6", "claude-sonnet-4-6-20260101", "claude-opus-5", "claude-latest", "x"],
)
def test_newer_and_unknown_models_think_adaptively(model: str) -> None:
    assert body(thinking="high", model=model)["thinking"] == {"type": "adaptive"}


def test_a_budget_that_the_bound_leaves_no_room_for_is_refused_with_advice() -> None:
    older = AnthropicMessages(thinking_budgets=True)
    with pytest.raises(ModelError, match=r"max_tokens.*4096") as raised:
        body(thinking="low", max_tokens=4096, wire=older)

    assert raised.value.kind is ModelErrorKind.INVALID_REQUEST
    assert body(thinking="low", max_tokens=4097, wire=older)["max_tokens"] == 4097


def test_a_strict_schema_is_promised_and_an_open_one_asked_for_in_words() -> None:
    strict = body(response_format=PERSON)
    loose = body(response_format=ResponseFormat(schema=PERSON, strict=False))
    any_json = body(response_format={"type": "json_object"})

    assert strict["output_config"] == {"format": {"type": "json_schema", "schema": PERSON}}
    assert "system" not in strict
    assert "output_config" not in loose
    assert '"name"' in loose["system"][-1]["text"]
    assert "JSON object" in any_json["system"][-1]["text"]


@pytest.mark.parametrize("model", ["claude-3-7-sonnet-latest", "claude-sonnet-4-20250514"])
def test_models_that_cannot_promise_a_schema_are_asked_in_words(model: str) -> None:
    sent = body(response_format=PERSON, model=model)

    assert "output_config" not in sent
    assert '"name"' in sent["system"][-1]["text"]
    assert "output_config" in body(response_format=PERSON, model="claude-haiku-4-5")


def test_a_schema_goes_together_with_tools_and_effort() -> None:
    sent = body(response_format=PERSON, tools=(WEATHER,), thinking="high")

    assert sent["output_config"]["effort"] == "high"
    assert sent["output_config"]["format"]["schema"] == PERSON
    assert sent["tools"]


def test_extra_body_is_merged_one_level_deep() -> None:
    sent = UNMARKED.body(
        request(
            thinking="low",
            extra_body={"output_config": {"effort": "max"}, "thinking": {"display": "omitted"}},
            extra_headers={"x-a": "b"},
        ),
        MODEL,
        streaming=False,
    )

    assert sent["output_config"] == {"effort": "max"}
    assert sent["thinking"] == {"type": "adaptive", "display": "omitted"}
    assert "x-a" not in sent


def test_settings_have_their_words() -> None:
    sent = body(
        settings=ModelSettings(temperature=0.0, top_p=0.5, max_tokens=7, stop=("END", "STOP"))
    )

    assert (sent["temperature"], sent["top_p"], sent["max_tokens"]) == (0.0, 0.5, 7)
    assert sent["stop_sequences"] == ["END", "STOP"]


@pytest.mark.parametrize("seed", [0, 7])
def test_a_seed_is_refused_because_there_is_none(seed: int) -> None:
    with pytest.raises(ModelError, match="seed; leave it out") as raised:
        body(seed=seed)

    assert raised.value.kind is ModelErrorKind.INVALID_REQUEST
