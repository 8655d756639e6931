"""The errors for 401 and 403. What must stay hidden is a 404 instead."""

from starlette.exceptions import HTTPException


class NotSignedInError(HTTPException):
    """Raised when a request has no valid credentials."""

    code = "not_signed_in"

    def __init__(self) -> None:
        super().__init__(
            status_code=401,
            detail="sign in first: send a valid API key or token as 'Authorization: Bearer ...'",
            headers={"WWW-Authenticate": 'Bearer realm="stepwell"'},
        )


class NotAllowedError(HTTPException):
    """Raised when the principal may not do this."""

    code = "not_allowed"

    def __init__(self, action: str) -> None:
        super().__init__(status_code=403, detail=f"you are not allowed to do this: {action}")
