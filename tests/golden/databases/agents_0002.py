"""The agent whose executions are in the databases beside this; its answers never change."""

from typing import Any

from stepwell import Agent, AgentRegistry, AgentSpec, tool
from stepwell.capabilities.approvals import UseApprovals
from stepwell.capabilities.subagents import UseSubagents
from stepwell.sessions.directory import AgentDirectory
from stepwell.testing import FakeClock, ScriptedModel, call

CLOCK = FakeClock()
SENT: list[str] = []


@tool(effect="pure")
def look(place: str) -> str:
    """Look at a place."""
    return f"In {place}: Bäume, 山, \U0001f333 and a \x00"


@tool
def send(letter: str) -> str:
    """Send a letter."""
    SENT.append(letter)
    return "sent"


@tool
def delete(path: str) -> str:
    """Delete a file."""
    return f"{path} is gone"


TURNS = {
    "Grüße": [call("look", id="l1", place="Köln"), "Viele Bäume \U0001f333."],
    "And again?": ["No."],
    "Scout ahead": [
        call("spawn_subagent", id="s1", subagent="scout", prompt="Look around."),
        "The scout saw trees.",
    ],
    "Look around.": [call("look", id="l2", place="the wood"), "Trees."],
    "Delete a.txt": [call("delete", id="d1", path="a.txt"), "It is gone."],
    "Write to Bob": [call("send", id="m1", letter="Dear Bob"), "Written."],
    "Forked": ["From here on alone."],
}


def _turn(request: Any) -> Any:
    said = [message.text for message in request.messages]
    asked = max(number for number, text in enumerate(said) if text in TURNS)
    done = sum(1 for message in request.messages[asked:] if message.is_assistant())
    return TURNS[said[asked]][done]


def agents() -> AgentDirectory:
    """The agent whose executions are stored; tests that go on with them have the same."""
    registry = AgentRegistry().register(
        AgentSpec(name="scout", description="Looks.", system_prompt="You look.")
    )
    helper = Agent(
        ScriptedModel(_turn),
        tools=[look, send, delete],
        capabilities=[UseApprovals("delete"), UseSubagents(registry)],
        clock=CLOCK,
    )
    return AgentDirectory({"helper": helper})
