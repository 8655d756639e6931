"""The summary that stands for the older part of a conversation: kept in the state's metadata, and
told to the model as one message of the user's.
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
    "The older part of this conversation was replaced by this summary. Go on from it; do not "
    "answer it."
)
_REQUEST = "What the user asked for last in that part, word for word:"


class Summary(Struct, frozen=True, kw_only=True):
    """What was said in the first ``until`` messages of a history, the last of which is known."""

    text: str
    until: int
    last_id: str
    request: str = ""
    """The user's newest request, where no message that follows holds one."""

    @classmethod
    def of(cls, state: AgentState) -> "Summary | None":
        """The summary that a state carries, if it still belongs to the state's messages."""
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
        """How many of these messages the summary stands for; None if its last is not in them."""
        if 0 < self.until <= len(messages) and messages[self.until - 1].id == self.last_id:
            return self.until
        places = range(len(messages), 0, -1)
        return next((at for at in places if messages[at - 1].id == self.last_id), None)

    @property
    def message(self) -> Message:
        """The same each time it is told, so that a provider's prompt cache hits."""
        request = f"\n\n{_REQUEST}\n{self.request}" if self.request else ""
        return Message(
            role=Role.USER,
            parts=(TextPart(f"{_INTRODUCTION}\n\n{self.text}{request}"),),
            id=f"summary:{self.last_id}",
            metadata={"source": SOURCE},
        )

    @property
    def as_metadata(self) -> dict[str, Any]:
        """As the state keeps it."""
        return {SUMMARY: to_builtins(self)}


def newest_request(messages: Sequence[Message]) -> str:
    """What the user said last; what capabilities said in the user's name does not count."""
    for message in reversed(messages):
        if message.is_user() and message.text and "source" not in message.metadata:
            return message.text
    return ""
