"""What the full format keeps, what it refuses, and what it says then."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace
from pydantic import BaseModel, SecretStr

from stepwell import (
    Agent,
    AgentState,
    AgentStatus,
    Approval,
    ContinuationDecision,
    ContinuationEvaluation,
    ContinuationOutcome,
    Message,
    ToolCall,
    tool,
)
from stepwell.capabilities.approvals import UseApprovals
from stepwell.errors import SerializationError
from stepwell.serialization import AgentStateSerializer
from stepwell.testing import FakeClock, ScriptedModel, SequentialIds, call

SERIALIZER = AgentStateSerializer()
AT = datetime(2026, 1, 16, 10, 0, 0, 123456, tzinfo=UTC)


def body_of(state: AgentState) -> dict[str, Any]:
    return json.loads(SERIALIZER.to_json(state))["body"]


@tool
def rows(count: int) -> list[dict[str, Any]]:
    """Rows."""
    return [{"row": n, "share": 0.5} for n in range(count)]


@tool
def breaks() -> str:
    """Break."""
    raise KeyError("no such row")


async def finished() -> AgentState:
    script = ScriptedModel([[call("rows", count=2), call("breaks")], "done"])
    agent = Agent(
        script,
        tools=[rows, breaks],
        max_retries=3,
        clock=FakeClock(),
        new_id=SequentialIds(),
        error_policy=None,
    )
    return await agent.run("go")


class TestWhatIsKept:
    async def test_a_finished_run_with_objects_and_errors_is_exact(self) -> None:
        state = await finished()
        loaded = SERIALIZER.from_json(SERIALIZER.to_json(state))
        assert loaded == state
        first = loaded.steps[0].step.tool_executions
        assert first[0].value == [{"row": 0, "share": 0.5}, {"row": 1, "share": 0.5}]
        assert (first[1].error and first[1].error.text) == "KeyError: 'no such row'"
        assert loaded.explain() == state.explain()

    def test_no_execution_stays_none(self) -> None:
        state = AgentState.empty(at=AT)
        assert SERIALIZER.from_json(SERIALIZER.to_json(state)).execution is None

    def test_microseconds_stay(self) -> None:
        loaded = SERIALIZER.from_json(SERIALIZER.to_json(AgentState.empty(at=AT)))
        assert loaded.created_at == AT

    async def test_a_result_is_written_once(self) -> None:
        @tool
        def long() -> str:
            """Long."""
            return "x" * 5000

        state = await Agent(ScriptedModel([call("long"), "done"]), tools=[long]).run("go")
        assert len(SERIALIZER.to_json(state)) < 5000 + 4000

    async def test_transient_fields_are_gone(self) -> None:
        state = replace(await finished())
        execution = state.execution
        assert execution is not None
        running = replace(state, execution=replace(execution, entered_monotonic=12.5))
        loaded = SERIALIZER.from_json(SERIALIZER.to_json(running))
        assert loaded.execution is not None
        assert loaded.execution.entered_monotonic is None
        assert loaded.step_count == state.step_count

    async def test_running_on_gives_what_the_kept_state_gives(self) -> None:
        kept = await finished()
        loaded = SERIALIZER.from_json(SERIALIZER.to_json(kept))
        agent = Agent(ScriptedModel(["again"]), clock=FakeClock(), new_id=SequentialIds())
        one = await agent.run(kept.with_message(Message.user("more", id="m")))
        agent = Agent(ScriptedModel(["again"]), clock=FakeClock(), new_id=SequentialIds())
        other = await agent.run(loaded.with_message(Message.user("more", id="m")))
        assert one == other


class Order(BaseModel):
    number: int


class TestWhatIsRefused:
    @pytest.mark.parametrize(
        ("metadata", "told"),
        [
            ({"order": Order(number=1)}, r"metadata\['order'\] is a Order"),
            ({"all": [1, {"x": object()}]}, r"metadata\['all'\]\[1\]\['x'\] is a object"),
            ({"key": SecretStr("s3cret")}, r"metadata\['key'\] is a SecretStr"),
            ({"big": {1, 2}}, r"metadata\['big'\] is a set"),
        ],
    )
    def test_what_json_can_not_hold_names_its_place(self, metadata: Any, told: str) -> None:
        with pytest.raises(SerializationError, match=told) as caught:
            SERIALIZER.to_json(AgentState.empty().with_metadata(metadata))
        assert "s3cret" not in str(caught.value)

    def test_the_place_in_a_message_and_in_a_vote_is_named(self) -> None:
        odd = ToolCall(id="c", name="t", arguments={"a": object()})
        state = (
            AgentState.empty().with_user_message("hi").with_message(Message.assistant("", [odd]))
        )
        with pytest.raises(
            SerializationError, match=r"messages\[1\]\.arguments\['a'\] is a object"
        ):
            SERIALIZER.to_json(state)
        vote = ContinuationEvaluation(
            criterion="Own",
            decision=ContinuationDecision.ALLOW,
            reason="so",
            context={"seen": object()},
        )
        outcome = ContinuationOutcome(
            decision=ContinuationDecision.ALLOW,
            resolved_by="Own",
            stop_reason=None,
            evaluations=(vote,),
        )
        started = AgentState.empty().with_execution_started("e", AT)
        with pytest.raises(SerializationError, match=r"execution\.outcome\.evaluations\[0\]"):
            SERIALIZER.to_json(started.with_outcome(outcome, FakeClock()))

    def test_endless_nesting_is_told(self) -> None:
        deep: list[Any] = []
        deep.append(deep)
        with pytest.raises(SerializationError, match="nested too deep"):
            SERIALIZER.to_json(AgentState.empty().with_metadata({"deep": deep}))

    def test_a_cost_that_is_no_number_is_told(self) -> None:
        state = AgentState.empty().with_execution_started("e", AT)
        assert state.execution is not None
        odd = replace(state, execution=replace(state.execution, cost=float("nan")))
        with pytest.raises(SerializationError, match=r"execution\.cost is not a finite number"):
            SERIALIZER.to_json(odd)


class TestLoading:
    @pytest.mark.parametrize(
        ("change", "told"),
        [
            ({"agent_id": 3}, r"Expected `str`, got `int` - at `\$.agent_id`"),
            ({"created_at": "yesterday"}, "created_at"),
            (
                {"messages": [{"role": "robot", "parts": [], "id": "1"}]},
                r"robot.*messages\[0\].role",
            ),
            ({"surprise": 1}, "unknown field `surprise`"),
            ({"messages": [{"role": "user", "parts": [], "id": "1", "x": 1}]}, "unknown field `x`"),
            ({"metadata": {"a": {"$pickle": "gASV"}}}, r"unknown tag '\$pickle'"),
            ({"metadata": {"a": {"$float": "1.5"}}}, r"is not a \$float"),
            ({"metadata": {"a": {"$state": {}}}}, "agent_id"),
            ({"steps": [{}]}, "steps"),
        ],
    )
    def test_a_document_with_a_right_checksum_and_wrong_fields_names_the_field(
        self, change: dict[str, Any], told: str
    ) -> None:
        from stepwell.serialization.sealed import sealed_text

        body = {**body_of(AgentState.empty(at=AT)), **change}
        with pytest.raises(SerializationError, match=told):
            SERIALIZER.from_json(sealed_text("stepwell.state", 1, body))

    async def test_places_that_are_not_there_are_told(self) -> None:
        from stepwell.serialization.sealed import sealed_text

        for change, told in [
            ({"said": [7, 2]}, "said names 2 messages from 7 on"),
            ({"said": [-1, 1]}, "said names"),
            ({"said": [1, 1]}, "the result of call"),
        ]:
            body = body_of(await finished())
            body["steps"][0].update(change)
            with pytest.raises(SerializationError, match=told):
                SERIALIZER.from_json(sealed_text("stepwell.state", 1, body))

    def test_a_newer_version_and_another_format_are_told(self) -> None:
        from stepwell.serialization.sealed import sealed_text

        body = body_of(AgentState.empty(at=AT))
        with pytest.raises(SerializationError, match="written by a newer one: upgrade"):
            SERIALIZER.from_json(sealed_text("stepwell.state", 2, body))
        with pytest.raises(SerializationError, match=r"expected a 'stepwell\.state'"):
            SERIALIZER.from_json(sealed_text("stepwell.state.increment", 1, body))

    def test_a_changed_document_is_told(self) -> None:
        document = SERIALIZER.to_json(AgentState.empty(at=AT).with_user_message("Pay 10"))
        with pytest.raises(SerializationError, match="checksum does not fit"):
            SERIALIZER.from_json(document.replace(b"Pay 10", b"Pay 99"))
        with pytest.raises(SerializationError, match="not a whole one"):
            SERIALIZER.from_json(document[:-1])

    def test_white_space_is_no_change(self) -> None:
        state = AgentState.empty(at=AT).with_user_message("Hello")
        pretty = json.dumps(json.loads(SERIALIZER.to_json(state)), indent=2)
        assert SERIALIZER.from_json(pretty) == state


class TestIncrements:
    def path(self) -> list[AgentState]:
        states = [AgentState.empty(at=AT, agent_id="a")]
        for number in range(4):
            states.append(states[-1].with_message(Message.user(str(number), id=f"m{number}")))
        return states

    def test_a_missing_a_doubled_and_a_foreign_increment_are_told(self) -> None:
        path = self.path()
        increments = [
            SERIALIZER.increment_to_json(path[n], path[n + 1]) for n in range(len(path) - 1)
        ]
        whole = SERIALIZER.to_json(path[0])
        assert SERIALIZER.from_increments(whole, increments) == path[-1]
        for wrong in (increments[1:], [increments[0], increments[0]], increments[::-1]):
            with pytest.raises(
                SerializationError, match=r"increment \d: .*missing, or they are out"
            ):
                SERIALIZER.from_increments(whole, wrong)
        with pytest.raises(SerializationError, match="does not continue"):
            SERIALIZER.increment_to_json(path[0], AgentState.empty(agent_id="b"))

    def test_a_replaced_history_and_dropped_metadata_come_back(self) -> None:
        one = self.path()[-1].with_metadata({"a": 1, "b": [1]})
        other = replace(one.with_messages([*one.messages][:2]), metadata={"b": [2]})
        increment = SERIALIZER.increment_to_json(one, other)
        assert SERIALIZER.from_increments(SERIALIZER.to_json(one), [increment]) == other

    def test_an_increment_holds_only_what_was_added(self) -> None:
        before = (
            AgentState.empty(at=AT).with_user_message("x" * 10_000).with_metadata({"k": "y" * 9000})
        )
        after = before.with_user_message("short").with_metadata({"new": 1})
        assert len(SERIALIZER.increment_to_json(before, after)) < 1000


class TestSecrets:
    async def test_a_secret_that_an_approval_gave_anew_is_not_stored(self) -> None:
        seen: list[str] = []

        @tool
        def sign_in(user: str, password: SecretStr) -> str:
            """Sign in."""
            seen.append(password.get_secret_value())
            return "welcome"

        agent = Agent(
            ScriptedModel([call("sign_in", user="ann", password="c4nary-1"), "done"]),
            tools=[sign_in],
            capabilities=[UseApprovals("sign_in")],
        )
        paused = await agent.run("go")
        assert paused.status is AgentStatus.PAUSED
        edited = Approval.edited({"user": "ann", "password": "c4nary-2"})
        answered = paused.with_answer(paused.pending[0].call_id or "", edited)
        for state in (paused, answered):
            assert b"c4nary" not in SERIALIZER.to_json(state)
            assert "c4nary" not in json.dumps(SERIALIZER.serialize(state))
            assert b"c4nary" not in SERIALIZER.increment_to_json(paused, state)
        done = await agent.run(SERIALIZER.from_json(SERIALIZER.to_json(answered)))
        assert seen == []
        result = done.steps[-1].step.tool_executions or done.steps[-2].step.tool_executions
        assert "must be given anew" in result[0].text
