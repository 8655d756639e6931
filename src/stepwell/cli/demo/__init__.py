"""``stepwell demo``: shows an agent at work, or goes through all of it without a browser."""

from stepwell.cli.demo.demo_command import command

__all__ = ["command"]
