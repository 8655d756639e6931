"""The program of a developer, in a project folder: an agent that works in that very folder.

Runs the calls of a scripted model, then everything that Stepwell itself executes and imports later.
Told by a JSON file; writes what came of it to another, both outside of the project.
"""

import asyncio
import importlib
import json
import subprocess
import sys
from pathlib import Path

from stepwell import Agent, McpServer, StepwellError, UseBash, UseFileTools
from stepwell.capabilities.skills.arguments import SkillArguments
from stepwell.capabilities.skills.shell import CommandRunner, ShellPreprocessing
from stepwell.sandbox import ExecutionPolicy, Sandbox
from stepwell.sandbox.bubblewrap import BubblewrapSandbox
from stepwell.sandbox.sandlock import SandlockSandbox
from stepwell.sandbox.unconfined import UnconfinedSandbox
from stepwell.testing import ScriptedModel, call

PROJECT = Path(__file__).parent


def sandbox_of(order: dict) -> Sandbox:
    if order["sandbox"] == "bubblewrap":
        return BubblewrapSandbox(order.get("binary"))
    return SandlockSandbox() if order["sandbox"] == "sandlock" else UnconfinedSandbox()


def run_agent(order: dict, calls: list) -> list[str]:
    sandbox = sandbox_of(order)
    settings = order.get("policy", {})
    execution = ExecutionPolicy.in_(PROJECT, timeout=60, **settings)
    agent = Agent(
        ScriptedModel([calls, "Done."]),
        capabilities=[UseBash(execution=execution, sandbox=sandbox), UseFileTools(PROJECT)],
    )
    state = agent.run_sync("Go.")
    return [made.text for step in state.steps for made in step.step.tool_executions]


async def started_server() -> str:
    """An MCP server that the developer names by its program only; this one says nothing."""
    try:
        async with McpServer.stdio("npx", ["-y", "a-server"], connect_timeout=60):
            return "connected"
    except StepwellError as error:
        return type(error).__name__


def diagnosed() -> str:
    """What `stepwell doctor` finds about sandboxes, as a process of its own in the project."""
    command = [sys.executable, "-P", "-m", "stepwell", "doctor", "--json"]
    ran = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    found = [it for it in json.loads(ran.stdout)["findings"] if it["about"] == "sandbox"]
    return str(found[0]["text"])


def run_skill(order: dict) -> str:
    """A command of a skill."""
    policy = ExecutionPolicy.in_(PROJECT, timeout=60, **order.get("policy", {}))
    runner = CommandRunner(ShellPreprocessing(policy=policy, sandbox=sandbox_of(order)))
    filled = runner.fill("said !`echo skill`", SkillArguments(), seconds_left=None)
    return asyncio.run(filled)


def run_what_follows(order: dict) -> dict[str, str]:
    """The next command; with imports or in a long run also a command of a skill, an MCP server, the
    doctor and the imports; each with what came of it."""
    later: dict[str, str] = {}
    later["command"] = run_agent(order, [call("bash", command="echo next")])[0]
    if order["imports"] or order["is_long"]:
        later["skill"] = run_skill(order)
        later["mcp"] = asyncio.run(started_server())
        if order["sandbox"] == "bubblewrap":
            later["doctor"] = diagnosed()
    for name in order["imports"]:
        try:
            later[name] = str(importlib.import_module(name).__file__)
        except ImportError as error:
            later[name] = f"{type(error).__name__}: {error}"
    return later


def main() -> None:
    order = json.loads(Path(sys.argv[1]).read_text())
    calls = [call(name, **arguments) for name, arguments in order["calls"]]
    told = {"results": run_agent(order, calls), "later": run_what_follows(order)}
    Path(sys.argv[2]).write_text(json.dumps(told))


main()
