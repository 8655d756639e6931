"""Extraction and self-critique over real HTTP in all four wire formats, against aimock."""

import asyncio
import sys

import pytest
from pydantic import BaseModel, Field

from stepwell import Agent, AgentStatus
from stepwell.capabilities.critique import UseSelfCritique
from stepwell.capabilities.extraction import UseStructuredOutputs
from tests.servers.aimock_server import Aimock
from tests.servers.record import WIRES
from tests.servers.weather_agent import model_at

# One event loop for all, and so one HTTP client, as in an application that lives for a while.
pytestmark = pytest.mark.asyncio(loop_scope="module")

LETTER = "Dear Ada, you are 36."
TASK = "Who is in the letter?"
REJECTED = '{"feedback": "Say her age as well.", "approved": false}'
APPROVED = '{"feedback": "", "approved": true}'


class Lead(BaseModel):
    """Someone who may buy."""

    name: str
    age: int = Field(ge=0)


def answered(said: str, response: dict, **match: bool) -> dict:
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    return {"match": {"userMessage": said, **match}, "response": {**response, "usage": usage}}


def fixtures() -> list[dict]:
    """The first that matches the last words of the user answers."""
    extract = {"input": LETTER, "schema": "lead", "store_as": "lead"}
    calls = [{"id": "call_1", "name": "extract_data", "arguments": extract}]
    return [
        answered("Ada, 36.", {"content": APPROVED}),
        answered("Judge the answer", {"content": REJECTED}),
        answered("Say her age", {"content": "Ada, 36."}),
        answered("age: Field required", {"content": '{"name": "Ada", "age": 36}'}),
        answered(LETTER, {"content": '{"name": "Ada"}'}),
        answered(TASK, {"content": "Ada is in it."}, hasToolResult=True),
        answered(TASK, {"toolCalls": calls}),
    ]


@pytest.mark.parametrize("wire", WIRES)
async def test_data_is_extracted_and_the_answer_is_judged_in_every_wire_format(
    aimock: Aimock, wire: str
) -> None:
    aimock.load(*fixtures())
    agent = Agent(
        model_at(aimock.base_url(wire), wire),
        capabilities=[UseStructuredOutputs({"lead": Lead}), UseSelfCritique()],
    )
    state = await agent.run(TASK)

    assert state.status is AgentStatus.COMPLETED, state.explain()
    assert state.metadata["lead"] == {"name": "Ada", "age": 36}
    assert state.final_response == "Ada, 36."
    judged = [taken.step.metadata.get("critique", {}).get("approved") for taken in state.steps]
    assert judged == [None, False, True]
    assert len(aimock.journal()) == 7
    assert state.usage.total_tokens == 7 * 15


async def test_importing_the_capabilities_loads_no_pydantic() -> None:
    program = (
        "import sys, stepwell.capabilities.extraction, stepwell.capabilities.critique\n"
        "sys.exit('pydantic' in sys.modules)"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program)

    assert await process.wait() == 0
