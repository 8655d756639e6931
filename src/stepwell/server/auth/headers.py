"""Reads credentials from headers. Duplicate or malformed ones count as absent."""

from starlette.requests import HTTPConnection

LONGEST_CREDENTIAL = 16 * 1024


def only_header(request: HTTPConnection, name: str) -> str | None:
    """Return the value of a header that was sent once. A proxy might read the other one of two."""
    values = request.headers.getlist(name)
    return values[0] if len(values) == 1 else None


def bearer(request: HTTPConnection) -> str | None:
    """Return the credential of ``Authorization: Bearer ...``."""
    value = only_header(request, "authorization")
    if value is None or len(value) > LONGEST_CREDENTIAL:
        return None
    scheme, _, credential = value.partition(" ")
    credential = credential.strip(" ")
    if scheme.lower() != "bearer" or not credential or not credential.isascii():
        return None
    return credential
