"""Arguments that must not be kept: a tool marks them, as with pydantic's ``SecretStr``, and they
reach the tool and nothing else. Called by the executor.
"""

from collections.abc import Iterable, Mapping
from typing import Any, cast

from msgspec import Struct
from msgspec.structs import replace

from stepwell.messages import History, ToolCall
from stepwell.secrets import HIDDEN, Redactor
from stepwell.tools.results import Finished

SHORTEST = 4
"""Shorter values are not looked for in results: they would be found everywhere."""


def secret_arguments(parameters: Mapping[str, Any]) -> frozenset[str]:
    """The arguments that a JSON schema marks, as ``writeOnly`` or as a password."""
    properties = _mapping(parameters.get("properties"))
    definitions = {**_mapping(parameters.get("definitions")), **_mapping(parameters.get("$defs"))}
    return frozenset(
        name for name, shape in properties.items() if _is_secret(shape, definitions, set())
    )


def declared_fields(parameters: Mapping[str, Any]) -> frozenset[str]:
    """Every name under ``properties`` in a JSON schema, at any depth.

    Inside a secret argument all keys are data, and may be secret, except for these."""
    names: set[str] = set()
    rest: list[Any] = [parameters]
    while rest:
        node = rest.pop()
        if isinstance(node, Mapping):
            names.update(_mapping(cast("Mapping[str, Any]", node).get("properties")))
            rest.extend(cast("Mapping[str, Any]", node).values())
        elif isinstance(node, list):
            rest.extend(cast("list[Any]", node))
    return frozenset(names)


def hidden(call: ToolCall, secret: frozenset[str], fields: frozenset[str]) -> ToolCall:
    """The call as it may be kept and shown; ``fields`` are its ``declared_fields``."""
    if not secret:
        return call
    # A model may say the secret in an open argument as well.
    scrubber = Scrubber.for_call(call, secret, fields)
    arguments = {
        name if name in fields else scrubber.text(name): HIDDEN
        if name in secret
        else scrubber.redact_kept(value)
        for name, value in call.arguments.items()
    }
    malformed = None if call.malformed is None else HIDDEN
    return replace(call, arguments=arguments, malformed=malformed)


def what_is_hidden(call: ToolCall, secret: frozenset[str]) -> str | None:
    """Why a call can't run whose secret is gone: the model copied it from the history, or it
    waited for a person. None if it is there."""
    gone = sorted(name for name in secret if call.arguments.get(name) == HIDDEN)
    if not gone:
        return None
    return (
        f"The secret arguments of tool {call.name!r} are never kept, so {', '.join(gone)} must be "
        f"given again; {HIDDEN} only stands in its place. (An approval gives them with "
        "Approval.edited({...}).)"
    )


class Scrubber(Redactor, frozen=True):
    """Takes the values of secret arguments out of what a call came to."""

    @classmethod
    def for_call(
        cls, call: ToolCall, secret: frozenset[str], fields: frozenset[str] = frozenset()
    ) -> "Scrubber":
        """For the secrets of this call. The keys of a secret mapping are secret too, unless they
        are among its declared ``fields``."""
        given = {text for name in secret for text in _texts(call.arguments.get(name), fields)}
        return cls(Redactor.of(given, SHORTEST).forms)

    def redact_result(self, finished: Finished) -> Finished:
        """The same result without the secrets; the exception, which may hold them, is let go."""
        execution, waits_for, signal = finished.execution, finished.waits_for, finished.signal
        error = execution.error
        if error is not None:
            error = replace(error, message=self.text(error.message))
        if waits_for is not None:
            waits_for = replace(
                waits_for,
                prompt=self.text(waits_for.prompt),
                details=self.json(waits_for.details),
                kept=self.redact_kept(waits_for.kept),
            )
        if signal is not None:
            context = self.json(signal.context)
            signal = replace(signal, message=self.text(signal.message), context=context)
        clean = replace(
            execution,
            text=self.text(execution.text),
            value=self.json(execution.value),
            error=error,
        )
        return Finished(
            execution=clean,
            metadata=self.json(finished.metadata),
            waits_for=waits_for,
            signal=signal,
        )

    def redact_kept(self, value: Any) -> Any:
        """What a tool keeps without them: of the same kind, since states are kept as well."""
        if type(value) is str:
            return self.text(value)
        if isinstance(value, History):
            return History[Any].of(self.redact_kept(item) for item in cast("Iterable[Any]", value))
        if isinstance(value, Struct):
            return replace(
                value, **{f: self.redact_kept(getattr(value, f)) for f in value.__struct_fields__}
            )
        if isinstance(value, Mapping):
            pairs = cast("Mapping[Any, Any]", value)
            return {self.redact_kept(key): self.redact_kept(item) for key, item in pairs.items()}
        if isinstance(value, list | tuple):
            items = [self.redact_kept(item) for item in cast("Iterable[Any]", value)]
            return items if isinstance(value, list) else tuple(items)
        return value if isinstance(value, str) else self.leaf(value)


def _mapping(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _is_secret(shape: Any, definitions: Mapping[str, Any], seen: set[str]) -> bool:
    if isinstance(shape, list):
        return any(_is_secret(item, definitions, seen) for item in cast("list[Any]", shape))
    if not isinstance(shape, Mapping):
        return False
    node = cast("Mapping[str, Any]", shape)
    if node.get("writeOnly") is True or node.get("format") == "password":
        return True
    target = str(node.get("$ref", "")).rpartition("/")[2]
    if target in definitions and target not in seen:
        seen.add(target)
        if _is_secret(definitions[target], definitions, seen):
            return True
    return any(_is_secret(item, definitions, seen) for item in node.values())


def _texts(value: Any, fields: frozenset[str]) -> Iterable[str]:
    if isinstance(value, Mapping):
        pairs = cast("Mapping[Any, Any]", value)
        value = [*(key for key in pairs if key not in fields), *pairs.values()]
    if isinstance(value, list | tuple):
        for item in cast("Iterable[Any]", value):
            yield from _texts(item, fields)
    elif not isinstance(value, bool | None):
        yield str(value)


def exception_with_text(kind: type[BaseException], text: str) -> Exception:
    """An exception of that name with only this text: the one that was raised may hold secrets."""
    return type(kind.__name__, (Exception,), {})(text)
