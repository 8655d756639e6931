"""Providers and their models over HTTP. A provider is a wire format, an address, an auth header and
a framing. One turn is here from end to end: request, reply, parts, response.
"""

import logging
import re
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

from msgspec import Struct, json
from msgspec.structs import replace

from stepwell.clock import Clock, SystemClock
from stepwell.errors import ConfigurationError, ModelError, ModelErrorKind, describe
from stepwell.messages import Usage
from stepwell.models.api_key import ApiKey, from_environment
from stepwell.models.attempts import last_parts
from stepwell.models.faults import error_answer, error_event, request_id
from stepwell.models.frames import Framing, ServerSentEvents
from stepwell.models.http import HttpCall, HttpReply, send
from stepwell.models.prices import price
from stepwell.models.request import ModelRequest
from stepwell.models.response import (
    ModelResponse,
    StreamPart,
    UsageReport,
)
from stepwell.models.settings import NO_SETTINGS, ModelSettings
from stepwell.models.wire import ChatCompletions, StreamReader, WireFormat
from stepwell.models.wire.format import check_parts
from stepwell.secrets import Redactor, SecretSource, hide

if TYPE_CHECKING:
    import httpx2

CONNECT_TIMEOUT = 10.0
READ_TIMEOUT = 180.0
"""Below the 300 seconds of a run, so that there is time left to retry or to fall back."""

SILENCE_SECONDS = 5.0
"""How long to wait for the end of a stream once its response is complete."""
logger = logging.getLogger("stepwell.models")
_KEY_IN_QUERY = re.compile(r"(^|&)([\w-]*(key|token|password)|sig|signature)=", re.IGNORECASE)
_SHAPE_ERRORS = (RecursionError, KeyError, TypeError, AttributeError, IndexError, ValueError)
"""What parsing raises for JSON of an undocumented shape."""


PLAIN_HEADERS = frozenset({"accept", "anthropic-beta", "anthropic-version", "content-type"})
"""Headers without secrets, which errors may quote. Any other header may hold a token."""


class Auth(Struct, frozen=True, kw_only=True):
    """The header that carries the key."""

    header: str = "authorization"
    prefix: str = "Bearer "


class Provider(Struct, frozen=True, kw_only=True):
    """An endpoint for models: wire format, address, auth and framing.

    >>> acme = Provider(name="acme", base_url="https://llm.acme.example/v1", key_env="ACME_KEY")
    >>> acme.model("large", api_key="sk-1").name
    'acme:large'
    """

    name: str
    base_url: str
    wire: WireFormat = ChatCompletions()
    framing: type[Framing] = ServerSentEvents
    auth: Auth = Auth()
    key_env: str | None = None
    """The environment variable that holds the key, or None if no key is needed."""
    base_url_env: str | None = None
    """The environment variable that overrides ``base_url``."""
    headers: Mapping[str, str] = {}
    default_model: str | None = None
    prices: str | None = None
    """The provider's name in the price list, or None if its models are free."""
    settings: ModelSettings = ModelSettings()
    connect_timeout: float = CONNECT_TIMEOUT
    read_timeout: float = READ_TIMEOUT
    """Seconds without any data before a turn fails."""

    @classmethod
    def named(cls, name: str) -> "Provider":
        """Return a built-in provider, for example to give it another key or address.

        >>> Provider.named("openai").model("gpt-5", api_key="sk-from-the-vault").name
        'openai:gpt-5'
        """
        from stepwell.models.providers import KNOWN_PROVIDERS

        if name not in KNOWN_PROVIDERS:
            known = ", ".join(sorted(KNOWN_PROVIDERS))
            raise ConfigurationError(f"Unknown provider {name!r}. Known providers: {known}")
        return KNOWN_PROVIDERS[name]

    @classmethod
    def compatible(cls, base_url: str, *, name: str = "compatible") -> "Provider":
        """Return a provider for any server that speaks chat completions. ``base_url`` is the part
        before ``/chat/completions``."""
        return cls(name=name, base_url=base_url)

    def model(
        self,
        name: str | None = None,
        *,
        api_key: str | SecretSource | ApiKey | None = None,
        base_url: str | None = None,
        settings: ModelSettings = NO_SETTINGS,
        read_timeout: float | None = None,
        client: "httpx2.AsyncClient | None" = None,
        clock: Clock | None = None,
    ) -> "ProviderModel":
        """Return one of its models. The caller closes a ``client`` that it passes (for a proxy or
        certificates). Such a client keeps cookies unless it is configured not to; the built-in
        client keeps none."""
        chosen = name or self.default_model
        if not chosen:
            raise ConfigurationError(
                f"{self.name} has no default model. Write {self.name}:<model>, or .model(name)"
            )
        address = base_url or (self.base_url_env and from_environment(self.base_url_env))
        if not address and not self.base_url:
            way = f"set {self.base_url_env} or give" if self.base_url_env else "give"
            raise ConfigurationError(f"{self.name} has no address; {way} base_url=...")
        path = self.wire.path(chosen, streaming=False)
        provider = replace(
            self,
            base_url=_check_address(address or self.base_url, self.name, path),
            settings=settings.over(self.settings),
            read_timeout=self.read_timeout if read_timeout is None else read_timeout,
        )
        return ProviderModel(
            provider, chosen, self._key(api_key), client=client, clock=clock or SystemClock()
        )

    def __repr__(self) -> str:
        return f"Provider({self.name!r}, {self.base_url!r}, {self.wire.name})"

    def url(self, path: str) -> str:
        """Join the base address and a path. Both may have a query."""
        base, more = urlsplit(self.base_url), urlsplit(path)
        root = base.path.rstrip("/")
        for version in ("/v1", "/v1beta"):  # once, whether base_url has it or not
            if root.endswith(version) and more.path.startswith(f"{version}/"):
                root = root.removesuffix(version)
        query = "&".join(part for part in (base.query, more.query) if part)
        return urlunsplit((base.scheme, base.netloc, root + more.path, query, ""))

    def _key(self, given: str | SecretSource | ApiKey | None) -> ApiKey | None:
        if isinstance(given, ApiKey):
            return given
        if given is not None:
            return ApiKey(given)
        return None if self.key_env is None else ApiKey.from_env(self.key_env, owner=self.name)


class ProviderModel:
    """One model of a provider."""

    def __init__(
        self,
        provider: Provider,
        model: str,
        key: ApiKey | None,
        *,
        client: "httpx2.AsyncClient | None",
        clock: Clock,
    ) -> None:
        self.provider = provider
        self.model = model
        self.key = key
        self.client = client
        self.clock = clock

    @property
    def name(self) -> str:
        """``provider:model``."""
        return f"{self.provider.name}:{self.model}"

    def __repr__(self) -> str:
        return f"<model {self.name} at {self.provider.base_url}>"

    async def respond(self, request: ModelRequest) -> ModelResponse:
        """Return the complete response. Raises ``ModelError``."""
        turn = _Turn(self, request)
        try:
            reply = await turn.send(streaming=False)
            try:
                return turn.parse_body(await reply.body())
            finally:
                await reply.close()
        except ModelError as error:
            turn.complete(error)
            raise

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamPart]:
        """Yield the response in parts. Raises ``ModelError``, possibly after some parts."""
        turn = _Turn(self, request)
        try:
            reply = await turn.send(streaming=True)
            try:
                if reply.is_whole:  # some servers ignore the request to stream
                    for part in last_parts(turn.parse_body(await reply.body()), with_text=True):
                        yield part
                    return
                reader, framing = turn.reader(), self.provider.framing()
                began, until = b"", None
                while (chunk := await reply.chunk(until=until)) is not None:
                    began = began or chunk
                    events = framing.feed(chunk)
                    for event in events:
                        for part in turn.read(event, reader):
                            yield part
                        # Some report the prompt's usage early: it is known even if the turn breaks.
                        if report := turn.first_usage(reader):
                            yield report
                    if reader.is_over:
                        break
                    if events:  # pings do not extend the wait
                        until = reply.time + SILENCE_SECONDS if reader.may_be_over else None
                else:
                    for event in framing.end():
                        for part in turn.read(event, reader):
                            yield part
                response = turn.collect(reader, began)
                if reader.is_over:
                    await reply.drain()
                for part in last_parts(response, with_text=False):
                    yield part
            finally:
                await reply.close()
        except ModelError as error:
            turn.complete(error)
            raise


class _Turn:
    """One request to one model: what is sent, and how replies and errors are read."""

    def __init__(self, model: ProviderModel, request: ModelRequest) -> None:
        self._owner = model
        self._provider = model.provider
        self._request = replace(request, settings=request.settings.over(model.provider.settings))
        self._model = self._request.settings.model or model.model
        self._name = f"{model.provider.name}:{self._model}"
        self._secrets: set[str] = set()
        self._request_id: str | None = None
        self._reader: StreamReader | None = None
        self._has_read = False
        self._has_reported_usage = False

    async def send(self, *, streaming: bool) -> HttpReply:
        """Send the request and return the reply. Raises ``ModelError`` for an error status."""
        owner, provider, request = self._owner, self._provider, self._request
        try:
            body = json.encode(provider.wire.body(request, self._model, streaming=streaming))
        except (TypeError, ValueError, OverflowError) as error:
            raise ModelError(
                f"the request can't be written as JSON: {describe(error)}",
                kind=ModelErrorKind.INVALID_REQUEST,
            ) from error
        reply = await send(
            HttpCall(
                owner=self._name,
                url=provider.url(provider.wire.path(self._model, streaming=streaming)),
                headers=await self._headers(),
                body=body,
                connect_timeout=provider.connect_timeout,
                read_timeout=provider.read_timeout,
                client=owner.client,
            )
        )
        self._request_id = request_id(reply.headers)
        if reply.status == 200:
            return reply
        try:
            answer = await reply.error_body()
        finally:
            await reply.close()
        said = self._hide_bytes(answer)
        error = error_answer(self._name, reply.status, reply.headers, said, owner.clock.now())
        if error.kind is ModelErrorKind.NOT_FOUND:  # is it the model, or the address?
            error.args = (f"{error} (asked at {reply.url})",)
        raise error

    async def _headers(self) -> dict[str, str]:
        """Header names are lower case and unique. No other header can replace the key."""
        auth = self._provider.auth
        headers = {"content-type": "application/json"}
        for given in (self._provider.headers, self._request.settings.extra_headers):
            headers.update({f"{name}".lower(): value for name, value in given.items()})
        given = [f"{value}" for name, value in headers.items() if name not in PLAIN_HEADERS]
        key = "" if self._owner.key is None else await self._owner.key.reveal()
        if key:
            headers[auth.header.lower()] = f"{auth.prefix}{key}"
        # Other headers may hold tokens too.
        self._secrets = {key, *given}
        return headers

    def reader(self) -> StreamReader:
        """Create the reader of the stream. If the stream breaks off, it knows the usage so far."""
        self._reader = self._provider.wire.reader()
        return self._reader

    def read(self, event: bytes, reader: StreamReader) -> Iterable[StreamPart]:
        """Return the parts in one message of the stream."""
        try:
            data = None if event == b"[DONE]" else json.decode(event)
            if type(data) is dict and data.get("error"):  # pyright: ignore[reportUnknownMemberType]
                raise error_event(self._name, json.decode(self._hide_bytes(event)))
            self._has_read = True
            return check_parts(reader.read(data))
        except _SHAPE_ERRORS as error:
            raise self._malformed_error(
                "a message of the stream", event, describe(error)
            ) from error

    def first_usage(self, reader: StreamReader) -> UsageReport | None:
        """Return the usage the first time the stream reports any, else None."""
        with suppress(*_SHAPE_ERRORS):
            is_early = not self._has_reported_usage and not reader.may_be_over
            if is_early and (usage := reader.usage):
                self._has_reported_usage = True
                return UsageReport(usage, self._price(usage))
        return None

    def collect(self, reader: StreamReader, began: bytes) -> ModelResponse:
        """Return the complete response after the stream. ``began`` is the start of its body."""
        if not self._has_read:
            self._check_not_blank(began)
            raise self._malformed_error("the answer", began, "no stream of events")
        try:
            return self._add_cost(reader.response())
        except _SHAPE_ERRORS as error:
            raise self._malformed_error("the stream", b"", describe(error)) from error

    def parse_body(self, body: bytes) -> ModelResponse:
        """Return the response in a body that was not streamed."""
        self._check_not_blank(body)
        try:
            data = json.decode(body)
            # A failed response of OpenAI's Responses format has its usage, so it is parsed.
            if data.get("error") and data.get("status") != "failed":
                raise error_event(self._name, json.decode(self._hide_bytes(body)))
            return self._add_cost(self._provider.wire.response(data))
        except _SHAPE_ERRORS as error:
            raise self._malformed_error("the answer", body, describe(error)) from error

    def complete(self, error: ModelError) -> None:
        """Add the model's name, the request id and the cost to an error, and hide the key in it."""
        text = str(error)
        if self._name not in text:
            text = f"{self._name}: {text}"
        error.args = (self._hide(text),)
        if error.provider_text:
            error.provider_text = self._hide(error.provider_text)
        known_as = error.request_id or self._request_id
        error.request_id = known_as and self._hide(known_as)
        if error.usage is None and self._reader is not None:
            with suppress(*_SHAPE_ERRORS):
                error.usage = self._reader.usage
        if isinstance(error.usage, Usage):
            error.cost = self._price(error.usage)

    def _price(self, usage: Usage) -> float:
        return price(usage, self._model, provider=self._provider.prices)

    def _add_cost(self, response: ModelResponse) -> ModelResponse:
        model = response.model or self._model
        cost = response.cost
        for name in (model, self._model):  # servers may use their own name for the model
            cost = cost or price(response.usage, name, provider=self._provider.prices)
        if not cost and response.usage and self._provider.prices is not None:
            _warn_unpriced(self._name)
        return replace(response, cost=cost, model=model, request_id=self._request_id)

    def _hide(self, text: str) -> str:
        return hide(text, self._secrets)

    def _hide_bytes(self, data: bytes) -> bytes:
        """Called before a text is cut, so that no part of the key is left at its end."""
        return Redactor.of(self._secrets).data(data)

    def _check_not_blank(self, body: bytes) -> None:
        if not body.strip():
            raise ModelError("the answer is empty", kind=ModelErrorKind.EMPTY_RESPONSE)

    def _malformed_error(self, what: str, data: bytes, why: str) -> ModelError:
        shown = self._hide_bytes(data)[:200].decode("utf-8", "replace").strip()
        text = f"{what} does not match the format: {why}" + (f" in {shown}" if shown else "")
        if shown and not shown.startswith(("{", "[")):  # not JSON at all
            wire = self._provider.wire.name
            text += f"; check that base_url {self._provider.base_url} serves {wire}"
        return ModelError(text, kind=ModelErrorKind.MALFORMED_RESPONSE)


@cache
def _warn_unpriced(model: str) -> None:
    """Warn once per model: limits on cost have no effect for it."""
    logger.warning("no price is known for %s: it counts as free, and max_cost has no effect", model)


def _check_address(address: str, owner: str, path: str) -> str:
    try:
        parts = urlsplit(address)
        is_whole = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        is_sound = is_whole and not any(letter.isspace() for letter in address)
        named = parts.netloc if is_sound else address
    except ValueError:  # unbalanced brackets or an invalid port
        is_sound, named = False, address
    if "@" in named:
        raise ConfigurationError(
            f"the address of {owner} contains a user name or password; use api_key=... instead"
        )
    if is_sound and urlsplit(address).path.rstrip("/").endswith(path):
        raise ConfigurationError(
            f"the address of {owner} ends with {path}, which is added automatically; remove it"
        )
    if is_sound and _KEY_IN_QUERY.search(urlsplit(address).query):
        raise ConfigurationError(
            f"the address of {owner} contains a key in its query; use api_key=... instead"
        )
    if not is_sound:
        raise ConfigurationError(
            f"{address!r} is not a valid address for {owner}; write http(s)://host/path"
        )
    return address
