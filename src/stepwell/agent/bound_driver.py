"""Puts a driver of the user's own into an agent: nothing that the plan holds is lost on the way.

Called by ``AgentPlan``, which binds its own usual driver by itself.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec.structs import replace

from stepwell.clock import SystemClock
from stepwell.drivers import BindableDriver, Driver
from stepwell.errors import ConfigurationError
from stepwell.hooks import HookStack, HookTrigger
from stepwell.models.settings import NO_SETTINGS
from stepwell.tools import ToolExecutor, Tools
from stepwell.tools.executor import DEFAULT_PARALLEL_CALLS
from stepwell.tools.result_text import DEFAULT_RESULT_CHARACTERS

if TYPE_CHECKING:
    from stepwell.agent.plan import AgentPlan

_RUN_BY_DRIVER = (
    HookTrigger.BEFORE_INFERENCE,
    HookTrigger.AFTER_INFERENCE,
    HookTrigger.BEFORE_TOOL,
    HookTrigger.AFTER_TOOL,
)


def adopt_driver_parts(plan: "AgentPlan") -> "AgentPlan":
    """Return the plan with the tools and hooks that its driver was made with, and the driver
    without them. So the plan's approvals, hooks and ledger hold for the driver's tools as well.
    """
    driver = plan.driver
    if isinstance(driver, type) or not isinstance(driver, BindableDriver):
        return plan
    executor: ToolExecutor | None = getattr(driver, "executor", None)
    tools = () if executor is None else (executor.tools,) if len(executor.tools) else ()
    stacks = (getattr(driver, "hooks", None), None if executor is None else executor.hooks)
    found = (hook for stack in stacks if isinstance(stack, HookStack) for hook in stack.hooks)
    hooks = [hook for hook in dict.fromkeys(found) if hook not in plan.hooks]
    if executor is not None:
        _refuse_executor_settings(plan, executor)
    if not tools and not hooks:
        return plan
    return replace(
        plan,
        tools=(*plan.tools, *tools),
        hooks=(*plan.hooks, *hooks),
        driver=driver.bound_to(ToolExecutor()),
    )


def bind_driver(plan: "AgentPlan", executor: ToolExecutor, hooks: HookStack) -> Driver:
    """Return the plan's driver bound to all that the plan holds.

    Raises ``ConfigurationError`` if the driver can't be bound and would ignore any of it.
    """
    driver = plan.driver
    if isinstance(driver, BindableDriver):
        return driver.bound_to(executor, hooks=hooks, context=plan.context, settings=plan.settings)
    if driver is None:
        raise ConfigurationError("the plan has no driver to bind")
    if ignored := list(_parts_for_drivers(plan)):
        name = type(driver).__name__
        raise ConfigurationError(
            f"{name} would ignore what the agent has: {'; '.join(ignored)}. Give {name} a "
            "bound_to(executor, *, hooks, context, settings) method that returns a driver which "
            "uses them (see stepwell.drivers.BindableDriver), or leave them out"
        )
    return driver


def _parts_for_drivers(plan: "AgentPlan") -> Iterator[str]:
    """Name each part of the plan that takes effect only through a driver."""
    if names := Tools(plan.tools).names:
        yield f"tools ({', '.join(names)})"
    hooks = {
        hook.name: ", ".join(trigger for trigger in _RUN_BY_DRIVER if trigger in hook.triggers)
        for hook in plan.hooks
        if not hook.triggers.isdisjoint(_RUN_BY_DRIVER)
    }
    if hooks:
        yield f"hooks ({', '.join(f'{name}: {when}' for name, when in hooks.items())})"
    if plan.context.messages:
        yield "the system prompt or cached context"
    if plan.context.response_format is not None:
        yield "the response format or output type"
    if plan.settings != NO_SETTINGS:
        yield f"the model settings {plan.settings!r}"
    if plan.max_parallel_tools != DEFAULT_PARALLEL_CALLS:
        yield f"max_parallel_tools={plan.max_parallel_tools}"
    if plan.max_result_characters != DEFAULT_RESULT_CHARACTERS:
        yield f"max_result_characters={plan.max_result_characters}"
    if plan.ledger is not None:
        yield "the ledger"


def _refuse_executor_settings(plan: "AgentPlan", executor: ToolExecutor) -> None:
    """An agent has one executor, made by its plan: what the driver's was set to would be lost."""
    clock = executor.clock
    settings = {
        "raise_on_failure": (executor.raise_on_failure, "agents show failures to the model"),
        "a ledger": (executor.ledger is not None, "the agent's plan has the ledger"),
        "max_parallel": (
            executor.max_parallel not in (DEFAULT_PARALLEL_CALLS, plan.max_parallel_tools),
            "give the agent max_parallel_tools",
        ),
        "max_result_characters": (
            executor.max_result_characters
            not in (DEFAULT_RESULT_CHARACTERS, plan.max_result_characters),
            "give it to the agent",
        ),
        "a clock": (
            clock is not plan.clock and not isinstance(clock, SystemClock),
            "give the agent the clock",
        ),
    }
    given = [f"{name} ({advice})" for name, (is_set, advice) in settings.items() if is_set]
    if given:
        raise ConfigurationError(
            f"the executor of {type(plan.driver).__name__} was made with {' and '.join(given)}, "
            "which an agent does not take over"
        )
