"""Tools: making them from functions, validating calls, running them, and what they can reach."""

from stepwell.tools.context import ToolContext
from stepwell.tools.executor import ToolBatch, ToolExecutor
from stepwell.tools.function_tool import BaseTool, FunctionTool, tool
from stepwell.tools.llm_query import LlmQueryTool
from stepwell.tools.registry import ToolLike, Tools, as_tool
from stepwell.tools.tool import InputRequired, Tool, ToolEffect, ToolFailure, ToolOutput

__all__ = [
    "BaseTool",
    "FunctionTool",
    "InputRequired",
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
    "as_tool",
    "tool",
]
