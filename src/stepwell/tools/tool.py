"""What a tool is to the executor, and the values with which a tool can say more than a result."""

from collections.abc import Awaitable, Mapping
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable

from msgspec import Struct

from stepwell.messages import Usage
from stepwell.models import ToolSchema
from stepwell.state import PendingKind
from stepwell.tools.context import ToolContext


class ToolEffect(StrEnum):
    """What may be done again after a crash in the middle of a call."""

    PURE = "pure"
    IDEMPOTENT = "idempotent"
    EXTERNAL = "external"


class WhenUnknown(StrEnum):
    """What happens with an external call whose outcome a crash left unknown."""

    TELL = "tell"
    """The model sees it and decides."""
    ASK = "ask"
    """The execution pauses and a person decides: done, retry or failed."""


@runtime_checkable
class Tool(Protocol):
    """Something the model can call. ``FunctionTool`` and ``BaseTool`` are the usual ways to one."""

    @property
    def schema(self) -> ToolSchema:
        """Name, description and argument schema, as the model sees them."""
        ...

    @property
    def effect(self) -> ToolEffect:
        """What may be done again after a crash."""
        ...

    @property
    def timeout(self) -> float | None:
        """Seconds after which a call is cancelled, or None."""
        ...

    @property
    def parallel(self) -> bool:
        """Whether calls may run beside others of the same response."""
        ...

    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments as the tool wants them; raises ``InvalidToolArgumentsError``."""
        ...

    def invoke(self, arguments: dict[str, Any], context: ToolContext) -> Awaitable[Any]:
        """Do it; usually an ``async def``. What it raises becomes a result that the model sees."""
        ...


class ToolFailure(Struct, frozen=True):
    """An expected failure, returned as a value: the model sees it, the error policy does not."""

    message: str
    details: Mapping[str, Any] = {}


class ToolOutput(Struct, frozen=True, kw_only=True):
    """A result that also sets metadata in the state, or reports tokens and cost it spent."""

    value: Any = None
    metadata: Mapping[str, Any] = {}
    usage: Usage = Usage()
    cost: float = 0.0


class InputRequired(Struct, frozen=True, kw_only=True):
    """Returned by a tool that needs a person: the run pauses until the answer is given.

    The answer becomes the result of the call. With ``resumes`` the call runs again instead, and
    finds the answer and what it ``kept`` in ``ToolContext.resumed``.
    """

    prompt: str
    kind: PendingKind = PendingKind.QUESTION
    details: Mapping[str, Any] = {}
    resumes: bool = False
    kept: Any = None
