"""Where a session or message comes from: a domain object and a page, checked by a resolver.

The application says which types of objects there are and who may see them; without a resolver no
object can be named. Called by ``intake`` before it opens a transaction.
"""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from stepwell.errors import ConfigurationError
from stepwell.sessions.errors import RefusedError
from stepwell.sessions.principal import Principal

MAX_URL_CHARACTERS = 2000
MAX_NAME_CHARACTERS = 200


class Context(Struct, frozen=True, kw_only=True):
    """The object and the page that somebody looked at; informational, it limits no agent."""

    related_type: str | None = None
    related_id: str | None = None
    context_url: str | None = None

    @property
    def is_empty(self) -> bool:
        """Whether it says nothing."""
        return self == NO_CONTEXT


NO_CONTEXT = Context()


class ContextResolver(Protocol):
    """Says whether somebody may name an object, and how its page is called."""

    async def resolve(self, who: Principal, context: Context, /) -> Context:
        """The context as it is kept; raises ``RefusedError``."""
        ...


ContextCheck = Callable[[Principal, str], bool | str | Awaitable[bool | str]]
"""Whether that person may name the object with that id; or its address, which says yes as well."""


class AllowedContexts:
    """A resolver over a list of types, each with a check of its own.

    >>> contexts = AllowedContexts({"invoice": lambda who, id: f"/invoices/{id}"})
    """

    def __init__(self, checks: Mapping[str, ContextCheck]) -> None:
        for name, check in checks.items():
            if not callable(check):
                raise ConfigurationError(
                    f"AllowedContexts: the check of {name!r} is {check!r:.60}; give a function of "
                    "(who, related_id) that returns True, False or the address of the object"
                )
        self._checks = dict(checks)

    async def resolve(self, who: Principal, context: Context, /) -> Context:
        """The context, with the address that its check knows."""
        if context.related_type is None or context.related_id is None:
            return context
        check = self._checks.get(context.related_type)
        if check is None:
            known = ", ".join(sorted(self._checks)) or "(none)"
            raise RefusedError(
                f"related_type {context.related_type!r} is not known; allowed: {known}",
                code="unknown_related_type",
            )
        verdict: object = check(who, context.related_id)
        if inspect.isawaitable(verdict):
            verdict = await verdict
        if verdict is True:
            return context
        if isinstance(verdict, str) and verdict:
            _check_url(verdict)
            return replace(context, context_url=verdict)
        # Everything else says no, also a check that forgot to return something.
        raise RefusedError(
            f"there is no {context.related_type} {context.related_id!r} that you may use",
            code="context_refused",
        )


async def resolve_context(
    who: Principal, context: Context, resolver: ContextResolver | None
) -> Context:
    """The context as it may be kept; raises ``RefusedError``."""
    if context.is_empty:
        return context
    _check_names(context)
    if context.context_url is not None:
        _check_url(context.context_url)
    if resolver is not None:
        return await resolver.resolve(who, context)
    if context.related_type is not None:
        raise RefusedError(
            f"related_type {context.related_type!r} is not known: this application names no types; "
            "give it a context resolver, such as AllowedContexts",
            code="unknown_related_type",
        )
    return context


def _check_names(context: Context) -> None:
    if (context.related_type is None) != (context.related_id is None):
        raise RefusedError(
            "related_type and related_id belong together; give both or neither", code="bad_context"
        )
    for field in ("related_type", "related_id"):
        value: str | None = getattr(context, field)
        if value is None:
            continue
        if not value or len(value) > MAX_NAME_CHARACTERS or not value.isprintable():
            raise RefusedError(
                f"{field} is {value!r:.60}; it must be 1 to {MAX_NAME_CHARACTERS} printable "
                "characters",
                code="bad_context",
            )


def _check_url(url: str) -> None:
    """Something that a page may link to: no scripts, and no host in disguise."""
    if len(url) > MAX_URL_CHARACTERS:
        raise RefusedError(
            f"context_url has {len(url)} characters; {MAX_URL_CHARACTERS} are allowed",
            code="bad_context_url",
        )
    try:
        parts = urlsplit(url)
    except ValueError:
        parts = None
    is_clean = bool(url) and url.isprintable() and not any(c in url for c in ' \\"<>')
    is_web = parts is not None and parts.scheme in ("http", "https") and bool(parts.netloc)
    is_path = parts is not None and not parts.scheme and not url.startswith("//")
    if not is_clean or not (is_web or is_path):
        raise RefusedError(
            f"context_url is {url!r:.80}; it must be a path such as /orders/7, or begin with "
            "https:// or http://, without spaces",
            code="bad_context_url",
        )
