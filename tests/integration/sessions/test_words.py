"""What a client of the API reads of takeovers, stops and queues: each can be acted on."""

import asyncio
import logging
from datetime import timedelta
from pathlib import Path

import pytest

from stepwell.agent import Agent
from stepwell.clock import Clock
from stepwell.sessions.attempt.runner import Runner
from stepwell.sessions.settings import SessionSettings
from stepwell.sessions.views.reader import Reader
from stepwell.testing import FakeClock, ScriptedModel, call
from stepwell.tools import FunctionTool
from stepwell.worker.work import Work
from tests.integration.sessions.front_desk import desk_at
from tests.integration.sessions.tried import QUICK, Tried
from tests.integration.sessions.world import CLOCK, Crash, CrashingStore, World, world

PATIENT = SessionSettings(
    lease_seconds=60.0, heartbeat_seconds=20.0, shutdown_seconds=0.05, flush_seconds=5.0
)


def worker(here: World, name: str, clock: Clock = CLOCK) -> Work:
    runner = Runner(here.store, here.jobs, here.agents, settings=PATIENT)
    return Work(here.store, runner, settings=PATIENT, worker_id=name, jobs=here.jobs, clock=clock)


async def test_a_takeover_is_told_kept_and_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tried = Tried()
    async with world(tmp_path, tried.agent, settings=QUICK) as here:
        id = await here.send("go")
        with pytest.raises(Crash):  # in step 2
            await here.run(id, store=CrashingStore(here.store, at=4), settings=PATIENT)
        later = FakeClock(CLOCK.now() + timedelta(minutes=5))
        with caplog.at_level(logging.WARNING, "stepwell.worker"):
            assert await worker(here, "worker-2", later).take(id)

        row = await here.execution(id)
        assert row.status == "completed"
        [entry] = row.metadata["takeovers"]
        assert (entry["attempt"], entry["step"], entry["worker"]) == (2, 2, "w")
        [told] = [m for m in await here.messages("info") if "did not answer" in m.content]
        assert told.content.startswith("Its worker (w) did not answer for ")
        assert told.content.endswith(" s; another one goes on from step 2 (attempt 2)")
        assert told.metadata["event_type"] == "execution.started"
        trace = await Reader(here.store).trace(id)
        assert trace["execution"]["metadata"]["takeovers"] == [entry]
        [line] = [r.getMessage() for r in caplog.records if "did not answer" in r.getMessage()]
        assert id in line
        assert here.session_id in line


async def test_a_worker_that_was_shut_down_did_not_die(tmp_path: Path) -> None:
    begun = asyncio.Event()

    async def slow() -> str:
        begun.set()
        await asyncio.sleep(30)
        return "done"

    tool = FunctionTool(slow, description="Takes long.", effect="external")
    agent = Agent(ScriptedModel([call("slow", id="s"), "I will check."]), tools=[tool])
    async with world(tmp_path, agent, settings=PATIENT) as here:
        id = await here.send("go")
        first = worker(here, "worker-1")
        taking = asyncio.create_task(first.take(id))
        await begun.wait()
        await first.shut_down()
        await taking
        await worker(here, "worker-2").take(id)

        row = await here.execution(id)
        assert row.status == "completed"
        assert "takeovers" not in row.metadata
        [step, _] = await Reader(here.store).steps(id)
        text = str(step)
        assert "the worker that ran it was stopped" in text
        assert "died" not in text


async def test_a_limit_says_what_a_client_can_do(tmp_path: Path) -> None:
    def look() -> str:
        return "seen"

    tool = FunctionTool(look, description="Look.")
    for at_limit, hint in (
        ("pause", "/resume with question_id and steps"),
        ("stop", "send another message"),
    ):
        agent = Agent(
            ScriptedModel(lambda _: call("look")), tools=[tool], max_steps=1, at_limit=at_limit
        )
        folder = tmp_path / at_limit
        folder.mkdir()
        async with world(folder, agent) as here:
            id = await here.send("go")
            await here.run(id)
            row = await here.execution(id)
            trace = await Reader(here.store).trace(id)
            words = [*await here.texts("notification"), trace["explanation"]]
            words += [asked["prompt"] for asked in row.pending]
            assert all(hint in text for text in words), words
            # Who runs the agent reads how to raise the limit, after what a client can do.
            [raising] = {t for t in words if "with_max_steps(n) or Agent(max_steps=n)" in t}
            assert raising == trace["explanation"]
            assert raising.index(hint) < raising.index("who runs the agent can raise the limit: ")
            assert "with_" not in raising[: raising.index("who runs the agent")]
            assert row.decision == (await Reader(here.store).trace(id))["decision"]
            if at_limit == "pause":
                assert all(f"POST /agent/executions/{id}/resume" in text for text in words)


async def test_a_question_names_the_way_to_answer_it(tmp_path: Path) -> None:
    async with desk_at(tmp_path / "a.db") as desk:
        sent = await desk.send("ask end")
        assert sent.execution is not None
        await desk.run(sent.execution.id)
        trace = await Reader(desk.store).trace(sent.execution.id)
        way = f"POST /agent/executions/{sent.execution.id}/answer with question_id and answer"
        assert way in trace["explanation"]
        assert "with_answer" not in trace["explanation"]

        behind = await desk.send("add end", sent.session.id)
        assert behind.execution is not None
        queued = (await desk.messages(sent.session.id))[-1]
        assert queued.content == "Execution queued behind one that waits for an answer"
        assert queued.metadata["waits_behind"] == sent.execution.id


async def test_a_failure_is_logged_in_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_: object) -> str:
        raise ValueError("first\nsecond")

    async with world(tmp_path, Agent(ScriptedModel(broken))) as here:
        id = await here.send("go")
        with caplog.at_level(logging.WARNING, "stepwell.sessions"):
            assert await here.run(id) == "failed"
        [line] = [r.getMessage() for r in caplog.records if r.name == "stepwell.sessions"]
        assert line.startswith(f"execution {id} (session {here.session_id}) failed: ")
        assert "first second" in line


async def test_a_trace_tells_the_stop_in_words_and_in_parts_also_of_a_failure(
    tmp_path: Path,
) -> None:
    def look() -> str:
        raise ValueError("no such shelf")

    tool = FunctionTool(look, description="Look.")
    async with world(tmp_path, Agent(ScriptedModel([call("look")]), tools=[tool])) as here:
        id = await here.send("go")
        await here.run(id)
        trace = await Reader(here.store).trace(id)

    stop = trace["stop"]
    assert stop["text"] == trace["explanation"]
    assert stop["text"].startswith(stop["headline"])
    assert (stop["reason"], stop["status"]) == ("error", "failed")
    assert stop["decided_by"] == "ErrorPolicyCriterion"
    for part in (stop["why"], stop["hint"], *(vote["reason"] for vote in stop["votes"])):
        assert part in stop["text"]
    assert "no such shelf" in stop["text"]
    (decisive,) = [vote for vote in stop["votes"] if vote["is_decisive"]]
    assert decisive["numbers"] == stop["numbers"]
