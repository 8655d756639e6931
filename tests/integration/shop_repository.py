"""The shop of the coding agent's example as a real git repository, and ways to work in it."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from examples import coding_agent
from stepwell import Agent, AgentState, AgentStatus, Final
from stepwell.state import Pending, ToolExecution
from stepwell.testing import ScriptedModel, call

Way = Callable[[Agent, str | AgentState], Any]
UNITTEST = f"{coding_agent.PYTHON} -m unittest 2>&1"
AUTHOR = ("-c", "user.name=Ada", "-c", "user.email=ada@example.com", "-c", "commit.gpgsign=false")


def git(repository: Path, *arguments: str) -> str:
    """What git says; the machine's own settings stay out of it."""
    done = subprocess.run(
        ["git", *AUTHOR, *arguments],
        cwd=repository,
        env={"PATH": "/usr/local/bin:/usr/bin:/bin", "GIT_CONFIG_GLOBAL": "", "HOME": "/"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def shop_in(directory: Path) -> Path:
    """A copy of the shop with its first commit."""
    repository = directory / "shop"
    shutil.copytree(
        coding_agent.SHOP, repository, ignore=shutil.ignore_patterns("__pycache__", "*.pyc")
    )
    (repository / ".gitignore").write_text("__pycache__/\n", encoding="utf-8")
    git(repository, "init", "--quiet", "--initial-branch=main")
    git(repository, "add", "--all")
    git(repository, "commit", "--quiet", "--message=The shop as it is")
    return repository


def changed_files(repository: Path) -> dict[str, str]:
    """What git sees as changed or new, by path."""
    lines = git(repository, "status", "--porcelain", "--untracked-files=all").splitlines()
    return {line[3:]: line[:2].strip() for line in lines}


def changed_lines(repository: Path, file: str) -> list[str]:
    """The lines that were taken out and put in."""
    diff = git(repository, "diff", "--unified=0", "--", file).splitlines()
    return [line for line in diff if line[0] in "+-" and line[:3] not in ("+++", "---")]


def compiled(repository: Path) -> list[str]:
    """The modules of the repository that a Python has run."""
    return sorted(file.name.partition(".")[0] for file in repository.glob("__pycache__/*.pyc"))


def executions(state: AgentState, tool: str) -> list[ToolExecution]:
    """All executions of a tool, in order; of one that waited also the one before."""
    return [e for taken in state.steps for e in taken.step.tool_executions if e.call.name == tool]


def agent_saying(shop: Path, *turns: Any, **changes: Any) -> Agent:
    """The example's agent with another script."""
    agent = coding_agent.coding_agent(ScriptedModel([*turns, "Done."]), shop)
    return Agent.from_plan(replace(agent.plan, **changes)) if changes else agent


async def bash_says(shop: Path, command: str) -> str:
    """What the model is shown of an approved command."""
    agent = agent_saying(shop, call("bash", command=command))
    state = await to_the_end(agent, "Go", Person())
    assert state.status is AgentStatus.COMPLETED
    return executions(state, "bash")[-1].text


async def by_run(agent: Agent, task: str | AgentState) -> AgentState:
    """The end of a run, by the plain way."""
    return await agent.run(task)


async def by_iterator(agent: Agent, task: str | AgentState) -> AgentState:
    """The same, by the states on the way."""
    return [state async for state in agent.iterator(task)][-1]


async def by_stream(agent: Agent, task: str | AgentState) -> AgentState:
    """The same, by the parts on the way."""
    parts = [part async for part in agent.stream(task)]
    assert isinstance(parts[-1], Final)
    return parts[-1].state


class Person:
    """Answers as the example's script does, unless told otherwise, and notes what was asked."""

    def __init__(self, approval: Any = True) -> None:
        self.asked: list[Pending] = []
        self._approval = approval

    def __call__(self, pending: Pending) -> Any:
        self.asked.append(pending)
        if pending.kind == "approval":
            return self._approval
        return coding_agent.scripted_answers(pending)


async def to_the_end(
    agent: Agent, task: str, person: Callable[[Pending], Any], way: Way = by_run
) -> AgentState:
    """Run, answer and run again until nothing is waited for."""
    state = await way(agent, task)
    while state.status is AgentStatus.PAUSED:
        for pending in state.pending:
            state = state.with_answer(pending, person(pending))
        state = await way(agent, state)
    return state
