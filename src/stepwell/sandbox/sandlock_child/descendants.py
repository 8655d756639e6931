"""Descendants of a process and their memory use, read from ``/proc``."""

from __future__ import annotations

import os

PAGE = os.sysconf("SC_PAGE_SIZE")


def children(pid: int) -> list[int]:
    """Return the processes that this one started or adopted."""
    try:
        found: list[int] = []
        for thread in os.listdir(f"/proc/{pid}/task"):
            found += [int(child) for child in _read(f"{pid}/task/{thread}/children").split()]
    except (FileNotFoundError, ProcessLookupError):
        return _children_by_parent(pid) if os.path.exists(f"/proc/{pid}/stat") else []
    return found


def _children_by_parent(pid: int) -> list[int]:
    # For a kernel built without lists of children.
    names = [name for name in os.listdir("/proc") if name.isdigit()]
    return [int(name) for name in names if _parent(name) == pid]


def _parent(pid: str) -> int:
    try:
        return int(_read(f"{pid}/stat").rpartition(b")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0


def exceeds(limit: int, *, beneath: int, except_for: int) -> bool:
    """Return whether the descendants use more memory than this, counting shared pages once."""
    pids = _descendants(beneath, except_for)
    # The resident size counts shared pages several times: too high, but cheap to read.
    if sum(_resident(pid) for pid in pids) <= limit:
        return False
    return sum(_proportional(pid) for pid in pids) > limit


def _descendants(pid: int, except_for: int) -> list[int]:
    found: list[int] = []
    queue = children(pid)
    while queue:
        pid_in_tree = queue.pop()
        if pid_in_tree != except_for:
            found.append(pid_in_tree)
        queue += children(pid_in_tree)
    return found


def _resident(pid: int) -> int:
    try:
        return int(_read(f"{pid}/statm").split()[1]) * PAGE
    except (FileNotFoundError, ProcessLookupError):
        return 0


def _proportional(pid: int) -> int:
    try:
        for line in _read(f"{pid}/smaps_rollup").splitlines():
            if line.startswith(b"Pss:"):
                return int(line.split()[1]) * 1024
    except (FileNotFoundError, ProcessLookupError):
        pass
    return 0


def _read(name: str) -> bytes:
    with open(f"/proc/{name}", "rb") as file:
        return file.read()
