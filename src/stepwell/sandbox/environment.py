"""The environment of a command. The only module of this room that reads the environment of this
process, and only the variables that a policy names.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from stepwell.errors import SandboxError
from stepwell.sandbox.policy import ExecutionPolicy
from stepwell.text import is_encodable

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def command_environment(policy: ExecutionPolicy, *, home: str, temporary: str) -> dict[str, str]:
    """Return all variables of a command: fixed ones, inherited ones, and those of the policy."""
    fixed = {
        "PATH": PATH,
        "HOME": home,
        "TMPDIR": temporary,
        "LANG": "C.UTF-8",
        "USER": "sandbox",
        "LOGNAME": "sandbox",
        "SHELL": "/bin/sh",
        "TERM": "dumb",
        # Otherwise git fails on the system's settings, which no sandbox makes readable.
        "GIT_CONFIG_NOSYSTEM": "1",
    }
    return fixed | _inherited_variables(policy.inherited_environment) | dict(policy.environment)


def interpreter_paths() -> tuple[Path, ...]:
    """Return the directories of this Python that are not part of the system. Add them to
    ``readable`` so that commands can use this Python and its packages."""
    folders = {Path(prefix).resolve() for prefix in (sys.prefix, sys.base_prefix)}
    return tuple(sorted(path for path in folders if Path("/usr") not in (path, *path.parents)))


def path_entries() -> tuple[str, ...]:
    """Return where this process looks for programs; an empty entry is the current directory."""
    host_environment = os.environ  # noqa: TID251 - what is on the search path must be protected from commands
    return tuple(entry or "." for entry in host_environment.get("PATH", PATH).split(os.pathsep))


def leaked_variables(visible: Mapping[str, str], policy: ExecutionPolicy) -> list[str]:
    """Return names of this process's variables that a command saw although the policy has none."""
    given = command_environment(policy, home="", temporary="").keys()
    host_environment = os.environ  # noqa: TID251 - needed to detect leaks
    return sorted(
        name
        for name, value in visible.items()
        if name not in given and value and host_environment.get(name) == value
    )


def _inherited_variables(names: tuple[str, ...]) -> dict[str, str]:
    host_environment = os.environ  # noqa: TID251 - source of the inherited variables
    inherited = {name: host_environment[name] for name in names if name in host_environment}
    for name, value in inherited.items():
        if not is_encodable(value):
            raise SandboxError(
                f"the variable {name} is not UTF-8 and can't be inherited; remove it from "
                "inherited_environment"
            )
    return inherited
