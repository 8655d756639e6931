"""Arguments that must not be kept: a tool marks them, as with pydantic's ``SecretStr``, and they
reach the tool and nothing else. Called by the executor.
"""

import json
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterable, Mapping
from typing import Any, cast
from urllib.parse import quote, quote_plus

from msgspec import Struct
from msgspec.structs import replace

from stepwell.messages import History, ToolCall
from stepwell.tools.results import Finished

HIDDEN = "[secret]"
"""What stands in place of a secret argument, for people and for the model."""

SHORTEST_ENCODED = 8
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
    scrubber = Scrubber.of(call, secret, fields)
    arguments = {
        name if name in fields else scrubber.text(name): HIDDEN
        if name in secret
        else scrubber.kept(value)
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
        f"given anew; {HIDDEN} only stands in its place. (An approval gives them with "
        "Approval.edited({...}).)"
    )


class Scrubber(Struct, frozen=True):
    """Takes the values of secret arguments out of what a call came to."""

    values: tuple[str, ...]

    @classmethod
    def of(
        cls, call: ToolCall, secret: frozenset[str], fields: frozenset[str] = frozenset()
    ) -> "Scrubber":
        """For the secrets of this call; the longest first, since one may contain another. The
        keys of a secret mapping are secret too, unless they are among its declared ``fields``."""
        given = {text for name in secret for text in _texts(call.arguments.get(name), fields)}
        found = {form for text in given for form in _forms(text)}
        return cls(tuple(sorted(found, key=len, reverse=True)))

    def finished(self, finished: Finished) -> Finished:
        """The same result without the secrets; the exception, which may hold them, is let go."""
        execution, waits_for, signal = finished.execution, finished.waits_for, finished.signal
        error = execution.error
        if error is not None:
            error = replace(error, message=self.text(error.message))
        if waits_for is not None:
            waits_for = replace(
                waits_for,
                prompt=self.text(waits_for.prompt),
                details=self.value(waits_for.details),
                kept=self.kept(waits_for.kept),
            )
        if signal is not None:
            told = self.value(signal.context)
            signal = replace(signal, message=self.text(signal.message), context=told)
        clean = replace(
            execution,
            text=self.text(execution.text),
            value=self.value(execution.value),
            error=error,
        )
        return Finished(
            execution=clean,
            metadata=self.value(finished.metadata),
            waits_for=waits_for,
            signal=signal,
        )

    def kept(self, value: Any) -> Any:
        """What a tool keeps without them: of the same kind, since states are kept as well."""
        if type(value) is str:
            return self.text(value)
        if isinstance(value, bytes):
            return self._data(value)
        if isinstance(value, History):
            return History[Any].of(self.kept(item) for item in cast("Iterable[Any]", value))
        if isinstance(value, Struct):
            return replace(
                value, **{f: self.kept(getattr(value, f)) for f in value.__struct_fields__}
            )
        if isinstance(value, Mapping):
            pairs = cast("Mapping[Any, Any]", value)
            return {self.kept(key): self.kept(item) for key, item in pairs.items()}
        if isinstance(value, list | tuple):
            items = [self.kept(item) for item in cast("Iterable[Any]", value)]
            return items if isinstance(value, list) else tuple(items)
        return HIDDEN if str(value) in self.values and isinstance(value, int | float) else value

    def text(self, text: str) -> str:
        """The text without them."""
        for value in self.values:
            text = text.replace(value, HIDDEN)
        return text

    def _data(self, data: bytes) -> bytes:
        for value in self.values:
            data = data.replace(value.encode(errors="replace"), HIDDEN.encode())
        return data

    def value(self, value: Any) -> Any:
        """JSON data without them."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            pairs = cast("Mapping[Any, Any]", value)
            return {self.value(key): self.value(item) for key, item in pairs.items()}
        if isinstance(value, list | tuple):
            return [self.value(item) for item in cast("Iterable[Any]", value)]
        if isinstance(value, bytes):
            return self._data(value)
        is_number = isinstance(value, int | float)
        return HIDDEN if is_number and str(value) in self.values else value


def _encoded(text: str) -> Iterable[str]:
    """As it stands in addresses, in headers and in dumps."""
    if len(text) < SHORTEST_ENCODED:
        return
    data = text.encode(errors="replace")
    yield from (
        quote(text, safe="", errors="replace"),
        quote(text, errors="replace"),
        quote_plus(text, errors="replace"),
    )
    yield from (data.hex(), data.hex().upper())
    for before in range(3):  # base64 looks different behind one or two other bytes
        whole = (before + len(data)) // 3 * 3
        for encode in (b64encode, urlsafe_b64encode):
            yield encode((bytes(before) + data)[:whole]).decode()[before + (before > 0) :]


def _forms(text: str) -> Iterable[str]:
    """The text itself, and as it stands inside of JSON, of a repr and of bytes."""
    quoted = (json.dumps(text, ensure_ascii=False), json.dumps(text), repr(text))
    data = repr(text.encode(errors="replace"))[2:-1]
    return (text, data, *(form[1:-1] for form in quoted), *_encoded(text))


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
    elif not isinstance(value, bool | None) and len(str(value)) >= SHORTEST:
        yield str(value)


def exception_with_text(kind: type[BaseException], text: str) -> Exception:
    """An exception of that name with only this text: the one that was raised may hold secrets."""
    return type(kind.__name__, (Exception,), {})(text)
