"""The frame of a stored document: format, version, and a checksum over them and the body."""

import json
from hashlib import sha256
from typing import Any, NoReturn, cast

import msgspec
from msgspec import Raw, Struct, ValidationError, convert, to_builtins

from stepwell.errors import SerializationError

TEXT = "sha256:"
"""The checksum is over the very text of the body."""

SORTED = "sha256-sorted:"
"""The checksum is over the body with sorted keys: for data that a database may reorder."""


class _Frame(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    format: str
    schema_version: int
    checksum: str
    body: Any


class _TextFrame(_Frame, frozen=True, kw_only=True, forbid_unknown_fields=True):
    body: Raw


class Opened(Struct, frozen=True, kw_only=True):
    """A body that is what was written: as compact JSON text, or as data."""

    version: int
    text: Raw | None = None
    has_tags: bool = True
    """Whether open data in the text may have to be restored."""
    data: Any = None


def sealed_text(format: str, version: int, body: Any) -> bytes:
    """A body as a whole document."""
    text = _encoded(body)
    checksum = TEXT + _digest(format, version, text)
    head = {"format": format, "schema_version": version, "checksum": checksum}
    return b'%b,"body":%b}' % (msgspec.json.encode(head)[:-1], text)


def sealed_data(format: str, version: int, body: Any) -> dict[str, Any]:
    """The same as JSON-ready data."""
    data = json.loads(_encoded(body))
    checksum = SORTED + _digest(format, version, _encoded(data, order="sorted"))
    return {"format": format, "schema_version": version, "checksum": checksum, "body": data}


def opened_text(document: bytes | str, format: str) -> Opened:
    """The body of a document. Raises ``SerializationError`` if it is not what was written."""
    try:
        frame = _FRAME.decode(document)
    except ValidationError as error:
        raise _not_a_document(error) from None
    except (msgspec.DecodeError, UnicodeError, RecursionError, TypeError) as error:
        return opened_data(_parsed(document, error), format)
    digest = TEXT + _digest(format, frame.schema_version, frame.body)
    if digest != frame.checksum or frame.format != format:
        return opened_data(_parsed(document), format)
    # A tag begins an object, and within a JSON text a quote is never without its backslash.
    has_tags = b'{"$' in document if isinstance(document, bytes) else '{"$' in document
    return Opened(version=frame.schema_version, text=frame.body, has_tags=has_tags)


def opened_data(document: Any, format: str) -> Opened:
    """The same for a document that was parsed."""
    try:
        frame = convert(document, _Frame)
    except ValidationError as error:
        raise _not_a_document(error) from None
    if frame.format != format:
        raise SerializationError(f"the document is a {frame.format!r:.60}; expected a {format!r}")
    order = "sorted" if frame.checksum.startswith(SORTED) else None
    digest = _digest(format, frame.schema_version, _encoded(frame.body, order=order))
    if frame.checksum not in (SORTED + digest, TEXT + digest):
        raise SerializationError(
            "the checksum does not fit: the document was changed or damaged after it was written "
            "(text has to stay as it was; data may have their keys reordered, not more)"
        )
    return Opened(version=frame.schema_version, data=frame.body)


def _encoded(body: Any, *, order: Any = None) -> bytes:
    try:
        return msgspec.json.encode(body, order=order)
    except UnicodeEncodeError:  # lone surrogates, which UTF-8 has not, but JSON can escape
        data = to_builtins(body)
        ordered = order is not None
        return json.dumps(data, separators=(",", ":"), sort_keys=ordered).encode()
    except RecursionError:
        raise SerializationError("the state is nested too deep to be stored") from None


def _parsed(document: bytes | str, problem: Exception | None = None) -> Any:
    try:
        return json.loads(document, parse_constant=_refuse)
    except (ValueError, RecursionError, TypeError) as error:
        raise _not_a_document(problem or error) from None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _digest(format: str, version: int, body: "bytes | Raw") -> str:
    digest = sha256(f"{format}/{version}\n".encode())
    digest.update(cast("bytes", body))
    return digest.hexdigest()


def _not_a_document(problem: object) -> SerializationError:
    return SerializationError(f"this is not a stored state, or not a whole one: {problem}")


_FRAME = msgspec.json.Decoder(_TextFrame)
