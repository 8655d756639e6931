"""The summary that replaces the older part of a conversation: stored in the state's metadata, sent
to the model as a user message.
"""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct, ValidationError, convert, to_builtins
from msgspec.structs import replace

from stepwell.agent.metadata_keys import SUMMARY
from stepwell.messages import Message, Role, TextPart
from stepwell.state import AgentState

SOURCE = "UseSummarization"
_INTRODUCTION = (
    "The older part of this conversation was replaced by this summary. Continue from it; do not "
    "answer it."
)
_REQUEST = "The user's last request in that part, verbatim:"


class Summary(Struct, frozen=True, kw_only=True):
    """A summary of the first ``until`` messages of a history, the last of which is ``last_id``."""

    text: str
    until: int
    last_id: str
    request: str = ""
    """The user's newest request, if no later message contains one."""

    @classmethod
    def of(cls, state: AgentState) -> "Summary | None":
        """Return the state's summary if it still matches the state's messages, else None."""
        stored = state.metadata.get(SUMMARY)
        if stored is None:
            return None
        try:
            summary = convert(stored, cls)
        except ValidationError:
            return None
        until = summary.end_in(state.messages)
        return None if until is None else replace(summary, until=until)

    def end_in(self, messages: Sequence[Message]) -> int | None:
        """Return how many of these messages the summary replaces; None if its last is missing."""
        if 0 < self.until <= len(messages) and messages[self.until - 1].id == self.last_id:
            return self.until
        places = range(len(messages), 0, -1)
        return next((at for at in places if messages[at - 1].id == self.last_id), None)

    @property
    def message(self) -> Message:
        """The message for the model; always the same, so that the provider's prompt cache hits."""
        request = f"\n\n{_REQUEST}\n{self.request}" if self.request else ""
        return Message(
            role=Role.USER,
            parts=(TextPart(f"{_INTRODUCTION}\n\n{self.text}{request}"),),
            id=f"summary:{self.last_id}",
            metadata={"source": SOURCE},
        )

    @property
    def as_metadata(self) -> dict[str, Any]:
        """The summary as metadata of a state."""
        return {SUMMARY: to_builtins(self)}


def newest_request(messages: Sequence[Message]) -> str:
    """Return the user's last text, ignoring user messages that capabilities added."""
    for message in reversed(messages):
        if message.is_user() and message.text and "source" not in message.metadata:
            return message.text
    return ""
