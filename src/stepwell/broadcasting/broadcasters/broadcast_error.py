"""The error of transports that send envelopes over a network."""

from stepwell.errors import StepwellError


class BroadcastError(StepwellError):
    """An envelope could not be sent; the message says where to, why and what to do.

    ``status`` is the HTTP status, where there was an answer. Secrets and passwords are never in it.

    >>> BroadcastError("Pusher refused the request", status=401).status
    401
    """

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status
