"""Agents whose calls no ledger would know are refused."""

import pytest

from stepwell.agent import Agent
from stepwell.drivers.react import ReActDriver
from stepwell.errors import ConfigurationError
from stepwell.sessions.directory import AgentDirectory
from stepwell.state import AgentState
from stepwell.testing import MockTool, ScriptedModel
from stepwell.tools import ToolExecutor, Tools


class OwnDriver:
    """Runs tools with an executor that no agent knows."""

    def __init__(self, effect: str) -> None:
        self.executor = executor(effect)

    async def use_tools(self, state: AgentState) -> AgentState:
        raise NotImplementedError


def executor(effect: str) -> ToolExecutor:
    return ToolExecutor(Tools([MockTool("pay", lambda: "paid", effect=effect)]))


@pytest.mark.parametrize("effect", ["external", "idempotent"])
def test_a_driver_that_runs_tools_past_the_ledger_is_refused(effect: str) -> None:
    with pytest.raises(ConfigurationError, match=r"'payer'.*OwnDriver runs pay .*tools=\["):
        AgentDirectory({"payer": Agent(driver=OwnDriver(effect))})


def test_tools_that_do_nothing_may_stay_the_drivers_own() -> None:
    assert AgentDirectory({"looker": Agent(driver=OwnDriver("pure"))}).names == ("looker",)


def test_tools_of_a_driver_that_is_bound_are_the_agents_and_in_its_ledger() -> None:
    driver = ReActDriver(ScriptedModel(["{}"]), executor("external"))
    agent = Agent(driver=driver, tools=[MockTool("look", lambda: "trees")])
    registered = AgentDirectory({"payer": agent}).get("payer")

    assert registered.config["tools"] == ["look", "pay"]
    assert registered.agent.plan.ledger is not None
