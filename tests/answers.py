"""Answers in tests, by the call that asked."""

from typing import Any

import httpx2

from stepwell import AgentState
from stepwell.server.services import Services


def answer_call(state: AgentState, call_id: str, answer: Any) -> AgentState:
    """Answer the one question that this call asks."""
    (asked,) = [it for it in state.pending if it.call_id == call_id]
    return state.with_answer(asked, answer)


async def answer_question(services: Services, execution_id: str, call_id: str, answer: Any) -> None:
    """Answer the one question that this call of a paused execution asks."""
    row = await services.store.read(lambda tx: tx.execution(execution_id))
    assert row is not None
    (id,) = [it["question_id"] for it in row.questions if it["call_id"] == call_id]
    await services.lifecycle.answer(execution_id, id, answer)


async def asked_by(client: httpx2.AsyncClient, url: str) -> str:
    """The id of the one question that the execution at this path waits for."""
    (asked,) = (await client.get(url)).json()["pending"]
    return asked["question_id"]
