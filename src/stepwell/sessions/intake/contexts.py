"""The context of a session or message: an object of the application and a page.

The application's resolver says which types of objects exist and who may use them; without a
resolver no object can be named. Called by ``intake`` before its transaction.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Protocol
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from stepwell.errors import ConfigurationError
from stepwell.run_context import RelatedObject
from stepwell.sessions.errors import RefusedError
from stepwell.sessions.principal import Principal

MAX_URL_CHARACTERS = 2000
MAX_NAME_CHARACTERS = 200


class Context(Struct, frozen=True, kw_only=True):
    """The object and the page that a user looked at. Informational: it does not limit an agent."""

    related_type: str | None = None
    related_id: str | None = None
    context_url: str | None = None

    @property
    def is_empty(self) -> bool:
        """Whether all fields are empty."""
        return self == NO_CONTEXT


NO_CONTEXT = Context()


class ResolvedContext(Context, frozen=True, kw_only=True):
    """A context with what the resolver knows of the object, for tools and prompts; never stored."""

    data: Any = None


class ContextResolver(Protocol):
    """Decides whether a principal may name an object, and returns the URL of its page."""

    async def resolve(self, who: Principal, context: Context, /) -> Context:
        """Return the context as it is kept, or a ``ResolvedContext``. Called when a message is
        sent, and again when it is answered. Raises ``RefusedError``."""
        ...


ContextCheck = Callable[[Principal, str], Any]
"""Whether that person may name the object with that id. True and False say so; an address says yes
and names the page of the object; a ``RelatedObject`` says yes and gives tools and prompts its
``data``. May be async."""


class AllowedContexts:
    """A resolver for a list of types, each with its own check.

    >>> contexts = AllowedContexts({"invoice": lambda who, id: f"/invoices/{id}"})
    """

    def __init__(self, checks: Mapping[str, ContextCheck]) -> None:
        for name, check in checks.items():
            if not callable(check):
                raise ConfigurationError(
                    f"AllowedContexts: the check of {name!r} is {check!r:.60}; give a function of "
                    "(who, related_id) that returns True, False, the object's address, or a "
                    "RelatedObject with its data"
                )
        self._checks = dict(checks)

    async def resolve(self, who: Principal, context: Context, /) -> Context:
        """Return the context with the address that its check returns."""
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
        if isinstance(verdict, RelatedObject):
            if verdict.url is not None:
                _check_url(verdict.url)
            return ResolvedContext(
                related_type=context.related_type,
                related_id=context.related_id,
                context_url=verdict.url or context.context_url,
                data=verdict.data,
            )
        # Everything else denies, including a check that returns nothing.
        raise RefusedError(
            f"there is no {context.related_type} {context.related_id!r} that you may use",
            code="context_refused",
        )


async def resolve_context(
    who: Principal, context: Context, resolver: ContextResolver | None
) -> Context:
    """Return the context to store. Raises ``RefusedError``."""
    if context.is_empty:
        return context
    _check_names(context)
    if context.context_url is not None:
        _check_url(context.context_url)
    if resolver is not None:
        return await resolver.resolve(who, context)
    named = "context_url" if context.related_type is None else "related_type"
    raise RefusedError(
        f"{named} {getattr(context, named)!r:.80} can't be checked: this application has no "
        "context resolver; give it one, such as AgentApp(contexts=AllowedContexts(...))",
        code="unknown_related_type" if named == "related_type" else "no_context_resolver",
    )


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
    """Raise ``RefusedError`` unless a page may link to it: no scripts, no disguised host."""
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
