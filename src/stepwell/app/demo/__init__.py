"""The demo: an agent that needs no key, in a workspace of its own."""

from stepwell.app.demo.agent import EXAMPLES, DemoAgent
from stepwell.app.demo.workspace import Workspace

__all__ = ["EXAMPLES", "DemoAgent", "Workspace"]
