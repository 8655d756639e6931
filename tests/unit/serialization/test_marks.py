"""An increment follows its state also where the state holds what is stored in another form."""

from enum import Enum, StrEnum
from typing import Any

import pytest

from stepwell import (
    Agent,
    AgentState,
    ContinuationDecision,
    ContinuationEvaluation,
    StopReason,
)
from stepwell.serialization import AgentStateSerializer
from stepwell.testing import ScriptedModel

SERIALIZER = AgentStateSerializer()


class Word(StrEnum):
    A = "a"


class Old(str, Enum):  # noqa: UP042 - the older way is what is tested
    B = "b"


@pytest.mark.parametrize(
    "metadata",
    [{Word.A: 1}, {"m": {Word.A: 1}}, {"m": {Old.B: Old.B}}, {"m": {1: {Word.A: 2}}}],
)
def test_keys_that_extend_texts(metadata: dict[str, Any]) -> None:
    one = AgentState.empty().with_metadata(metadata)
    other = one.with_user_message("go on")
    increment = SERIALIZER.increment_to_json(one, other)
    loaded = SERIALIZER.from_increments(SERIALIZER.to_json(one), [increment])
    assert loaded == other
    assert all(type(key) is str for key in loaded.metadata)


async def test_whole_numbers_where_a_float_is_meant() -> None:
    class Enough:
        def evaluate(self, state: AgentState) -> ContinuationEvaluation:
            return ContinuationEvaluation(
                criterion="Enough",
                decision=ContinuationDecision.FORBID,
                reason="enough",
                stop_reason=StopReason.GUARD,
                delay_seconds=5,
            )

    stopped = await Agent(ScriptedModel(["never"]), criteria=[Enough()]).run("go")
    assert stopped.outcome is not None
    other = stopped.with_user_message("go on")
    increment = SERIALIZER.increment_to_json(stopped, other)
    assert SERIALIZER.from_increments(SERIALIZER.to_json(stopped), [increment]) == other
