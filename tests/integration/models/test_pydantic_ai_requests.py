"""What the bridge asks of a pydantic-ai model."""

import base64

import pytest
from pydantic_ai import messages as theirs
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.profiles import ModelProfile

from stepwell import Message, ModelError, ModelSettings, ToolCall
from stepwell.errors import ModelErrorKind
from stepwell.messages import FilePart, ImagePart, TextPart, ThinkingPart, ToolResult
from stepwell.models import CachedContext, ThinkingEffort
from stepwell.models.pydantic_ai import PydanticAiModel
from tests.integration.models.pydantic_ai_doubles import ADD, CITY, Heard, asking, heard

PIXEL = base64.b64encode(b"\x89PNG").decode()


async def test_cached_context_comes_first_and_the_instruction_last():
    sent = await heard(
        Message.user("Hello"),
        context=CachedContext(messages=(Message.system("Be brief."), Message.user("Rules"))),
        instruction=Message.user("Answer now."),
    )

    assert sent.kinds == [["system-prompt", "user-prompt", "user-prompt", "user-prompt"]]
    assert [part.content for part in sent.messages[0].parts] == [
        "Be brief.",
        "Rules",
        "Hello",
        "Answer now.",
    ]


async def test_an_instruction_of_the_system_stays_behind_the_conversation():
    sent = await heard(Message.user("Hello"), instruction=Message.system("Wrap up."))

    last = sent.messages[0].parts[-1]
    assert "Wrap up." in last.content
    assert sent.messages[0].parts[0].content == "Hello"


async def test_a_developer_speaks_as_the_system_does():
    sent = await heard(Message.developer("Be exact."), Message.user("Hi"))

    assert sent.kinds == [["system-prompt", "user-prompt"]]


async def test_calls_and_results_are_linked_and_neighbours_become_one_message():
    calls = (
        ToolCall(id="c1", name="add", arguments={"a": 1}),
        ToolCall(id="c2", name="add", malformed='{"a": '),
    )
    sent = await heard(
        Message.user("Add"),
        Message.assistant("Let me see.", calls),
        Message.tool(ToolResult(call_id="c1", tool_name="add", content="3")),
        Message.tool(
            ToolResult(call_id="c2", tool_name="add", content="Error: bad", is_error=True)
        ),
    )

    assert sent.kinds == [
        ["user-prompt"],
        ["text", "tool-call", "tool-call"],
        ["tool-return", "tool-return"],
    ]
    said, first, second = sent.messages[1].parts
    assert (said.content, first.tool_call_id, first.args) == ("Let me see.", "c1", {"a": 1})
    assert second.args_as_dict() == {"INVALID_JSON": '{"a": '}
    good, bad = sent.messages[2].parts
    assert (good.tool_call_id, good.content, good.outcome) == ("c1", "3", "success")
    assert (bad.tool_call_id, bad.content, bad.outcome) == ("c2", "Error: bad", "failed")


async def test_images_and_files_keep_their_place_between_the_text():
    parts = (
        TextPart("Look:"),
        ImagePart(url="https://example.org/a.png"),
        ImagePart(data=PIXEL),
        ImagePart(url=f"data:image/webp;base64,{PIXEL}"),
        FilePart(data=PIXEL, media_type="text/csv", name="a.csv"),
        FilePart(url="https://example.org/a.pdf?x=1"),
        FilePart(url="https://example.org/a.mp3"),
        FilePart(url="https://example.org/clip", media_type="video/mp4"),
    )
    sent = await heard(Message.user(parts))
    text, address, data, from_address, table, document, sound, clip = (
        sent.messages[0].parts[0].content
    )

    assert text == "Look:"
    assert (type(address), address.url) == (theirs.ImageUrl, "https://example.org/a.png")
    assert (data.data, data.media_type) == (b"\x89PNG", "image/png")
    assert (from_address.data, from_address.media_type) == (b"\x89PNG", "image/webp")
    assert (table.media_type, table.identifier) == ("text/csv", "a.csv")
    assert type(document) is theirs.DocumentUrl
    assert type(sound) is theirs.AudioUrl
    assert (type(clip), clip.media_type) == (theirs.VideoUrl, "video/mp4")


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (Message.user([ImagePart()]), "ImagePart has neither url nor data"),
        (Message.user([FilePart(data="%%%")]), "is not base64"),
        (Message.user([ThinkingPart("hm")]), "a user message can't contain a ThinkingPart"),
        (Message.of("assistant", [ImagePart(data=PIXEL)]), "can't contain a ImagePart"),
    ],
)
async def test_what_can_not_be_sent_is_named(message, words):
    with pytest.raises(ModelError, match=words) as caught:
        await heard(Message.user("Hi"), message)

    assert caught.value.kind is ModelErrorKind.INVALID_REQUEST


async def test_thinking_goes_back_to_the_bridge_only_with_its_signature_and_provider():
    ours = ThinkingPart("hm", "sig", "th1", "pydantic_ai:acme")
    sent = await heard(
        Message.user("Hi"),
        Message.of("assistant", [ours, ThinkingPart("x", "y", None, "messages"), TextPart("A")]),
        Message.user("And?"),
    )
    thought, said = sent.messages[1].parts

    assert (thought.content, thought.signature, thought.id) == ("hm", "sig", "th1")
    assert thought.provider_name == "acme"
    assert said.content == "A"


async def test_the_signature_of_a_call_goes_back_with_it():
    call = ToolCall(id="c1", name="add", signature="c2ln")
    sent = await heard(Message.user("Hi"), Message.assistant("", [call]), Message.user("?"))
    part = sent.messages[1].parts[0]

    assert part.provider_details == {"thought_signature": "c2ln"}
    assert part.provider_name == "function"


async def test_messages_without_content_are_left_out():
    sent = await heard(Message.system(""), Message.user("Hi"), Message.assistant(""))

    assert sent.kinds == [["user-prompt"]]


async def test_tools_become_definitions():
    sent = await heard(tools=(ADD,))
    definition = sent.info.function_tools[0]

    assert (definition.name, definition.description) == ("add", "Add two numbers.")
    assert definition.parameters_json_schema == ADD.parameters


async def test_only_settings_that_are_set_are_sent():
    assert (await heard()).settings == {}


async def test_every_setting_has_its_word():
    settings = ModelSettings(
        temperature=0.5,
        top_p=0.9,
        max_tokens=7,
        stop=("END",),
        seed=3,
        tool_choice="add",
        parallel_tool_calls=False,
        extra_body={"a": 1},
        extra_headers={"x-a": "b"},
    )
    sent = await heard(settings=settings, tools=(ADD,))

    assert sent.settings == {
        "temperature": 0.5,
        "top_p": 0.9,
        "max_tokens": 7,
        "stop_sequences": ["END"],
        "seed": 3,
        "tool_choice": ["add"],
        "parallel_tool_calls": False,
        "extra_body": {"a": 1},
        "extra_headers": {"x-a": "b"},
    }


async def test_a_choice_of_tools_is_not_sent_without_tools():
    settings = ModelSettings(tool_choice="required", parallel_tool_calls=True)

    assert (await heard(settings=settings)).settings == {}
    assert (await heard(settings=settings, tools=(ADD,))).settings["tool_choice"] == "required"


@pytest.mark.parametrize(
    ("effort", "sent"), [("none", False), ("minimal", "minimal"), ("high", "high")]
)
async def test_thinking_effort_is_sent_where_the_model_thinks(effort, sent):
    listener = Heard()
    model = listener.model(profile=ModelProfile(supports_thinking=True))
    await model.respond(asking(settings=ModelSettings(thinking=ThinkingEffort(effort))))

    assert listener.info.model_request_parameters.thinking == sent


async def test_a_stable_context_asks_for_prompt_caching():
    listener = Heard()
    model = listener.model(profile=ModelProfile(supports_cache=True))
    await model.respond(asking())
    without = listener.info.model_request_parameters.cache
    await model.respond(asking(context=CachedContext(messages=(Message.system("Be brief."),))))

    assert (without, listener.info.model_request_parameters.cache) == (None, True)


async def test_how_to_cache_can_be_said_on_the_pydantic_ai_model():
    listener = Heard()
    profile = ModelProfile(supports_cache=True)
    model = listener.model(profile=profile, settings={"cache": False})
    await model.respond(asking(context=CachedContext(messages=(Message.system("Be brief."),))))

    assert listener.info.model_request_parameters.cache is False


async def test_settings_of_the_request_win_over_those_of_the_model():
    listener = Heard()
    defaults = ModelSettings(temperature=1.0, seed=4)
    model = PydanticAiModel(FunctionModel(listener), settings=defaults)
    await model.respond(asking(settings=ModelSettings(temperature=0.0)))

    assert listener.settings == {"temperature": 0.0, "seed": 4}


async def test_a_schema_is_enforced_where_the_provider_can():
    sent = await heard(response_format=CITY)
    parameters = sent.info.model_request_parameters

    assert parameters.output_mode == "native"
    assert parameters.output_object.json_schema == CITY
    assert parameters.output_object.strict is True


@pytest.mark.parametrize("response_format", [CITY, {"type": "json_object"}])
async def test_a_schema_is_asked_for_in_words_where_it_can_not_be_enforced(response_format):
    listener = Heard()
    model = listener.model(profile=ModelProfile(supports_json_schema_output=False))
    await model.respond(asking(response_format=response_format))

    assert listener.info.model_request_parameters.output_mode == "prompted"
    assert "JSON" in listener.info.instructions


async def test_a_gemini_that_can_not_have_tools_and_a_schema_is_asked_in_words():
    listener = Heard()
    profile = {"supports_json_schema_output": True, "google_supports_tool_combination": False}
    model = listener.model(profile=profile)
    await model.respond(asking(response_format=CITY, tools=(ADD,)))
    with_tools = listener.info.model_request_parameters.output_mode
    await model.respond(asking(response_format=CITY))

    assert (with_tools, listener.info.model_request_parameters.output_mode) == (
        "prompted",
        "native",
    )
