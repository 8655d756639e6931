"""Checks of what adapters and composites are given, at construction."""

from typing import cast

from stepwell.errors import ConfigurationError

_LONGEST = 80


def refuse_what_cannot_broadcast(owner: str, given: object) -> None:
    """Raise ``ConfigurationError`` if it has no method ``broadcast(channel, envelope)``."""
    if isinstance(given, type):
        name = given.__name__
        raise ConfigurationError(
            f"{owner} was given the class {name}; give an object of it: {name}(...)"
        )
    if callable(getattr(given, "broadcast", None)):
        return
    if isinstance(given, list | tuple | set | frozenset):
        advice = "for several broadcasters write CompositeBroadcaster(first, second)"
        named = f"a {type(cast(object, given)).__name__}"
    else:
        advice = (
            "give a broadcaster, such as ConsoleBroadcaster(), or an object with a method "
            "broadcast(channel, envelope)"
        )
        named = f"{given!r:.{_LONGEST}}"
    raise ConfigurationError(f"{owner} was given {named}, which is not a broadcaster; {advice}")


def check_number(owner: str, name: str, given: object) -> int:
    """Return a whole number of zero or more."""
    if not isinstance(given, int) or isinstance(given, bool) or given < 0:
        raise ConfigurationError(
            f"{owner}: {name} is {given!r:.{_LONGEST}}; give a whole number, such as {name}=1"
        )
    return given


def check_text(owner: str, name: str, given: object) -> str:
    """Return a text that is not empty."""
    if not isinstance(given, str) or not given:
        raise ConfigurationError(
            f"{owner}: {name} is {given!r:.{_LONGEST}}; give a text that is not empty, such as "
            f'{name}="42"'
        )
    return given
