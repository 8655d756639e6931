"""Of what a provider streams, clients are sent the text that was read from it and nothing else."""

import json
from typing import Any

import pytest

from stepwell import Agent
from stepwell.broadcasting.config import BroadcastConfig
from stepwell.models.provider import Provider
from stepwell.testing import MockTool
from tests.servers.byte_server import Answer, ByteServer
from tests.unit.broadcasting.following import Followed

RAW = "fp_raw_frame"
USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}


def frame(finish: str | None = None, **delta: Any) -> bytes:
    """One piece of a response, with what only the provider's own clients understand."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": {"x": RAW}}
    return told({"id": RAW, "system_fingerprint": RAW, "model": "large", "choices": [choice]})


def told(data: Any) -> bytes:
    return b"data: " + json.dumps(data).encode() + b"\n\n"


LAST = (told({"id": RAW, "model": "large", "choices": [], "usage": USAGE}), b"data: [DONE]\n\n")
CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at":'}}
CALLING = (
    f": {RAW}\n\n".encode(),
    frame(role="assistant", content=None),
    frame(reasoning_content=f"{RAW} thinks"),
    frame(tool_calls=[{"index": 0, **CALL}]),
    frame(tool_calls=[{"index": 0, "function": {"arguments": ' "here"}'}}]),
    frame("tool_calls"),
    *LAST,
)
SAYING = (
    frame(role="assistant", content=""),
    frame(content="Hel"),
    frame(content="lo."),
    frame("stop"),
    *LAST,
)


@pytest.mark.parametrize("config", [BroadcastConfig.standard(), BroadcastConfig.debug()])
async def test_b149_raw_frames_of_a_provider_are_not_sent(
    byte_server: ByteServer, config: BroadcastConfig
) -> None:
    byte_server.script(Answer.sse(*CALLING), Answer.sse(*SAYING))
    model = Provider(name="acme", base_url=f"{byte_server.url}/v1").model("large", api_key="k")
    followed = Followed(Agent(model, tools=[MockTool.returning("look", "seen")]), config)

    state = await followed.run()

    assert state.final_response == "Hello.", state.explain()
    chunks = followed.payloads("agent.stream.chunk")
    assert [chunk["content"] for chunk in chunks] == ["Hel", "lo.", ""]
    assert [chunk["is_complete"] for chunk in chunks] == [False, False, True]
    assert RAW not in json.dumps(followed.envelopes)
