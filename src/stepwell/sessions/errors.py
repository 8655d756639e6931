"""Errors of user requests, and the errors by which a worker learns that it lost its work.

Each has a ``code``, a word that programs can rely on; the text is for people.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from stepwell.errors import StepwellError


class SessionError(StepwellError):
    """A request that cannot be fulfilled; nothing was changed."""

    def __init__(self, message: str, *, code: str) -> None:
        super().__init__(message)
        self.code = code


class NotThereError(SessionError, LookupError):
    """There is no such thing, or it is somebody else's."""

    def __init__(self, kind: str, id: str) -> None:
        super().__init__(f"there is no {kind} {id!r}", code=f"{kind}_not_found")


class ConflictError(SessionError):
    """It does not go with how things stand: a closed session, a busy one, nothing that waits."""


class QuestionChangedError(ConflictError):
    """An answer that names no question or one that is not waited for; ``pending`` are the questions
    that are, as clients see them."""

    def __init__(
        self, message: str, *, code: str, pending: Sequence[Mapping[str, Any]] = ()
    ) -> None:
        super().__init__(message, code=code)
        self.pending = tuple(pending)


class RefusedError(SessionError, ValueError):
    """What was sent is not acceptable: too long, of an unknown type, not allowed here."""


class TooManyError(SessionError):
    """More than a user may have or send; ``retry_after`` says in how many seconds to try again."""

    def __init__(self, message: str, *, code: str, retry_after: float | None = None) -> None:
        super().__init__(message, code=code)
        self.retry_after = retry_after


class LostLeaseError(SessionError):
    """Another worker has the execution; who was too slow can't write any more."""

    def __init__(self, execution_id: str, attempt: int) -> None:
        super().__init__(
            f"execution {execution_id} was taken over: attempt {attempt} is not the newest",
            code="lost_lease",
        )


class StoreUnavailableError(SessionError):
    """The database does not answer; what was asked did not happen, or happened as a whole."""

    def __init__(self, message: str, *, reason: str | None = None) -> None:
        super().__init__(message, code="store_unavailable")
        self.reason = reason
        """What is wrong with the database, in words for clients: no host, path or statement."""
