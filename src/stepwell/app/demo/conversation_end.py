"""What a scene goes by: what was asked last, and what the tools have answered since."""

import re

from msgspec import Struct

from stepwell.messages import ToolResult
from stepwell.models import ModelRequest

_RAN = re.compile(r"^Ran (\d+) tests?\b", re.MULTILINE)
_FAILED = re.compile(r"^(?:FAIL|ERROR): (\w+)", re.MULTILINE)
_WHY = re.compile(r"^\w+(?:Error|Exception): (.+)$", re.MULTILINE)
_DENIED = re.compile(r"a person denied this call(?:: (.*))?", re.DOTALL)


class ConversationEnd(Struct, frozen=True, kw_only=True):
    """The end of a conversation, from the last thing that a person said."""

    asked: str
    results: tuple[ToolResult, ...] = ()

    @property
    def last(self) -> ToolResult | None:
        """What the last tool gave, None before the first."""
        return self.results[-1] if self.results else None

    def of(self, tool: str) -> tuple[ToolResult, ...]:
        """What that tool gave, in order."""
        return tuple(result for result in self.results if result.tool_name == tool)


def conversation_end(request: ModelRequest) -> ConversationEnd:
    """What a request says."""
    results: list[ToolResult] = []
    for message in reversed(request.messages):
        if message.is_user():
            return ConversationEnd(asked=message.text, results=tuple(reversed(results)))
        if message.tool_result is not None:
            results.append(message.tool_result)
    return ConversationEnd(asked="", results=tuple(reversed(results)))


class SuiteRun(Struct, frozen=True, kw_only=True):
    """What unittest said.

    >>> SuiteRun.read("FAIL: test_sum (t)\\nAssertionError: 1 != 2\\nRan 3 tests in 0.0s").failed
    ('test_sum',)
    """

    count: int
    failed: tuple[str, ...]
    why: str = ""

    @classmethod
    def read(cls, output: str) -> "SuiteRun | None":
        """The run that an output tells of, None if no test ran."""
        ran = _RAN.search(output)
        if ran is None:
            return None
        why = _WHY.search(output)
        failed = tuple(dict.fromkeys(_FAILED.findall(output)))
        return cls(count=int(ran[1]), failed=failed, why=why[1] if why else "")


def denial(result: ToolResult) -> str | None:
    """Why a person denied the call, empty without a reason; None if nobody did.

    >>> denied = ToolResult(
    ...     call_id="c", tool_name="t", content="Error: Blocked: a person denied this call: no"
    ... )
    >>> denial(denied)
    'no'
    """
    found = _DENIED.search(result.content)
    return None if found is None else (found[1] or "").strip()
