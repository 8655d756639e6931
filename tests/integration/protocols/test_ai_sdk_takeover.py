"""A worker dies in the middle of an answer: the real AI SDK shows each text once, as it counts."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from stepwell.agent import Agent
from stepwell.journal import Entry
from stepwell.journal.envelope import EnvelopeType, StepStartedPayload, StreamChunkPayload
from stepwell.messages import Message
from stepwell.protocols.ai_sdk import AiSdkTranslator, state_from_ai_sdk
from stepwell.state import AgentState
from stepwell.testing import ScriptedModel
from tests.servers.ai_sdk_chat import ChatClient, client_running, missing

pytestmark = pytest.mark.skipif(missing() is not None, reason=f"no AI SDK client: {missing()}")

AT = datetime(2026, 1, 1, tzinfo=UTC)
Json = dict[str, Any]


@pytest.fixture(scope="module")
def client() -> Iterator[ChatClient]:
    with client_running() as running:
        yield running


def started() -> Entry:
    payload = StepStartedPayload(agent_id="a", step_number=1, message_count=1, available_tools=())
    return Entry(type=EnvelopeType.AGENT_STEP_STARTED, execution_id="e1", at=AT, payload=payload)


def chunk(index: int, text: str, *, last: bool = False) -> Entry:
    payload = StreamChunkPayload(
        agent_id="a", step_number=1, content=text, is_complete=last, chunk_index=index
    )
    return Entry(type=EnvelopeType.AGENT_STREAM_CHUNK, execution_id="e1", at=AT, payload=payload)


async def chunks_of(before: list[str], after: list[str]) -> list[Json]:
    """What a client is sent: pieces of the attempt that broke off, then those of the next one."""
    asked = AgentState.empty(agent_id="a").with_message(Message.user("Go", id="m1"))
    begun = asked.with_execution_started("e1", AT)
    state = await Agent(ScriptedModel(["".join(after)])).run(begun)
    translator = AiSdkTranslator("answer")
    sent = translator.start(asked)
    sent += translator.translate(started())
    for index, piece in enumerate(before):
        sent += translator.translate(chunk(index, piece))
    sent += translator.restart(asked)
    sent += translator.translate(started())
    for index, piece in enumerate(after):
        sent += translator.translate(chunk(index, piece))
    sent += translator.translate(chunk(len(after), "", last=True))
    return [*sent, *translator.step(state), *translator.finish(state)]


async def shown(client: ChatClient, before: list[str], after: list[str]) -> list[Json]:
    chunks = await chunks_of(before, after)
    [seen] = await client.do(validate=[chunks])
    assert (seen["wrong"], seen["errors"]) == ([], [])
    assert all(p["state"] == "done" for p in seen["message"]["parts"] if p["type"] == "text")
    posted = [{"id": "m1", "role": "user", "parts": [{"type": "text", "text": "Go"}]}]
    history = state_from_ai_sdk({"id": "c", "messages": [*posted, seen["message"], *_next()]})
    answers = [message.text for message in history.messages if message.is_assistant()]
    assert answers == ["".join(after)]
    return [part for part in seen["message"]["parts"] if part["type"] == "text"]


def _next() -> list[Json]:
    return [{"id": "m2", "role": "user", "parts": [{"type": "text", "text": "And?"}]}]


@pytest.mark.parametrize("before", [["The ans"], ["The answer is 4."], ["T", "he answer is 4"]])
async def test_an_answer_that_is_the_same_again_is_one_text(
    client: ChatClient, before: list[str]
) -> None:
    parts = await shown(client, before, ["The", " answer", " is 4."])
    assert [part["text"] for part in parts] == ["The answer is 4."]
    assert "providerMetadata" not in parts[0]


@pytest.mark.parametrize(
    ("before", "after"),
    [("The answer mi", "The answer is 4."), ("The answer is 4. Or", "The answer is 4.")],
    ids=["another text", "a shorter text"],
)
async def test_an_answer_that_differs_supersedes_the_text_before(
    client: ChatClient, before: str, after: str
) -> None:
    parts = await shown(client, [before], [after])
    assert [part["text"] for part in parts] == [before, after]
    assert parts[0]["providerMetadata"] == {"stepwell": {"superseded": True}}
    assert "providerMetadata" not in parts[1]
