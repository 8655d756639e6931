"""Validates what users send before anything is written: texts, keys, metadata."""

from collections.abc import Collection, Mapping
from math import isfinite
from typing import Any, cast

from stepwell.protocols.client_input import check_json
from stepwell.protocols.client_stream import ClientInputError
from stepwell.sessions.errors import RefusedError
from stepwell.text import HALF_CHARACTER, is_encodable, truncate

TITLE_CHARACTERS = 80
"""The length of a title that is made from a message."""

MAX_TITLE_CHARACTERS = 200
MAX_KEY_CHARACTERS = 200
MAX_METADATA_CHARACTERS = 20_000

RESERVED = ("event_type", "steers", "fingerprint", "copied_from", "forked_from")
"""Metadata keys that only the app server writes, to sessions and messages."""

RESERVED_IN_MESSAGES = (
    *RESERVED,
    "args_summary",
    "call_id",
    "definition_changed",
    "duration_ms",
    "error",
    "not_answered",
    "outcome",
    "pending",
    "result_summary",
    "status",
    "step_number",
    "stop_reason",
    "success",
    "takeover",
    "text",
    "tool",
)
"""Keys by which the server's own messages describe executions; clients trust them."""


def check_content(content: str, limit: int) -> str:
    """Return the text of a message. Raises ``RefusedError``."""
    if not content.strip():
        raise RefusedError("the message is empty", code="empty_message")
    if len(content) > limit:
        raise RefusedError(
            f"the message has {len(content)} characters; {limit} are allowed",
            code="message_too_long",
        )
    return check_text(content, "the message")


def check_text(text: str, what: str) -> str:
    """Return a text. Raises ``RefusedError`` if a database can't store it."""
    if "\x00" in text:
        raise RefusedError(f"{what} holds a NUL character, which can't be stored", code="bad_text")
    if not is_encodable(text):
        raise RefusedError(f"{what} holds {HALF_CHARACTER}", code="bad_text")
    return text


def check_title(title: str | None) -> str | None:
    """Return a title on one line, or None."""
    if title is None:
        return None
    title = " ".join(check_text(title, "the title").split())
    if not title or len(title) > MAX_TITLE_CHARACTERS:
        raise RefusedError(
            f"the title has {len(title)} characters; it must have 1 to {MAX_TITLE_CHARACTERS}",
            code="bad_title",
        )
    return title


def title_of(content: str) -> str:
    """Return the first line that is not blank, truncated to the length of a title.

    >>> title_of("\\n  Book a table   for two\\nat eight")
    'Book a table for two'
    """
    line = next((line for line in content.splitlines() if line.strip()), content)
    title = " ".join(line.split())
    return truncate(title, TITLE_CHARACTERS)


def check_key(key: str | None) -> str | None:
    """Return an idempotency key. Raises ``RefusedError``."""
    if key is None:
        return None
    if not key or len(key) > MAX_KEY_CHARACTERS or not key.isprintable():
        raise RefusedError(
            f"the idempotency key has {len(key)} characters; it must be 1 to "
            f"{MAX_KEY_CHARACTERS} printable ones",
            code="bad_idempotency_key",
        )
    return key


def check_metadata(
    metadata: Mapping[str, Any], reserved: Collection[str] = RESERVED
) -> dict[str, Any]:
    """Return metadata. Raises ``RefusedError`` for reserved keys and what can't be stored."""
    taken = [key for key in metadata if key in reserved]
    if taken:
        raise RefusedError(
            f"metadata.{taken[0]} is reserved for the server; use another name",
            code="bad_metadata",
        )
    try:
        check_json(metadata, "metadata")
    except ClientInputError as error:
        raise RefusedError(str(error), code="bad_metadata") from None
    if _characters(metadata) > MAX_METADATA_CHARACTERS:
        raise RefusedError(
            f"metadata has more than {MAX_METADATA_CHARACTERS} characters", code="bad_metadata"
        )
    return dict(metadata)


def _characters(value: Any) -> int:
    """Return the approximate length as JSON. Raises ``RefusedError`` for a NUL character."""
    if isinstance(value, str):
        return len(check_text(value, "metadata")) + 3
    if isinstance(value, Mapping):
        items = cast("Mapping[str, Any]", value).items()
        return 2 + sum(_characters(key) + _characters(item) for key, item in items)
    if isinstance(value, list | tuple):
        return 2 + sum(_characters(item) + 1 for item in cast("list[Any]", value))
    if isinstance(value, float) and not isfinite(value):
        raise RefusedError(f"metadata holds {value}, which is not JSON", code="bad_metadata")
    return len(str(value))
