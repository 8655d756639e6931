"""The page's message list, `ui/message_list.js`, run in one Node.js per test process: what clients
show of envelopes and stored messages. Lists are values, as there.
"""

import atexit
import json
import subprocess
from collections.abc import Collection
from functools import cache
from itertools import count
from typing import Any

from tests.servers.node import HERE, find_node

Json = dict[str, Any]
SCRIPT = HERE / "message_list.mjs"


class MessageList:
    """A list that Node.js keeps; made and read by the functions of this module."""

    _ids = count()

    def __init__(self, verb: str, *given: Any, of: "MessageList | None" = None) -> None:
        self._id = next(self._ids)
        self._shown: tuple[Json, int] | None = None
        of_id = None if of is None else of._id
        _write({"make": self._id, "of": of_id, "verb": verb, "given": given})

    def __del__(self) -> None:
        if _node().poll() is None:
            _write({"drop": self._id})

    def _show(self) -> tuple[Json, int]:
        if self._shown is None:
            _write({"show": self._id})
            output = _node().stdout
            assert output is not None
            self._shown = json.loads(output.readline())
        return self._shown

    @property
    def seen(self) -> Json:
        """All that can be read of it."""
        return self._show()[0]

    @property
    def ignored(self) -> int:
        return self.seen["ignored"]

    @property
    def size(self) -> int:
        """How many envelopes it holds."""
        return self._show()[1]


@cache
def _node() -> "subprocess.Popen[str]":
    found = find_node()
    assert found is not None
    pipe = subprocess.PIPE
    process = subprocess.Popen([found.node, str(SCRIPT)], stdin=pipe, stdout=pipe, text=True)
    atexit.register(_end, process)
    return process


def _end(process: "subprocess.Popen[str]") -> None:
    with process:
        process.kill()


def _write(command: Json) -> None:
    node = _node()
    assert node.stdin is not None
    node.stdin.write(json.dumps(command, allow_nan=False) + "\n")
    if "show" in command:
        node.stdin.flush()


def empty_list() -> MessageList:
    return MessageList("emptyList")


def from_history(stored: Any, through: int = -1) -> MessageList:
    return MessageList("fromHistory", stored, through)


def received(list: MessageList, envelope: Any) -> MessageList:
    return MessageList("received", envelope, of=list)


def said(list: MessageList, text: str, id: str) -> MessageList:
    return MessageList("said", text, id, of=list)


def reconciled(
    list: MessageList, stored: Any, through: int | None = None, over: Collection[str] = ()
) -> MessageList:
    given = [stored] if through is None and not over else [stored, through, [*over]]
    return MessageList("reconciled", *given, of=list)


def messages(list: MessageList) -> list[Json]:
    return list.seen["messages"]


def status(list: MessageList) -> str:
    return list.seen["status"]


def newest(list: MessageList) -> int:
    return list.seen["newest"]


def missing(list: MessageList) -> list[tuple[int, int]]:
    return [(first, last) for first, last in list.seen["missing"]]


def needs_history(list: MessageList, can_replay: bool = True) -> bool:
    return list.seen["needs_history"][0 if can_replay else 1]
