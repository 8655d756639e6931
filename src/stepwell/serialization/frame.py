"""The frame of a stored document: format, version, and a checksum over them and the body."""

import json
import re
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Literal, NoReturn, cast

import msgspec
from msgspec import Raw, Struct, convert, to_builtins

from stepwell.errors import SerializationError
from stepwell.serialization.document import SCHEMA_VERSION
from stepwell.serialization.versions import check_version

Text = bytes | bytearray | memoryview | str
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


class OpenedBody(Struct, frozen=True, kw_only=True):
    """A body that is what was written: as compact JSON text, or as data."""

    version: int
    text: Raw | None = None
    has_tags: bool = True
    """Whether open data in the text may have to be restored."""
    data: Any = None


def seal_text(format: str, version: int, body: Any) -> bytes:
    """A body as a whole document."""
    text = encode_body(body)
    checksum = TEXT + _digest(format, version, text)
    head = {"format": format, "schema_version": version, "checksum": checksum}
    return b'%b,"body":%b}' % (msgspec.json.encode(head)[:-1], text)


def seal_data(format: str, version: int, body: Any) -> dict[str, Any]:
    """The same as JSON-ready data."""
    data = json.loads(encode_body(body))
    checksum = SORTED + _digest(format, version, encode_body(data, order="sorted"))
    return {"format": format, "schema_version": version, "checksum": checksum, "body": data}


def open_text(document: Text, format: str) -> OpenedBody:
    """The body of a document. Raises ``SerializationError`` if it is not what was written."""
    if not isinstance(document, bytes | str):
        document = _as_bytes(document)
    try:
        frame = _FRAME.decode(document)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        return open_data(_parse(document, error), format)
    digest = TEXT + _digest(format, frame.schema_version, frame.body)
    is_known = 1 <= frame.schema_version <= SCHEMA_VERSION
    if digest != frame.checksum or frame.format != format or not is_known:
        return open_data(_parse(document), format)
    # A tag begins an object, and within a JSON text a quote is never without its backslash.
    has_tags = b'{"$' in document if isinstance(document, bytes) else '{"$' in document
    return OpenedBody(version=frame.schema_version, text=frame.body, has_tags=has_tags)


def open_data(document: Any, format: str) -> OpenedBody:
    """The same for a document that was parsed."""
    _check_head(document, format)
    try:
        frame = convert(document, _Frame)
    except ValueError as error:
        raise _not_a_document(error) from None
    order = "sorted" if frame.checksum.startswith(SORTED) else None
    digest = _digest(format, frame.schema_version, encode_body(frame.body, order=order))
    if frame.checksum not in (SORTED + digest, TEXT + digest):
        raise SerializationError(
            "the checksum does not fit: the document was changed or damaged after it was written, "
            "or kept where keys are reordered (only what serialize() gave may be; text has to stay "
            "text)"
        )
    return OpenedBody(version=frame.schema_version, data=frame.body)


def _check_head(document: Any, format: str) -> None:
    """What it is comes before whether it is whole: a newer version may have another frame."""
    if not isinstance(document, Mapping):
        raise SerializationError(f"a stored state is a JSON object, not {_quote(document)}")
    head = cast("Mapping[str, Any]", document)
    if "format" not in head and "step_count" in head:
        raise SerializationError(
            "this is the slim format, which an execution can't resume from; load it with "
            "SlimAgentStateSerializer"
        )
    if head.get("format") != format:
        raise SerializationError(
            f"the document's format is {_quote(head.get('format'))}; expected {format!r}"
        )
    version = head.get("schema_version")
    if not isinstance(version, int) or version.bit_length() > 32:
        raise SerializationError(f"schema_version is no version: {_quote(version)}")
    check_version(version)


def _as_bytes(document: Any) -> bytes:
    if isinstance(document, bytearray | memoryview):
        return bytes(cast("bytearray", document))
    if document is None:
        raise SerializationError("there is no document (None); was it found where it was stored?")
    if isinstance(document, Mapping):
        raise SerializationError("this is data, not JSON text; use deserialize()")
    raise SerializationError(f"a document is bytes or a str, not {_quote(document)}")


def encode_body(body: Any, *, order: Literal["sorted"] | None = None) -> bytes:
    """A body as compact JSON. Raises ``SerializationError`` for what JSON can't hold."""
    try:
        return msgspec.json.encode(body, order=order)
    except UnicodeEncodeError:  # lone surrogates, which UTF-8 has not, but JSON can escape
        data = to_builtins(body)
        if _PAIR.search(json.dumps(data, ensure_ascii=False)):
            raise SerializationError("a text has two half characters that would be one") from None
        return json.dumps(data, separators=(",", ":"), sort_keys=order is not None).encode()
    except RecursionError:
        raise SerializationError("it is nested too deep for JSON") from None
    except (TypeError, ValueError) as error:  # also an int of more digits than Python writes
        raise SerializationError(f"it can't be written as JSON: {error}") from None


def _parse(document: bytes | str, problem: Exception | None = None) -> Any:
    if not document:
        raise SerializationError("the document is empty")
    try:
        return json.loads(document, parse_constant=_refuse_constant)
    except (ValueError, RecursionError, TypeError) as error:
        raise _not_a_document(problem or error) from None


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _quote(value: Any) -> str:
    """A short text in quotes; of anything else only its class."""
    return repr(value[:60]) if isinstance(value, str) else f"a {type(value).__name__}"


def _digest(format: str, version: int, body: "bytes | Raw") -> str:
    digest = sha256(f"{format}/{version}\n".encode())
    digest.update(cast("bytes", body))
    return digest.hexdigest()


def _not_a_document(problem: object) -> SerializationError:
    return SerializationError(f"this is not a stored state, or not a whole one: {problem}")


_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_FRAME = msgspec.json.Decoder(_TextFrame)
