"""What the full format keeps, what it refuses, and what it says then."""

import json
from datetime import UTC, datetime
from types import MappingProxyType
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
    HookContext,
    Message,
    ToolCall,
    make_hook,
    tool,
)
from stepwell.capabilities.approvals import UseApprovals
from stepwell.continuation import ContinuationOutcome, ContinueRequest
from stepwell.errors import SerializationError
from stepwell.messages import ToolResult
from stepwell.serialization import AgentStateSerializer
from stepwell.state import AgentStep, StepExecution, ToolExecution, ToolOutcome
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
    async def test_b103_b108_a_finished_run_with_objects_and_errors_is_exact(self) -> None:
        state = await finished()
        loaded = SERIALIZER.from_json(SERIALIZER.to_json(state))
        assert loaded == state
        assert (loaded.execution and loaded.execution.id) == "id-3"
        first = loaded.steps[0].step.tool_executions
        assert first[0].value == [{"row": 0, "share": 0.5}, {"row": 1, "share": 0.5}]
        assert (first[1].error and first[1].error.text) == "KeyError: 'no such row'"
        assert (first[1].error and first[1].error.type) == "tool"
        assert loaded.explain() == state.explain()

    def test_b103_no_execution_stays_none(self) -> None:
        state = AgentState.empty(at=AT)
        assert SERIALIZER.from_json(SERIALIZER.to_json(state)).execution is None

    def test_b108_microseconds_stay(self) -> None:
        loaded = SERIALIZER.from_json(SERIALIZER.to_json(AgentState.empty(at=AT)))
        assert loaded.created_at == AT

    async def test_a_result_is_written_once(self) -> None:
        @tool
        def long() -> str:
            """Long."""
            return "x" * 5000

        state = await Agent(ScriptedModel([call("long"), "done"]), tools=[long]).run("go")
        assert len(SERIALIZER.to_json(state)) < 5000 + 4000

    async def test_b105_without_a_current_step_no_step_is_added(self) -> None:
        begun = AgentState.empty(at=AT).with_execution_started("e", AT)
        for state, count in ((begun, 0), (await finished(), 2)):
            assert state.execution is not None
            assert state.execution.unrecorded_step is None
            loaded = SERIALIZER.from_json(SERIALIZER.to_json(state))
            assert (loaded.step_count, loaded.step_number, len(loaded.steps)) == (
                count,
                count + 1,
                count,
            )

    async def test_b106_transient_fields_are_gone(self) -> None:
        seen: list[AgentState] = []

        def look(context: HookContext) -> HookContext:
            seen.append(context.state.with_continue_request(ContinueRequest(source="hook")))
            return context

        hooks = [make_hook("before_tool", look), make_hook("after_step", look)]
        agent = Agent(ScriptedModel([call("rows", count=1), "done"]), tools=[rows], hooks=hooks)
        await agent.run("go")
        assert len(seen) == 3
        for state in seen:
            execution = state.execution
            assert execution is not None
            assert execution.in_flight is not None
            assert execution.entered_monotonic is not None
            assert execution.continue_requests
            loaded = SERIALIZER.from_json(SERIALIZER.to_json(state)).execution
            assert loaded == replace(
                execution, in_flight=None, entered_monotonic=None, continue_requests=()
            )

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

    @pytest.mark.parametrize(
        "state",
        [
            AgentState.empty().with_metadata({1: 2}),  # pyright: ignore[reportArgumentType]
            AgentState.empty().with_message(
                Message.assistant("", [ToolCall(id="c", name="t", arguments={(1,): 2})])  # pyright: ignore[reportArgumentType]
            ),
        ],
    )
    def test_keys_that_are_no_texts_are_told(self, state: AgentState) -> None:
        with pytest.raises(SerializationError, match="which is not a text"):
            SERIALIZER.to_json(state)

    def test_half_characters_that_make_a_whole_one_are_told(self) -> None:
        state = AgentState.empty().with_user_message("\ud83d\ude00")
        with pytest.raises(SerializationError, match="two half characters"):
            SERIALIZER.to_json(state)

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


class TestOddValues:
    def tool_step(self, *messages: Message, text: str, value: Any) -> AgentState:
        executed = ToolExecution(
            call=messages[0].tool_calls[0],
            outcome=ToolOutcome.COMPLETED,
            text=text,
            value=value,
            started_at=AT,
            completed_at=AT,
        )
        step = AgentStep(messages=messages, tool_executions=(executed,))
        outcome = ContinuationOutcome(
            decision=ContinuationDecision.ALLOW, resolved_by="x", stop_reason=None
        )
        recorded = StepExecution(
            number=1,
            step=step,
            outcome=outcome,
            started_at=AT,
            completed_at=AT,
            duration_seconds=0.0,
        )
        state = AgentState.empty(at=AT).with_message(*messages).with_execution_started("e", AT)
        return state.with_step_recorded(recorded)

    def made(self, *results: ToolResult, role: str = "tool") -> tuple[Message, ...]:
        asked = Message.assistant("", [ToolCall(id="c", name="t")])
        return asked, Message.of(role, results)

    def test_results_in_odd_places_are_not_mixed_up(self) -> None:
        one = ToolResult(call_id="c", tool_name="t", content="A")
        other = ToolResult(call_id="c", tool_name="t", content="B")
        for said in (
            (*self.made(one, role="user"), Message.tool(other)),
            self.made(one, other),
            self.made(ToolResult(call_id="d", tool_name="t", content="A"), other),
        ):
            for text in ("A", "B"):
                state = self.tool_step(*said, text=text, value=text)
                assert SERIALIZER.from_json(SERIALIZER.to_json(state)) == state

    @pytest.mark.parametrize(
        ("text", "value"),
        [
            ('{"a":1}', {"a": 1}),
            ('{"a":1}', {"a": 1.0}),
            ('{"a":1}', {"a": True}),
            ("[1,2]", (1, 2)),
            ("[1,2]", [1, 2]),
            ('{"a":1}', '{"a":1}'),
            ("null", None),
            ("null", [float("inf")]),
            ('{"1":2}', {1: 2}),
            ('{"$ref":"x"}', {"$ref": "x"}),
        ],
    )
    def test_a_value_that_its_text_tells_is_the_same_value(self, text: str, value: Any) -> None:
        said = self.made(ToolResult(call_id="c", tool_name="t", content=text))
        state = self.tool_step(*said, text=text, value=value)
        loaded = SERIALIZER.from_json(SERIALIZER.to_json(state))
        assert repr(loaded.steps[0].step.tool_executions) == repr(
            state.steps[0].step.tool_executions
        )

    async def test_an_endless_wait_of_an_exception_is_no_number(self) -> None:
        class Busy(Exception):
            retry_after = float("inf")

        @tool
        def busy() -> str:
            """Busy."""
            raise Busy

        agent = Agent(ScriptedModel([call("busy"), "done"]), tools=[busy], max_retries=2)
        state = await agent.run("go")
        assert SERIALIZER.from_json(SERIALIZER.to_json(state)) == state


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
        from stepwell.serialization.frame import seal_text

        body = {**body_of(AgentState.empty(at=AT)), **change}
        with pytest.raises(SerializationError, match=told):
            SERIALIZER.from_json(seal_text("stepwell.state", 1, body))

    async def test_places_that_are_not_there_are_told(self) -> None:
        from stepwell.serialization.frame import seal_text

        for change, told in [
            ({"said": [7, 2]}, "said names 2 messages from 7 on"),
            ({"said": [-1, 1]}, "said names"),
            ({"said": [1, 1]}, "the result of call"),
        ]:
            body = body_of(await finished())
            body["steps"][0].update(change)
            with pytest.raises(SerializationError, match=told):
                SERIALIZER.from_json(seal_text("stepwell.state", 1, body))

    def test_a_newer_version_and_another_format_are_told(self) -> None:
        from stepwell.serialization.frame import seal_text

        body = body_of(AgentState.empty(at=AT))
        with pytest.raises(SerializationError, match="written by a newer one: upgrade"):
            SERIALIZER.from_json(seal_text("stepwell.state", 2, body))
        with pytest.raises(SerializationError, match=r"expected 'stepwell\.state'"):
            SERIALIZER.from_json(seal_text("stepwell.state.increment", 1, body))

    def test_a_changed_document_is_told(self) -> None:
        document = SERIALIZER.to_json(AgentState.empty(at=AT).with_user_message("Pay 10"))
        with pytest.raises(SerializationError, match="checksum does not fit"):
            SERIALIZER.from_json(document.replace(b"Pay 10", b"Pay 99"))
        with pytest.raises(SerializationError, match="not a whole one"):
            SERIALIZER.from_json(document[:-1])

    def test_a_newer_frame_says_to_upgrade_before_anything_else(self) -> None:
        newer = {"format": "stepwell.state", "schema_version": 2, "compression": "zstd", "body": ""}
        for load in (SERIALIZER.deserialize, lambda it: SERIALIZER.from_json(json.dumps(it))):
            with pytest.raises(SerializationError, match="upgrade"):
                load(newer)

    @pytest.mark.parametrize(
        ("document", "told"),
        [
            (b"", "the document is empty"),
            (None, r"there is no document \(None\)"),
            ({}, r"use deserialize\(\)"),
            (3, "a document is bytes or a str, not a int"),
            (b"[]", "a stored state is a JSON object"),
            (b'{"agent_id": "a", "step_count": 1}', "this is the slim format"),
        ],
    )
    def test_what_is_no_document_is_told(self, document: Any, told: str) -> None:
        with pytest.raises(SerializationError, match=told):
            SERIALIZER.from_json(document)

    @pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, bytes.decode])
    def test_any_kind_of_text_is_read(self, kind: Any) -> None:
        state = AgentState.empty(at=AT).with_user_message("Hello")
        assert SERIALIZER.from_json(kind(SERIALIZER.to_json(state))) == state

    @pytest.mark.parametrize(
        "body",
        [
            {"agent_id": "\ud800", "\ud800": 1},
            {"messages": [{"role": "\ud800", "parts": [], "id": "1"}]},
            {"messages": [{"role": "user", "parts": [{"type": "\ud800"}], "id": "1"}]},
            {"created_at": "\ud800"},
        ],
    )
    def test_half_characters_in_wrong_places_are_told(self, body: dict[str, Any]) -> None:
        from stepwell.serialization.frame import seal_text

        document = seal_text("stepwell.state", 1, {**body_of(AgentState.empty(at=AT)), **body})
        with pytest.raises(SerializationError):
            SERIALIZER.from_json(document)
        with pytest.raises(SerializationError):
            SERIALIZER.from_json(b'{"\\ud800":1,' + document[1:])

    @pytest.mark.parametrize(
        "body",
        [object(), {1, "a"}, {(1,): 2}, MappingProxyType({}), None, 10**5000],
        ids=["object", "set", "key", "proxy", "none", "huge"],
    )
    def test_data_that_is_no_json_is_told(self, body: Any) -> None:
        data = {**SERIALIZER.serialize(AgentState.empty(at=AT)), "body": body}
        with pytest.raises(SerializationError):
            SERIALIZER.deserialize(data)
        with pytest.raises(SerializationError):
            SERIALIZER.deserialize({**data, "schema_version": 10**5000})

    def test_a_wrong_tag_names_its_place(self) -> None:
        from stepwell.serialization.frame import seal_text

        odd = {**body_of(AgentState.empty(at=AT)), "metadata": {"a": [{"x": {"$nope": 1}}]}}
        with pytest.raises(SerializationError, match=r"\.a\[0\]\.x has the unknown tag '\$nope'"):
            SERIALIZER.from_json(seal_text("stepwell.state", 1, odd))

    def test_white_space_is_no_change(self) -> None:
        state = AgentState.empty(at=AT).with_user_message("Hello")
        pretty = json.dumps(json.loads(SERIALIZER.to_json(state)), indent=2)
        assert SERIALIZER.from_json(pretty) == state


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
        edited = Approval.edited({"user": "ann c4nary-2", "password": "c4nary-2"})
        answered = paused.with_answer(paused.pending[0], edited)
        for state in (paused, answered):
            assert b"c4nary" not in SERIALIZER.to_json(state)
            assert "c4nary" not in json.dumps(SERIALIZER.serialize(state))
            assert b"c4nary" not in SERIALIZER.increment_to_json(paused, state)
        done = await agent.run(SERIALIZER.from_json(SERIALIZER.to_json(answered)))
        assert seen == []
        result = done.steps[-1].step.tool_executions or done.steps[-2].step.tool_executions
        assert "must be given again" in result[0].text
