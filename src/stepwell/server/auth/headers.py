"""Reads who asks out of headers. What is doubled or malformed counts as not sent."""

from starlette.requests import HTTPConnection

LONGEST_CREDENTIAL = 16 * 1024


def only_header(request: HTTPConnection, name: str) -> str | None:
    """The value of a header that was sent once; two could mean one thing here and another in a
    proxy before us."""
    values = request.headers.getlist(name)
    return values[0] if len(values) == 1 else None


def bearer(request: HTTPConnection) -> str | None:
    """What was sent as ``Authorization: Bearer ...``."""
    value = only_header(request, "authorization")
    if value is None or len(value) > LONGEST_CREDENTIAL:
        return None
    scheme, _, credential = value.partition(" ")
    credential = credential.strip(" ")
    if scheme.lower() != "bearer" or not credential or not credential.isascii():
        return None
    return credential
