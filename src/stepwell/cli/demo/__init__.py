"""``stepwell demo``: shows an agent at work, or goes through all of it without a browser."""

from stepwell.cli.demo.showing import command

__all__ = ["command"]
