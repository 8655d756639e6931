"""One provider turn: requests, responses, stream parts, the model protocol, providers, presets."""

from stepwell.models.fallback import FallbackModel
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
    ToolCallEnd,
    ToolCallStart,
    UsageReport,
)
from stepwell.models.retry import RetryingModel
from stepwell.models.settings import ModelSettings, ResponseFormat, ThinkingEffort

__all__ = [
    "CachedContext",
    "FallbackModel",
    "Model",
    "ModelPresets",
    "ModelRequest",
    "ModelResponse",
    "ModelSettings",
    "ResponseEnd",
    "ResponseFormat",
    "RetryingModel",
    "StreamPart",
    "TextDelta",
    "ThinkingDelta",
    "ThinkingEffort",
    "ToolCallDelta",
    "ToolCallEnd",
    "ToolCallStart",
    "ToolSchema",
    "UsageReport",
]
