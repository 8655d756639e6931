"""The agents of an application by name. Each is built once, with a ledger and the session hooks,
because building tool schemas for every execution would be slow.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from typing import Any, cast

from msgspec import Struct, json, to_builtins
from msgspec.structs import replace

from stepwell.agent import Agent
from stepwell.agent.definition import AgentContract
from stepwell.agent.plan import AgentPlan
from stepwell.drivers import BindableDriver
from stepwell.errors import AgentNotFoundError, ConfigurationError
from stepwell.models.attempts import name_of
from stepwell.sessions.attempt.steer_hook import steering_hooks
from stepwell.sessions.ledger.session_ledger import SessionLedger
from stepwell.tools import ToolEffect, ToolExecutor, Tools

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


class RegisteredAgent(Struct, frozen=True, eq=False):
    """An agent under its name, ready to be run by sessions."""

    name: str
    description: str
    agent: Agent
    definition_hash: str
    """Changes when what the agent is changes; the same in every process."""
    config: Mapping[str, Any]
    """A summary as JSON data; stored with each execution."""
    examples: tuple[str, ...] = ()
    """Prompts to try."""


class AgentDirectory:
    """The agents of an application; the first is the default.

    >>> from stepwell.testing import ScriptedModel
    >>> AgentDirectory({"helper": Agent(ScriptedModel(["Hello!"]))}).default
    'helper'
    """

    def __init__(
        self, agents: Mapping[str, Agent | AgentContract] | Iterable[AgentContract]
    ) -> None:
        self._given: list[tuple[str, Any, AgentPlan]] = []
        self._agents: dict[str, RegisteredAgent] = {}
        for name, given, agent in _agents_by_name(agents):
            if not isinstance(name, str) or not _NAME.fullmatch(name):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise ConfigurationError(
                    f"{name!r:.120} can't be the name of an agent: use up to 100 letters, digits, "
                    "'_', '-' and '.', beginning with a letter or digit"
                )
            if name in self._agents:
                raise ConfigurationError(f"two agents are called {name!r}; rename one")
            self._given.append((name, _descriptor(given), agent.plan))
            self._agents[name] = _register(*self._given[-1])
        if not self._agents:
            raise ConfigurationError('there is no agent; give at least one: {"helper": agent}')

    def with_plans(self, change: Callable[[AgentPlan, str], AgentPlan]) -> "AgentDirectory":
        """Return the same agents, each built from its changed plan."""
        made = AgentDirectory.__new__(AgentDirectory)
        made._given = self._given
        made._agents = {
            name: _register(name, descriptor, change(plan, name))
            for name, descriptor, plan in self._given
        }
        return made

    @property
    def names(self) -> tuple[str, ...]:
        """All names, in order of registration."""
        return tuple(self._agents)

    @property
    def default(self) -> str:
        """The agent of sessions that name none."""
        return self.names[0]

    def get(self, name: str) -> RegisteredAgent:
        """The agent of that name; raises ``AgentNotFoundError``."""
        found = self._agents.get(name)
        if found is None:
            raise AgentNotFoundError(name, self._agents)
        return found


def _agents_by_name(agents: Any) -> "Iterable[tuple[str, Any, Agent]]":
    """Yield each agent with its name and what was registered under it."""
    if isinstance(agents, Mapping):
        for name, given in cast("Mapping[str, Any]", agents).items():
            yield name, given, _build(given, name)
        return
    if isinstance(agents, Agent | str) or not isinstance(agents, Iterable):
        raise ConfigurationError(
            f"{type(agents).__name__} is no list of agents; name each: "
            'AgentDirectory({"helper": agent})'
        )
    for given in cast("Iterable[Any]", agents):
        if not callable(getattr(given, "descriptor", None)):
            raise ConfigurationError(
                f"{given!r:.80} has no name; write AgentDirectory({{'helper': agent}}), or give an "
                "AgentDefinition, which says its own"
            )
        name = given.descriptor().name
        yield name, given, _build(given, name)


def _descriptor(given: Any) -> Any:
    """Return its descriptor, if it has one."""
    descriptor: Callable[[], Any] | None = getattr(given, "descriptor", None)
    return None if isinstance(given, Agent) or descriptor is None else descriptor()


def _examples(name: str, descriptor: Any) -> tuple[str, ...]:
    examples: Any = getattr(descriptor, "examples", ())
    if isinstance(examples, str) or not all(isinstance(it, str) for it in examples):
        raise ConfigurationError(
            f"agent {name!r}: its examples are {examples!r:.80}; give a tuple of texts"
        )
    return tuple(examples)


def _build(given: Any, name: str) -> Agent:
    if isinstance(given, Agent):
        return given
    build: Callable[[], Any] | None = getattr(given, "build", None)
    agent = build() if callable(build) and not isinstance(given, type) else None
    if not isinstance(agent, Agent):
        raise ConfigurationError(
            f"agent {name!r} is {given!r:.80}; give an Agent or an AgentDefinition"
        )
    return agent


def _register(name: str, descriptor: Any, plan: AgentPlan) -> RegisteredAgent:
    ledger = SessionLedger()
    hooks = (*plan.hooks, *steering_hooks())
    plan = replace(plan, hooks=hooks)
    if plan.driver is None or isinstance(plan.driver, BindableDriver):
        plan = replace(plan, ledger=ledger, hooks=(*hooks, *ledger.hooks()))
    # Completed here, so that whatever is bound to the plan, such as subagents, has all of it.
    plan = plan.completed()
    prepared = Agent.from_plan(plan)
    executor: ToolExecutor | None = getattr(plan.driver, "executor", None)
    _check_ledger_is_asked(name, plan, executor)
    ledger.tools = executor.tools if plan.ledger is None and executor else Tools(plan.tools)
    definition = _definition(plan, ledger.tools)
    return RegisteredAgent(
        name=name,
        description=str(getattr(descriptor, "description", "")),
        agent=prepared,
        definition_hash=definition_hash({**definition, "tools": ledger.tools.schemas}),
        config={name: definition[name] for name in ("model", "tools", "capabilities", "limits")},
        examples=_examples(name, descriptor),
    )


def _check_ledger_is_asked(name: str, plan: AgentPlan, executor: ToolExecutor | None) -> None:
    """Calls that an executor of the driver's own runs are in no ledger: after a crash they would
    simply run again. Only those that do nothing may."""
    if executor is None or plan.ledger is not None:
        return
    tools = {it: executor.tools.find(it) for it in executor.tools.names}
    risky = [it for it, tool in tools.items() if tool and tool.effect is not ToolEffect.PURE]
    if risky:
        driver = type(plan.driver).__name__
        raise ConfigurationError(
            f"agent {name!r}: its {driver} runs {', '.join(risky)} with an executor of its own, so "
            "after a crash nobody would know that they ran; give the tools to the agent instead: "
            f"Agent(driver={driver}(...), tools=[...])"
        )


def definition_hash(definition: Mapping[str, Any]) -> str:
    """The same for the same definition, in any process and on any machine."""
    plain = to_builtins(definition, enc_hook=_type_name, order="deterministic")
    return sha256(json.encode(plain, order="sorted")).hexdigest()


def _definition(plan: AgentPlan, tools: Tools) -> dict[str, Any]:
    """Return the agent's definition as data; code of tools and hooks is not part of it."""
    settings = plan.settings
    shown = {"extra_headers": dict.fromkeys(settings.extra_headers, "")}
    driver = None if plan.driver is None else type(plan.driver).__name__
    model = plan.model or getattr(plan.driver, "_model", None)
    format = plan.context.response_format
    return {
        "model": plan.llm_preset if model is None else name_of(model),
        "driver": driver,
        "settings": _as_data(replace(settings, **shown)),
        "instructions": [[m.role, m.text] for m in plan.context.messages],
        "tools": list(tools.names),
        "capabilities": list(plan.capabilities),
        "limits": {
            "max_steps": plan.max_steps,
            "max_tokens": plan.max_tokens,
            "max_cost": plan.max_cost,
            "timeout": plan.timeout,
            "cumulative_timeout": plan.cumulative_timeout,
            "at_limit": str(plan.at_limit),
            "stop_on_finish_reasons": sorted(str(it) for it in plan.stop_on_finish_reasons),
        },
        "error_policy": _as_data(plan.effective_error_policy),
        "output": None if format is None else _as_data(format),
    }


def _as_data(value: Any) -> Any:
    return to_builtins(value, enc_hook=_type_name, order="deterministic")


def _type_name(value: Any) -> str:
    """Return the type of a value that is not data; its address differs between processes."""
    return f"({type(value).__name__})"
