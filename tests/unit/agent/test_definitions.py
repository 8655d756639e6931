"""Agents as classes: definition, descriptor, registry."""

from typing import Any

import pytest

from stepwell import Agent, AgentDefinition, AgentStatus
from stepwell.agent import AgentContractRegistry, AgentDescriptor
from stepwell.errors import AgentNotFoundError, ConfigurationError
from stepwell.events import AgentFinished, EventBus
from stepwell.testing import EventRecorder, MockTool, ScriptedModel, call


class Greeter(AgentDefinition):
    """Says hello, in the words it was given."""

    def __init__(self, greeting: str = "Hello!") -> None:
        self.greeting = greeting
        self.built = 0

    def descriptor(self) -> AgentDescriptor:
        return AgentDescriptor(name="greeter", description="Says hello.", tools=("wave",))

    def build_agent(self) -> Agent:
        self.built += 1
        model = ScriptedModel([call("wave"), self.greeting, call("wave"), self.greeting])
        return Agent(model, tools=[MockTool.returning("wave", "~")])


async def test_a_definition_runs_its_agent_and_builds_it_once() -> None:
    greeter = Greeter()
    first = await greeter.run("Hi")
    second = await greeter.final_step("Hi again")

    assert (first.final_response, second.final_response) == ("Hello!", "Hello!")
    assert greeter.built == 1
    assert greeter.build() is greeter.build()


async def test_a_definition_steps_and_iterates() -> None:
    stepper = Greeter()
    state = await stepper.next_step("Hi")
    assert stepper.has_next_step(state)
    state = await stepper.next_step(state)
    iterated = [reached async for reached in Greeter().iterator("Hi")]

    assert (state.status, stepper.has_next_step(state)) == (AgentStatus.COMPLETED, False)
    assert [reached.step_count for reached in iterated] == [1, 2]


async def test_a_definition_can_be_listened_to() -> None:
    greeter, tap, finished = Greeter(), EventRecorder(), EventRecorder()
    stop = greeter.wiretap(tap)
    greeter.on_event(AgentFinished, finished)
    await greeter.run("Hi")
    heard = len(tap.events)
    stop()
    await greeter.run("Hi")

    assert heard > 5
    assert len(tap.events) == heard
    assert len(finished.events) == 2


@pytest.mark.parametrize("built_before", [False, True])
async def test_a_definition_tells_the_bus_it_was_given(built_before: bool) -> None:
    greeter, recorder, bus = Greeter(), EventRecorder(), EventBus()
    bus.wiretap(recorder)
    if built_before:
        greeter.build()
    returned = greeter.with_event_handler(bus)
    await returned.run("Hi")

    assert recorder.names[-1] == "AgentFinished"


async def test_two_definitions_share_nothing() -> None:
    one, other = Greeter("One."), Greeter("Two.")
    recorder = EventRecorder()
    one.wiretap(recorder)
    await other.run("Hi")

    assert recorder.events == []


def test_a_definition_without_its_methods_cannot_be_made() -> None:
    class Empty(AgentDefinition):
        pass

    with pytest.raises(TypeError, match=r"build_agent.*descriptor|descriptor.*build_agent"):
        Empty()  # type: ignore[abstract]


def test_a_descriptor_is_a_value() -> None:
    one = AgentDescriptor(name="n", description="d", tools=("a",))

    assert one == AgentDescriptor(name="n", description="d", tools=("a",))
    assert one.capabilities == ()
    with pytest.raises(AttributeError):
        one.name = "other"  # type: ignore[misc]


def test_a_registry_is_immutable_and_lists_its_names() -> None:
    empty = AgentContractRegistry()
    full = empty.register("zeta", Greeter).register("alpha", Greeter)

    assert empty.names == ()
    assert full.names == ("alpha", "zeta")


async def test_a_registry_makes_agents_by_name_with_their_config() -> None:
    registry = AgentContractRegistry({"greeter": Greeter})
    plain = registry.create("greeter")
    own = registry.create("greeter", {"greeting": "Moin."})

    assert plain.descriptor().name == "greeter"
    assert (await plain.run("Hi")).final_response == "Hello!"
    assert (await own.run("Hi")).final_response == "Moin."


def test_an_unknown_agent_is_an_error_that_lists_the_known() -> None:
    registry = AgentContractRegistry({"greeter": Greeter, "writer": Greeter})

    with pytest.raises(AgentNotFoundError, match=r"'ghost'; known: greeter, writer"):
        registry.create("ghost")


def test_a_config_that_does_not_fit_names_the_agent_and_the_word() -> None:
    registry = AgentContractRegistry({"greeter": Greeter})

    with pytest.raises(ConfigurationError, match=r"'greeter' cannot be made.*'greting'"):
        registry.create("greeter", {"greting": "Moin."})


@pytest.mark.parametrize(("name", "agent_class"), [("", Greeter), ("x", None), ("x", "Greeter")])
def test_registering_nonsense_is_refused(name: str, agent_class: Any) -> None:
    with pytest.raises(ConfigurationError, match="register a class under a name"):
        AgentContractRegistry().register(name, agent_class)
