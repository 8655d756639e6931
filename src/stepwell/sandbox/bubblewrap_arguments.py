"""The arguments of bubblewrap: which parts of the system a command sees and may write, and what
replaces the rest.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from stepwell.sandbox.environment import command_environment
from stepwell.sandbox.handover import Handover
from stepwell.sandbox.host.protection import hidden_paths, protect
from stepwell.sandbox.policy import MEBIBYTE, ExecutionPolicy
from stepwell.sandbox.seccomp import syscall_filter

HOME = "/home/sandbox"
TEMPORARY = "/tmp"
PRIVATE_BYTES = 512 * MEBIBYTE
"""Size limit of a private folder, unless the policy allows less memory."""
FIRST_USER = 1000
"""The user of a command if this process is root: programs behave differently as root, and it would
have no more rights inside."""

_PROGRAMS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_SETTINGS = (
    *("alternatives", "bash.bashrc", "ca-certificates", "debian_version", "fonts", "inputrc"),
    *("java-11-openjdk", "java-17-openjdk", "java-21-openjdk", "java-25-openjdk"),
    *("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "locale.alias", "magic"),
    *("mime.types", "os-release", "perl", "pki/ca-trust", "pki/tls/certs", "protocols"),
    *("python3", "python3.11", "python3.12", "python3.13", "python3.14", "services"),
    *("ssl/cert.pem", "ssl/certs", "ssl/openssl.cnf", "terminfo", "timezone"),
)
"""What programs commonly read in /etc and what contains no secrets."""
_NETWORK_SETTINGS = ("gai.conf", "host.conf", "hosts", "nsswitch.conf", "resolv.conf")
_LOCAL_HOSTS = b"127.0.0.1 localhost\n::1 localhost\n"
_LOCAL_NAMES = b"passwd: files\ngroup: files\nhosts: files\n"


def arguments(policy: ExecutionPolicy, handover: Handover) -> Iterator[str]:
    """Yield all arguments except the command and the pipes for status and start."""
    yield from _namespaces(policy)
    yield from _variables(policy)
    yield from _system()
    yield from _settings(policy, handover)
    yield from _private_folders(policy)
    yield from _policy_paths(policy, handover)
    # Last, because the mounts above create folders in it.
    yield from ("--remount-ro", "/", "--chdir", str(policy.directory))


def _namespaces(policy: ExecutionPolicy) -> Iterator[str]:
    yield from ("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts")
    yield "--unshare-cgroup-try"
    if not policy.network:
        yield "--unshare-net"
    yield from ("--new-session", "--die-with-parent", "--cap-drop", "ALL", "--hostname", "sandbox")
    user, group = _user()
    yield from ("--uid", str(user), "--gid", str(group))


def syscall_filter_arguments(handover: Handover) -> tuple[str, ...]:
    """Return the arguments for the syscall filter; without one, deny nested user namespaces."""
    program = syscall_filter()
    if program is None:
        return ("--disable-userns",)
    return ("--seccomp", handover.data(program))


def _variables(policy: ExecutionPolicy) -> Iterator[str]:
    yield "--clearenv"
    for name, value in command_environment(policy, home=HOME, temporary=TEMPORARY).items():
        yield from ("--setenv", name, value)


def _system() -> Iterator[str]:
    yield from ("--ro-bind", "/usr", "/usr")
    for name in _PROGRAMS:
        folder = Path("/", name)
        if folder.is_symlink():
            yield from ("--symlink", os.readlink(folder), str(folder))
        elif folder.is_dir():
            yield from ("--ro-bind", str(folder), str(folder))
    # The uid of root may write kernel settings in a /proc that is not read-only.
    yield from ("--proc", "/proc", "--remount-ro", "/proc")
    yield from ("--dev", "/dev", "--remount-ro", "/dev")


def _settings(policy: ExecutionPolicy, handover: Handover) -> Iterator[str]:
    for name in (*_SETTINGS, *(_NETWORK_SETTINGS if policy.network else ())):
        path = Path("/etc", name)
        if path.exists():
            yield from ("--ro-bind", str(path.resolve()), str(path))
    user, group = _user()
    files = {
        "passwd": f"sandbox:x:{user}:{group}::{HOME}:/bin/sh\n".encode(),
        "group": f"sandbox:x:{group}:\n".encode(),
    }
    if not policy.network:
        files |= {"hosts": _LOCAL_HOSTS, "nsswitch.conf": _LOCAL_NAMES}
    for name, content in files.items():
        yield from ("--perms", "0644", "--file", handover.data(content), f"/etc/{name}")


def _private_folders(policy: ExecutionPolicy) -> Iterator[str]:
    size = str(min(PRIVATE_BYTES, policy.max_memory or PRIVATE_BYTES))
    for folder in (TEMPORARY, "/home", "/run", "/var/tmp", "/dev/shm"):
        yield from ("--perms", "1777", "--size", size, "--tmpfs", folder)
    yield from ("--symlink", "/run", "/var/run", "--dir", HOME)


def _policy_paths(policy: ExecutionPolicy, handover: Handover) -> Iterator[str]:
    """Yield mounts for the policy's paths and for protected and hidden ones. Deeper paths come
    later and so take precedence."""
    protection = protect(policy)
    read_only = dict.fromkeys((*policy.readable, *protection.read_only))
    paths = [(path, "--ro-bind-fd") for path in read_only]
    writable = (*protection.pinned, *policy.writable, policy.directory)
    paths += [(path, "--bind-fd") for path in writable]
    for path, how in sorted(paths, key=lambda it: (len(it[0].parts), it[1] == "--bind-fd")):
        yield from (how, handover.path(path), str(path))
    for path in hidden_paths(policy):
        if path.is_dir():
            yield from ("--perms", "0000", "--tmpfs", str(path), "--remount-ro", str(path))
        else:
            yield from ("--perms", "0000", "--ro-bind-data", handover.data(b""), str(path))


def _user() -> tuple[int, int]:
    return (os.geteuid() or FIRST_USER), (os.getegid() or FIRST_USER)
