"""Structured outputs: the ``extract_data`` tool turns text into data that fits a schema."""

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
