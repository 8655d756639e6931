"""A tool that returns a fixed value or calls a handler, and remembers its calls."""

from collections.abc import Callable, Mapping
from inspect import isawaitable
from typing import Any

from stepwell.models import ToolSchema
from stepwell.tools import ToolContext, ToolEffect


class MockTool:
    """A tool for tests. It takes any arguments unless ``parameters`` says otherwise.

    >>> tool = MockTool.returning("get_weather", {"temp": 72})
    >>> tool.schema.name, tool.calls
    ('get_weather', [])
    """

    def __init__(
        self,
        name: str,
        handler: Callable[..., Any],
        *,
        description: str = "",
        parameters: Mapping[str, Any] | None = None,
        effect: ToolEffect | str = ToolEffect.EXTERNAL,
        timeout: float | None = None,
        parallel: bool = True,
    ) -> None:
        self.schema = ToolSchema(
            name=name,
            description=description or f"Mock tool {name}.",
            parameters=parameters or {"type": "object", "additionalProperties": True},
        )
        self.effect = ToolEffect(effect)
        self.timeout = timeout
        self.parallel = parallel
        self.calls: list[dict[str, Any]] = []
        self._handler = handler

    @classmethod
    def returning(cls, name: str, value: Any, *, description: str = "") -> "MockTool":
        """A tool that always returns this value."""

        def give(**_: Any) -> Any:
            return value

        return cls(name, give, description=description)

    @classmethod
    def raising(cls, name: str, error: BaseException, *, description: str = "") -> "MockTool":
        """A tool that always raises this."""

        def fail(**_: Any) -> None:
            raise error

        return cls(name, fail, description=description)

    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments as they are."""
        return dict(arguments)

    async def invoke(self, arguments: dict[str, Any], context: ToolContext) -> Any:
        """What the handler gives; it may be sync or async, and runs in place."""
        self.calls.append(arguments)
        result = self._handler(**arguments)
        return await result if isawaitable(result) else result
