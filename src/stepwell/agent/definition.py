"""Agents as classes that describe themselves, for workers and jobs that make them by name."""

import inspect
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import force_setattr

from stepwell.agent.agent import Agent
from stepwell.agent.parts import RunPart
from stepwell.continuation import Cancellation
from stepwell.errors import AgentNotFoundError, ConfigurationError
from stepwell.events import AgentEvent, EventBus, Unsubscribe
from stepwell.parameters import check_text, check_texts
from stepwell.state import AgentState

Event = TypeVar("Event", bound=AgentEvent)


class AgentDescriptor(Struct, frozen=True, kw_only=True):
    """What an agent says about itself."""

    name: str
    description: str
    tools: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()
    """Prompts to try, which the page offers in a new conversation."""

    def __post_init__(self) -> None:
        check_text(self.name, "name")
        if not isinstance(self.description, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(f"description must be text, got {self.description!r:.80}")
        for name in ("tools", "capabilities"):  # a registry judges the examples, naming the agent
            force_setattr(self, name, check_texts(getattr(self, name), name))


class AgentContract(Protocol):
    """An agent that can be made by name, described, listened to and run."""

    def descriptor(self) -> AgentDescriptor:
        """What it is."""
        ...

    def build(self) -> Agent:
        """The agent behind it."""
        ...

    async def run(
        self, task: str | AgentState, *, cancellation: Cancellation | None = None
    ) -> AgentState:
        """Run to the end."""
        ...

    async def final_step(
        self, task: str | AgentState, *, cancellation: Cancellation | None = None
    ) -> AgentState:
        """Run to the end."""
        ...

    async def next_step(
        self, task: str | AgentState, *, cancellation: Cancellation | None = None
    ) -> AgentState:
        """One more step."""
        ...

    def has_next_step(self, state: AgentState) -> bool:
        """Whether there is something to do."""
        ...

    def iterator(
        self, task: str | AgentState, *, cancellation: Cancellation | None = None
    ) -> AsyncIterator[AgentState]:
        """The state after each step."""
        ...

    def with_event_handler(self, events: EventBus) -> "AgentContract":
        """Tell this bus what happens."""
        ...

    def wiretap(self, listener: Callable[[AgentEvent], Awaitable[None] | None]) -> Unsubscribe:
        """Call the listener for every event."""
        ...

    def on_event(
        self, event_type: type[Event], listener: Callable[[Event], Awaitable[None] | None]
    ) -> Unsubscribe:
        """Call the listener for events of that class."""
        ...


class AgentDefinition(ABC):
    """Base class of agents as classes: say what it is, and build it; the rest is here.

    >>> from stepwell.testing import DeterministicAgentDriver
    >>> class Greeter(AgentDefinition):
    ...     def descriptor(self):
    ...         return AgentDescriptor(name="greeter", description="Says hello.")
    ...
    ...     def build_agent(self):
    ...         return Agent(driver=DeterministicAgentDriver.from_responses("Hello!"))
    >>> Greeter().build().run_sync("Hi").final_response
    'Hello!'
    """

    _agent: Agent | None = None
    _events: EventBus | None = None

    @abstractmethod
    def descriptor(self) -> AgentDescriptor:
        """What it is."""

    @abstractmethod
    def build_agent(self) -> Agent:
        """Build the agent; called once, when it is first needed."""

    def build(self) -> Agent:
        """The agent behind this definition, built once."""
        if self._agent is None:
            agent = self.build_agent()
            if not isinstance(agent, Agent):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise ConfigurationError(
                    f"{type(self).__name__}.build_agent returned {agent!r}; return the Agent"
                )
            self._agent = agent if self._events is None else agent.with_events(self._events)
        return self._agent

    async def run(
        self, task: str | AgentState, *, cancellation: Cancellation | None = None
    ) -> AgentState:
        """Run to the end."""
        return await self.build().run(task, cancellation=cancellation)

    def run_sync(
        self, task: str | AgentState, *, cancellation: Cancellation | None = None
    ) -> AgentState:
        """``run`` for callers without an event loop."""
        return self.build().run_sync(task, cancellation=cancellation)

    def stream(
        self, task: str | AgentState, *, cancellation: Cancellation | None = None
    ) -> AsyncIterator[RunPart]:
        """Text as it arrives, tools, steps, and last of all the result."""
        return self.build().stream(task, cancellation=cancellation)

    async def final_step(
        self, task: str | AgentState, *, cancellation: Cancellation | None = None
    ) -> AgentState:
        """The same as ``run``."""
        return await self.build().final_step(task, cancellation=cancellation)

    async def next_step(
        self, task: str | AgentState, *, cancellation: Cancellation | None = None
    ) -> AgentState:
        """One more step."""
        return await self.build().next_step(task, cancellation=cancellation)

    def has_next_step(self, state: AgentState) -> bool:
        """Whether there is something to do."""
        return self.build().has_next_step(state)

    def iterator(
        self, task: str | AgentState, *, cancellation: Cancellation | None = None
    ) -> AsyncIterator[AgentState]:
        """The state after each step."""
        return self.build().iterator(task, cancellation=cancellation)

    def with_event_handler(self, events: EventBus) -> "AgentDefinition":
        """Tell this bus what happens, from now on."""
        self._events = events
        self._agent = None if self._agent is None else self._agent.with_events(events)
        return self

    def wiretap(self, listener: Callable[[AgentEvent], Awaitable[None] | None]) -> Unsubscribe:
        """Call the listener for every event."""
        return self.build().wiretap(listener)

    def on_event(
        self, event_type: type[Event], listener: Callable[[Event], Awaitable[None] | None]
    ) -> Unsubscribe:
        """Call the listener for events of that class."""
        return self.build().on_event(event_type, listener)


class AgentFactory(Protocol):
    """Makes agents by name, by logic of your own."""

    def create(self, name: str, config: Mapping[str, Any] | None = None) -> AgentContract:
        """The agent of that name; raises ``AgentNotFoundError``."""
        ...


class AgentContractRegistry:
    """Agent classes by name; immutable, and itself an ``AgentFactory``.

    >>> AgentContractRegistry().names
    ()
    """

    def __init__(self, classes: Mapping[str, Callable[..., AgentContract]] | None = None) -> None:
        self._classes = dict(classes or {})

    @property
    def names(self) -> tuple[str, ...]:
        """The known names, sorted."""
        return tuple(sorted(self._classes))

    def register(
        self, name: str, agent_class: Callable[..., AgentContract]
    ) -> "AgentContractRegistry":
        """A registry that also knows this class."""
        if not name or not callable(agent_class):
            raise ConfigurationError(
                f"register a class under a name, got {name!r}: {agent_class!r}"
            )
        return AgentContractRegistry({**self._classes, name: agent_class})

    def create(self, name: str, config: Mapping[str, Any] | None = None) -> AgentContract:
        """An agent of that name, its constructor given the config as keyword arguments."""
        agent_class = self._classes.get(name)
        if agent_class is None:
            raise AgentNotFoundError(name, self._classes)
        given = dict(config or {})
        try:
            inspect.signature(agent_class).bind(**given)
        except TypeError as error:
            raise ConfigurationError(
                f"agent {name!r} cannot be made from that config: {error}"
            ) from error
        return agent_class(**given)
