"""The tools of an agent by name; lazily built ones are built once, when first needed."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from types import FunctionType
from typing import Any

from stepwell.errors import ConfigurationError, InvalidToolArgumentsError, ToolNotFoundError
from stepwell.messages import ToolCall
from stepwell.models import ToolSchema
from stepwell.run_context import RunContext
from stepwell.tools.context import ContextNeeds
from stepwell.tools.function_tool import FunctionTool
from stepwell.tools.secret_arguments import Scrubber, declared_fields, hidden, secret_arguments
from stepwell.tools.tool import Tool

ToolLike = Tool | Callable[..., Any]


class Tools:
    """An immutable set of tools, from a list or from one tool alone. Plain functions become tools;
    two of one name are an error.

    >>> def ping() -> str:
    ...     "Answer."
    ...     return "pong"
    >>> Tools([ping]).names
    ('ping',)
    """

    def __init__(
        self,
        tools: "Iterable[ToolLike | Tools] | Tools | ToolLike" = (),
        *,
        lazy: Mapping[str, Callable[[], ToolLike]] | None = None,
    ) -> None:
        self._tools: dict[str, Tool | None] = {}
        self._factories: dict[str, Callable[[], ToolLike]] = {}
        for candidate in listed_tools(tools):
            if isinstance(candidate, Tools):
                for name, known in candidate._tools.items():
                    self._add(name, known, candidate._factories.get(name))
            else:
                tool = as_tool(candidate)
                self._add(tool.schema.name, tool, None)
        for name, factory in (lazy or {}).items():
            self._add(name, None, factory)
        self._secret: dict[str, frozenset[str]] = {}

    def _add(self, name: str, tool: Tool | None, factory: Callable[[], ToolLike] | None) -> None:
        if name in self._tools:
            raise ConfigurationError(
                f"two tools are called {name!r}: give a capability or a tool only once, rename one "
                "with FunctionTool(fn, name=...), or tell MCP servers apart with "
                "UseMcp(server, prefix=...)"
            )
        self._tools[name] = tool
        if factory is not None:
            self._factories[name] = factory

    @property
    def names(self) -> tuple[str, ...]:
        """Names of built and lazy tools, in order of registration."""
        return tuple(self._tools)

    @cached_property
    def schemas(self) -> tuple[ToolSchema, ...]:
        """Return the schemas that the model sees; builds the lazy tools."""
        return tuple(self.get(name).schema for name in self.names)

    def find(self, name: str) -> Tool | None:
        """The tool of that name, or None."""
        tool = self._tools.get(name)
        if tool is None and name in self._factories:
            tool = self._tools[name] = self._build(name)
        return tool

    def _build(self, name: str) -> Tool:
        tool = as_tool(self._factories[name]())
        if tool.schema.name != name:
            raise ConfigurationError(
                f"the lazy tool {name!r} calls itself {tool.schema.name!r}; give both one name"
            )
        return tool

    def get(self, name: str) -> Tool:
        """The tool of that name; raises ``ToolNotFoundError``."""
        tool = self.find(name)
        if tool is None:
            raise ToolNotFoundError(name, self.names)
        return tool

    def visible_to(self, context: RunContext[Any]) -> "Tools":
        """The tools that a run may use: those without ``visible``, and those whose ``visible`` says
        yes to its context. The others are to the model as if they did not exist."""
        hidden_now = [name for name, is_visible in self._conditions if not is_visible(context)]
        if not hidden_now:
            return self
        seen = Tools()
        for name, tool in self._tools.items():
            if name not in hidden_now:
                seen._add(name, tool, self._factories.get(name))
        return seen

    @cached_property
    def _conditions(self) -> tuple[tuple[str, Callable[[RunContext[Any]], bool]], ...]:
        asked: list[tuple[str, Any]] = [
            (name, getattr(tool, "visible", None)) for name, tool in self._tools.items()
        ]
        return tuple([(name, condition) for name, condition in asked if condition is not None])

    def check_context(self, context: RunContext[Any]) -> None:
        """Raise ``ConfigurationError`` if a tool asks for something that the run does not have."""
        for name, needs in self._needs:
            needs.check(name, context)

    @property
    def needing_deps(self) -> tuple[str, ...]:
        """The tools that take a ``ToolContext[Deps]``."""
        return tuple([name for name, needs in self._needs if needs.deps is not None])

    @cached_property
    def _needs(self) -> tuple[tuple[str, ContextNeeds], ...]:
        asked = ((name, getattr(tool, "needs", None)) for name, tool in self._tools.items())
        return tuple(
            (name, needs)
            for name, needs in asked
            if isinstance(needs, ContextNeeds) and needs != ContextNeeds()
        )

    def repetition_counts(self, name: str) -> bool:
        """Whether calls of that tool with the same arguments are worth a word: it has effects, and
        its arguments can be compared."""
        tool = self.find(name)
        is_external = tool is not None and tool.effect == "external"
        return is_external and not (self.have_secrets and self.secret_arguments(name))

    def validated_arguments(self, call: ToolCall) -> dict[str, Any]:
        """The arguments of a call as its tool uses them: of their types, with the defaults of its
        schema filled in. Raises what keeps the call from running."""
        tool = self.get(call.name)
        if call.malformed is not None:
            raise InvalidToolArgumentsError(f"the arguments of {call.name!r} are not an object")
        arguments = tool.validate(call.arguments)
        known: Mapping[str, Any] = tool.schema.parameters.get("properties") or {}
        defaults = {name: it["default"] for name, it in known.items() if "default" in it}
        left_out = {name: it for name, it in defaults.items() if name not in arguments}
        if not left_out:
            return arguments
        try:
            return left_out | tool.validate({**call.arguments, **left_out})
        except InvalidToolArgumentsError:  # a default may be of another type, such as None
            return left_out | arguments

    def secret_arguments(self, name: str) -> frozenset[str]:
        """The arguments of that tool that are given to it and never kept."""
        known = self._secret.get(name)
        if known is None:
            tool = self.find(name)
            known = frozenset[str]() if tool is None else secret_arguments(tool.schema.parameters)
            self._secret[name] = known
        return known

    @cached_property
    def have_secrets(self) -> bool:
        """Whether any tool has arguments that are never kept; builds the lazy ones."""
        return bool(self._all_secret)

    @cached_property
    def _all_secret(self) -> frozenset[str]:
        return frozenset[str]().union(*(self.secret_arguments(name) for name in self.names))

    def secrets_of(self, call: ToolCall) -> frozenset[str]:
        """The arguments of a call that are never kept.

        Where a tool has secrets, also those that it does not know: a name may be misspelt. Of a
        tool that does not exist, those that are secret to any.
        """
        secret = self._secret.get(call.name)
        if secret is None:
            if call.name not in self._tools:
                return self._all_secret
            secret = self.secret_arguments(call.name)
        if not secret:
            return secret
        known: Mapping[str, Any] = self.get(call.name).schema.parameters.get("properties") or {}
        return secret.union(name for name in call.arguments if name not in known)

    def open_arguments(self, name: str) -> tuple[str, ...]:
        """The arguments of a tool that are not secret."""
        tool = self.find(name)
        if tool is None:
            return ()
        known: Mapping[str, Any] = tool.schema.parameters.get("properties") or {}
        return tuple(sorted(set(known) - self.secret_arguments(name)))

    def redact_call(self, call: ToolCall) -> ToolCall:
        """The call as it may be kept and shown: without its secret arguments."""
        secret = self.secrets_of(call)
        return hidden(call, secret, self.secret_fields(call)) if secret else call

    def scrubber_for(self, call: ToolCall) -> Scrubber | None:
        """What removes the secret arguments of a call from texts and results; None if it has
        none."""
        secret = self.secrets_of(call)
        return Scrubber.for_call(call, secret, self.secret_fields(call)) if secret else None

    def secret_fields(self, call: ToolCall) -> frozenset[str]:
        """The field names that the schema of the called tool declares: known words, no secrets. Of
        a tool that does not exist, those of all tools; none if the call has no secrets."""
        if not self.secrets_of(call):
            return frozenset()
        names = (call.name,) if call.name in self._tools else self.names
        return frozenset[str]().union(
            *(declared_fields(self.get(name).schema.parameters) for name in names)
        )

    def __iter__(self) -> Iterator[Tool]:
        return (self.get(name) for name in self.names)

    def __len__(self) -> int:
        return len(self.names)

    def __contains__(self, name: object) -> bool:
        return name in self._tools


def listed_tools(
    tools: "Iterable[ToolLike | Tools] | Tools | ToolLike",
) -> tuple[ToolLike | Tools, ...]:
    """Tools given as a list, as ``Tools``, or alone."""
    if isinstance(tools, str):
        raise ConfigurationError(f"{tools!r} is the name of a tool; give the function itself")
    if isinstance(tools, Tools) or callable(tools) or not isinstance(tools, Iterable):
        return (tools,)
    return tuple(tools)


def as_tool(candidate: ToolLike) -> Tool:
    """A tool as it is; a plain function as a ``FunctionTool``."""
    if type(candidate) is FunctionType:  # asking a protocol takes much longer
        return FunctionTool(candidate)
    if isinstance(candidate, FunctionTool | Tool):
        return candidate
    if callable(getattr(candidate, "configure", None)):
        raise ConfigurationError(
            f"{type(candidate).__name__} is a capability; give it in capabilities=[...]"
        )
    if isinstance(candidate, type):
        raise ConfigurationError(
            f"{candidate.__name__} is a class; give an instance, for example {candidate.__name__}()"
        )
    return FunctionTool(candidate)


def problem_with(call: ToolCall, tools: Tools) -> Exception:
    """What is wrong with a call that names no tool, or whose arguments are no JSON object."""
    if call.name not in tools:
        return ToolNotFoundError(call.name, tools.names)
    return InvalidToolArgumentsError(
        f"The arguments of tool {call.name!r} are not a JSON object: "
        f"{tools.redact_call(call).malformed:.200}"
    )
