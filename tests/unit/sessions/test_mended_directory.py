"""Agents whose calls no ledger would know are refused."""

import pytest

from stepwell.agent import Agent
from stepwell.drivers.react import ReActDriver
from stepwell.errors import ConfigurationError
from stepwell.sessions.directory import AgentDirectory
from stepwell.testing import MockTool, ScriptedModel
from stepwell.tools import ToolExecutor, Tools


def react(effect: str) -> ReActDriver:
    tool = MockTool("pay", lambda: "paid", effect=effect)
    return ReActDriver(ScriptedModel(["{}"]), ToolExecutor(Tools([tool])))


@pytest.mark.parametrize("effect", ["external", "idempotent"])
def test_a_driver_that_runs_tools_past_the_ledger_is_refused(effect: str) -> None:
    with pytest.raises(ConfigurationError, match=r"'payer'.*ReActDriver runs pay .*tools=\["):
        AgentDirectory({"payer": Agent(driver=react(effect))})


def test_tools_that_do_nothing_may_stay_the_drivers_own() -> None:
    assert AgentDirectory({"looker": Agent(driver=react("pure"))}).names == ("looker",)


def test_the_agents_own_tools_take_the_place_of_the_drivers() -> None:
    agent = Agent(driver=react("external"), tools=[MockTool("look", lambda: "trees")])
    assert AgentDirectory({"looker": agent}).get("looker").config["tools"] == ["look"]
