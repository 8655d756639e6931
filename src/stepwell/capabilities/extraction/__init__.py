"""Structured outputs: the tool ``extract_data`` turns text into data that fits a known schema."""

from stepwell.capabilities.extraction.capability import UseStructuredOutputs
from stepwell.capabilities.extraction.schemas import (
    SchemaDefinition,
    SchemaRegistry,
    StructuredOutputPolicy,
)
from stepwell.capabilities.extraction.tool import StructuredOutputTool

__all__ = [
    "SchemaDefinition",
    "SchemaRegistry",
    "StructuredOutputPolicy",
    "StructuredOutputTool",
    "UseStructuredOutputs",
]
