"""Confinement for processes: execution policies, sandboxes, and the choice of a sandbox.

Import the sandboxes from their modules (bubblewrap, sandlock, containers, unconfined); this package
loads none of them.
"""

from stepwell.sandbox.choice import confinement, default_sandbox, proven, sandbox_or_default
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
    "interpreter_paths",
    "proven",
    "sandbox_or_default",
]
