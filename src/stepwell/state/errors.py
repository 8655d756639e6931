"""An error as data: what kind, which class, what text. No exception object is kept in a state."""

import sys
from typing import Any

from stepwell.errors import ErrorType, HookError, ModelError, error_type_of, text_of
from stepwell.messages import Kept


class ErrorInfo(Kept, frozen=True, kw_only=True):
    """One failure inside a step.

    >>> ErrorInfo.from_exception(ValueError("no such order"), ErrorType.TOOL).text
    'ValueError: no such order'
    """

    type: ErrorType
    exception: str
    message: str
    tool_name: str | None = None
    hook_name: str | None = None
    """Set when a hook raised; such a run always ends, whatever the error policy says."""
    retry_after: float | None = None
    kind: str | None = None
    """What went wrong in a model turn; see ``ModelErrorKind``."""
    retryable: bool | None = None
    """Whether trying again may help; None if nobody knows. False is never retried."""
    status: int | None = None
    request_id: str | None = None

    @classmethod
    def from_exception(
        cls, error: BaseException, default: ErrorType, *, tool_name: str | None = None
    ) -> "ErrorInfo":
        """The data of an exception; ``default`` is its kind unless its class tells a better one."""
        return cls(
            type=error_type_of(error, default),
            exception=type(error).__name__,
            message=text_of(error),
            tool_name=tool_name,
            hook_name=error.hook if isinstance(error, HookError) else None,
            retry_after=_seconds(getattr(error, "retry_after", None)),
            **(_provider_facts(error) if isinstance(error, ModelError) else {}),
        )

    @property
    def text(self) -> str:
        """``ValueError: text``, or only the class name when there is no text."""
        return f"{self.exception}: {self.message}" if self.message else self.exception


def _provider_facts(error: ModelError) -> dict[str, Any]:
    return {
        "kind": error.kind,
        "retryable": error.retryable,
        "status": error.status,
        "request_id": error.request_id,
    }


def _seconds(value: Any) -> float | None:
    """A foreign exception's attribute of that name may be anything."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and 0 <= value <= sys.float_info.max else None
