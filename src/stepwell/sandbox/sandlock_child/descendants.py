"""The processes beneath another and the memory they use, as ``/proc`` tells."""

from __future__ import annotations

import os

PAGE = os.sysconf("SC_PAGE_SIZE")


def children(pid: int) -> list[int]:
    """The processes that this one started or adopted."""
    try:
        found: list[int] = []
        for thread in os.listdir(f"/proc/{pid}/task"):
            found += [int(child) for child in _read(f"{pid}/task/{thread}/children").split()]
    except (FileNotFoundError, ProcessLookupError):
        return _children_by_parent(pid) if os.path.exists(f"/proc/{pid}/stat") else []
    return found


def _children_by_parent(pid: int) -> list[int]:
    # For a kernel that was built without the lists of children.
    names = [name for name in os.listdir("/proc") if name.isdigit()]
    return [int(name) for name in names if _parent(name) == pid]


def _parent(pid: str) -> int:
    try:
        return int(_read(f"{pid}/stat").rpartition(b")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0


def exceeds(limit: int, *, beneath: int, apart_from: int) -> bool:
    """Whether all beneath a process use more memory than this, pages they share counted once."""
    pids = _all_beneath(beneath, apart_from)
    # What is resident counts shared pages once for each, so it is too much, but cheap to read.
    if sum(_resident(pid) for pid in pids) <= limit:
        return False
    return sum(_proportional(pid) for pid in pids) > limit


def _all_beneath(pid: int, apart_from: int) -> list[int]:
    found: list[int] = []
    ahead = children(pid)
    while ahead:
        one = ahead.pop()
        if one != apart_from:
            found.append(one)
        ahead += children(one)
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
