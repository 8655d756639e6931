"""How a step is taken: asking a model and running the tools it calls."""

from stepwell.drivers.driver import BindableDriver, Driver
from stepwell.drivers.react import ReActDriver
from stepwell.drivers.tool_calling import ToolCallingDriver, is_wrapping_up

__all__ = ["BindableDriver", "Driver", "ReActDriver", "ToolCallingDriver", "is_wrapping_up"]
