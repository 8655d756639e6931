"""A system prompt that is a function of the run's context, called before each model turn."""

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec.structs import replace

from stepwell.errors import ConfigurationError
from stepwell.hooks import Hook, HookContext, HookTrigger, make_hook
from stepwell.messages import Message
from stepwell.run_context import RunContext

PromptFunction = Callable[[RunContext[Any]], str | Awaitable[str]]
PRIORITY = 900
"""Before other hooks that look at the request."""


def prompt_hooks(prompt: str | PromptFunction | None) -> tuple[Hook, ...]:
    """Return the hook that adds the prompt to each request, behind the fixed instructions; none if
    the prompt is no function."""
    if not callable(prompt):
        return ()
    function = prompt

    async def add_prompt(context: HookContext) -> HookContext | None:
        text: Any = function(context.state.context)
        if inspect.isawaitable(text):
            text = await text
        if not isinstance(text, str):
            raise ConfigurationError(
                f"system_prompt function {_name(function)} returned {text!r:.80}; return a text"
            )
        request = context.request
        if not text or request is None:
            return None
        prompt = Message.system(text)
        cached = replace(request.context, messages=(*request.context.messages, prompt))
        return context.with_request(replace(request, context=cached))

    name = f"system_prompt:{_name(function)}"
    return (make_hook(HookTrigger.BEFORE_INFERENCE, add_prompt, priority=PRIORITY, name=name),)


def _name(function: PromptFunction) -> str:
    return getattr(function, "__name__", type(function).__name__)
