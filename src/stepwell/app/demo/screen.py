"""Whether a browser window can be opened where this runs."""

import os
import sys
from collections.abc import Mapping


def has_screen(
    environment: Mapping[str, str] | None = None, *, platform: str = sys.platform
) -> bool:
    """Whether there is a desktop; without one ``webbrowser`` starts a browser in the terminal.

    >>> has_screen({}, platform="linux"), has_screen({"DISPLAY": ":0"}, platform="linux")
    (False, True)
    """
    if platform in ("darwin", "win32"):
        return True
    variables = os.environ if environment is None else environment
    return any(variables.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
