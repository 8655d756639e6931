"""Hooks in the order in which they run. The stack is immutable; building twice shares nothing."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from inspect import isawaitable
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from stepwell.continuation import AgentStop, StopReason, StopSignal
from stepwell.errors import ConfigurationError, HookError
from stepwell.foreign import ForeignCall, contained
from stepwell.hooks.context import HookContext, HookTrigger
from stepwell.messages import ToolCall
from stepwell.models import ModelRequest, ModelResponse
from stepwell.scope import RunScope
from stepwell.state import AgentState

HookFunction = Callable[[HookContext], Awaitable[HookContext | None] | HookContext | None]


_FIELDS = {
    "state": AgentState,
    "call": ToolCall,
    "request": ModelRequest,
    "response": ModelResponse,
}


class Hook(Struct, frozen=True, kw_only=True, eq=False):
    """A function, the moments it wants, and its priority (higher runs first).

    What a hook does before a tool also holds for subagents; ``inherited`` passes all of it on.
    ``asks_model`` says that it asks a model by itself: a replay goes without it. ``last`` puts it
    behind all others, whatever their priority, so that what it checks is what happens.
    """

    function: HookFunction
    triggers: frozenset[HookTrigger]
    priority: int = 0
    name: str = ""
    inherited: bool = False
    asks_model: bool = False
    last: bool = False


class HookStack:
    """The hooks of an agent, sorted by priority, then by order of registration."""

    def __init__(self, hooks: Iterable[Hook] = ()) -> None:
        self.hooks = tuple(hooks)
        for hook in self.hooks:
            if not isinstance(hook, Hook):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise ConfigurationError(
                    f"{hook!r} is not a hook; make one with make_hook(trigger, function)"
                )
        ordered = sorted(self.hooks, key=lambda hook: (hook.last, -hook.priority))
        self._by_trigger = {
            trigger: tuple(hook for hook in ordered if trigger in hook.triggers)
            for trigger in HookTrigger
        }

    def has(self, trigger: HookTrigger) -> bool:
        """Whether any hook wants that moment."""
        return bool(self.hooks) and bool(self._by_trigger[trigger])

    async def run(self, context: HookContext, scope: RunScope | None = None) -> HookContext:
        """Give the context through all hooks of its trigger.

        What is raised names the hook, and carries the state that the hooks before it made. With
        a scope, a deadline or a cancellation that comes while a hook runs ends it.
        """
        for hook in self._by_trigger[context.trigger]:
            try:
                with contained():
                    answer: Any = hook.function(context)
                if answer is not None and isawaitable(answer):
                    answer = await _await_hook(answer, hook.name, scope)
            except AgentStop as stop:
                signal = replace(stop.signal, source=stop.signal.source or hook.name)
                raise AgentStop(signal, state=stop.state or context.state) from stop
            except Exception as error:
                raise HookError(hook.name, context.trigger, error, context.state) from error
            if answer is None:
                continue
            wrong = _what_is_wrong(answer, context)
            if wrong:
                raise HookError(hook.name, context.trigger, TypeError(wrong), context.state)
            context = answer
        return context


async def _await_hook(answer: Awaitable[Any], name: str, scope: RunScope | None) -> Any:
    call = f"hook {name}"
    if scope is None:
        foreign = ForeignCall[Any](call)
        try:
            return await foreign.run(lambda: answer, keeps_context=True)
        except asyncio.CancelledError as error:
            if foreign.was_cancelled:
                raise
            raise RuntimeError("it cancelled itself") from error
    with scope.guard(around=name) as guard:
        try:
            return await guard.call(lambda: answer, call, keeps_context=True)
        except asyncio.CancelledError as error:
            if guard.was_cancelled:
                raise
            raise RuntimeError("it cancelled itself") from error
    if guard.signal is not None:
        raise AgentStop(guard.signal.while_running(call))
    return None


def _what_is_wrong(answer: Any, given: HookContext) -> str:
    """What keeps an answer from being used; empty if nothing does."""
    if not isinstance(answer, HookContext):
        return f"it returned {type(answer).__name__}, not a HookContext or None"
    for field, kind in _FIELDS.items():
        value = getattr(answer, field)
        if not isinstance(value, kind) and (field == "state" or value is not None):
            return f"its answer has a {type(value).__name__} as {field}, not a {kind.__name__}"
    before, after = given.state.execution, answer.state.execution
    if before is None or before is after:
        return ""
    if after is None or after.id != before.id or (before.in_flight and not after.in_flight):
        return "it returned a state of another run; change the state it was given"
    return ""


def signal_of(error: HookError) -> StopSignal:
    """A hook that raised, as a vote to stop."""
    return StopSignal(
        reason=StopReason.ERROR,
        message=str(error),
        source=error.hook,
        context={"exception": type(error.__cause__ or error).__name__},
    )


def make_hook(
    triggers: HookTrigger | str | Iterable[HookTrigger | str],
    function: HookFunction,
    *,
    priority: int = 0,
    name: str | None = None,
    inherited: bool = False,
    asks_model: bool = False,
) -> Hook:
    """A hook for one moment or several; an unknown trigger is an error that lists the known."""
    if not callable(function):
        raise ConfigurationError(f"a hook must be callable, got {function!r}")
    wanted = [triggers] if isinstance(triggers, str) else list(triggers)
    return Hook(
        function=function,
        triggers=frozenset(_trigger(trigger) for trigger in wanted),
        priority=priority,
        name=name or getattr(function, "__qualname__", type(function).__name__),
        inherited=inherited,
        asks_model=asks_model,
    )


def _trigger(word: str) -> HookTrigger:
    try:
        return HookTrigger(word)
    except ValueError:
        raise ConfigurationError(
            f"unknown hook trigger {word!r}; known: {', '.join(HookTrigger)}"
        ) from None
