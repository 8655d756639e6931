"""Runs commands without confinement, for developers who ask for it. Never chosen by default."""

import os
from collections.abc import Mapping, Sequence

from stepwell.errors import SandboxError
from stepwell.sandbox.cgroups import ControlGroup, control_group, with_memory_outcome
from stepwell.sandbox.environment import command_environment
from stepwell.sandbox.policy import ExecutionPolicy
from stepwell.sandbox.private_folder import private_folder
from stepwell.sandbox.processes import Launch, run_process
from stepwell.sandbox.sandbox import OutputListener, SandboxResult


class UnconfinedSandbox:
    """Runs commands with all rights of this process, without confinement.

    A command can read and write every file this process can, and use the network, whatever the
    policy says. Only the timeouts, the output limit and the environment are enforced, and the
    limits on memory and processes if the system allows. All processes it started are killed with
    it, including detached ones (on Linux; elsewhere those in its process group).

    >>> UnconfinedSandbox()
    UnconfinedSandbox(nothing is confined)
    """

    confines = False
    """Tells ``proven`` not to prove it."""

    @property
    def name(self) -> str:
        """The name for messages."""
        return "unconfined"

    def __repr__(self) -> str:
        return "UnconfinedSandbox(nothing is confined)"

    async def run(
        self,
        argv: Sequence[str],
        policy: ExecutionPolicy,
        *,
        stdin: bytes = b"",
        on_output: OutputListener | None = None,
    ) -> SandboxResult:
        """Run a command without confinement; see ``Sandbox.run``."""
        if os.name != "posix":
            raise SandboxError("commands can run only on Linux and macOS, not on this system")
        async with private_folder() as folder:
            environment = command_environment(policy, home=str(folder), temporary=str(folder))
            # Created last: from here on run_process removes it, whatever fails.
            group = control_group(policy)
            launch = Launch(
                argv=argv,
                environment=environment,
                directory=policy.directory,
                limits=_limits(policy, group),
                join_files=group.join_files if group is not None else (),
            )
            result = await run_process(
                launch,
                policy,
                stdin=stdin,
                on_output=on_output,
                sweep=group.remove if group is not None else None,
            )
            return with_memory_outcome(result, group)


def _limits(policy: ExecutionPolicy, group: ControlGroup | None) -> Mapping[str, int]:
    """Return a memory limit per process if no group enforces it. The number of processes can't be
    limited that way: all processes of the user would count."""
    if policy.max_memory is None or (group is not None and "max_memory" in group.enforced):
        return {}
    return {"RLIMIT_DATA": policy.max_memory}
