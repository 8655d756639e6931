"""Gemini: what is sent."""

from typing import Any

import pytest

from stepwell import Message
from stepwell.errors import ModelError, ModelErrorKind
from stepwell.messages import FilePart, ImagePart, Role, TextPart, ThinkingPart, ToolCall
from stepwell.models import ModelSettings, ThinkingEffort
from stepwell.models.wire import Gemini
from tests.unit.models.wire.oracles import google_types
from tests.unit.models.wire.samples import (
    CLOCK,
    GEMINI,
    PERSON,
    WEATHER,
    answered,
    call,
    called,
    context,
    request,
)

MODEL = "gemini-3.5-flash"
OLDER = "gemini-2.5-flash"


def body(*messages: Message, model: str = MODEL, **more: Any) -> dict[str, Any]:
    return GEMINI.body(request(*messages, **more), model, streaming=False)


def contents(*messages: Message, **more: Any) -> list[Any]:
    return body(*messages, **more)["contents"]


def config(model: str = MODEL, **more: Any) -> dict[str, Any]:
    sent = body(model=model, **more)["generationConfig"]
    google_types().GenerationConfig.model_validate(sent)
    return sent


def test_the_least_that_is_sent_is_the_contents() -> None:
    assert body(Message.user("Hi")) == {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]}
    assert GEMINI.body(request(), MODEL, streaming=True) == GEMINI.body(
        request(), MODEL, streaming=False
    )


@pytest.mark.parametrize(
    ("model", "streaming", "path"),
    [
        (MODEL, False, "/v1beta/models/gemini-3.5-flash:generateContent"),
        (MODEL, True, "/v1beta/models/gemini-3.5-flash:streamGenerateContent?alt=sse"),
        ("models/gemini-x", False, "/v1beta/models/gemini-x:generateContent"),
        ("tunedModels/mine", False, "/v1beta/tunedModels/mine:generateContent"),
        ("odd?name#", False, "/v1beta/models/odd%3Fname%23:generateContent"),
    ],
)
def test_the_model_is_in_the_path(model: str, streaming: bool, path: str) -> None:
    assert GEMINI.path(model, streaming=streaming) == path


def test_another_version_is_in_the_path() -> None:
    assert Gemini(version="v1").path("m", streaming=False) == "/v1/models/m:generateContent"


def test_context_first_then_the_conversation_then_the_instruction() -> None:
    sent = body(
        Message.user("Hi"),
        Message.assistant("Hello"),
        Message.developer("Be brief."),
        context=context(Message.system("Be kind."), Message.developer("Be true.")),
        instruction=Message.system("Answer now."),
    )

    assert sent["systemInstruction"] == {"parts": [{"text": "Be kind."}, {"text": "Be true."}]}
    assert sent["contents"] == [
        {"role": "user", "parts": [{"text": "Hi"}]},
        {"role": "model", "parts": [{"text": "Hello"}]},
        {"role": "user", "parts": [{"text": "Be brief."}, {"text": "Answer now."}]},
    ]


def test_leading_instructions_of_the_conversation_are_instructions() -> None:
    sent = body(Message.system("Be kind."), Message.user("Hi"))

    assert sent["systemInstruction"] == {"parts": [{"text": "Be kind."}]}
    assert sent["contents"] == [{"role": "user", "parts": [{"text": "Hi"}]}]


def test_messages_of_the_stable_context_come_before_the_conversation() -> None:
    sent = contents(
        Message.user("3+3?"), context=context(Message.user("2+2?"), Message.assistant("4"))
    )

    assert [turn["role"] for turn in sent] == ["user", "model", "user"]


def test_messages_of_the_same_speaker_become_one_turn_and_empty_ones_none() -> None:
    sent = contents(
        Message.user("One"), Message.assistant(""), Message.user([TextPart(""), TextPart("Two")])
    )

    assert sent == [{"role": "user", "parts": [{"text": "One"}, {"text": "Two"}]}]


def test_parallel_calls_and_their_results() -> None:
    _, model, user = contents(
        Message.user("Hi"),
        called(call("c1", city="Rome"), call("c2", "clock"), text="Let me see."),
        answered("c1", "sunny"),
        answered("c2", "no clock", name="clock", error=True),
        Message.user("Thanks"),
        model=OLDER,
    )

    assert model["parts"] == [
        {"text": "Let me see."},
        {"functionCall": {"id": "c1", "name": "weather", "args": {"city": "Rome"}}},
        {"functionCall": {"id": "c2", "name": "clock", "args": {}}},
    ]
    assert user == {
        "role": "user",
        "parts": [
            {
                "functionResponse": {
                    "id": "c1",
                    "name": "weather",
                    "response": {"output": "sunny"},
                }
            },
            {
                "functionResponse": {
                    "id": "c2",
                    "name": "clock",
                    "response": {"error": "no clock"},
                }
            },
            {"text": "Thanks"},
        ],
    }


def test_a_malformed_call_is_sent_back_without_arguments() -> None:
    malformed = ToolCall(id="c1", name="weather", malformed='{"city": ')
    _, model, _ = contents(Message.user("Hi"), called(malformed), answered("c1", "bad JSON"))

    assert model["parts"][0]["functionCall"]["args"] == {}


@pytest.mark.parametrize(("name", "sent"), [("a b", "a_b"), ("", "unnamed")])
def test_the_name_of_a_tool_that_the_model_made_up_is_made_acceptable(name: str, sent: str) -> None:
    _, model, user = contents(
        Message.user("Hi"), called(call("c1", name)), answered("c1", name=name)
    )

    assert model["parts"][0]["functionCall"]["name"] == sent
    assert user["parts"][0]["functionResponse"]["name"] == sent


def signatures(*calls: ToolCall, model: str = MODEL) -> list[str | None]:
    results = [answered(made.id) for made in calls]
    _, turn, _ = contents(Message.user("Hi"), called(*calls), *results, model=model)
    return [part.get("thoughtSignature") for part in turn["parts"]]


def test_the_signature_of_a_call_is_sent_back_with_it() -> None:
    signed = ToolCall(id="c1", name="weather", signature="c2ln")

    assert signatures(signed, call("c2")) == ["c2ln", None]
    assert signatures(signed, model=OLDER) == ["c2ln"]


def test_calls_of_another_model_are_marked_for_models_that_demand_signatures() -> None:
    unsigned = "skip_thought_signature_validator"

    assert signatures(call("c1"), call("c2")) == [unsigned, None]
    assert signatures(call("c1"), model=f"models/{MODEL}") == [unsigned]
    assert signatures(call("c1"), model=OLDER) == [None]
    assert signatures(call("c1"), model=f"models/{OLDER}") == [None]


def test_the_text_of_thoughts_is_not_sent_back_but_their_signature_is() -> None:
    thought = ThinkingPart("Hmm.", "c2ln", origin="gemini")
    signed = contents(Message.user("Hi"), called(text="Well.", thinking=[thought]))
    alone = contents(Message.user("Hi"), called(thinking=[thought]))

    assert signed[1]["parts"] == [{"text": "Well.", "thoughtSignature": "c2ln"}]
    assert alone[1]["parts"] == [{"text": "", "thoughtSignature": "c2ln"}]


@pytest.mark.parametrize(
    "foreign",
    [
        ThinkingPart("Hmm.", "c2ln", origin="messages"),
        ThinkingPart("Hmm.", "c2ln"),
        ThinkingPart("Hmm.", origin="gemini"),
    ],
)
def test_foreign_and_unsigned_thinking_is_dropped(foreign: ThinkingPart) -> None:
    sent = contents(
        Message.user("Hi"), called(text="Well.", thinking=[foreign]), called(thinking=[foreign])
    )

    assert sent[1:] == [{"role": "model", "parts": [{"text": "Well."}]}]


def test_images_and_files() -> None:
    (turn,) = contents(
        Message.user(
            [
                ImagePart(url="https://example.com/cat.png"),
                ImagePart(url="gs://b/cat.png", media_type="image/png"),
                ImagePart(data="aGk=", media_type="image/jpeg"),
                ImagePart(data="aGk="),
                FilePart(data="aGk=", name="a.pdf"),
                FilePart(data="aGk=", media_type="text/csv"),
            ]
        )
    )

    assert turn["parts"] == [
        {"fileData": {"fileUri": "https://example.com/cat.png"}},
        {"fileData": {"fileUri": "gs://b/cat.png", "mimeType": "image/png"}},
        {"inlineData": {"mimeType": "image/jpeg", "data": "aGk="}},
        {"inlineData": {"mimeType": "image/png", "data": "aGk="}},
        {"inlineData": {"mimeType": "application/pdf", "data": "aGk="}},
        {"inlineData": {"mimeType": "text/csv", "data": "aGk="}},
    ]


def test_a_file_without_content_is_refused() -> None:
    with pytest.raises(ModelError, match="neither url nor data") as raised:
        body(Message.user([FilePart(name="a.pdf")]))

    assert raised.value.kind is ModelErrorKind.INVALID_REQUEST


def test_an_instruction_with_an_image_is_refused_and_not_cut() -> None:
    asked = Message.of(Role.SYSTEM, [TextPart("Be kind."), ImagePart(data="aGk=")])
    with pytest.raises(ModelError, match=r"system message.*ImagePart.*user"):
        body(asked, Message.user("Hi"))


def test_tools() -> None:
    sent = body(tools=(WEATHER, CLOCK))

    assert sent["tools"] == [
        {
            "functionDeclarations": [
                {
                    "name": "weather",
                    "description": "The weather of a city.",
                    "parametersJsonSchema": WEATHER.parameters,
                },
                {"name": "clock", "description": "The time."},
            ]
        }
    ]
    assert "toolConfig" not in sent


@pytest.mark.parametrize(
    ("choice", "sent"),
    [
        ("auto", {"mode": "AUTO"}),
        ("none", {"mode": "NONE"}),
        ("required", {"mode": "ANY"}),
        ("weather", {"mode": "ANY", "allowedFunctionNames": ["weather"]}),
    ],
)
def test_tool_choice(choice: str, sent: Any) -> None:
    asked = body(tools=(WEATHER,), tool_choice=choice)

    assert asked["toolConfig"] == {"functionCallingConfig": sent}
    assert "toolConfig" not in body(tool_choice=choice), "without tools there is nothing to choose"


@pytest.mark.parametrize("parallel", [True, False])
def test_parallel_calls_cannot_be_chosen_and_that_is_said(parallel: bool) -> None:
    with pytest.raises(ModelError, match="parallel_tool_calls; leave it out") as raised:
        body(tools=(WEATHER,), parallel_tool_calls=parallel)

    assert raised.value.kind is ModelErrorKind.INVALID_REQUEST


@pytest.mark.parametrize(
    ("model", "effort", "sent"),
    [
        (MODEL, "none", {"includeThoughts": False, "thinkingLevel": "low"}),
        (MODEL, "minimal", {"includeThoughts": True, "thinkingLevel": "low"}),
        (MODEL, "low", {"includeThoughts": True, "thinkingLevel": "low"}),
        (MODEL, "medium", {"includeThoughts": True, "thinkingLevel": "medium"}),
        (MODEL, "high", {"includeThoughts": True, "thinkingLevel": "high"}),
        (OLDER, "none", {"includeThoughts": False, "thinkingBudget": 0}),
        (OLDER, "minimal", {"includeThoughts": True, "thinkingBudget": 512}),
        (f"models/{OLDER}", "low", {"includeThoughts": True, "thinkingBudget": 1024}),
        (OLDER, "medium", {"includeThoughts": True, "thinkingBudget": 8192}),
        (OLDER, "high", {"includeThoughts": True, "thinkingBudget": 24_576}),
        ("gemini-2.5-pro", "none", {"includeThoughts": False, "thinkingBudget": 128}),
    ],
)
def test_thinking_is_rounded_to_what_the_model_has(model: str, effort: str, sent: Any) -> None:
    assert config(model, thinking=ThinkingEffort(effort))["thinkingConfig"] == sent


def test_settings_have_their_words() -> None:
    settings = ModelSettings(temperature=0.0, top_p=0.5, max_tokens=7, stop=("END",), seed=0)

    assert config(settings=settings) == {
        "temperature": 0.0,
        "topP": 0.5,
        "maxOutputTokens": 7,
        "stopSequences": ["END"],
        "seed": 0,
    }


def test_response_formats() -> None:
    assert config(response_format={"type": "json_object"}) == {
        "responseMimeType": "application/json"
    }
    assert config(response_format=PERSON) == {
        "responseMimeType": "application/json",
        "responseJsonSchema": PERSON,
    }


def test_with_tools_the_response_format_is_asked_for_in_words() -> None:
    sent = body(response_format=PERSON, tools=(WEATHER,), context=context(Message.system("Kind.")))

    assert "generationConfig" not in sent
    kind, words = [part["text"] for part in sent["systemInstruction"]["parts"]]
    assert kind == "Kind."
    assert '"name"' in words
    any_json = body(response_format={"type": "json_object"}, tools=(WEATHER,))
    assert "JSON object" in any_json["systemInstruction"]["parts"][0]["text"]


def test_extra_body_is_merged_one_level_deep() -> None:
    sent = body(
        temperature=0.5,
        extra_body={"generationConfig": {"topK": 3}, "cachedContent": "cachedContents/1"},
    )

    assert sent["generationConfig"] == {"temperature": 0.5, "topK": 3}
    assert sent["cachedContent"] == "cachedContents/1"
