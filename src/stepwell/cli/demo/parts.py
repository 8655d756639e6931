"""The parts of the demo, each gone through as a user would and looked at from outside: in events,
stored messages and traces. A part that did not happen raises ``Missing``.
"""

from collections.abc import Awaitable, Callable

from stepwell.app.demo import agent as demo
from stepwell.app.demo.breakout import ALLOWED, ATTEMPTS, outcomes
from stepwell.app.demo.hearing import SuiteRun
from stepwell.cli.demo.page_files import page_loads
from stepwell.cli.demo.visitor import ENDED, Missing, Seen, Visitor

FEWEST_CHUNKS = 3


def _expect(condition: bool, otherwise: str) -> None:
    if not condition:
        raise Missing(otherwise)


async def scripted_and_says_so(visitor: Visitor) -> str:
    """The page can show a badge and the examples."""
    agents = (await visitor.get("agent/agents"))["items"]
    _expect(len(agents) == 1, f"one agent was expected, not {len(agents)}")
    told = agents[0]
    _expect(str(told["model"]).startswith("scripted"), f"its model is called {told['model']!r}")
    _expect(told["examples"] == list(demo.EXAMPLES), "it does not name the examples")
    _expect("no model is asked" in told["description"], "its description does not say so")
    return f"{len(told['examples'])} examples"


async def words_are_streamed(visitor: Visitor) -> str:
    """Something without a scene is answered, word by word."""
    seen = await visitor.ended("Hello! Who are you?")
    _expect(seen.status == "completed", f"it ended as {seen.status}")
    chunks = [it["payload"] for it in seen.own("agent.stream.chunk")]
    _expect(len(chunks) >= FEWEST_CHUNKS, f"only {len(chunks)} chunks came")
    streamed = "".join(chunk["content"] for chunk in chunks)
    _expect(streamed == seen.answer, "the chunks are not the answer")
    _expect("scripted" in seen.answer, "the answer does not say that it is scripted")
    return f"{len(chunks)} chunks, together the answer"


async def failing_tool(visitor: Visitor) -> str:
    """A tool raises, and the error policy lets the run go on."""
    seen = await visitor.ended(demo.RECOVER)
    _expect(seen.status == "completed", f"it ended as {seen.status}")
    calls = seen.outcomes("count_stock")
    _expect(calls == ["raised", "completed"], f"the calls ended as {calls}")
    first = (await visitor.trace(seen))["steps"][0]
    decided_by = first["decision"]["resolved_by"]
    _expect(decided_by == "ErrorPolicyCriterion", f"{decided_by} let it go on")
    return "raised, then completed; decided by ErrorPolicyCriterion"


async def question(visitor: Visitor) -> str:
    """It waits for an answer, and goes by it."""
    asked = await visitor.ended(demo.ASK)
    _expect(asked.status == "paused", f"it did not wait, but was {asked.status}")
    done = await visitor.answered(asked, "5 or more")
    _expect(done.status == "completed", f"it ended as {done.status}")
    _expect("tent-6" in done.answer, "the answer was not taken")
    return "answered '5 or more', and it chose tent-6"


async def approval(visitor: Visitor) -> str:
    """Tests fail in the sandbox, a change is approved, they pass."""
    asked = await visitor.ended(demo.MEND)
    tests = await visitor.results(asked, "bash")
    before = SuiteRun.read(tests[0]) if tests else None
    _expect(before is not None, f"no tests ran: {tests[0] if tests else 'bash was not called'}")
    _expect(asked.status == "paused", f"it did not wait, but was {asked.status}")
    _expect("completed" not in asked.outcomes("edit_file"), "it changed a file without approval")
    done = await visitor.answered(asked, {"approved": True})
    _expect(done.status == "completed", f"it ended as {done.status}")
    after = SuiteRun.read((await visitor.results(done, "bash"))[-1])
    _expect(after is not None and not after.failed, "the tests fail still")
    _expect(done.outcomes("edit_file")[-1] == "completed", "the change did not run")
    return f"{len(before.failed) if before else 0} failing test before, none after"


async def denial(visitor: Visitor) -> str:
    """In another conversation the same change is denied."""
    asked = await visitor.ended(demo.MEND)
    _expect(asked.status == "paused", f"it did not wait, but was {asked.status}")
    done = await visitor.answered(asked, {"approved": False, "message": "not today"})
    _expect(done.status == "completed", f"it ended as {done.status}")
    said = (await visitor.results(done, "edit_file"))[-1]
    _expect("denied" in said and "not today" in said, f"the call gave {said!r:.100}")
    _expect("not today" in done.answer, "the answer does not take up the reason")
    return "blocked, with the reason"


async def subagent(visitor: Visitor) -> str:
    """A child with an execution of its own."""
    seen = await visitor.ended(demo.DELEGATE)
    _expect(seen.status == "completed", f"it ended as {seen.status}")
    children = (await visitor.trace(seen))["subagents"]
    _expect(len(children) == 1, f"{len(children)} subagents ran")
    child = await visitor.get(f"agent/executions/{children[0]['id']}")
    _expect(child["parent_execution_id"] == seen.execution, "it is not a child of the execution")
    _expect(child["status"] == "completed", f"it ended as {child['status']}")
    return f"{child['step_count']} steps of its own"


async def sandbox(visitor: Visitor) -> str:
    """Commands can do what they may, and nothing else."""
    seen = await visitor.ended(demo.BREAK_OUT)
    said = (await visitor.results(seen, "bash"))[-1]
    worked = outcomes(said)
    _expect(worked.keys() == ATTEMPTS.keys(), f"the command did not run: {said}")
    wrong = [what for what, did in worked.items() if did != (what == ALLOWED)]
    _expect(not wrong, f"not as it should be: {', '.join(wrong)}")
    return f"{len(worked) - 1} attempts to get out failed"


async def limit(visitor: Visitor) -> str:
    """A run without an end is stopped, and says why."""
    seen = await visitor.ended(demo.FOREVER)
    _expect(seen.status == "stopped", f"it ended as {seen.status}")
    trace = await visitor.trace(seen)
    stop = trace["stop"]
    _expect(stop["reason"] == "steps_limit", f"the reason is {stop['reason']}")
    _expect(stop["text"] == trace["explanation"], "the two explanations differ")
    _expect(stop["decided_by"] == "StepsLimit", f"{stop['decided_by']} decided")
    _expect(f"{demo.MAX_STEPS} of {demo.MAX_STEPS} steps used" in stop["text"], stop["text"])
    return stop["headline"]


async def cancelling(visitor: Visitor) -> str:
    """A run is ended on its way."""
    begun = await visitor.until(await visitor.sent(demo.FOREVER), "step.completed")
    await visitor.post(f"agent/executions/{begun.execution}/cancel", {"reason": "seen enough"})
    seen = await visitor.until(begun, *ENDED)
    _expect(seen.status == "cancelled", f"it ended as {seen.status}")
    steps = len(seen.own("agent.step.completed"))
    return f"after {steps} of {demo.MAX_STEPS} steps"


async def every_stop_is_explained(visitor: Visitor) -> str:
    """All executions that were gone through say in words why they stopped."""
    _expect(bool(visitor.seen), "nothing ran")
    for seen in visitor.seen.values():
        stop = (await visitor.trace(seen))["stop"]
        _expect(bool(stop["text"] and stop["reason"]), f"{seen.execution} does not say why")
    return f"{len(visitor.seen)} executions"


async def live_and_stored_agree(visitor: Visitor) -> str:
    """What came live is what is stored: nothing lost, nothing doubled."""
    _expect(bool(visitor.seen), "nothing ran")
    count = 0
    for seen in visitor.seen.values():
        stored = await _stored_messages(visitor, seen)
        told = [it["payload"]["message_id"] for it in seen.events if "message_id" in it["payload"]]
        _expect(len(told) == len(set(told)), f"{seen.session}: a message was told twice")
        _expect(set(told) == set(stored), f"{seen.session}: told and stored messages differ")
        # Text that is being generated has the number of the entry that it follows.
        entries = [it["seq"] for it in seen.events if it["type"] != "agent.stream.chunk"]
        numbers = [it["seq"] for it in seen.events]
        is_in_order = entries == sorted(set(entries)) and numbers == sorted(numbers)
        _expect(is_in_order, f"{seen.session}: events came out of order")
        count += len(stored)
    return f"{count} messages"


async def _stored_messages(visitor: Visitor, seen: Seen) -> list[str]:
    page = await visitor.get(f"agent/sessions/{seen.session}/messages?limit=200")
    return [message["id"] for message in page["items"]]


Check = Callable[[Visitor], Awaitable[str]]
CHECKS: dict[str, Check] = {
    "the page and its files": page_loads,
    "an agent that says it is scripted": scripted_and_says_so,
    "streamed words": words_are_streamed,
    "a failing tool and the recovery": failing_tool,
    "a question and its answer": question,
    "tests, a change, an approval": approval,
    "a denied change": denial,
    "a subagent": subagent,
    "a sandbox that holds": sandbox,
    "a limit, explained": limit,
    "a cancelled run": cancelling,
    "every stop explained": every_stop_is_explained,
    "live events agree with what is stored": live_and_stored_agree,
}
"""In the order in which they are gone through."""
