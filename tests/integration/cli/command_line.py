"""The command line in this process, with an application of its own in a folder of its own."""

import json
import logging
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from stepwell.cli.main import main

SHOP = '''
import asyncio

from stepwell import Agent, UseApprovals, UseUserInput, tool
from stepwell.app import AgentApp
from stepwell.models import ModelResponse, ResponseEnd
from stepwell.testing import ScriptedModel, call


@tool(effect="pure")
def look_up(order: int) -> str:
    """Look up an order."""
    return f"order {order} was shipped"


@tool
def refund(order: int, amount: float) -> str:
    """Give money back."""
    return f"refunded {amount}"


@tool
async def wait(seconds: float) -> str:
    """Take a while."""
    await asyncio.sleep(seconds)
    return "waited"


def broken() -> str:
    """Break."""
    raise ValueError("it broke")


def agent(*script, **more):
    return Agent(ScriptedModel(list(script)), tools=[look_up, refund, wait, broken], **more)


class Echo:
    name = "scripted echo"

    async def respond(self, request):
        return ModelResponse(text=f"You said {request.messages[-1].text}")

    async def stream(self, request):
        yield ResponseEnd(await self.respond(request))


LOOKS = [call("look_up", order=number) for number in range(6)]
QUESTION = call("user_input", id="q1", question="Which order?", options=["7", "8"])
agents = {
    "orders": agent(call("look_up", order=7), "Order 7 was shipped."),
    "echoes": Agent(Echo()),
    "asks": agent(QUESTION, LOOKS[0], "Done.", capabilities=[UseUserInput()]),
    "refunds": agent(
        call("refund", id="r1", order=7, amount=5.0), "Refunded.",
        capabilities=[UseApprovals("refund")],
    ),
    "slow": agent(call("wait", seconds=30.0), "Never."),
    "breaks": agent(call("broken"), "Never."),
    "limited": agent(*LOOKS, "Never.", max_steps=MAX_STEPS),
    "pausing": agent(*LOOKS[:4], "End.", max_steps=2, at_limit="pause"),
}
app = AgentApp(agents)
'''


class Ran(NamedTuple):
    """What a command came to."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)


class CommandLine:
    """Runs commands as ``main`` does, in the current folder."""

    def __init__(self, patch: pytest.MonkeyPatch, captured: pytest.CaptureFixture[str]) -> None:
        self._patch, self._captured = patch, captured

    def __call__(self, *arguments: str) -> Ran:
        self._patch.setattr(sys, "argv", ["stepwell", *arguments])
        self._captured.readouterr()
        with pytest.raises(SystemExit) as ended, _logging_kept():
            main()
        told = self._captured.readouterr()
        return Ran(int(ended.value.code or 0), told.out, told.err)


@contextmanager
def _logging_kept() -> Iterator[None]:
    """The commands set logging up for a process of their own."""
    root = logging.getLogger()
    handlers: Sequence[logging.Handler] = list(root.handlers)
    level = root.level
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)


def say(stepwell: CommandLine, shop: str, text: str, *more: str) -> Any:
    """Have the agent that echoes say something; the execution."""
    ran = stepwell("run", "--app", shop, "--agent", "echoes", text, "--json", *more)
    assert ran.code == 0, ran.err
    return ran.document["execution"]


def write_shop(folder: Path, name: str, *, max_steps: int = 3) -> str:
    """A module with agents; its ``app``, to be named on the command line."""
    (folder / f"{name}.py").write_text(SHOP.replace("MAX_STEPS", str(max_steps)))
    return f"{name}:app"


STARTED: "list[subprocess.Popen[str]]" = []
"""Processes that the test at work has started; a fixture ends those that are left."""


def started(command: Sequence[str], **options: Any) -> "subprocess.Popen[str]":
    """A process that ends with its test, whatever becomes of that."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    STARTED.append(subprocess.Popen(command, text=True, **pipes))
    return STARTED[-1]
