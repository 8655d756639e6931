"""A coding agent at work on a real, small repository, with all that it needs around it.

It plans, searches, reads, asks, edits, runs the tests in a sandbox once a person has approved it,
has a subagent review the change, follows a skill, and extracts a typed result. The model's words
are scripted, so this needs no key; everything else is real. Run it with

    ./dev python examples/coding_agent.py

or with a model of your own, which answers and asks as it likes:

    ./dev python examples/coding_agent.py --model anthropic:claude-sonnet-4-5
"""

import argparse
import asyncio
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from stepwell import (
    Agent,
    AgentRegistry,
    AgentState,
    AgentStatus,
    Approval,
    ErrorPolicy,
    Model,
    SkillLibrary,
    UseApprovals,
    UseBash,
    UseFileTools,
    UseSkills,
    UseStructuredOutputs,
    UseSubagents,
    UseTaskPlanning,
    UseUserInput,
)
from stepwell.capabilities.tasks import tasks_of
from stepwell.events import SubagentCompleted, ToolCallCompleted, ToolCallStarted
from stepwell.sandbox import ExecutionPolicy, interpreter_paths
from stepwell.state import Pending, PendingKind
from stepwell.testing import ScriptedModel, call

SHOP = Path(__file__).parent / "shop"
PYTHON = Path(sys.base_prefix, "bin", "python3")
TASK = "A customer with a 10 % discount was charged 1790 instead of 1620. Fix it."

Answers = Callable[[Pending], Any]


class Change(BaseModel):
    """What was changed, for the release notes."""

    file: str
    summary: str
    tests_passed: int


def coding_agent(model: Model | str, repository: Path) -> Agent:
    """An agent that may work in this directory and nowhere else."""
    skills = SkillLibrary(repository / ".stepwell" / "skills")
    # The tests run with this Python, which may lie outside of the system's directories.
    execution = ExecutionPolicy.in_(repository, timeout=60, readable=interpreter_paths())
    return Agent(
        model,
        system_prompt="You fix code in the working directory. Plan first, test before you finish.",
        capabilities=[
            UseFileTools(repository),
            UseBash(execution=execution),
            UseTaskPlanning(),
            UseSkills(skills),
            UseSubagents(AgentRegistry().discover(repository), skills=skills),
            UseStructuredOutputs({"change": Change}),
            UseUserInput(),
            UseApprovals("bash"),
        ],
        error_policy=ErrorPolicy.retry_tool_errors(3),
        max_tokens=200_000,
        timeout=600,
    )


def plan(*statuses: str) -> dict[str, Any]:
    """The arguments of ``todo_write`` for the three tasks of the script."""
    contents = ("Find the mistake", "Fix it and test", "Review and note")
    forms = ("Finding the mistake", "Mending and testing", "Reviewing and noting")
    return {
        "todos": [
            {"content": content, "status": status, "activeForm": form}
            for content, status, form in zip(contents, statuses, forms, strict=True)
        ]
    }


def script() -> ScriptedModel:
    """What the model says, turn by turn, with the turns of the reviewer and of the extraction."""
    return ScriptedModel(
        [
            call("todo_write", **plan("in_progress", "pending", "pending")),
            call("search_files", pattern="**/*.py"),
            [call("read_file", path="prices.py"), call("read_file", path="test_prices.py")],
            call("user_input", question="Is the discount taken before the tax, or after it?"),
            call(
                "edit_file",
                path="prices.py",
                old_string="""    with_tax = sum(prices) * (100 + tax_percent) // 100
    return with_tax - discount_percent
""",
                new_string="""    discounted = sum(prices) * (100 - discount_percent) // 100
    return discounted * (100 + tax_percent) // 100
""",
            ),
            [
                call("todo_write", **plan("completed", "in_progress", "pending")),
                call("bash", command=f"{PYTHON} -m unittest 2>&1"),
            ],
            call("spawn_subagent", subagent="reviewer", prompt="Is total() in prices.py right?"),
            # The reviewer
            call("read_file", path="prices.py"),
            "Yes: the discount is a share of the sum now, and is taken before the tax.",
            # The agent again
            call("load_skill", name="changelog"),
            call(
                "write_file",
                path="CHANGELOG.md",
                content="- A discount lowers the price by its share, before the tax.\n",
            ),
            call(
                "extract_data",
                schema="change",
                input="prices.py: the discount is a share, taken before the tax. 2 tests passed.",
                store_as="change",
            ),
            # The extraction
            '{"file": "prices.py", "summary": "The discount is a share.", "tests_passed": 2}',
            # The agent again
            call("todo_write", **plan("completed", "completed", "completed")),
            "Fixed: the discount is a share of the sum, taken before the tax. Both tests pass.",
        ]
    )


def scripted_answers(pending: Pending) -> Any:
    """What the person in the script says."""
    if pending.kind is PendingKind.APPROVAL:
        return Approval.granted()
    return "Before the tax."


def typed_answers(pending: Pending) -> Any:
    """What the person at the keyboard says."""
    if pending.kind is PendingKind.APPROVAL:
        said = input(f"{pending.prompt} [y/n, or why not] ").strip()
        return Approval.granted() if said.lower() in ("y", "yes") else Approval.denied(said)
    return input(f"{pending.prompt} ")


async def work(agent: Agent, task: str, answers: Answers) -> AgentState:
    """Run to the end, and take the run up again whenever a person has answered."""
    state = await agent.run(task)
    while state.status is AgentStatus.PAUSED:
        for pending in state.pending:
            answer = answers(pending)
            print(f"  ? {pending.prompt}\n    {_said(answer)}")
            state = state.with_answer(pending, answer)
        state = await agent.run(state)
    return state


def tell(agent: Agent) -> None:
    """Print what happens as it happens, also in subagents."""
    agent.on_event(ToolCallStarted, lambda e: print(f"{_indent(e)}* {e.tool}"))
    agent.on_event(
        ToolCallCompleted, lambda e: print(f"{_indent(e)}  {e.error}") if e.error else None
    )
    agent.on_event(SubagentCompleted, lambda e: print(f"  {e.name}: {e.status}, {e.steps} steps"))


def _said(answer: Any) -> str:
    return f"approved: {answer.approved}" if isinstance(answer, Approval) else str(answer)


def _indent(event: Any) -> str:
    return "    " if event.parent_agent_id else "  "


async def main() -> None:
    """Copy the shop to a temporary directory and have it mended there."""
    parser = argparse.ArgumentParser(description="A coding agent on a small, real repository.")
    parser.add_argument("--model", help="provider:model to ask; without it the words are scripted")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        repository = Path(directory, "shop")
        shutil.copytree(SHOP, repository)
        agent = coding_agent(options.model or script(), repository)
        tell(agent)
        answers = typed_answers if options.model else scripted_answers
        print(f"user: {TASK}")
        state = await work(agent, TASK, answers)
        print(f"agent: {state.final_response}\n")
        for task in tasks_of(state):
            print(f"  [{task.status}] {task.content}")
        print(f"\nchange: {state.metadata.get('change')}")
        print((repository / "prices.py").read_text(encoding="utf-8"))
        print(state.explain())


if __name__ == "__main__":
    asyncio.run(main())
