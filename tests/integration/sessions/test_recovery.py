"""A worker dies at any write; the next one ends the execution once, and no call is repeated that
must not be."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stepwell.agent import Agent
from stepwell.errors import AgentNotFoundError
from stepwell.ids import new_id
from stepwell.sessions.directory import AgentDirectory
from stepwell.sessions.errors import RefusedError
from stepwell.sessions.ids import derived_id
from stepwell.sessions.ports import Store
from stepwell.sessions.requests.lifecycle import Lifecycle
from stepwell.sessions.settings import SessionSettings, WhenChanged, WhenUnknown
from stepwell.stores.database_url import open_store
from stepwell.testing import call
from stepwell.tools import FunctionTool
from tests.integration.sessions.databases import sqlite_url
from tests.integration.sessions.tried import QUICK, WRITES, Tried, conversation, taken_over
from tests.integration.sessions.world import Crash, CrashingStore, World, world


async def test_the_writes_of_a_run_are_those_that_are_tried_here(tmp_path: Path) -> None:
    async with world(tmp_path, Tried().agent, settings=QUICK) as here:
        id = await here.send("go")
        store = CrashingStore(here.store)
        await here.run(id, store=store)
        assert tuple(store.names) == WRITES


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("at", range(1, len(WRITES) + 1))
async def test_a_crash_at_any_write_ends_in_the_same_answer(
    tmp_path: Path, at: int, after: bool
) -> None:
    tried = Tried()
    async with world(tmp_path, tried.agent, settings=QUICK) as here:
        id = await here.send("go")
        assert await taken_over(here, id, [(at, after)]) == 1
        row = await here.execution(id)
        texts = await here.texts()
        assert row.status == "completed"
        assert texts.count("All done.") == 1
        assert len(texts) == len(set(texts)), texts
        assert await here.statuses() == ["processing", "completed"]
        assert tried.times("pay") <= 1
        keys = {key for name, key in tried.ran if name == "save"}
        assert keys == {f"{id}:2:b1"}
        told = [text for text in texts if "not known" in text]
        is_unknown = tried.times("pay") == 0 or bool(told)
        began_paying = (at, after) in {(1, True), (2, False)}
        assert is_unknown == began_paying


async def test_what_is_known_of_a_call_decides_whether_it_runs_again(tmp_path: Path) -> None:
    turns = ([call("look", id="a1", at="x"), call("save", id="a2", at="y")], "Done.")
    tried = Tried(turns)
    async with world(tmp_path, tried.agent, settings=QUICK) as here:
        id = await here.send("go")
        # Both calls have run, and the step is not committed.
        assert await taken_over(here, id, [(2, False)]) == 1
        assert tried.times("look") + tried.times("save") == 4
        assert len({key for _, key in tried.ran}) == 2


async def test_a_finished_call_is_not_repeated_and_the_model_not_asked_again(
    tmp_path: Path,
) -> None:
    tried = Tried(([call("pay", id="p", at="x"), call("linger", id="l")], "Paid."))
    flushes = SessionSettings(flush_seconds=0.01)
    async with world(tmp_path, tried.agent, settings=flushes) as here:
        id = await here.send("go")

        async def is_stored() -> bool:
            intent = await here.store.read(lambda tx: tx.intent(id))
            return intent is not None and "pay at x" in intent.calls

        # The other call runs until the result of the first one is stored by itself.
        tried.linger_until = is_stored
        store = CrashingStore(here.store)
        store.crash_at("step")
        with pytest.raises(Crash):
            await here.run(id, store=store)
        tried.linger_until = None
        assert await here.run(id, dead=True) == "completed"
        assert tried.times("pay") == 1
        assert tried.asked == 2
        parts = [part for _, role, [part, *_] in await conversation(here) if role == "tool"]
        assert [part.content for part in parts] == ["pay at x", "lingered"]


async def test_an_unknown_outcome_is_told_to_the_model(tmp_path: Path) -> None:
    tried = Tried(([call("pay", id="p", at="x")], "I will check."))
    async with world(tmp_path, tried.agent, settings=QUICK) as here:
        id = await here.send("go")
        assert await taken_over(here, id, [(2, False)]) == 1
        assert tried.times("pay") == 1
        [result] = [part for _, role, [part, *_] in await conversation(here) if role == "tool"]
        assert result.is_error
        assert "may or may not have taken effect" in result.content
        assert (await here.execution(id)).status == "completed"
        outcomes = [e.payload["outcome"] for e in await here.events("agent.tool.completed")]
        assert outcomes == ["unknown"]


@pytest.mark.parametrize(
    ("answer", "runs", "said"),
    [
        ("done", 1, "A person confirmed"),
        ({"outcome": "done", "result": {"receipt": 7}}, 1, '{"receipt":7}'),
        ("retry", 2, "pay at x"),
        ("failed", 1, "did not take effect"),
    ],
)
async def test_a_person_can_decide_on_an_unknown_outcome(
    tmp_path: Path, answer: Any, runs: int, said: str
) -> None:
    tried = Tried(([call("pay", id="p", at="x")], "Settled."))
    asks = SessionSettings(flush_seconds=5.0, when_unknown=WhenUnknown.ASK)
    async with world(tmp_path, tried.agent, settings=asks) as here:
        id = await here.send("go")
        assert await taken_over(here, id, [(2, False)]) == 1
        row = await here.execution(id)
        assert row.status == "paused"
        [asked] = row.pending
        assert asked["details"]["options"] == ["done", "retry", "failed"]
        lifecycle = Lifecycle(here.store, here.jobs, here.agents)
        await lifecycle.answer(id, asked["question_id"], answer)
        assert await here.run(id) == "completed"
        assert tried.times("pay") == runs
        assert len({key for _, key in tried.ran}) == 1
        [result] = [part for _, role, [part, *_] in await conversation(here) if role == "tool"]
        assert said in result.content
        assert await here.statuses() == ["processing", "paused", "processing", "completed"]


@pytest.mark.parametrize(
    ("of_the_tool", "of_the_server", "status"),
    [("ask", "tell", "paused"), ("tell", "ask", "completed"), (None, "ask", "paused")],
)
async def test_a_tool_may_say_itself_who_decides_on_an_unknown_outcome(
    tmp_path: Path, of_the_tool: str | None, of_the_server: str, status: str
) -> None:
    tried = Tried(([call("pay", id="p", at="x")], "Settled."), when_unknown=of_the_tool)
    settings = SessionSettings(flush_seconds=5.0, when_unknown=WhenUnknown(of_the_server))
    async with world(tmp_path, tried.agent, settings=settings) as here:
        id = await here.send("go")
        await taken_over(here, id, [(2, False)])
        assert (await here.execution(id)).status == status


async def test_an_answer_that_decides_nothing_is_refused_and_costs_nothing(tmp_path: Path) -> None:
    tried = Tried(([call("pay", id="p", at="x")], "Settled."))
    asks = SessionSettings(flush_seconds=5.0, when_unknown=WhenUnknown.ASK)
    async with world(tmp_path, tried.agent, settings=asks) as here:
        id = await here.send("go")
        await taken_over(here, id, [(2, False)])
        lifecycle, before = Lifecycle(here.store, here.jobs, here.agents), await here.execution(id)
        for wrong in ("perhaps", None, True, {"outcome": "maybe"}, {"result": 1}):
            with pytest.raises(RefusedError, match=r"pay .* done, retry, failed") as caught:
                await lifecycle.answer(id, before.pending[0]["question_id"], wrong)
            assert caught.value.code == "bad_answer"
        assert await here.execution(id) == before
        await lifecycle.answer(id, before.pending[0]["question_id"], " Failed ")
        assert await here.run(id) == "completed"
        assert tried.times("pay") == 1


@pytest.mark.parametrize(("answer", "times"), [("done", 1), ("retry", 2)])
async def test_a_call_is_told_as_often_as_it_runs(tmp_path: Path, answer: str, times: int) -> None:
    tried = Tried(([call("pay", id="p", at="x")], "Settled."))
    asks = SessionSettings(flush_seconds=5.0, when_unknown=WhenUnknown.ASK)
    async with world(tmp_path, tried.agent, settings=asks) as here:
        id = await here.send("go")
        await taken_over(here, id, [(2, False)])
        asked = (await here.execution(id)).pending[0]["question_id"]
        await Lifecycle(here.store, here.jobs, here.agents).answer(id, asked, answer)
        await here.run(id)
        told = [text for text in await here.texts() if text.startswith("Calling pay")]
        assert len(told) == tried.times("pay") == times


async def test_an_execution_that_kills_its_worker_three_times_is_set_aside(tmp_path: Path) -> None:
    tried = Tried(([call("pay", id="p", at="x")], "Paid."))
    async with world(tmp_path, tried.agent, settings=SessionSettings(flush_seconds=5.0)) as here:
        id = await here.send("go")
        after = await here.send("and then?")
        with pytest.raises(Crash):
            await here.run(id, store=CrashingStore(here.store, at=2))
        for _ in range(2):
            with pytest.raises(Crash):
                await here.run(id, store=CrashingStore(here.store, at=2), dead=True)
        assert await here.run(id, dead=True) == "failed"
        row = await here.execution(id)
        assert row.metadata["set_aside"] == "crashes"
        assert row.error_message is not None
        assert "died 3 times in step 1 while running pay" in row.error_message
        assert "/resume" in row.error_message
        unknown, told = await here.texts("notification")
        assert unknown == "pay: whether it took effect is not known"
        assert told == row.error_message
        assert await here.statuses() == ["processing", "failed"]
        assert here.jobs.ids == [after]


async def test_a_step_that_was_stored_forgets_the_crashes_before_it(tmp_path: Path) -> None:
    tried = Tried()
    async with world(tmp_path, tried.agent, settings=SessionSettings(flush_seconds=5.0)) as here:
        id = await here.send("go")
        # One crash in the first step, two in the second: three in all, and never three in one.
        assert await taken_over(here, id, [(2, False), (4, False), (2, False)]) == 3
        assert (await here.execution(id)).status == "completed"


async def test_a_changed_definition_goes_on_and_says_so(tmp_path: Path) -> None:
    tried, changed = Tried(), Tried()
    plan = changed.agent
    other = Agent.from_plan(plan.plan.with_tools(FunctionTool(lambda: "", name="more")))
    async with world(tmp_path, tried.agent, settings=QUICK) as here:
        id = await here.send("go")
        with pytest.raises(Crash):
            await here.run(id, store=CrashingStore(here.store, at=4))
        agents = AgentDirectory({"helper": other})
        assert await here.run(id, dead=True, agents=agents) == "completed"
        row = await here.execution(id)
        assert row.definition_hash == agents.get("helper").definition_hash
        [change] = row.metadata["definition_changes"]
        assert change["step"] == 2
        assert any("changed since this execution began" in t for t in await here.texts("info"))


async def test_a_changed_definition_can_stop_the_execution(tmp_path: Path) -> None:
    tried, changed = Tried(), Tried()
    other = Agent.from_plan(changed.agent.plan.with_tools(FunctionTool(lambda: "", name="more")))
    stops = SessionSettings(flush_seconds=5.0, when_changed=WhenChanged.STOP)
    async with world(tmp_path, tried.agent, settings=stops) as here:
        id = await here.send("go")
        with pytest.raises(Crash):
            await here.run(id, store=CrashingStore(here.store, at=4))
        agents = AgentDirectory({"helper": other})
        assert await here.run(id, dead=True, agents=agents) == "stopped"
        row = await here.execution(id)
        assert row.metadata["set_aside"] == "definition_changed"
        assert row.error_message is not None
        assert "accept_change" in row.error_message
        assert await here.statuses() == ["processing", "stopped"]


async def test_a_runner_without_the_agent_leaves_the_execution_as_it_is(tmp_path: Path) -> None:
    async with world(tmp_path, Tried().agent, settings=QUICK) as here:
        id = await here.send("go")
        agents = AgentDirectory({"other": Tried().agent})
        with pytest.raises(AgentNotFoundError, match="helper"):
            await here.run(id, agents=agents)
        assert (await here.execution(id)).status == "running"
        assert await here.run(id, dead=True) == "completed"


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    """One database for all examples; each has a session of its own."""
    opened = await open_store(await sqlite_url(tmp_path / "stepwell.db"))
    yield opened
    await opened.close()


CALLS = st.lists(
    st.lists(st.sampled_from(["look", "save", "pay"]), min_size=1, max_size=3), max_size=3
)
CRASHES = st.lists(st.tuples(st.integers(1, 12), st.booleans()), max_size=5)


@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(calls=CALLS, crashes=CRASHES)
async def test_whatever_crashes_the_conversation_ends_as_without_them(
    store: Store,
    calls: list[list[str]],
    crashes: list[tuple[int, bool]],
) -> None:
    turns: list[Any] = [
        [call(name, id=f"c{step}-{place}", at=str(place)) for place, name in enumerate(names)]
        for step, names in enumerate(calls)
    ]
    turns.append("The end.")
    ends: list[list[Any]] = []
    for how in ([], crashes):
        tried = Tried(turns)
        here = World(store, tried.agent, QUICK, session_id=new_id())
        await here.begin()
        id = await here.send("go")
        await taken_over(here, id, how)
        assert (await here.execution(id)).status == "completed"
        assert await here.statuses() == ["processing", "completed"]
        assert await here.texts("user", "assistant") == ["go", "The end."]
        sent = derived_id(here.session_id, "message", 1)
        said = [(mid.replace(id, "E"), *rest) for mid, *rest in await conversation(here)]
        ends.append([(mid.replace(sent, "M"), *rest) for mid, *rest in said])
        for name, key in set(tried.ran):
            assert name != "pay" or tried.ran.count((name, key)) == 1
    whole, interrupted = ends
    assert len(whole) == len(interrupted)
    for one, other in zip(whole, interrupted, strict=True):
        is_unknown = other[1] == "tool" and other[2][0].tool_name == "pay" and other[2][0].is_error
        assert one[:2] == other[:2]
        assert is_unknown or one[2] == other[2]
