"""The error of transports that send envelopes over a network."""

from stepwell.errors import StepwellError


class BroadcastError(StepwellError):
    """Raised when an envelope could not be sent. The message says where to, why and what to do.

    ``status`` is the HTTP status, if there was a response. It never contains secrets or passwords.

    >>> BroadcastError("Pusher refused the request", status=401).status
    401
    """

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status
