"""The page's libraries are those of the packages that package.json names, with their licences."""

import pytest

from tests.servers.node import why_missing
from tests.servers.vendor_page import PACKAGES, SOURCES, VENDOR, vendored

MOST_BYTES = 100_000


def test_what_is_vendored_is_what_the_packages_have() -> None:
    missing = why_missing(PACKAGES / SOURCES["preact.js"])
    if missing is not None:
        pytest.skip(missing)
    there = {path.name: path.read_text(encoding="utf-8") for path in VENDOR.iterdir()}
    assert there == vendored(), "run tests/servers/vendor_page.py"


def test_the_libraries_are_small() -> None:
    assert sum(path.stat().st_size for path in VENDOR.glob("*.js")) < MOST_BYTES
