"""Increments of the full format: what each holds, and in which order they make a state."""

from datetime import UTC, datetime
from itertools import pairwise

import pytest
from msgspec.structs import replace

from stepwell import AgentState, Message
from stepwell.errors import SerializationError
from stepwell.serialization import AgentStateSerializer

SERIALIZER = AgentStateSerializer()
AT = datetime(2026, 1, 16, 10, 0, 0, 123456, tzinfo=UTC)


def chained(path: list[AgentState]) -> list[bytes]:
    increments = [SERIALIZER.increment_to_json(one, other) for one, other in pairwise(path)]
    return [SERIALIZER.to_json(path[0]), *increments]


class TestIncrements:
    def path(self) -> list[AgentState]:
        states = [AgentState.empty(at=AT, agent_id="a")]
        for number in range(4):
            states.append(states[-1].with_message(Message.user(str(number), id=f"m{number}")))
        return states

    def test_a_missing_and_a_doubled_increment_and_a_wrong_order_are_told(self) -> None:
        whole, *increments = chained(self.path())
        for wrong in (increments[1:], [increments[0], increments[0]], increments[::-1]):
            with pytest.raises(SerializationError, match=r"increment \d: it does not follow"):
                SERIALIZER.from_increments(whole, wrong)

    def test_a_skipped_answer_and_a_branch_are_told_although_counts_and_times_agree(self) -> None:
        first = self.path()[-1]
        left, right = first.with_metadata({"k": 1}), first.with_metadata({"k": 2})
        whole, to_left, on = chained([first, left, left.with_metadata({"j": 3})])
        to_right = SERIALIZER.increment_to_json(first, right)
        for wrong in ([on], [to_right, on]):
            with pytest.raises(SerializationError, match="does not follow"):
                SERIALIZER.from_increments(whole, wrong)
        assert SERIALIZER.from_increments(whole, [to_left, on]).metadata == {"k": 1, "j": 3}

    def test_what_was_stored_last_is_what_the_next_one_follows(self) -> None:
        """The answer was given, and not stored before the run went on."""
        one = self.path()[-1]
        between = one.with_metadata({"answer": 1})
        last = between.with_user_message("go on")
        forgotten = SERIALIZER.increment_to_json(between, last)
        with pytest.raises(SerializationError, match="does not follow"):
            SERIALIZER.from_increments(SERIALIZER.to_json(one), [forgotten])

    def test_states_of_two_agents_are_told(self) -> None:
        one = self.path()[0]
        with pytest.raises(SerializationError, match="the agent_id is b, and that of the older"):
            SERIALIZER.increment_to_json(one, AgentState.empty(agent_id="b"))

    def test_the_order_of_metadata_comes_back(self) -> None:
        one = self.path()[0].with_metadata({"a": 1, "b": 2})
        whole, *increments = chained([one, replace(one, metadata={"b": 2, "a": 3})])
        assert list(SERIALIZER.from_increments(whole, increments).metadata) == ["b", "a"]

    def test_a_replaced_history_and_dropped_metadata_come_back(self) -> None:
        one = self.path()[-1].with_metadata({"a": 1, "b": [1]})
        other = replace(one.with_messages([*one.messages][:2]), metadata={"b": [2]})
        whole, *increments = chained([one, other])
        assert SERIALIZER.from_increments(whole, increments) == other

    def test_an_increment_holds_only_what_was_added(self) -> None:
        long = AgentState.empty(at=AT).with_user_message("x" * 10_000)
        before = long.with_metadata({"k": "y" * 9000})
        after = before.with_user_message("short").with_metadata({"new": 1})
        assert len(chained([before, after])[1]) < 1000
