"""What people send, checked before anything is written: texts, keys, metadata."""

from collections.abc import Collection, Mapping
from math import isfinite
from typing import Any, cast

from stepwell.protocols.client_input import check_json
from stepwell.protocols.client_stream import ClientInputError
from stepwell.sessions.errors import RefusedError

TITLE_CHARACTERS = 80
"""A title that is made of a message is cut to so many."""

MAX_TITLE_CHARACTERS = 200
MAX_KEY_CHARACTERS = 200
MAX_METADATA_CHARACTERS = 20_000

RESERVED = ("event_type", "steers", "fingerprint", "copied_from", "forked_from")
"""Metadata that the app server itself writes, to sessions and to messages."""

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
"""What its own messages say of executions; clients read it there and believe it."""


def checked_content(content: str, limit: int) -> str:
    """The text of a message; raises ``RefusedError``."""
    if not content.strip():
        raise RefusedError("the message is empty; say something", code="empty_message")
    if len(content) > limit:
        raise RefusedError(
            f"the message has {len(content)} characters; {limit} are allowed",
            code="message_too_long",
        )
    return checked_text(content, "the message")


def checked_text(text: str, what: str) -> str:
    """Text that every database can hold."""
    if "\x00" in text:
        raise RefusedError(f"{what} holds a NUL character, which can't be stored", code="bad_text")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise RefusedError(
            f"{what} holds half a character (a lone surrogate)", code="bad_text"
        ) from None
    return text


def checked_title(title: str | None) -> str | None:
    """A title in one line, or none."""
    if title is None:
        return None
    title = " ".join(checked_text(title, "the title").split())
    if not title or len(title) > MAX_TITLE_CHARACTERS:
        raise RefusedError(
            f"the title has {len(title)} characters; it must have 1 to {MAX_TITLE_CHARACTERS}",
            code="bad_title",
        )
    return title


def title_of(content: str) -> str:
    """The first line that says something, cut to a title's length.

    >>> title_of("\\n  Book a table   for two\\nat eight")
    'Book a table for two'
    """
    line = next((line for line in content.splitlines() if line.strip()), content)
    title = " ".join(line.split())
    return title if len(title) <= TITLE_CHARACTERS else title[: TITLE_CHARACTERS - 1] + "…"


def checked_key(key: str | None) -> str | None:
    """An idempotency key."""
    if key is None:
        return None
    if not key or len(key) > MAX_KEY_CHARACTERS or not key.isprintable():
        raise RefusedError(
            f"the idempotency key has {len(key)} characters; it must be 1 to "
            f"{MAX_KEY_CHARACTERS} printable ones",
            code="bad_idempotency_key",
        )
    return key


def checked_metadata(
    metadata: Mapping[str, Any], reserved: Collection[str] = RESERVED
) -> dict[str, Any]:
    """Metadata that can be stored, without what only the app server writes."""
    taken = [key for key in metadata if key in reserved]
    if taken:
        raise RefusedError(
            f"metadata.{taken[0]} is written by the server; give it another name",
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
    """About the length as JSON; refuses a NUL character on the way."""
    if isinstance(value, str):
        return len(checked_text(value, "metadata")) + 3
    if isinstance(value, Mapping):
        items = cast("Mapping[str, Any]", value).items()
        return 2 + sum(_characters(key) + _characters(item) for key, item in items)
    if isinstance(value, list | tuple):
        return 2 + sum(_characters(item) + 1 for item in cast("list[Any]", value))
    if isinstance(value, float) and not isfinite(value):
        raise RefusedError(f"metadata holds {value}, which is no JSON", code="bad_metadata")
    return len(str(value))
