"""No confinement at all, for developers who ask for it by name. Nothing chooses it by itself."""

import os
from collections.abc import Mapping, Sequence

from stepwell.errors import SandboxError
from stepwell.sandbox.cgroups import ControlGroup, control_group, memory_told
from stepwell.sandbox.environment import command_environment
from stepwell.sandbox.policy import ExecutionPolicy
from stepwell.sandbox.private_folder import private_folder
from stepwell.sandbox.processes import Launch, run_process
from stepwell.sandbox.sandbox import OutputListener, SandboxResult


class UnconfinedSandbox:
    """Runs commands with all rights of this process: nothing is confined.

    A command can read and write every file this process can, and use the network, whatever the
    policy says. What it is held to: the timeouts, the output limit and the environment; memory and
    the number of processes where the system lets us set them. Everything it started is ended with
    it, also what detached itself (on Linux; elsewhere what stayed in its process group).

    >>> UnconfinedSandbox()
    UnconfinedSandbox(nothing is confined)
    """

    confines = False
    """So that nobody asks it for a proof."""

    @property
    def name(self) -> str:
        """What to call it in messages."""
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
        """Run a command to its end, unconfined; see ``Sandbox.run``."""
        if os.name != "posix":
            raise SandboxError("commands can be run on Linux and macOS only, not on this system")
        async with private_folder() as folder:
            environment = command_environment(policy, home=str(folder), temporary=str(folder))
            # Last of all that may fail, since from here on run_process sees to its removal.
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
            return memory_told(result, group)


def _limits(policy: ExecutionPolicy, group: ControlGroup | None) -> Mapping[str, int]:
    """Memory of each process by itself, where no group counts it. Processes can't be limited that
    way: all of this user's would count, those outside as well."""
    if policy.max_memory is None or (group is not None and "max_memory" in group.enforced):
        return {}
    return {"RLIMIT_DATA": policy.max_memory}
