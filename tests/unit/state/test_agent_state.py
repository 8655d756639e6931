"""The agent state as a value: changes are copies, totals are kept, answers and grants go in."""

import re
from datetime import UTC, datetime, timedelta

import pytest

from stepwell import (
    AgentState,
    AgentStatus,
    ConfigurationError,
    ContinuationDecision,
    ContinuationEvaluation,
    Message,
    RunNotCompletedError,
    StepwellError,
    StopReason,
    ToolCall,
    Usage,
)
from stepwell.continuation import StopSignal, resolve
from stepwell.messages import ToolResult
from stepwell.state import AgentStep, Budget, Pending, PendingKind, StepExecution
from stepwell.testing import FakeClock
from tests.answers import answer_call

AT = datetime(2026, 1, 1, tzinfo=UTC)
LATER = AT + timedelta(days=1)
EMPTY = AgentState.empty(agent_id="agent", at=AT)
STARTED = EMPTY.with_execution_started("run-1", AT)


def outcome(decision=ContinuationDecision.REQUEST, reason=None):
    return resolve(
        [
            ContinuationEvaluation(
                criterion="Test", decision=decision, reason="so", stop_reason=reason
            )
        ]
    )


STOPPED = outcome(ContinuationDecision.FORBID, StopReason.GUARD)
COMPLETED = outcome(ContinuationDecision.ALLOW_STOP)


def recorded(state, step=None, *, decided=None, seconds=1.0):
    return state.with_step_recorded(
        StepExecution(
            number=state.step_number,
            step=step or AgentStep(),
            outcome=decided or outcome(),
            started_at=AT,
            completed_at=LATER,
            duration_seconds=seconds,
        )
    )


def paused_on(*pending):
    """A state that waits for these, each asked by a call that is in the history."""
    state = STARTED
    for waits_for in pending:
        result = ToolResult(
            call_id=waits_for.call_id or "", tool_name="ask", content="Waiting for an answer."
        )
        state = state.with_message(Message.tool(result)).with_pending(waits_for)
    return state.with_outcome(
        outcome(ContinuationDecision.FORBID, StopReason.INPUT_REQUIRED), FakeClock()
    )


def question(call_id):
    return Pending(kind=PendingKind.QUESTION, prompt="Which?", call_id=call_id)


BUDGET = Pending(kind=PendingKind.BUDGET, prompt="More?")


class TestValue:
    def test_a_fresh_state_knows_nothing_yet(self):
        assert EMPTY.status is AgentStatus.IN_PROGRESS
        assert (EMPTY.step_count, EMPTY.step_number, EMPTY.steps) == (0, 1, ())
        assert (EMPTY.usage, EMPTY.cost, EMPTY.had_errors) == (Usage(), 0.0, False)
        assert EMPTY.current_step is EMPTY.stop is EMPTY.outcome is EMPTY.final_response is None
        assert EMPTY.pending == EMPTY.signals == ()

    def test_changes_leave_the_older_state_as_it_was(self):
        older = EMPTY.with_user_message("one").with_metadata({"a": 1})

        newer = older.with_user_message("two").with_metadata({"b": 2})

        assert [message.text for message in older.messages] == ["one"]
        assert [message.text for message in newer.messages] == ["one", "two"]
        assert older.metadata == {"a": 1}
        assert newer.metadata == {"a": 1, "b": 2}

    def test_with_messages_replaces_all(self):
        state = EMPTY.with_user_message("one").with_messages([Message.user("other")])

        assert [message.text for message in state.messages] == ["other"]

    def test_metadata_of_the_same_key_is_overwritten(self):
        assert EMPTY.with_metadata({"a": 1}).with_metadata({"a": 2}).metadata == {"a": 2}

    def test_a_state_is_immutable(self):
        with pytest.raises(AttributeError):
            EMPTY.agent_id = "other"

    @pytest.mark.parametrize(
        "change",
        [
            lambda state: state.with_signal(StopSignal(reason=StopReason.GUARD)),
            lambda state: state.with_pending(BUDGET),
            lambda state: state.with_run_entered(0.0),
            lambda state: state.with_budget_granted(steps=1),
        ],
    )
    def test_what_needs_an_execution_says_so(self, change):
        with pytest.raises(ConfigurationError, match="no execution yet"):
            change(EMPTY)

    def test_the_scope_is_only_there_while_a_step_is_in_flight(self):
        with pytest.raises(ConfigurationError, match="no step is in flight"):
            _ = STARTED.scope


class TestRecording:
    def test_running_totals_are_kept(self):
        step = AgentStep(usage=Usage(input_tokens=3, output_tokens=2), cost=0.5)

        state = recorded(recorded(STARTED, step, seconds=1.5), step, seconds=2.0)

        assert state.step_count == 2
        assert state.step_number == 3
        assert [taken.number for taken in state.steps] == [1, 2]
        assert state.usage == Usage(input_tokens=6, output_tokens=4)
        assert state.cost == 1.0
        assert state.cumulative_seconds == state.active_seconds == 3.5
        assert state.updated_at == LATER

    def test_the_older_state_does_not_see_the_new_step(self):
        older = recorded(STARTED)
        newer = recorded(older)

        assert (older.step_count, newer.step_count) == (1, 2)
        assert newer.steps[0] is older.steps[0]

    def test_failures_are_counted_in_a_row_and_in_total(self):
        bad = AgentStep.failed(ValueError("no"))
        state = recorded(recorded(recorded(STARTED, bad), AgentStep()), bad)

        assert (state.consecutive_failures, state.total_failures) == (1, 2)
        assert state.had_errors

    def test_a_recorded_stop_sets_status_and_outcome(self):
        state = recorded(STARTED, decided=STOPPED)

        assert state.status is AgentStatus.STOPPED
        assert state.stop is STOPPED
        assert state.is_finished

    def test_a_recorded_continue_is_an_outcome_but_no_stop(self):
        state = recorded(STARTED)

        assert state.outcome.should_continue
        assert state.stop is None
        assert not state.is_finished

    def test_votes_end_with_the_step_they_belong_to(self):
        state = recorded(STARTED.with_signal(StopSignal(reason=StopReason.GUARD)))

        assert state.signals == ()

    def test_a_new_execution_keeps_the_conversation_and_starts_the_rest_over(self):
        bad = AgentStep(
            usage=Usage(input_tokens=3), cost=1.0, failures=AgentStep.failed(ValueError()).failures
        )
        state = EMPTY.with_user_message("hi").with_metadata({"a": 1})
        first = recorded(state.with_execution_started("run-1", AT), bad, decided=STOPPED)

        second = first.with_execution_started("run-2", LATER)

        assert (second.execution.id, second.execution_count) == ("run-2", 2)
        assert second.messages == first.messages
        assert second.metadata == {"a": 1}
        assert (second.step_count, second.usage, second.cost) == (0, Usage(), 0.0)
        assert not second.had_errors
        assert second.cumulative_seconds == 1.0
        assert second.status is AgentStatus.IN_PROGRESS


class TestResult:
    def test_the_final_response_is_the_text_of_the_newest_step(self):
        state = recorded(STARTED, AgentStep(messages=(Message.assistant("Four."),)))

        assert state.final_response == state.output == "Four."

    def test_text_beside_tool_calls_is_no_final_response(self):
        step = AgentStep(messages=(Message.assistant("Hm.", [ToolCall(id="1", name="add")]),))

        assert recorded(STARTED, step).final_response is None

    def test_unwrap_gives_the_output_of_a_completed_run(self):
        step = AgentStep(messages=(Message.assistant("Four."),))

        assert recorded(STARTED, step, decided=COMPLETED).unwrap() == "Four."

    def test_unwrap_raises_for_any_other_run_and_keeps_the_state(self):
        state = recorded(STARTED, decided=STOPPED)

        with pytest.raises(RunNotCompletedError, match="a guard forbade going on") as caught:
            state.unwrap()

        assert caught.value.state is state

    def test_unwrap_of_a_state_that_never_ran(self):
        with pytest.raises(RunNotCompletedError, match="has not started"):
            EMPTY.unwrap()

    def test_explain_is_the_text_of_the_last_outcome(self):
        assert recorded(STARTED, decided=STOPPED).explain() == STOPPED.explain()
        assert EMPTY.explain() == "The run has not started."


class TestAnswer:
    def test_the_answer_becomes_the_result_of_the_call_and_the_run_can_go_on(self):
        state = paused_on(question("c1"))

        answered = answer_call(state, "c1", "the red one")

        result = answered.messages[-1].tool_result
        assert (result.content, result.call_id, result.tool_name) == ("the red one", "c1", "ask")
        assert not result.is_error
        assert answered.pending == ()
        assert answered.status is AgentStatus.IN_PROGRESS

    def test_the_older_state_keeps_waiting(self):
        state = paused_on(question("c1"))
        answer_call(state, "c1", "the red one")

        assert state.status is AgentStatus.PAUSED
        assert [asked.without_id() for asked in state.pending] == [question("c1")]
        assert state.messages[-1].text == "Waiting for an answer."

    def test_one_of_two_answers_leaves_it_paused(self):
        state = answer_call(paused_on(question("c1"), question("c2")), "c2", "two")

        assert state.status is AgentStatus.PAUSED
        assert [asked.without_id() for asked in state.pending] == [question("c1")]
        assert [message.text for message in state.messages] == ["Waiting for an answer.", "two"]
        assert answer_call(state, "c1", "one").status is AgentStatus.IN_PROGRESS

    def test_the_message_keeps_its_id(self):
        state = paused_on(question("c1"))

        assert answer_call(state, "c1", "x").messages[-1].id == state.messages[-1].id

    def test_an_answer_nobody_waits_for_is_an_error_that_lists_what_is_waited_for(self):
        state = paused_on(question("c1"))
        waiting = re.escape(f"waiting: {state.pending[0].id} (question of call c1)")

        for named in ("c1", "c9", "q_0"):  # a call is no question
            with pytest.raises(StepwellError, match=f"'{named}'.*{waiting}"):
                state.with_answer(named, "x")

    def test_an_answer_given_twice_is_an_error(self):
        state = paused_on(question("c1"))
        answered = state.with_answer(state.pending[0], "x")

        with pytest.raises(StepwellError, match=r"waiting: \(none\)"):
            answered.with_answer(state.pending[0], "y")


class TestGrant:
    def test_grants_add_up(self):
        state = STARTED.with_budget_granted(steps=2, tokens=10).with_budget_granted(steps=1)

        assert state.execution.granted == Budget(steps=3, tokens=10, seconds=0.0, cost=0.0)

    def test_a_run_that_waits_for_budget_can_go_on(self):
        state = STARTED.with_pause(BUDGET).with_budget_granted(steps=1)

        assert state.status is AgentStatus.IN_PROGRESS
        assert state.pending == ()

    def test_a_run_that_also_waits_for_an_answer_stays_paused(self):
        state = paused_on(question("c1")).with_pause(BUDGET).with_budget_granted(steps=1)

        assert state.status is AgentStatus.PAUSED
        assert [asked.without_id() for asked in state.pending] == [question("c1")]

    @pytest.mark.parametrize("kind", ["steps", "tokens", "seconds", "cost"])
    def test_a_negative_grant_is_refused(self, kind):
        with pytest.raises(ConfigurationError, match=kind):
            STARTED.with_budget_granted(**{kind: -1})
