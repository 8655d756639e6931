"""Tools: making them from functions, validating calls, running them, and what they can reach."""

from stepwell.tools.context import ToolContext
from stepwell.tools.executor import ToolBatch, ToolExecutor
from stepwell.tools.function_tool import BaseTool, FunctionTool, tool
from stepwell.tools.ledger import CallLedger, LedgerEntry
from stepwell.tools.llm_query import LlmQueryTool
from stepwell.tools.registry import ToolLike, Tools, as_tool
from stepwell.tools.tool import (
    InputRequired,
    Tool,
    ToolEffect,
    ToolFailure,
    ToolOutput,
    WhenUnknown,
)

__all__ = [
    "BaseTool",
    "CallLedger",
    "FunctionTool",
    "InputRequired",
    "LedgerEntry",
    "LlmQueryTool",
    "Tool",
    "ToolBatch",
    "ToolContext",
    "ToolEffect",
    "ToolExecutor",
    "ToolFailure",
    "ToolLike",
    "ToolOutput",
    "Tools",
    "WhenUnknown",
    "as_tool",
    "tool",
]
