"""For the API reference: names that ``stepwell`` loads when they are first used, doctests as code.

Griffe reads the code without running it, and leaves names that are only imported for type checkers
out of ``from stepwell.public import *``.
"""

import re
from typing import Any

import griffe

_DOCTEST = re.compile(r"^( *)>>> .*(?:\n(?! *$).*)*", re.MULTILINE)


def _fenced(found: re.Match[str]) -> str:
    """The lines of one doctest, as a block of code."""
    margin = found[1]
    return f"{margin}```pycon\n{found[0]}\n{margin}```"


class StepwellReference(griffe.Extension):
    """Makes every name of ``stepwell.public`` a name of ``stepwell``, and fences doctests."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Called when a package is read."""
        if pkg.path != "stepwell":
            return
        public = pkg["public"]
        for name in map(str, public.exports or ()):
            if name not in pkg.members:
                pkg.set_member(name, griffe.Alias(name, public[name].target_path))

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called for every module, class, function and attribute."""
        if obj.docstring is not None:
            obj.docstring.value = _DOCTEST.sub(_fenced, obj.docstring.value)
