"""What a command sees of an environment, and the one module of this room that reads this process's
own: only the variables that a policy names.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from stepwell.errors import SandboxError
from stepwell.sandbox.policy import ExecutionPolicy

SHORTEST_LEAK = 4
"""What is shorter may well be the same by chance, such as a level of nested shells."""
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def command_environment(policy: ExecutionPolicy, *, home: str, temporary: str) -> dict[str, str]:
    """All variables of a command: fixed ones, the inherited ones that the policy names, its own."""
    fixed = {
        "PATH": PATH,
        "HOME": home,
        "TMPDIR": temporary,
        "LANG": "C.UTF-8",
        "USER": "sandbox",
        "LOGNAME": "sandbox",
        "SHELL": "/bin/sh",
        "TERM": "dumb",
        # Else git ends where it can't read the system's settings, which no sandbox opens.
        "GIT_CONFIG_NOSYSTEM": "1",
    }
    return fixed | _inherited(policy.inherited_environment) | dict(policy.environment)


def interpreter_paths() -> tuple[Path, ...]:
    """The folders of the Python that runs this, where they are not a part of the system's: for
    ``readable``, so that commands can use it and what is installed in it."""
    folders = {Path(prefix).resolve() for prefix in (sys.prefix, sys.base_prefix)}
    return tuple(sorted(path for path in folders if Path("/usr") not in (path, *path.parents)))


def path_entries() -> tuple[str, ...]:
    """Where this process looks for programs, in order; an empty entry is the current directory."""
    own = os.environ  # noqa: TID251 - what is on the search path must be kept from commands
    return tuple(entry or "." for entry in own.get("PATH", PATH).split(os.pathsep))


def leaked_variables(seen: Mapping[str, str], policy: ExecutionPolicy) -> list[str]:
    """Names of this process's variables that a command saw though the policy does not give them."""
    given = command_environment(policy, home="", temporary="").keys()
    own = os.environ  # noqa: TID251 - to find what leaked one must know it
    return sorted(
        name
        for name, value in seen.items()
        if name not in given and value and own.get(name) == value
    )


def _inherited(names: tuple[str, ...]) -> dict[str, str]:
    own = os.environ  # noqa: TID251 - the variables that the policy names are taken from here
    inherited = {name: own[name] for name in names if name in own}
    for name, value in inherited.items():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise SandboxError(
                f"the variable {name} is not UTF-8 and can't be passed on; take it out of "
                "inherited_environment"
            ) from error
    return inherited
