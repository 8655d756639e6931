"""The parts of the demo. Each acts as a user would and checks events, stored messages and traces.
Raises ``Missing`` if a part did not happen.
"""

from collections.abc import Awaitable, Callable

from stepwell.app.demo import agent as demo
from stepwell.app.demo.breakout import ALLOWED, ATTEMPTS, outcomes
from stepwell.app.demo.conversation_end import SuiteRun
from stepwell.cli.demo.page_files import page_loads
from stepwell.cli.demo.visitor import ENDED, Missing, Seen, Visitor

FEWEST_CHUNKS = 3


def _expect(condition: bool, otherwise: str) -> None:
    if not condition:
        raise Missing(otherwise)


async def scripted_and_says_so(visitor: Visitor) -> str:
    """The agent says that it is scripted and lists its examples."""
    agents = (await visitor.get("agent/agents"))["items"]
    _expect(len(agents) == 1, f"one agent was expected, not {len(agents)}")
    agent = agents[0]
    _expect(str(agent["model"]).startswith("scripted"), f"its model is called {agent['model']!r}")
    _expect(agent["examples"] == list(demo.EXAMPLES), "it does not name the examples")
    _expect("no model is asked" in agent["description"], "its description does not say so")
    return f"{len(agent['examples'])} examples"


async def words_are_streamed(visitor: Visitor) -> str:
    """An unknown prompt is answered word by word."""
    seen = await visitor.run("Hello! Who are you?")
    _expect(seen.status == "completed", f"it ended as {seen.status}")
    chunks = [it["payload"] for it in seen.own("agent.stream.chunk")]
    _expect(len(chunks) >= FEWEST_CHUNKS, f"only {len(chunks)} chunks came")
    streamed = "".join(chunk["content"] for chunk in chunks)
    _expect(streamed == seen.answer, "the chunks are not the answer")
    _expect("scripted" in seen.answer, "the answer does not say that it is scripted")
    return f"{len(chunks)} chunks, together the answer"


async def failing_tool(visitor: Visitor) -> str:
    """A tool raises, and the error policy lets the run go on."""
    seen = await visitor.run(demo.RECOVER)
    _expect(seen.status == "completed", f"it ended as {seen.status}")
    calls = seen.outcomes("count_stock")
    _expect(calls == ["raised", "completed"], f"the calls ended as {calls}")
    first = (await visitor.trace(seen))["steps"][0]
    decided_by = first["decision"]["resolved_by"]
    _expect(decided_by == "ErrorPolicyCriterion", f"{decided_by} let it go on")
    return "raised, then completed; decided by ErrorPolicyCriterion"


async def question(visitor: Visitor) -> str:
    """It waits for an answer and uses it."""
    asked = await visitor.run(demo.ASK)
    _expect(asked.status == "paused", f"it did not wait, but was {asked.status}")
    done = await visitor.answer_question(asked, "5 or more")
    _expect(done.status == "completed", f"it ended as {done.status}")
    _expect("tent-6" in done.answer, "the answer was not taken")
    return "answered '5 or more', and it chose tent-6"


async def approval(visitor: Visitor) -> str:
    """Tests fail in the sandbox; after an approved change they pass."""
    asked = await visitor.run(demo.FIX)
    tests = await visitor.results(asked, "bash")
    before = SuiteRun.read(tests[0]) if tests else None
    _expect(before is not None, f"no tests ran: {tests[0] if tests else 'bash was not called'}")
    _expect(asked.status == "paused", f"it did not wait, but was {asked.status}")
    _expect("completed" not in asked.outcomes("edit_file"), "it changed a file without approval")
    done = await visitor.answer_question(asked, {"approved": True})
    _expect(done.status == "completed", f"it ended as {done.status}")
    after = SuiteRun.read((await visitor.results(done, "bash"))[-1])
    _expect(after is not None and not after.failed, "the tests fail still")
    _expect(done.outcomes("edit_file")[-1] == "completed", "the change did not run")
    return f"{len(before.failed) if before else 0} failing test before, none after"


async def denial(visitor: Visitor) -> str:
    """In another session the same change is denied."""
    asked = await visitor.run(demo.FIX)
    _expect(asked.status == "paused", f"it did not wait, but was {asked.status}")
    done = await visitor.answer_question(asked, {"approved": False, "message": "not today"})
    _expect(done.status == "completed", f"it ended as {done.status}")
    said = (await visitor.results(done, "edit_file"))[-1]
    _expect("denied" in said and "not today" in said, f"the call gave {said!r:.100}")
    _expect("not today" in done.answer, "the answer does not take up the reason")
    return "blocked, with the reason"


async def subagent(visitor: Visitor) -> str:
    """A subagent has its own execution."""
    seen = await visitor.run(demo.DELEGATE)
    _expect(seen.status == "completed", f"it ended as {seen.status}")
    children = (await visitor.trace(seen))["subagents"]
    _expect(len(children) == 1, f"{len(children)} subagents ran")
    child = await visitor.get(f"agent/executions/{children[0]['id']}")
    _expect(child["parent_execution_id"] == seen.execution, "it is not a child of the execution")
    _expect(child["status"] == "completed", f"it ended as {child['status']}")
    return f"{child['step_count']} steps of its own"


async def sandbox(visitor: Visitor) -> str:
    """Commands can do what the policy allows, and nothing else."""
    seen = await visitor.run(demo.BREAK_OUT)
    said = (await visitor.results(seen, "bash"))[-1]
    worked = outcomes(said)
    _expect(worked.keys() == ATTEMPTS.keys(), f"the command did not run: {said}")
    wrong = [what for what, did in worked.items() if did != (what == ALLOWED)]
    _expect(not wrong, f"not as it should be: {', '.join(wrong)}")
    return f"{len(worked) - 1} attempts to get out failed"


async def limit(visitor: Visitor) -> str:
    """A limit stops an endless run, with an explanation."""
    seen = await visitor.run(demo.FOREVER)
    _expect(seen.status == "stopped", f"it ended as {seen.status}")
    trace = await visitor.trace(seen)
    stop = trace["stop"]
    _expect(stop["reason"] == "steps_limit", f"the reason is {stop['reason']}")
    _expect(stop["text"] == trace["explanation"], "the two explanations differ")
    _expect(stop["decided_by"] == "StepsLimit", f"{stop['decided_by']} decided")
    _expect(f"{demo.MAX_STEPS} of {demo.MAX_STEPS} steps used" in stop["text"], stop["text"])
    return stop["headline"]


async def cancellation(visitor: Visitor) -> str:
    """A running execution is cancelled."""
    begun = await visitor.until(await visitor.send(demo.FOREVER), "step.completed")
    await visitor.post(f"agent/executions/{begun.execution}/cancel", {"reason": "seen enough"})
    seen = await visitor.until(begun, *ENDED)
    _expect(seen.status == "cancelled", f"it ended as {seen.status}")
    steps = len(seen.own("agent.step.completed"))
    return f"after {steps} of {demo.MAX_STEPS} steps"


async def every_stop_is_explained(visitor: Visitor) -> str:
    """Every execution explains why it stopped."""
    _expect(bool(visitor.seen), "nothing ran")
    for seen in visitor.seen.values():
        stop = (await visitor.trace(seen))["stop"]
        _expect(bool(stop["text"] and stop["reason"]), f"{seen.execution} does not say why")
    return f"{len(visitor.seen)} executions"


async def live_and_stored_agree(visitor: Visitor) -> str:
    """Live events equal the stored messages: nothing lost, nothing repeated."""
    _expect(bool(visitor.seen), "nothing ran")
    count = 0
    for seen in visitor.seen.values():
        stored = await _stored_messages(visitor, seen)
        published = [
            it["payload"]["message_id"] for it in seen.events if "message_id" in it["payload"]
        ]
        _expect(len(published) == len(set(published)), f"{seen.session}: a message came twice")
        _expect(
            set(published) == set(stored), f"{seen.session}: published and stored messages differ"
        )
        # Streamed text has the number of the entry that it follows.
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
    "a cancelled run": cancellation,
    "every stop explained": every_stop_is_explained,
    "live events agree with what is stored": live_and_stored_agree,
}
"""In the order in which they run."""
