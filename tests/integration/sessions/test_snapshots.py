"""What states cost in the database, whoever stores them."""

from itertools import pairwise
from pathlib import Path
from typing import Any

from stepwell.agent import Agent
from stepwell.capabilities.user_input import UseUserInput
from stepwell.models import ModelRequest
from stepwell.testing import ScriptedModel, call
from tests.integration.sessions.front_desk import FrontDesk, desk_at

ANSWER = "x" * 300


def always_asking(request: ModelRequest) -> Any:
    """A model that wants to know one thing more."""
    asked = sum(1 for message in request.messages if message.is_tool())
    return call("user_input", id=f"q{asked}", question="And then?")


def patient() -> Agent:
    """An agent that may ask for ever."""
    return Agent(
        ScriptedModel(always_asking),
        capabilities=[UseUserInput()],
        max_steps=None,
        max_tokens=None,
        timeout=None,
    )


async def answered(desk: FrontDesk, execution_id: str, count: int) -> int:
    """Answer so often, and say how much is stored then."""
    for _ in range(count):
        row = await desk.execution(execution_id)
        await desk.lifecycle.answer(execution_id, row.pending[0]["question_id"], ANSWER)
        await desk.run(execution_id)
    return (await desk.store.read(lambda tx: tx.size())).snapshot_characters


async def test_each_answer_costs_what_it_adds(tmp_path: Path) -> None:
    async with desk_at(tmp_path / "a.db", {"patient": patient()}) as desk:
        sent = await desk.sent_and_run("begin")
        assert sent.execution is not None
        id = sent.execution.id
        sizes = [await answered(desk, id, 15) for _ in range(4)]
        grown = [after - before for before, after in pairwise(sizes)]
        assert max(grown) < 1.5 * min(grown)
        snapshots = await desk.store.read(lambda tx: tx.snapshots(id))
        # A pause is stored whole each time the state has doubled, while it is small.
        assert snapshots[0].is_whole
        assert sum(it.is_whole for it in snapshots) < 15
        answers = [it for it in (await desk.reader.state_at(id)).messages if ANSWER in it.text]
        assert len(answers) == 60
