"""The two answers that say no without hiding anything. What must stay hidden is a 404 instead."""

from fastapi import HTTPException


class NotSignedInError(HTTPException):
    """Nobody signed in, or what they signed in with is not valid (any more)."""

    code = "not_signed_in"

    def __init__(self) -> None:
        super().__init__(
            status_code=401,
            detail="sign in first: send a valid API key or token as 'Authorization: Bearer ...'",
            headers={"WWW-Authenticate": 'Bearer realm="stepwell"'},
        )


class NotAllowedError(HTTPException):
    """They signed in, but it is not theirs to do."""

    code = "not_allowed"

    def __init__(self, action: str) -> None:
        super().__init__(status_code=403, detail=f"you are not allowed to do this: {action}")
