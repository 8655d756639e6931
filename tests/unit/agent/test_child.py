"""Children end with the call that runs them: in good order, and never without their parent."""

import asyncio
import gc
import weakref
from typing import Any

import pytest
from msgspec.structs import replace

from stepwell import Agent, AgentState, AgentStatus, Cancellation, StopReason, make_hook
from stepwell.capabilities.subagents import UseSubagents
from stepwell.events import AgentFinished, SubagentCompleted
from stepwell.hooks import HookContext
from stepwell.models import ModelRequest
from stepwell.specs.registry import AgentRegistry
from stepwell.specs.spec import AgentSpec
from stepwell.state import Budget, ToolOutcome
from stepwell.testing import EventRecorder, MockTool, ScriptedModel, call
from tests.virtual_time import LoopClock, virtual_time

pytestmark = virtual_time

TURN = 15


def speaker(request: ModelRequest) -> str:
    return request.context.messages[-1].text


def spawn(name: str = "worker", id: str = "s1") -> Any:
    return call("spawn_subagent", id=id, subagent=name, prompt="Do it")


class Waiting:
    """An agent whose children come to a tool that waits for good."""

    def __init__(self, main: Any = None, **parts: Any) -> None:
        self.began = asyncio.Event()
        self.ended = 0
        turns: dict[str, Any] = {
            "main": [main or spawn(), "Done."],
            "manager": [spawn(id="s2"), "Managed."],
            "worker": [[call("look")], [call("wait")], "never"],
        }

        def turn(request: ModelRequest) -> Any:
            own = turns[speaker(request)]
            return own[sum(message.is_assistant() for message in request.messages)]

        specs = [
            AgentSpec(name=name, description=name, system_prompt=name)
            for name in ("worker", "manager")
        ]
        self.model = ScriptedModel(turn, cost=0.5)
        self.agent = Agent(
            self.model,
            system_prompt="main",
            clock=LoopClock(),
            tools=[MockTool.returning("look", "x"), MockTool("wait", self.wait)],
            capabilities=[UseSubagents(AgentRegistry(specs))],
            **parts,
        )
        self.events = EventRecorder()
        self.agent.wiretap(self.events)

    async def wait(self) -> None:
        self.began.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.ended += 1


def others() -> set["asyncio.Task[Any]"]:
    return asyncio.all_tasks() - {asyncio.current_task()}  # type: ignore[arg-type]


async def cancelled_by_switch(waiting: Waiting) -> AgentState:
    cancellation = Cancellation()
    run = asyncio.create_task(waiting.agent.run("Go", cancellation=cancellation))
    await waiting.began.wait()
    cancellation.request("closed the tab")
    return await run


async def test_b188_a_cancellation_ends_the_child_and_counts_what_it_spent() -> None:
    waiting = Waiting()
    state = await cancelled_by_switch(waiting)

    assert (state.status, waiting.ended) == (AgentStatus.CANCELLED, 1)
    assert state.usage.total_tokens == TURN * len(waiting.model.requests) == 3 * TURN
    assert state.cost == 1.5
    execution = state.steps[0].step.tool_executions[0]
    assert execution.outcome is ToolOutcome.CANCELLED
    assert "closed the tab" in execution.text
    (child,) = [e for e in waiting.events.of(AgentFinished) if e.source.parent_agent_id]
    assert (child.status, child.total_steps) == (AgentStatus.CANCELLED, 2)
    assert "closed the tab" in child.outcome.explain(child.status)
    assert [e.status for e in waiting.events.of(SubagentCompleted)] == [AgentStatus.CANCELLED]
    assert others() == set()


async def test_a_cancellation_ends_grandchildren_and_those_beside_them() -> None:
    waiting = Waiting([spawn("manager", "s1"), spawn("manager", "s2"), spawn("worker", "s3")])
    state = await cancelled_by_switch(waiting)

    assert state.status is AgentStatus.CANCELLED
    finished = [e for e in waiting.events.of(AgentFinished) if e.source.parent_agent_id]
    assert {e.status for e in finished} == {AgentStatus.CANCELLED}
    assert len(finished) == 5
    assert state.usage.total_tokens == TURN * len(waiting.model.requests)
    assert others() == set()


async def test_a_cancellation_during_the_model_call_of_the_child_ends_it() -> None:
    asked = asyncio.Event()

    class Slow(ScriptedModel):
        async def respond(self, request: ModelRequest) -> Any:
            if speaker(request) == "worker":
                asked.set()
                await asyncio.Event().wait()
            return await super().respond(request)

    spec = AgentSpec(name="worker", description="w", system_prompt="worker")
    agent = Agent(
        Slow([spawn()]),
        system_prompt="main",
        capabilities=[UseSubagents(AgentRegistry([spec]))],
    )
    cancellation = Cancellation()
    run = asyncio.create_task(agent.run("Go", cancellation=cancellation))
    await asked.wait()
    cancellation.request("stop")
    state = await run
    assert (state.status, state.usage.total_tokens) == (AgentStatus.CANCELLED, TURN)
    assert others() == set()


async def test_the_deadline_of_the_parent_ends_the_child() -> None:
    waiting = Waiting(timeout=1.5)
    state = await waiting.agent.run("Go")

    assert state.stop is not None
    assert state.stop.stop_reason is StopReason.TIME_LIMIT
    assert (waiting.ended, state.usage.total_tokens) == (1, 3 * TURN)
    assert len([e for e in waiting.events.of(AgentFinished) if e.source.parent_agent_id]) == 1
    assert others() == set()


async def test_a_parent_that_wraps_up_after_its_deadline_answers() -> None:
    waiting = Waiting(timeout=1.5, at_limit="wrap_up")
    state = await waiting.agent.run("Go")
    assert (state.final_response, waiting.ended) == ("Done.", 1)


async def test_a_child_that_runs_out_of_its_own_time_leaves_the_parent_going() -> None:
    waiting = Waiting()
    spec = AgentSpec(
        name="worker", description="w", system_prompt="worker", budget=Budget(seconds=1.5)
    )
    tools = [MockTool.returning("look", "x"), MockTool("wait", waiting.wait)]
    agent = Agent(
        waiting.model,
        system_prompt="main",
        tools=tools,
        capabilities=[UseSubagents(AgentRegistry([spec]))],
    )
    state = await agent.run("Go")
    assert state.messages[2].text == "(Stopped before it was done: time_limit.)"
    assert (state.final_response, waiting.ended) == ("Done.", 1)


@pytest.mark.parametrize("times", [1, 2, 3])
async def test_cancelling_the_task_of_the_run_passes_through(
    times: int,
) -> None:
    complaints: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: complaints.append(context))
    waiting = Waiting([spawn("manager", "s1"), spawn("worker", "s3")])
    run = asyncio.create_task(waiting.agent.run("Go"))
    await waiting.began.wait()
    for _ in range(times):
        run.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await run
    for _ in range(20):
        await asyncio.sleep(0)
    assert waiting.ended >= 1
    assert (others(), complaints) == (set(), [])


async def test_the_owners_cancellation_is_not_swallowed_by_that_of_the_run() -> None:
    waiting = Waiting()
    cancellation = Cancellation()
    run = asyncio.create_task(waiting.agent.run("Go", cancellation=cancellation))
    await waiting.began.wait()
    cancellation.request("both at once")
    await asyncio.sleep(0)  # The call of the parent is interrupted, and its task not yet woken.
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert (waiting.ended, others()) == (1, set())


async def test_a_timeout_around_the_run_works() -> None:
    waiting = Waiting()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1.5):
            await waiting.agent.run("Go")
    assert (waiting.ended, others()) == (1, set())


async def test_a_stream_that_is_left_takes_its_children_along() -> None:
    waiting = Waiting()
    parts = waiting.agent.stream("Go")
    await anext(parts)
    reader = asyncio.ensure_future(anext(parts))
    await waiting.began.wait()
    reader.cancel()
    await asyncio.gather(reader, return_exceptions=True)
    await parts.aclose()  # type: ignore[attr-defined]
    assert (waiting.ended, others()) == (1, set())


def test_an_event_loop_that_closes_takes_children_along() -> None:
    async def leave() -> Waiting:
        waiting = Waiting()
        run = asyncio.create_task(waiting.agent.run("Go"))
        await waiting.began.wait()
        assert not run.done()
        return waiting

    assert asyncio.run(leave()).ended == 1


async def test_a_child_that_cancels_itself_is_a_failed_call() -> None:
    def give_up() -> None:
        raise asyncio.CancelledError

    spec = AgentSpec(name="worker", description="w", system_prompt="worker")
    model = ScriptedModel([spawn(), [call("quit")], "ok", "Done."])
    agent = Agent(
        model,
        tools=[MockTool("quit", give_up)],
        capabilities=[UseSubagents(AgentRegistry([spec]))],
        max_retries=3,
    )
    state = await agent.run("Go")
    assert state.final_response == "Done."


async def test_a_cancellation_before_the_child_began_lets_none_begin() -> None:
    cancellation = Cancellation()

    def turn(request: ModelRequest) -> Any:
        cancellation.request("too late")
        return spawn()

    spec = AgentSpec(name="worker", description="w", system_prompt="worker")
    model = ScriptedModel(turn)
    agent = Agent(model, capabilities=[UseSubagents(AgentRegistry([spec]))])
    state = await agent.run("Go", cancellation=cancellation)
    assert (state.status, len(model.requests)) == (AgentStatus.CANCELLED, 1)


class Stubborn:
    """A tool that goes on waiting when it is cancelled, until it is cancelled once more."""

    def __init__(self) -> None:
        self.began, self.cancelled, self.ended = asyncio.Event(), asyncio.Event(), False

    async def __call__(self) -> None:
        self.began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            await asyncio.Event().wait()
        finally:
            self.ended = True


def stubborn_agent(tool: Stubborn) -> Agent:
    spec = AgentSpec(name="worker", description="w", system_prompt="worker")
    return Agent(
        ScriptedModel([spawn(), [call("look")], [call("wait")]]),
        tools=[MockTool("wait", tool), MockTool.returning("look", "x")],
        capabilities=[UseSubagents(AgentRegistry([spec]))],
    )


async def test_a_child_that_does_not_end_is_cut_off_after_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("stepwell.agent.child.SECONDS_TO_END", 0.01)
    tool, cancellation = Stubborn(), Cancellation()
    run = asyncio.create_task(stubborn_agent(tool).run("Go", cancellation=cancellation))
    await tool.began.wait()
    cancellation.request("enough")
    state = await run
    assert (state.status, tool.ended, others()) == (AgentStatus.CANCELLED, True, set())
    assert state.usage.total_tokens == 2 * TURN  # The turn that was cut off is not known.


async def test_a_child_that_does_not_end_is_not_waited_for_by_an_owner_in_a_hurry() -> None:
    tool = Stubborn()
    run = asyncio.create_task(stubborn_agent(tool).run("Go"))
    await tool.began.wait()
    run.cancel()
    await tool.cancelled.wait()
    assert not run.done()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert (tool.ended, others()) == (True, set())


async def test_a_child_that_breaks_while_it_is_ended_is_no_complaint_of_asyncio() -> None:
    def lose_the_outcome(context: HookContext) -> HookContext | None:
        execution = context.state.execution
        if execution is None or context.state.parent_agent_id is None:
            return None
        lost = replace(context.state, execution=replace(execution, outcome=None))
        return context.with_state(lost)

    complaints: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: complaints.append(context))
    hook = make_hook("after_execution", lose_the_outcome, inherited=True)
    waiting = Waiting(hooks=[hook])
    run = asyncio.create_task(waiting.agent.run("Go"))
    await waiting.began.wait()
    run.cancel()
    await asyncio.wait([run])
    assert run.cancelled()
    del run
    gc.collect()
    assert (waiting.ended, complaints) == (1, [])


async def test_nothing_of_a_child_is_held_once_its_run_is_over() -> None:
    held: list[Any] = []

    def look(context: HookContext) -> None:
        held.append(weakref.ref(context.state.scope.emitter))

    waiting = Waiting(main="no child", hooks=[make_hook("before_tool", look)])
    model = ScriptedModel([spawn(), [call("look")], "ok", "Done."])
    agent = Agent.from_plan(replace(waiting.agent.plan, model=model))
    state = await agent.run("Go")
    gc.collect()
    assert state.status is AgentStatus.COMPLETED
    assert [reference() for reference in held] == [None, None]
