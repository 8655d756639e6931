"""Tools from plain functions, by decorator, and from classes."""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from math import inf
from typing import Any, overload

from stepwell.errors import InvalidToolError
from stepwell.models import ToolSchema
from stepwell.run_context import RunContext
from stepwell.tools.context import ToolContext
from stepwell.tools.docstrings import describe_function
from stepwell.tools.result_text import RESULT_LIMIT_RULE, is_result_limit
from stepwell.tools.schema import Signature, required_name
from stepwell.tools.threads import in_thread
from stepwell.tools.tool import ToolEffect, WhenUnknown

VisibleTo = Callable[[RunContext[Any]], bool]


class FunctionTool:
    """A function as a tool. Its type hints and docstring make the schema.

    Sync functions run in a thread. A parameter annotated ``ToolContext`` or ``Principal`` is filled
    in and hidden from the model.

    >>> def add(a: int, b: int) -> int:
    ...     "Add two numbers."
    ...     return a + b
    >>> FunctionTool(add).schema.parameters["required"]
    ['a', 'b']
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        description: str | None = None,
        effect: ToolEffect | str = ToolEffect.EXTERNAL,
        timeout: float | None = None,
        parallel: bool = True,
        max_result_characters: int | None = None,
        visible: VisibleTo | None = None,
        when_unknown: WhenUnknown | str | None = None,
    ) -> None:
        if not callable(function):
            raise InvalidToolError(f"{function!r} is not callable, so it cannot be a tool")
        named = _unwrap(function)
        if inspect.isasyncgenfunction(named):
            raise InvalidToolError(
                f"tool {getattr(named, '__name__', named)!r} yields; return the whole result, and "
                "tell how far it is with context.progress(...)"
            )
        words = describe_function(named)
        tool_name = required_name(name, getattr(named, "__name__", type(named).__name__))
        if timeout is not None and (not isinstance(timeout, int | float) or not 0 < timeout < inf):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidToolError(f"the timeout of tool {tool_name!r} must be above 0 seconds")
        if effect not in tuple(ToolEffect):
            raise InvalidToolError(
                f"unknown effect {effect!r} of tool {tool_name!r}; known: {', '.join(ToolEffect)}"
            )
        if visible is not None and not callable(visible):
            raise InvalidToolError(
                f"visible of tool {tool_name!r} is {visible!r:.60}; give a function of the run's "
                "context that returns True or False"
            )
        if when_unknown not in (None, *WhenUnknown):
            raise InvalidToolError(
                f"when_unknown of tool {tool_name!r} is {when_unknown!r:.60}; known: "
                f"{', '.join(WhenUnknown)}"
            )
        self.when_unknown = None if when_unknown is None else WhenUnknown(when_unknown)
        """Who decides about a call whose outcome a crash left unknown; None for the server's
        setting."""
        self.visible = visible
        """Whether a run sees the tool, by its context; None for every run."""
        self.function = function
        self.effect = ToolEffect(effect)
        self.timeout = timeout
        self.parallel = parallel
        if max_result_characters is not None and not is_result_limit(max_result_characters):
            raise InvalidToolError(
                f"tool {tool_name!r}: {RESULT_LIMIT_RULE}, got {max_result_characters!r}"
            )
        self.max_result_characters = max_result_characters
        """Longer results are cut, with a note; None for the agent's limit."""
        self._signature = Signature(function, tool_name, words)
        self.needs = self._signature.needs
        self._is_async = _is_async(function)
        self.schema = ToolSchema(
            name=tool_name,
            description=description if description is not None else words.summary,
            parameters=self._signature.parameters,
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function itself, as in its own unit tests."""
        return self.function(*args, **kwargs)

    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments with their types; raises ``InvalidToolArgumentsError``."""
        return self._signature.validate(arguments)

    def invoke(self, arguments: dict[str, Any], context: ToolContext) -> Awaitable[Any]:
        """Call an async function, or run a sync one in a thread."""
        signature = self._signature
        if signature.context_parameters:
            arguments = arguments | dict.fromkeys(signature.context_parameters, context)
        if signature.principal_parameters:
            arguments = arguments | dict.fromkeys(signature.principal_parameters, context.principal)
        if self._is_async:
            return self.function(**arguments)
        return _result_of(self.function, arguments)


class BaseTool(FunctionTool):
    """A tool as a class: write ``__call__`` with type hints, and give it a name.

    >>> class Greet(BaseTool):
    ...     name = "greet"
    ...     description = "Says hello."
    ...
    ...     def __call__(self, who: str) -> str:
    ...         return f"Hello {who}"
    >>> Greet().schema.name
    'greet'
    """

    name: str = ""
    description: str = ""
    effect: ToolEffect | str = ToolEffect.EXTERNAL
    timeout: float | None = None
    parallel: bool = True
    max_result_characters: int | None = None
    visible: VisibleTo | None = None
    when_unknown: WhenUnknown | str | None = None

    def __init__(
        self,
        *,
        name: str | None = None,
        description: str | None = None,
        effect: ToolEffect | str | None = None,
        timeout: float | None = None,
        parallel: bool | None = None,
        max_result_characters: int | None = None,
    ) -> None:
        own = type(self)
        if own.__call__ is FunctionTool.__call__:
            raise InvalidToolError(
                f"{own.__name__} has no __call__ method; write what the tool does as "
                "`def __call__(self, argument: str) -> str`"
            )
        about = description or own.description or describe_function(own.__call__).summary
        super().__init__(
            self.__call__,
            name=name or own.name or own.__name__,
            description=about or inspect.cleandoc(own.__doc__ or ""),
            effect=own.effect if effect is None else effect,
            timeout=own.timeout if timeout is None else timeout,
            parallel=own.parallel if parallel is None else parallel,
            max_result_characters=max_result_characters or own.max_result_characters,
            visible=self.visible,
            when_unknown=own.when_unknown,
        )


@overload
def tool(function: Callable[..., Any]) -> FunctionTool: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    effect: ToolEffect | str = ToolEffect.EXTERNAL,
    timeout: float | None = None,
    parallel: bool = True,
    max_result_characters: int | None = None,
    visible: VisibleTo | None = None,
    when_unknown: WhenUnknown | str | None = None,
) -> Callable[[Callable[..., Any]], FunctionTool]: ...
def tool(
    function: Callable[..., Any] | None = None, **options: Any
) -> FunctionTool | Callable[[Callable[..., Any]], FunctionTool]:
    """Make a function a tool, with or without options.

    >>> @tool(effect="pure", timeout=5)
    ... def square(x: float) -> float:
    ...     "Square a number."
    ...     return x * x
    >>> square(3.0), square.effect
    (9.0, <ToolEffect.PURE: 'pure'>)
    """
    if function is not None:
        return FunctionTool(function, **options)

    def decorate(decorated: Callable[..., Any]) -> FunctionTool:
        return FunctionTool(decorated, **options)

    return decorate


async def _result_of(function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    result = await in_thread(function, arguments)
    return await result if inspect.isawaitable(result) else result


def _unwrap(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function inside a partial, which has the name and the docstring."""
    return _unwrap(function.func) if isinstance(function, partial) else function


def _is_async(function: Callable[..., Any]) -> bool:
    named = _unwrap(function)
    return inspect.iscoroutinefunction(named) or inspect.iscoroutinefunction(
        getattr(named, "__call__", None)  # noqa: B004 - an object with an async __call__
    )
