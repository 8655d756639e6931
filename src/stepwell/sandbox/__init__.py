"""Confinement for whatever starts a process: policies, the sandboxes, and the choice of one."""

from stepwell.sandbox.policy import ExecutionPolicy
from stepwell.sandbox.sandbox import Channel, Ending, OutputListener, Sandbox, SandboxResult

__all__ = [
    "Channel",
    "Ending",
    "ExecutionPolicy",
    "OutputListener",
    "Sandbox",
    "SandboxResult",
]
