"""Who is told, in which order, and that no listener can harm a run."""

import asyncio
import contextlib
import logging
from typing import Any

import pytest

from stepwell import Agent, AgentStatus
from stepwell.errors import ConfigurationError
from stepwell.events import (
    AgentEvent,
    AgentExecutionStarted,
    AgentFinished,
    AgentStepCompleted,
    Emitter,
    EventBus,
    EventSource,
    ToolCallStarted,
)
from stepwell.testing import EventRecorder, FakeClock, MockTool, ScriptedModel, call

SOURCE = EventSource(agent_id="a", parent_agent_id=None, execution_id="e")


def two_steps(**options: Any) -> Agent:
    model = ScriptedModel([call("add", id="c1"), "Done."])
    return Agent(model, tools=[MockTool.returning("add", 3)], **options)


async def test_a_listener_hears_only_its_class() -> None:
    recorder = EventRecorder()
    agent = two_steps()
    agent.on_event(AgentStepCompleted, recorder)
    await agent.run("Go")

    assert recorder.names == ["AgentStepCompleted", "AgentStepCompleted"]


async def test_a_listener_to_the_base_class_hears_what_a_wiretap_hears() -> None:
    by_class, by_tap = EventRecorder(), EventRecorder()
    agent = two_steps()
    agent.on_event(AgentEvent, by_class)
    agent.wiretap(by_tap)
    await agent.run("Go")

    assert len(by_tap.events) > 10
    assert by_class.events == by_tap.events


async def test_unsubscribing_ends_it_for_that_listener_only() -> None:
    one, two = EventRecorder(), EventRecorder()
    agent = Agent(ScriptedModel(["A.", "B."]))
    stop_one = agent.on_event(AgentFinished, one)
    agent.on_event(AgentFinished, two)
    await agent.run("Go")
    stop_one()
    stop_one()
    await agent.run("Go")

    assert (len(one.events), len(two.events)) == (1, 2)


async def test_the_same_listener_registered_twice_is_called_twice_and_ends_one_by_one() -> None:
    recorder = EventRecorder()
    agent = Agent(ScriptedModel(["A.", "B."]))
    stop = agent.on_event(AgentFinished, recorder)
    agent.on_event(AgentFinished, recorder)
    await agent.run("Go")
    stop()
    await agent.run("Go")

    assert len(recorder.events) == 3


async def test_a_listener_may_unsubscribe_while_it_is_called() -> None:
    heard: list[AgentEvent] = []
    agent = two_steps()

    def once(event: AgentEvent) -> None:
        heard.append(event)
        stop()

    stop = agent.wiretap(once)
    await agent.run("Go")

    assert len(heard) == 1


async def test_listeners_are_called_in_order_of_registration() -> None:
    heard: list[str] = []
    agent = Agent(ScriptedModel(["A."]))
    agent.on_event(AgentFinished, lambda _: heard.append("first"))
    agent.wiretap(lambda event: heard.append("tap") if isinstance(event, AgentFinished) else None)
    agent.on_event(AgentFinished, lambda _: heard.append("last"))
    await agent.run("Go")

    assert heard == ["first", "tap", "last"]


@pytest.mark.parametrize("error", [ValueError("broken"), asyncio.CancelledError("broken")])
async def test_a_listener_that_raises_is_logged_and_the_run_is_unaffected(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = EventRecorder()

    def broken(event: AgentEvent) -> None:
        raise error

    agent = two_steps()
    agent.wiretap(broken)
    agent.wiretap(recorder)
    with caplog.at_level(logging.WARNING, logger="stepwell.events"):
        state = await agent.run("Go")

    assert (state.status, state.final_response) == (AgentStatus.COMPLETED, "Done.")
    assert not state.had_errors
    assert len(recorder.events) == len(caplog.records)
    assert {record.name for record in caplog.records} == {"stepwell.events"}
    assert "broken" in caplog.text
    assert "AgentFinished" in caplog.text


@pytest.mark.parametrize("error", [ValueError("broken"), asyncio.CancelledError("broken")])
async def test_an_async_listener_that_raises_is_logged_and_hears_the_next_event(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[str] = []

    async def broken(event: AgentStepCompleted) -> None:
        heard.append(f"step {event.step_number}")
        raise error

    agent = two_steps()
    agent.on_event(AgentStepCompleted, broken)
    with caplog.at_level(logging.WARNING, logger="stepwell.events"):
        state = await agent.run("Go")

    assert state.status is AgentStatus.COMPLETED
    assert heard == ["step 1", "step 2"]
    assert [record.name for record in caplog.records] == ["stepwell.events"] * 2


async def test_async_listeners_get_all_events_in_order_before_the_run_returns() -> None:
    heard: list[str] = []
    recorder = EventRecorder()

    async def listen(event: AgentEvent) -> None:
        await asyncio.sleep(0)
        heard.append(type(event).__name__)

    agent = two_steps()
    agent.wiretap(recorder)
    agent.wiretap(listen)
    await agent.run("Go")

    assert heard == recorder.names


async def test_an_async_listener_runs_beside_the_run_and_does_not_hold_it_up() -> None:
    finished = asyncio.Event()
    order: list[str] = []

    async def patient(event: AgentExecutionStarted) -> None:
        await finished.wait()
        order.append("listener")

    def note_end(event: AgentFinished) -> None:
        order.append("run")
        finished.set()

    agent = two_steps()
    agent.on_event(AgentExecutionStarted, patient)
    agent.on_event(AgentFinished, note_end)
    await agent.run("Go")

    assert order == ["run", "listener"]


async def test_a_sync_listener_may_return_anything(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[AgentEvent] = []
    agent = two_steps()
    agent.wiretap(lambda event: heard.append(event) or len(heard))  # type: ignore[func-returns-value,arg-type,return-value]
    with caplog.at_level(logging.WARNING, logger="stepwell.events"):
        await agent.run("Go")

    assert len(heard) > 10
    assert caplog.records == []


async def test_a_slow_sync_listener_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    agent = two_steps(clock=clock)
    agent.on_event(AgentFinished, lambda event: clock.advance(0.2))
    with caplog.at_level(logging.WARNING, logger="stepwell.events"):
        await agent.run("Go")

    assert "held up the run for 200 ms at AgentFinished" in caplog.text


def test_no_event_is_built_while_nobody_listens() -> None:
    built: list[str] = []

    def build(source: EventSource, at: Any, **payload: Any) -> AgentEvent:
        built.append("event")
        return AgentEvent(source, at)

    async def emit_twice() -> None:
        bus = EventBus()
        emitter = Emitter(bus, SOURCE, FakeClock())
        emitter.emit(build, anything=1)
        assert not emitter.is_heard
        assert built == []

        bus.wiretap(lambda event: None)
        emitter.emit(build, anything=1)
        assert emitter.is_heard

    asyncio.run(emit_twice())

    assert built == ["event"]


async def test_a_model_is_not_asked_to_stream_when_nobody_listens_to_the_stream() -> None:
    class Unstreamed(ScriptedModel):
        def stream(self, request: Any) -> Any:
            raise AssertionError("streamed")

    agent = Agent(Unstreamed(["Hi."]))
    agent.on_event(AgentFinished, lambda event: None)
    state = await agent.run("Go")

    assert state.final_response == "Hi."


async def test_an_abandoned_run_leaves_no_task_of_its_listeners_behind() -> None:
    async def listen(event: AgentEvent) -> None:
        await asyncio.sleep(0)

    agent = two_steps()
    agent.wiretap(listen)
    before = asyncio.all_tasks()
    async with contextlib.aclosing(agent.iterator("Go")) as states:
        async for _ in states:
            break
    for _ in range(50):
        await asyncio.sleep(0)

    left = asyncio.all_tasks() - before
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
    assert left == set()


@pytest.mark.parametrize("wrong", ["AgentFinished", AgentFinished, 7, int])
def test_on_event_wants_an_event_class(wrong: Any) -> None:
    bus = EventBus()
    if wrong is AgentFinished:
        with pytest.raises(ConfigurationError, match="listener for AgentFinished is not callable"):
            bus.on_event(wrong, None)  # type: ignore[arg-type]
    else:
        with pytest.raises(ConfigurationError, match=r"wants an event class of stepwell\.events"):
            bus.on_event(wrong, print)


async def test_agents_can_share_a_bus() -> None:
    bus = EventBus()
    recorder = EventRecorder()
    bus.on_event(ToolCallStarted, recorder)
    await two_steps(events=bus).run("Go")
    await two_steps(events=bus).run("Go")

    assert len(recorder.events) == 2
    assert len({event.agent_id for event in recorder.events}) == 2


async def test_runs_at_the_same_time_keep_their_ids_apart() -> None:
    recorder = EventRecorder()
    agent = Agent(ScriptedModel(lambda request: f"Echo {request.messages[0].text}"))
    agent.wiretap(recorder)
    states = await asyncio.gather(*(agent.run(str(n)) for n in range(5)))

    finished = {event.agent_id: event.execution_id for event in recorder.of(AgentFinished)}
    assert finished == {s.agent_id: s.execution.id for s in states if s.execution}
    assert len(finished) == 5
