"""A call that ran is known to whoever comes next, however the execution ended."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from stepwell.agent import Agent
from stepwell.capabilities.approvals import UseApprovals
from stepwell.capabilities.user_input import UseUserInput
from stepwell.drivers.react import ReActDriver
from stepwell.ids import new_id
from stepwell.messages import Role
from stepwell.models import ModelRequest, ModelResponse
from stepwell.sessions.attempt.runner import RunControl, Runner
from stepwell.sessions.endings.end import EndDeps
from stepwell.sessions.endings.outside import mark_failed
from stepwell.sessions.errors import LostLeaseError
from stepwell.sessions.ledger.open_step import KnownStep
from stepwell.sessions.requests.lifecycle import Lifecycle
from stepwell.sessions.settings import SessionSettings
from stepwell.sessions.views.reader import Reader
from stepwell.state import AgentState, ToolOutcome
from stepwell.testing import ScriptedModel, call
from stepwell.tools import FunctionTool
from stepwell.worker.claims import Claims
from stepwell.worker.lease import WorkerLease
from tests.integration.sessions.tried import Held, died_with_stored_results
from tests.integration.sessions.world import CLOCK, Crash, CrashingStore, World, world

QUICK = SessionSettings(flush_seconds=5.0)


class Payer:
    """An agent that pays, looks around, and knows only what is in its messages."""

    def __init__(self, *, is_react: bool = False, amount: Any = 100) -> None:
        self.paid: list[Any] = []
        self.amount = amount
        self.held = Held()
        tools = [
            FunctionTool(self._pay, name="pay", effect="external"),
            FunctionTool(self._look, name="look", effect="pure"),
        ]
        if is_react:
            self.agent = Agent(
                driver=ReActDriver(ScriptedModel(self._decide)), tools=tools, hooks=[self.held.hook]
            )
        else:
            self.agent = Agent(ScriptedModel(self._turn), tools=tools, hooks=[self.held.hook])

    async def _pay(self, amount: int | str) -> str:
        """Pay."""
        self.paid.append(amount)
        return f"paid {amount!r}"

    async def _look(self) -> str:
        """Look."""
        return "trees"

    def _turn(self, request: ModelRequest) -> Any:
        knows = any(m.is_tool() for m in request.messages)
        if knows:
            return "It is paid, or I know that I don't know."
        calls = (call("pay", id=f"p{len(self.paid)}", amount=self.amount), call("look", id="l"))
        return ModelResponse(text="I pay.", tool_calls=calls)

    def _decide(self, request: ModelRequest) -> str:
        knows = any("pay" in m.text for m in request.messages if m.role is not Role.SYSTEM)
        if knows:
            return json.dumps({"type": "final_answer", "answer": "It is paid."})
        return json.dumps(
            {"thought": "Now.", "type": "call_tool", "tool": "pay", "args": {"amount": 100}}
        )


async def died(here: World, id: str) -> None:
    """A worker that dies before it stores a step, and nothing of its results is stored."""
    store = CrashingStore(here.store)
    store.crash_at("step")
    with pytest.raises(Crash):
        await here.run(id, store=store)


async def set_aside(here: World, id: str) -> None:
    for _ in range(2):
        with pytest.raises(Crash):
            await here.run(id, store=CrashingStore(here.store, at=1), dead=True)
    assert await here.run(id, dead=True) == "failed"


async def cancelled_and_taken_over(here: World, id: str) -> None:
    await Lifecycle(here.store, here.jobs, here.agents).cancel(id)
    assert await here.run(id, dead=True) == "cancelled"


async def cancelled_while_it_is_taken_over(here: World, id: str) -> None:
    class Late(CrashingStore):
        async def write(self, work: Any, /, *, name: str) -> Any:
            if name == "start":
                await Lifecycle(here.store, here.jobs, here.agents).cancel(id)
            return await super().write(work, name=name)

    assert await here.run(id, dead=True, store=Late(here.store)) == "cancelled"


async def released_and_cancelled(here: World, id: str) -> None:
    agents = here.agents.names
    lease = WorkerLease("w", agents=lambda: agents, seconds=3, clock=CLOCK, new_id=new_id)
    claims = Claims(
        here.store,
        here.jobs,
        lease,
        agents=lambda: agents,
        on_lost=lambda _: None,
        settings=here.settings,
        clock=CLOCK,
    )
    await claims.release([await here.execution(id)])
    row = await Lifecycle(here.store, here.jobs, here.agents).cancel(id)
    assert row.status == "cancelled"


async def broken(here: World, id: str) -> None:
    claimed = await here.claim(id, dead=True)
    deps = EndDeps(jobs=here.jobs, clock=CLOCK, settings=here.settings)
    assert await here.store.write(lambda tx: mark_failed(tx, claimed, "e1", deps), name="fail")


WAYS = [
    set_aside,
    cancelled_and_taken_over,
    cancelled_while_it_is_taken_over,
    released_and_cancelled,
    broken,
]


async def final_state(here: World, id: str) -> AgentState:
    row = await here.execution(id)
    snapshots = await here.store.read(lambda tx: tx.snapshots(id))
    [final] = [it for it in snapshots if it.is_final]
    assert row.last_snapshot_id == final.id
    return await Reader(here.store).state_of(final.id)


@pytest.mark.parametrize("ends", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("is_react", [False, True], ids=["", "react"])
@pytest.mark.parametrize("is_known", [False, True], ids=["unknown", "known"])
async def test_what_began_before_the_end_is_known_to_the_next_message(
    tmp_path: Path, ends: Callable[[World, str], Awaitable[None]], is_react: bool, is_known: bool
) -> None:
    payer = Payer(is_react=is_react)
    async with world(tmp_path, payer.agent, settings=QUICK) as here:
        id = await here.send("Pay the bill.")
        if is_known:
            texts = ("paid 100",) if is_react else ("paid 100", "trees")
            await died_with_stored_results(here, payer.held, id, *texts)
        else:
            await died(here, id)
        assert len(payer.paid) == 1
        await ends(here, id)
        row = await here.execution(id)
        assert row.decision is not None
        assert row.stop_reason is not None
        assert row.step_count == 1
        state = await final_state(here, id)
        assert state.current_step is not None
        by_tool = {ran.call.name: ran for ran in state.current_step.tool_executions}
        wanted = ToolOutcome.COMPLETED if is_known else ToolOutcome.UNKNOWN
        assert by_tool["pay"].outcome is wanted
        assert by_tool["pay"].call.arguments == {"amount": 100}
        assert await here.store.read(lambda tx: tx.intent(id)) is None
        _assert_sound(state)
        told = [text for text in await here.texts("notification") if "not known" in text]
        assert len(told) == (0 if is_known else len(state.current_step.tool_executions))
        terminal = [s for s in await here.statuses() if s in ("failed", "cancelled")]
        assert terminal == [str(row.status)]
        next = await here.send("And now?")
        assert await here.run(next) == "completed"
        assert len(payer.paid) == 1


def _assert_sound(state: AgentState) -> None:
    """Each call of an assistant's message has its result right behind it."""
    waiting: list[str] = []
    for message in state.messages:
        if message.role is Role.TOOL:
            assert message.tool_result is not None
            assert waiting.pop(0) == message.tool_result.call_id
        else:
            assert waiting == []
            waiting = [made.id for made in message.tool_calls]
    assert waiting == []


async def test_an_execution_that_was_set_aside_goes_on_behind_its_last_calls(
    tmp_path: Path,
) -> None:
    payer = Payer()
    async with world(tmp_path, payer.agent, settings=QUICK) as here:
        id = await here.send("Pay the bill.")
        await died(here, id)
        await set_aside(here, id)
        await Lifecycle(here.store, here.jobs, here.agents).resume(id)
        assert await here.run(id) == "completed"
        assert len(payer.paid) == 1
        assert (await here.execution(id)).step_count == 2
        _assert_sound(await Reader(here.store).state_at(id))


async def test_an_answered_call_that_ran_keeps_its_result(tmp_path: Path) -> None:
    ran: list[int] = []

    async def pay() -> str:
        """Pay."""
        ran.append(1)
        return "paid"

    model = ScriptedModel(
        lambda request: (
            [call("pay", id="p")]
            if not any(m.is_tool() for m in request.messages)
            else request.messages[-1].text or "Done."
        )
    )
    held = Held()
    agent = Agent(
        model,
        hooks=[held.hook],
        tools=[FunctionTool(pay, name="pay", effect="external")],
        capabilities=[UseApprovals("pay")],
    )
    async with world(tmp_path, agent, settings=QUICK) as here:
        id = await here.send("go")
        assert await here.run(id) == "paused"
        [asked] = (await here.execution(id)).questions
        lifecycle = Lifecycle(here.store, here.jobs, here.agents)
        await lifecycle.answer(id, asked["question_id"], True)
        await died_with_stored_results(here, held, id, "paid")
        await cancelled_and_taken_over(here, id)
        assert ran == [1]
        state = await final_state(here, id)
        _assert_sound(state)
        results = [m.tool_result.content for m in state.messages if m.tool_result]
        assert results == ["paid"]


async def test_a_turn_with_half_a_letter_is_in_the_ledger_before_its_tool_runs(
    tmp_path: Path,
) -> None:
    payer = Payer(amount="1\ud800")
    async with world(tmp_path, payer.agent, settings=QUICK) as here:
        id = await here.send("Pay.")
        await died(here, id)
        known = KnownStep.of(await here.store.read(lambda tx: tx.intent(id)), 1)
        assert known.response is not None
        assert list(known.calls) == ["p0", "l"]
        await here.run(id, dead=True)
        assert len(payer.paid) == 1


@pytest.mark.parametrize("count", [1, 2])
async def test_a_run_ends_though_a_tool_swallows_its_cancellation(
    tmp_path: Path, count: int
) -> None:
    began = asyncio.Event()

    async def stubborn() -> str:
        """Wait."""
        began.set()
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(600)
        return "did it anyway"

    turns = [[call("stubborn", id=str(n)) for n in range(count)], "Done."]
    agent = Agent(ScriptedModel(turns), tools=[stubborn])
    async with world(tmp_path, agent, settings=QUICK) as here:
        id = await here.send("go")
        claimed, control = await here.claim(id), RunControl()
        runner = Runner(here.store, here.jobs, here.agents, settings=QUICK)
        run = asyncio.create_task(runner.run(claimed, control))
        await began.wait()
        control.abandon(LostLeaseError(id, 1))
        async with asyncio.timeout(90):
            with pytest.raises(LostLeaseError):
                await run
        assert (await here.execution(id)).status == "running"


async def test_a_paused_execution_does_not_fail_by_a_run_that_broke_behind_it(
    tmp_path: Path,
) -> None:
    model = ScriptedModel([call("user_input", id="q", question="Which?")])
    agent = Agent(model, capabilities=[UseUserInput()])
    async with world(tmp_path, agent, settings=QUICK) as here:
        claimed = await here.claim(await here.send("go"))
        runner = Runner(here.store, here.jobs, here.agents, settings=QUICK)
        assert await runner.run(claimed, RunControl()) == "paused"
        deps = EndDeps(jobs=here.jobs, clock=CLOCK, settings=QUICK)
        assert not await here.store.write(
            lambda tx: mark_failed(tx, claimed, "e1", deps), name="fail"
        )
        assert (await here.execution(claimed.id)).status == "paused"
