"""A coding agent at work on a real repository: real files, real tests in the real sandbox, a
subagent and a skill from files, and a person who is asked. Only the model's words are scripted.
"""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from examples import coding_agent as example
from examples.coding_agent import Change
from stepwell import Agent, AgentState, AgentStatus, Message, StopReason, Usage
from stepwell.capabilities.tasks import tasks_of
from stepwell.events import (
    AgentExecutionStarted,
    AgentFinished,
    SubagentCompleted,
    SubagentSpawning,
    ToolCallCompleted,
    ToolCallStarted,
)
from stepwell.state import ToolOutcome
from stepwell.testing import EventRecorder, SequentialIds, call
from tests.integration.shop_repository import (
    UNITTEST,
    Person,
    Way,
    agent_saying,
    bash_says,
    by_iterator,
    by_run,
    by_stream,
    changed_files,
    changed_lines,
    compiled,
    executions,
    git,
    shop_in,
    to_the_end,
)

ROOT = Path(__file__).parents[2]
OLD_LINES = (
    "-    with_tax = sum(prices) * (100 + tax_percent) // 100",
    "-    return with_tax - discount_percent",
)
NEW_LINES = (
    "+    discounted = sum(prices) * (100 - discount_percent) // 100",
    "+    return discounted * (100 + tax_percent) // 100",
)


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """The repository."""
    return shop_in(tmp_path)


class Work:
    """One run of the example's script, and all there is to see of it."""

    def __init__(self, shop: Path) -> None:
        self.model = example.script()
        self.agent = example.coding_agent(self.model, shop)
        self.person = Person()
        self.events = EventRecorder()
        self.agent.wiretap(self.events)

    async def done(self) -> AgentState:
        return await to_the_end(self.agent, example.TASK, self.person)


async def test_the_mistake_is_mended_and_nothing_else_is_touched(shop: Path) -> None:
    state = await Work(shop).done()

    assert state.status is AgentStatus.COMPLETED
    assert state.final_response is not None
    assert state.final_response.startswith("Fixed:")
    assert not state.had_errors
    assert changed_files(shop) == {"prices.py": "M", "CHANGELOG.md": "??"}
    assert changed_lines(shop, "prices.py") == [*OLD_LINES, *NEW_LINES]
    note = (shop / "CHANGELOG.md").read_text(encoding="utf-8")
    assert note == "- A discount lowers the price by its share, before the tax.\n"
    assert git(shop, "rev-list", "--count", "HEAD") == "1\n"


async def test_the_tests_really_run_in_the_sandbox_and_fail_without_the_edit(shop: Path) -> None:
    before = await bash_says(shop, UNITTEST)
    state = await Work(shop).done()
    waited, ran = executions(state, "bash")

    assert before.startswith("Error: exit code 1")
    assert "AssertionError: 1790 != 1620" in before
    assert waited.outcome is ToolOutcome.PENDING
    assert ran.outcome is ToolOutcome.COMPLETED
    assert re.search(r"Ran 2 tests in .*\n\nOK$", ran.text)
    # Compiled there, so Python really ran on these files.
    assert "prices" in compiled(shop)


async def test_files_are_searched_and_read_as_they_are(shop: Path) -> None:
    before = (shop / "prices.py").read_text(encoding="utf-8").splitlines()
    state = await Work(shop).done()

    (found,) = executions(state, "search_files")
    prices, tests = executions(state, "read_file")
    assert found.text.splitlines() == ["prices.py", "test_prices.py"]
    assert [line.partition("\t")[2] for line in prices.text.splitlines()] == before
    assert "def test_with_discount" in tests.text
    assert [e.outcome for e in executions(state, "edit_file")] == [ToolOutcome.COMPLETED]


async def test_the_plan_is_kept_and_in_the_end_all_tasks_are_done(shop: Path) -> None:
    work = Work(shop)
    seen: list[list[str]] = []

    async def noting(agent: Agent, task: str | AgentState) -> AgentState:
        state = None
        async for state in agent.iterator(task):
            seen.append([str(task.status) for task in tasks_of(state)])
        assert state is not None
        return state

    state = await to_the_end(work.agent, example.TASK, work.person, noting)

    assert [task.content for task in tasks_of(state)] == [
        "Find the mistake",
        "Fix it and test",
        "Review and note",
    ]
    assert seen[0] == ["in_progress", "pending", "pending"]
    assert ["completed", "in_progress", "pending"] in seen
    assert seen[-1] == ["completed", "completed", "completed"]


async def test_the_reviewer_comes_from_its_file_and_has_only_its_tools(shop: Path) -> None:
    work = Work(shop)
    state = await work.done()

    own, others = [], []
    for request in work.model.requests:
        said = " ".join(message.text for message in request.context.messages)
        (own if "You review changes in a shop's code" in said else others).append(request)
    assert [[tool.name for tool in request.tools] for request in own] == [
        ["read_file", "search_files"]
    ] * 2
    assert own[0].messages[-1].text == "Is total() in prices.py right?"
    # What it read is the file as it is by then, and nothing of its parent's conversation.
    assert NEW_LINES[0][1:] in own[1].messages[-1].text
    assert example.TASK not in "".join(message.text for message in own[1].messages)
    (review,) = executions(state, "spawn_subagent")
    assert review.text.startswith("Yes: the discount is a share of the sum now")
    (spawning,) = work.events.of(SubagentSpawning)
    (completed,) = work.events.of(SubagentCompleted)
    assert (spawning.name, completed.name, completed.steps) == ("reviewer", "reviewer", 2)
    assert completed.status is AgentStatus.COMPLETED


async def test_the_reviewer_cannot_use_what_its_file_does_not_name(shop: Path) -> None:
    agent = agent_saying(
        shop,
        call("spawn_subagent", subagent="reviewer", prompt="Mend it."),
        call("write_file", path="prices.py", content="pass\n"),
        "I could not.",
    )
    events = EventRecorder()
    agent.wiretap(events)
    state = await agent.run("Go")

    assert executions(state, "spawn_subagent")[0].text == "I could not."
    refused = [e for e in events.of(ToolCallCompleted) if e.tool == "write_file"]
    assert [e.success for e in refused] == [False]
    assert changed_files(shop) == {}


async def test_the_skill_is_offered_first_and_loaded_when_asked_for(shop: Path) -> None:
    work = Work(shop)
    state = await work.done()

    first = work.model.requests[0]
    offered = " ".join(message.text for message in first.context.messages)
    assert "changelog: How this project writes its changelog" in offered.replace("**", "")
    assert "one line per change" not in offered
    (loaded,) = executions(state, "load_skill")
    assert "Write CHANGELOG.md with one line per change" in loaded.text


async def test_the_result_is_typed_and_in_the_metadata(shop: Path) -> None:
    state = await Work(shop).done()

    change = Change.model_validate(state.metadata["change"], strict=True)
    assert change == Change(file="prices.py", summary="The discount is a share.", tests_passed=2)


async def test_the_person_is_asked_twice_and_the_approval_is_for_that_command(shop: Path) -> None:
    work = Work(shop)
    state = await work.done()

    question, approval = work.person.asked
    assert (question.kind, question.tool_name) == ("question", "user_input")
    assert question.prompt == "Is the discount taken before the tax, or after it?"
    assert executions(state, "user_input")[0].text == "Before the tax."
    assert (approval.kind, approval.tool_name) == ("approval", "bash")
    assert approval.details == {"tool": "bash", "arguments": {"command": UNITTEST}}
    assert dict(executions(state, "bash")[-1].call.arguments) == {"command": UNITTEST}


async def test_all_that_was_used_is_added_up(shop: Path) -> None:
    work = Work(shop)
    state = await work.done()

    turns = len(work.model.requests)
    assert turns == 15
    assert state.usage == Usage(input_tokens=10 * turns, output_tokens=5 * turns)
    by_step = {taken.number: taken.step.usage.total_tokens for taken in state.steps}
    assert (by_step[8], by_step[11]) == (45, 30)  # with the reviewer's, with the extraction's
    assert by_step[7] == 0  # only the approved command ran


async def test_every_step_is_explained(shop: Path) -> None:
    state = await Work(shop).done()

    assert [taken.number for taken in state.steps] == list(range(1, 14))
    for taken in state.steps:
        names = [vote.criterion for vote in taken.outcome.evaluations]
        assert {"StepsLimit", "TokenUsageLimit", "ErrorPolicyCriterion"} <= set(names)
        assert all(vote.reason for vote in taken.outcome.evaluations)
        assert f"{taken.number} of 20 steps used" in taken.outcome.explain()
    stopped = [t.outcome.stop_reason for t in state.steps if not t.outcome.should_continue]
    assert stopped == [
        StopReason.INPUT_REQUIRED,
        StopReason.INPUT_REQUIRED,
        StopReason.COMPLETED,
    ]


async def test_events_come_in_order_with_the_ids_of_agent_and_parent(shop: Path) -> None:
    work = Work(shop)
    state = await work.done()
    events = work.events.events

    (child,) = {e.agent_id for e in events} - {state.agent_id}
    assert {e.parent_agent_id for e in events if e.agent_id == child} == {state.agent_id}
    assert {e.parent_agent_id for e in events if e.agent_id == state.agent_id} == {None}
    assert len({e.execution_id for e in events if e.agent_id == state.agent_id}) == 1
    told = [e.tool for e in work.events.of(ToolCallStarted) if e.agent_id == state.agent_id]
    taken = [e for t in state.steps for e in t.step.tool_executions]
    assert told == [e.call.name for e in taken if e.outcome is not ToolOutcome.PENDING]
    ends = [e.status for e in work.events.of(AgentFinished) if e.agent_id == state.agent_id]
    assert ends == [AgentStatus.PAUSED, AgentStatus.PAUSED, AgentStatus.COMPLETED]
    begins = [e.resumed for e in work.events.of(AgentExecutionStarted) if e.agent_id != child]
    assert begins == [False, True, True]
    spawning, completed = (work.events.of(e)[0] for e in (SubagentSpawning, SubagentCompleted))
    inside = events[events.index(spawning) + 1 : events.index(completed)]
    assert {e.agent_id for e in inside} == {child}
    assert isinstance(inside[0], AgentExecutionStarted)
    assert isinstance(inside[-1], AgentFinished)
    assert [e.at for e in events] == sorted(e.at for e in events)


async def test_run_iterator_and_stream_come_to_the_same(shop: Path) -> None:
    async def outcome(way: Way) -> Any:
        agent = example.coding_agent(example.script(), shop)
        agent = Agent.from_plan(replace(agent.plan, new_id=SequentialIds()))
        state = await to_the_end(agent, example.TASK, Person(), way)
        diff = git(shop, "diff")
        git(shop, "reset", "--hard", "--quiet")
        git(shop, "clean", "--force", "-d", "-x", "--quiet")
        return without_times(state), diff

    ran = await outcome(by_run)
    assert ran[1]
    assert await outcome(by_iterator) == ran
    assert await outcome(by_stream) == ran


def without_times(state: AgentState) -> Any:
    """What a run came to, but for how long it and the shop's tests took."""

    def said(message: Message) -> tuple[Any, ...]:
        text = re.sub(r"in \d+\.\d+s", "in no time", message.text)
        return message.role, message.id, text, message.tool_calls

    steps = [
        (
            taken.number,
            taken.step.usage,
            taken.outcome.stop_reason,
            [(e.call, e.outcome) for e in taken.step.tool_executions],
        )
        for taken in state.steps
    ]
    return state.agent_id, state.status, [*map(said, state.messages)], state.metadata, steps


def test_the_example_runs_as_a_command() -> None:
    before = git(ROOT, "status", "--porcelain", "--", "examples")
    done = subprocess.run(
        [sys.executable, "-W", "error", "examples/coding_agent.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
    shown = done.stdout
    assert "? Is the discount taken before the tax, or after it?\n    Before the tax." in shown
    assert f'? May bash run with {{"command":"{UNITTEST}"}}?\n    approved: True' in shown
    assert "  reviewer: completed, 2 steps" in shown
    assert shown.count("  [completed] ") == 3
    assert "'tests_passed': 2" in shown
    assert NEW_LINES[0][1:] in shown
    assert "The run ended: the work is done (reason completed, status completed)." in shown
    assert git(ROOT, "status", "--porcelain", "--", "examples") == before
