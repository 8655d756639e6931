"""Code that runs at set moments of a run and may change what happens next."""

from stepwell.hooks.context import ALL_TRIGGERS, HookContext, HookTrigger
from stepwell.hooks.stack import Hook, HookFunction, HookStack, make_hook, signal_of

__all__ = [
    "ALL_TRIGGERS",
    "Hook",
    "HookContext",
    "HookFunction",
    "HookStack",
    "HookTrigger",
    "make_hook",
    "signal_of",
]
