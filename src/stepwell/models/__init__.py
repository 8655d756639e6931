"""One provider turn: requests, responses, stream parts, the model protocol, presets."""

from stepwell.models.model import Model
from stepwell.models.presets import ModelPresets
from stepwell.models.request import CachedContext, ModelRequest, ToolSchema
from stepwell.models.response import (
    ModelResponse,
    ResponseEnd,
    StreamPart,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
)

__all__ = [
    "CachedContext",
    "Model",
    "ModelPresets",
    "ModelRequest",
    "ModelResponse",
    "ResponseEnd",
    "StreamPart",
    "TextDelta",
    "ThinkingDelta",
    "ToolCallDelta",
    "ToolSchema",
]
