"""What a slim snapshot makes of metadata and arguments: JSON whatever they hold, and no secrets."""

import dataclasses
import json
from collections import deque
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from typing import Any

import pytest
from msgspec import Struct
from pydantic import BaseModel, Field, SecretBytes, SecretStr, field_serializer

from stepwell import Agent, AgentState, Message, ToolCall, ToolContext
from stepwell.messages import History, ToolResult
from stepwell.models.api_key import ApiKey
from stepwell.serialization.slim import SlimAgentStateSerializer
from stepwell.serialization.slim_config import SlimSerializationConfig
from stepwell.testing import ScriptedModel, call
from stepwell.tools import InputRequired

CANARY = "canary-f00dcafe"


def shown(value: Any, **settings: Any) -> Any:
    state = AgentState.empty().with_metadata({"value": value})
    document = SlimAgentStateSerializer(SlimSerializationConfig(**settings)).serialize(state)
    json.dumps(document, allow_nan=False).encode()
    return document["metadata"]["value"]


class Colour(Enum):
    RED = "red"


@dataclasses.dataclass
class Login:
    user: str
    password: SecretStr


class Account(Struct):
    name: str
    key: Any


class Settings(BaseModel):
    token: SecretStr
    hidden: str = Field(default=CANARY, exclude=True)
    revealed: SecretStr = SecretStr(CANARY)
    where: list[Login] = []

    @field_serializer("revealed", when_used="json")
    def _reveal(self, value: SecretStr) -> str:
        return value.get_secret_value()


class Service:
    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)


@pytest.mark.parametrize(
    ("value", "made"),
    [
        (None, None),
        (True, True),
        (3, 3),
        (1.5, 1.5),
        (float("nan"), "nan"),
        ([float("inf"), {"a": float("-inf")}], ["inf", {"a": "-inf"}]),
        ((1, 2), [1, 2]),
        (deque([1]), [1]),
        (History.of([1]), [1]),
        ({7}, [7]),
        (Colour.RED, "red"),
        ({Colour.RED: 1, 2: 3, None: 4, (1, 2): 5}, {"red": 1, "2": 3, "None": 4, "[1, 2]": 5}),
        (datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC), "2026-01-02T03:04:05.000006Z"),
        (Decimal("1.10"), "1.10"),
        (b"text", "text"),
        (b"\xff\xfe", "[bytes]"),
        ("a\ud800b", "a\ufffdb"),
        ({"\udfff": 1}, {"\ufffd": 1}),
        (2**70, 2**70),
        (iter([1]), "[list_iterator]"),
        (int, "[int]"),
        (Account(name="a", key=Decimal(2)), {"name": "a", "key": "2"}),
        (Service(a=1, _b=CANARY), {"a": 1}),
        (Service(a=Service(b=1)), {"a": "[Service]"}),
    ],
)
def test_any_value_becomes_json(value: Any, made: Any) -> None:
    assert shown(value) == made


def test_a_number_with_too_many_digits_to_write_is_named() -> None:
    assert shown([10**5000]) == ["[number of 16610 bits]"]


def test_a_value_in_itself_is_told_so() -> None:
    circle: list[Any] = [1]
    circle.append({"again": circle})
    assert shown(circle) == [1, {"again": "[circular]"}]


def test_the_same_value_twice_is_no_circle() -> None:
    same = {"a": 1}
    assert shown([same, same]) == [same, same]


def test_depth_is_bounded() -> None:
    deep: Any = "bottom"
    for _ in range(5000):
        deep = [deep]
    text = json.dumps(shown(deep))
    assert "[nested too deep]" in text
    assert "bottom" not in text


def test_the_number_of_values_is_bounded() -> None:
    laughs: Any = ["ha"]
    for _ in range(40):
        laughs = [laughs, laughs]
    assert len(json.dumps(shown(laughs))) < 200_000
    many = shown(list(range(20_000)))
    assert many[:3] == [0, 1, 2]
    assert len(many) <= 10_001
    assert many[-1] == "[left out]"


def test_long_keys_are_cut_but_short_ones_never() -> None:
    assert shown({"k" * 500: 1, "a key": 2}, max_content_length=1) == {
        "k" * 200 + "...": 1,
        "a key": 2,
    }


@pytest.mark.parametrize(
    "value",
    [
        SecretStr(CANARY),
        SecretBytes(CANARY.encode()),
        ApiKey(CANARY),
        [SecretStr(CANARY)],
        {"a": ({"b": ApiKey(CANARY)},)},
        {SecretStr(CANARY): 1},
        Login("ada", SecretStr(CANARY)),
        Account(name="a", key=SecretStr(CANARY)),
        Settings(token=SecretStr(CANARY), where=[Login("ada", SecretStr(CANARY))]),
        Service(key=ApiKey(CANARY), logins=[Login("ada", SecretStr(CANARY))]),
    ],
)
def test_values_marked_secret_are_hidden_wherever_they_are(value: Any) -> None:
    state = AgentState.empty().with_metadata({"value": value})
    message = Message.user("hi", metadata={"value": value})
    calling = Message.assistant("", [ToolCall(id="c", name="t", arguments={"value": value})])
    result = Message.tool(ToolResult(call_id="c", tool_name="t", content=""))
    serializer = SlimAgentStateSerializer(SlimSerializationConfig.full())
    document = serializer.serialize(state.with_messages([message, calling, result]))
    text = json.dumps(document, allow_nan=False)
    assert CANARY not in text
    assert text.count("[secret]") >= 3


def test_what_stands_for_a_secret_is_never_cut() -> None:
    assert shown([SecretStr(CANARY), b"\xff", "[secret]"], max_content_length=4) == [
        "[secret]",
        "[byt...",
        "[secret]",
    ]


def test_a_state_in_metadata_is_told_by_what_it_said() -> None:
    child = AgentState.empty().with_user_message(CANARY).with_metadata({"note": CANARY})
    assert shown({"child": [child]}) == {"child": [None]}


async def test_secret_arguments_stay_hidden() -> None:
    def log_in(user: str, password: SecretStr) -> str:
        """Log in."""
        return f"{user} has {password.get_secret_value()}"

    model = ScriptedModel([call("log_in", user="ada", password=CANARY), "Done."])
    state = await Agent(model, tools=[log_in]).run("Log in")
    document = SlimAgentStateSerializer(SlimSerializationConfig.full()).serialize(state)
    assert document["messages"][1]["metadata"]["tool_calls"][0]["arguments"] == {
        "user": "ada",
        "password": "[secret]",
    }
    assert CANARY not in json.dumps(document)


async def test_what_a_paused_tool_kept_is_not_shown() -> None:
    def ask(context: ToolContext) -> InputRequired:
        """Ask."""
        child = AgentState.empty().with_user_message(CANARY)
        return InputRequired(prompt="Which?", resumes=True, kept=child)

    state = await Agent(ScriptedModel([call("ask", id="c")]), tools=[ask]).run("Go")
    serializer = SlimAgentStateSerializer(SlimSerializationConfig.full())
    document = serializer.serialize(state)
    assert document["status"] == "paused"
    assert state.pending[0].kept is not None
    assert CANARY not in json.dumps(document)
    back = serializer.deserialize(document)
    assert back.pending == ()
    after = await Agent(ScriptedModel(["Fine."]), tools=[ask]).run(back.with_user_message("Stop"))
    assert after.unwrap() == "Fine."


def test_half_characters_are_replaced_everywhere() -> None:
    odd = "\ud83d"
    state = AgentState.empty(agent_id=odd, parent_agent_id=odd).with_messages(
        [
            Message.user(odd, id=odd, metadata={odd: odd}),
            Message.assistant(odd, [ToolCall(id=odd, name=odd, arguments={odd: odd})]),
            Message.tool(ToolResult(call_id=odd, tool_name=odd, content=odd)),
        ]
    )
    serializer = SlimAgentStateSerializer()
    document = serializer.serialize(state)
    json.dumps(document, ensure_ascii=False).encode()
    back = serializer.deserialize(document).messages
    assert back[1].tool_calls[0].id == "\ufffd"
    assert back[2].tool_result is not None
    assert back[2].tool_result.call_id == "\ufffd"
