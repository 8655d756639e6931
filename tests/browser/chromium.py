"""Where Chromium is, and how it is started; ./dev installs it where it may."""

import os
import shutil

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
NAMES = ("chromium", "chromium-browser", "google-chrome")


def found_chromium() -> str | None:
    """The one that STEPWELL_CHROMIUM names, or the first on the PATH."""
    given = os.environ.get("STEPWELL_CHROMIUM")  # noqa: TID251 - the one door for tests
    if given:
        return shutil.which(given)
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def why_missing() -> str | None:
    """Why no browser can be had, in words; None when it can."""
    if found_chromium() is None:
        return (
            "no Chromium: `./dev test` installs Debian's where it may (as root, with apt-get); "
            "otherwise install it, or set STEPWELL_CHROMIUM to its path"
        )
    return None
