"""Shell commands, confined by a sandbox: ``UseBash``, its tool and its policy."""

from stepwell.capabilities.bash.policy import BashPolicy
from stepwell.capabilities.bash.tool import BashTool, UseBash

__all__ = ["BashPolicy", "BashTool", "UseBash"]
