"""The agents of an application by name. Each is built once, with a ledger and the session hooks,
because building tool schemas for every execution would be slow.
"""

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from typing import Any, cast

from msgspec import Struct, json, to_builtins
from msgspec.structs import replace

from stepwell.agent import Agent
from stepwell.agent.definition import AgentContract
from stepwell.agent.plan import AgentPlan
from stepwell.criteria import ErrorPolicy
from stepwell.drivers import BindableDriver
from stepwell.errors import AgentNotFoundError, ConfigurationError
from stepwell.models import ModelSettings
from stepwell.models.attempts import name_of
from stepwell.run_context import NO_CONTEXT, RunContext
from stepwell.sessions.attempt.steer_hook import steering_hooks
from stepwell.sessions.ledger.session_ledger import SessionLedger
from stepwell.tools import ToolEffect, ToolExecutor, Tools

BuildAgent = Callable[[RunContext[Any]], Agent]
"""Builds the agent of one run from its context. It is also called once with an empty context when
the application starts: that agent describes the others."""

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
    tools_with_deps: tuple[str, ...] = ()
    """Tools that take a ``ToolContext[Deps]``, so that a run without deps can't begin."""
    build: BuildAgent | None = None
    """Builds the agent of each run, where a function was registered."""

    def agent_for(self, context: RunContext[Any]) -> Agent:
        """Return the agent for a run with that context."""
        return self.agent if self.build is None else self.build(context)


class AgentDirectory:
    """The agents of an application; the first is the default.

    >>> from stepwell.testing import ScriptedModel
    >>> AgentDirectory({"helper": Agent(ScriptedModel(["Hello!"]))}).default
    'helper'
    """

    def __init__(
        self, agents: Mapping[str, Agent | AgentContract | BuildAgent] | Iterable[AgentContract]
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
            self._given.append((name, given, agent.plan))
            self._agents[name] = _register(*self._given[-1])
        if not self._agents:
            raise ConfigurationError('there is no agent; give at least one: {"helper": agent}')

    def with_plans(self, change: Callable[[AgentPlan, str], AgentPlan]) -> "AgentDirectory":
        """Return the same agents, each built from its changed plan."""
        made = AgentDirectory.__new__(AgentDirectory)
        made._given = self._given
        made._agents = {
            name: _register(name, given, plan, lambda plan, name=name: change(plan, name))
            for name, given, plan in self._given
        }
        return made

    def refuse_missing_deps(self) -> None:
        """Raise ``ConfigurationError`` if a tool asks for deps: the application has none."""
        for agent in self._agents.values():
            if agent.tools_with_deps:
                raise ConfigurationError(
                    f"tool {agent.tools_with_deps[0]!r} of agent {agent.name!r} takes a "
                    "ToolContext[...] with deps, and the application has none; give it "
                    "AgentApp(..., deps=make_deps) or lifespan="
                )

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
            f"{type(cast(object, agents)).__name__} is no list of agents; name each: "
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
        return cast("Agent", given)
    build: Callable[[], Any] | None = getattr(given, "build", None)
    agent: Any = None
    if inspect.isroutine(given):
        agent = given(NO_CONTEXT)
    elif callable(build) and not isinstance(given, type):
        agent = build()
    if not isinstance(agent, Agent):
        raise ConfigurationError(
            f"agent {name!r} is {given!r:.80}; give an Agent, an AgentDefinition, or a function of "
            "the run's context that returns an Agent"
        )
    return cast("Agent", agent)


def _no_change(plan: AgentPlan) -> AgentPlan:
    return plan


def _register(
    name: str,
    given: Any,
    plan: AgentPlan,
    change: Callable[[AgentPlan], AgentPlan] = _no_change,
) -> RegisteredAgent:
    """Prepare an agent for sessions. ``change`` also applies to the agents that a function builds
    for each run."""
    registered = _prepare(name, _descriptor(given), change(plan))
    if not inspect.isroutine(given):
        return registered

    def build(context: RunContext[Any]) -> Agent:
        agent = given(context)
        if not isinstance(agent, Agent):
            raise ConfigurationError(
                f"the function for agent {name!r} returned {agent!r:.80}; return an Agent"
            )
        return _prepare(name, None, change(agent.plan)).agent

    return replace(registered, build=build)


def _prepare(name: str, descriptor: Any, plan: AgentPlan) -> RegisteredAgent:
    ledger = SessionLedger()
    hooks = (*plan.hooks, *steering_hooks())
    plan = replace(plan, hooks=hooks)
    if plan.driver is None or isinstance(plan.driver, BindableDriver):
        plan = replace(plan, ledger=ledger, hooks=(*hooks, *ledger.hooks()))
    # Completed here, so that whatever is bound to the plan, such as subagents, has all of it.
    plan = plan.complete()
    prepared = Agent.from_plan(plan)
    executor: ToolExecutor | None = getattr(plan.driver, "executor", None)
    _check_ledger_is_asked(name, plan, executor)
    ledger.tools = executor.tools if plan.ledger is None and executor else Tools(plan.tools)
    return RegisteredAgent(
        name=name,
        description=str(getattr(descriptor, "description", "")),
        agent=prepared,
        definition_hash=definition_hash(plan, ledger.tools),
        config=_describe(plan, ledger.tools),
        examples=_examples(name, descriptor),
        tools_with_deps=ledger.tools.needing_deps,
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


NOT_HASHED = {
    "model_presets": "the model that a preset names counts by its name",
    "completions": "changes that the plan has made when it is complete",
    "hooks": "code is not part of a definition; capabilities count by their names",
    "criteria": "code is not part of a definition",
    "ledger": "the app server's own",
    "events": "who listens changes nothing",
    "clock": "a part of the process",
    "new_id": "a part of the process",
    "max_parallel_tools": "changes how fast calls run, not what an agent does",
    "cancel_grace": "changes how long a cancelled call may take",
}
"""Fields of a plan that are not part of the definition hash, and why. All others are."""

HASH_VERSION = "2:"
"""What a definition hash begins with. One of another version can't be compared."""


def definition_hash(plan: AgentPlan, tools: Tools) -> str:
    """The same for the same definition, in any process and on any machine. A setting at its default
    does not count, so that a new one does not change the hash of agents that do not use it."""
    settings = plan.settings
    masked = replace(settings, extra_headers=dict.fromkeys(settings.extra_headers, ""))
    summaries = {
        "model": _model_name(plan),
        "llm_preset": None,  # it names the model
        "driver": None if plan.driver is None else type(plan.driver).__name__,
        "settings": _changes(masked, ModelSettings()),
        "error_policy": _changes(plan.effective_error_policy, ErrorPolicy()),
        "max_retries": None,  # it is part of the policy
        "context": [[m.role, m.text] for m in plan.context.messages],
        "output": plan.context.response_format,
        "tools": tools.schemas,
        "stop_on_finish_reasons": sorted(str(it) for it in plan.stop_on_finish_reasons),
    }
    changes = _changes(plan, AgentPlan())
    others = {name: it for name, it in changes.items() if name not in {*summaries, *NOT_HASHED}}
    counted = {name: it for name, it in summaries.items() if it}
    data = _as_data({**others, **counted})
    return HASH_VERSION + sha256(json.encode(data, order="sorted")).hexdigest()


def has_other_definition(stored: str, current: str) -> bool:
    """Whether a stored definition hash says that the agent was another one. A hash that an older
    version of Stepwell made says nothing."""
    return stored != current and stored.startswith(HASH_VERSION)


def _changes(value: Struct, plain: Struct) -> dict[str, Any]:
    """The fields in which the value is not like the plain one."""
    fields = value.__struct_fields__
    return {it: getattr(value, it) for it in fields if getattr(value, it) != getattr(plain, it)}


def _model_name(plan: AgentPlan) -> str | None:
    model = plan.model or getattr(plan.driver, "_model", None)
    return plan.llm_preset if model is None else name_of(model)


def _describe(plan: AgentPlan, tools: Tools) -> dict[str, Any]:
    """Return a summary of the agent as JSON data."""
    return {
        "model": _model_name(plan),
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
    }


def _as_data(value: Any) -> Any:
    return to_builtins(value, enc_hook=_type_name, order="deterministic")


def _type_name(value: Any) -> str:
    """Return the type of a value that is not data; its address differs between processes."""
    return f"({type(value).__name__})"
