"""Opens the context of a run: the stored principal, the session, the related object, and the deps
that the application makes for it. Called by the runner, once per attempt."""

import asyncio
import inspect
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from msgspec.structs import replace

from stepwell.run_context import Principal, RelatedObject, RunContext, SessionInfo
from stepwell.sessions.errors import RefusedError
from stepwell.sessions.intake.contexts import Context, ContextResolver, ResolvedContext
from stepwell.sessions.principal import principal_of
from stepwell.sessions.records import Execution, Session, SessionMessage

logger = logging.getLogger("stepwell.sessions")

MakeDeps = Callable[[RunContext[Any]], Any]
"""The application's ``deps=``: a function of the context that returns the deps of one execution, an
awaitable of them, or an async context manager that closes them."""

OPEN_SECONDS = 30.0
"""How long the application may take to resolve the related object and to make the deps."""
CLOSE_SECONDS = 10.0
"""How long closing the deps may take before it is abandoned."""


class RunContexts:
    """Opens contexts with what the application gave to the process."""

    def __init__(
        self,
        *,
        resolver: ContextResolver | None = None,
        make_deps: MakeDeps | None = None,
        resources: Any = None,
    ) -> None:
        self._resolver = resolver
        self._make_deps = make_deps
        self._resources = resources

    @asynccontextmanager
    async def open(
        self, execution: Execution, session: Session | None, sent: Sequence[SessionMessage]
    ) -> AsyncGenerator[RunContext[Any]]:
        """The context of one attempt; the deps are closed at the end of the block."""
        context = RunContext[Any](
            principal=principal_of(execution),
            session=None if session is None else _session_info(session),
            resources=self._resources,
            deps=self._resources,
        )
        stack = AsyncExitStack()
        try:
            async with asyncio.timeout(OPEN_SECONDS):
                related = await self._resolve_related(context.principal, session, sent)
                context = replace(context, related=related)
                if self._make_deps is not None:
                    deps = await self._enter(self._make_deps(context), stack)
                    context = replace(context, deps=deps)
            yield context
        finally:
            await _close(stack, execution)

    async def _enter(self, made: Any, stack: AsyncExitStack) -> Any:
        if inspect.isawaitable(made):
            made = await made
        if hasattr(made, "__aenter__"):
            return await stack.enter_async_context(made)
        return stack.enter_context(made) if hasattr(made, "__enter__") else made

    async def _resolve_related(
        self,
        principal: Principal | None,
        session: Session | None,
        sent: Sequence[SessionMessage],
    ) -> RelatedObject | None:
        """What the newest message is about, else what the session is about."""
        named = _named_context(session, sent)
        if named is None or self._resolver is None or principal is None:
            return None
        try:
            resolved = await self._resolver.resolve(principal, named)
        except RefusedError as error:
            # The object may be gone, or the person may have lost the right to see it.
            logger.warning("the run goes on without its related object: %s", error)
            return None
        return RelatedObject(
            type=resolved.related_type,
            id=resolved.related_id,
            url=resolved.context_url,
            data=resolved.data if isinstance(resolved, ResolvedContext) else None,
        )


def _session_info(session: Session) -> SessionInfo:
    return SessionInfo(id=session.id, title=session.title, metadata=session.metadata)


def _named_context(session: Session | None, sent: Sequence[SessionMessage]) -> Context | None:
    for message in reversed(sent):
        if message.related_type is not None or message.context_url is not None:
            return Context(
                related_type=message.related_type,
                related_id=message.related_id,
                context_url=message.context_url,
            )
    if session is None:
        return None
    context = Context(
        related_type=session.related_type,
        related_id=session.related_id,
        context_url=session.initial_context_url,
    )
    return None if context.is_empty else context


async def _close(stack: AsyncExitStack, execution: Execution) -> None:
    """Close the deps. What they raise is logged: how the execution ended is stored already."""
    try:
        async with asyncio.timeout(CLOSE_SECONDS):
            await stack.aclose()
    except Exception:
        logger.exception("closing the deps of execution %s failed", execution.id)
