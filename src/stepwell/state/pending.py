"""What a paused run waits for."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct


class PendingKind(StrEnum):
    """What sort of answer is waited for."""

    QUESTION = "question"
    APPROVAL = "approval"
    BUDGET = "budget"


class Pending(Struct, frozen=True, kw_only=True):
    """One thing a paused run waits for; ``call_id`` names the tool call that asked, if one did."""

    kind: PendingKind
    prompt: str
    call_id: str | None = None
    tool_name: str | None = None
    details: Mapping[str, Any] = {}
