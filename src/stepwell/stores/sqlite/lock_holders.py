"""Which processes hold a lock on a file, for messages to people. Linux only; elsewhere nobody is
named."""

import os
from collections.abc import Iterable
from pathlib import Path

_LOCKS = Path("/proc/locks")
_STATES = {"T": "stopped by a signal", "t": "stopped by a debugger", "D": "waiting for a device"}


def describe_lock_holders(paths: Iterable[Path]) -> str:
    """The other processes that hold a lock on one of these files, or "another process".

    A holder that this process can't see, as in another container, has no number in /proc/locks.
    """
    found = sorted(_holders(set(map(_file_key, paths))) - {0, os.getpid()})
    return ", ".join(_describe(pid) for pid in found) or "another process"


def _file_key(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return os.major(status.st_dev), os.minor(status.st_dev), status.st_ino


def _holders(files: set[tuple[int, int, int] | None]) -> set[int]:
    try:
        lines = _LOCKS.read_text().splitlines()
    except OSError:
        return set()
    holders: set[int] = set()
    for line in lines:
        # "1: FLOCK  ADVISORY  WRITE 4711 fe:00:16039943 0 EOF"; "->" marks one that only waits.
        words = line.split()
        if len(words) < 6 or words[1] == "->" or words[3] != "WRITE":
            continue
        major, minor, inode = words[5].split(":")
        if (int(major, 16), int(minor, 16), int(inode)) in files:
            holders.add(int(words[4]))
    return holders


def _describe(pid: int) -> str:
    try:
        name, _, rest = Path(f"/proc/{pid}/stat").read_text().partition("(")[2].rpartition(")")
    except OSError:
        return f"process {pid}"
    state = _STATES.get(rest.split()[0], "")
    return f"process {pid} ({', '.join(filter(None, (name, state)))})"
