"""``UseTelemetry``: adds the hooks that trace a run. OpenTelemetry itself is loaded when one is
created.
"""

from importlib.util import find_spec
from typing import TYPE_CHECKING

from stepwell.agent.plan import AgentPlan
from stepwell.errors import ConfigurationError
from stepwell.hooks import HookTrigger, make_hook
from stepwell.parameters import check_flag, check_text

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

NAME = "UseTelemetry"
FIRST, LAST = 2_000_000, -2_000_000
"""Before and after all other hooks, so that their work is traced as well."""


class UseTelemetry:
    """Records what the agent and its subagents do as OpenTelemetry spans and metrics, following the
    GenAI conventions: ``invoke_agent``, ``chat`` and ``execute_tool``.

    Needs ``stepwell[telemetry]``, and an OpenTelemetry SDK that your program sets up; without one
    nothing is recorded. Messages, arguments and results are recorded only if ``content`` is true;
    secret arguments are hidden even then. The default providers are the global ones. ``name`` is
    the agent's name.

    >>> from stepwell import Agent
    >>> from stepwell.testing import ScriptedModel
    >>> agent = Agent(ScriptedModel(["Four."]), capabilities=[UseTelemetry(name="counter")])
    >>> agent.run_sync("What is 2 + 2?").final_response
    'Four.'
    """

    def __init__(
        self,
        content: bool = False,
        tracer_provider: "TracerProvider | None" = None,
        meter_provider: "MeterProvider | None" = None,
        *,
        name: str | None = None,
    ) -> None:
        if find_spec("opentelemetry") is None or find_spec("opentelemetry.trace") is None:
            raise ConfigurationError(
                "UseTelemetry needs the package opentelemetry-api, which is not installed; run "
                "pip install 'stepwell[telemetry]'"
            )
        check_flag(content, "content")
        if name is not None:
            check_text(name, "name")
        for parameter, provider, method in (
            ("tracer_provider", tracer_provider, "get_tracer"),
            ("meter_provider", meter_provider, "get_meter"),
        ):
            if provider is not None and not callable(getattr(provider, method, None)):
                raise ConfigurationError(
                    f"{parameter} is {provider!r:.80}, which has no {method}(); pass an "
                    "OpenTelemetry provider, or leave it out to use the global one"
                )
        from stepwell.capabilities.telemetry.instruments import Instruments
        from stepwell.capabilities.telemetry.telemetry_hooks import Telemetry

        instruments = Instruments(tracer_provider, meter_provider)
        self._telemetry = Telemetry(instruments, name=name, records_content=content)

    def configure(self, plan: AgentPlan) -> AgentPlan:
        """Return the plan with the tracing hooks."""
        if has_telemetry(plan):
            raise ConfigurationError("UseTelemetry was added twice; one is enough")
        telemetry = self._telemetry
        for trigger, function, priority in (
            (HookTrigger.BEFORE_STEP, telemetry.on_step_start, FIRST),
            (HookTrigger.AFTER_TOOL, telemetry.on_tool_end, FIRST),
            (HookTrigger.AFTER_STEP, telemetry.on_step_end, LAST),
            (HookTrigger.AFTER_EXECUTION, telemetry.on_run_end, LAST),
        ):
            hook = make_hook(trigger, function, priority=priority, name=NAME, inherited=True)
            plan = plan.with_hook(hook)
        return plan


def has_telemetry(plan: AgentPlan) -> bool:
    """Return whether the runs of this plan are traced."""
    return any(hook.name == NAME for hook in plan.hooks)


def with_telemetry(plan: AgentPlan, name: str, *, content: bool) -> AgentPlan:
    """Add telemetry to the plan of an agent of the app server, unless it has its own. The agent's
    definition hash stays the same, so paused executions still match it."""
    if has_telemetry(plan):
        return plan
    return UseTelemetry(content, name=name).configure(plan)
