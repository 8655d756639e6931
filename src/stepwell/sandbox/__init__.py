"""Confinement for whatever starts a process: policies, the sandboxes, and the choice of one.

The sandboxes themselves are imported from their modules (bubblewrap, sandlock, containers,
unconfined); this door loads none of them.
"""

from stepwell.sandbox.choice import confinement, default_sandbox, given_or_default, proven
from stepwell.sandbox.environment import interpreter_paths
from stepwell.sandbox.policy import ExecutionPolicy
from stepwell.sandbox.sandbox import Channel, Ending, OutputListener, Sandbox, SandboxResult

__all__ = [
    "Channel",
    "Ending",
    "ExecutionPolicy",
    "OutputListener",
    "Sandbox",
    "SandboxResult",
    "confinement",
    "default_sandbox",
    "given_or_default",
    "interpreter_paths",
    "proven",
]
