"""A provider is a protocol, an endpoint, a way to show the key and a framing; its models are asked
over HTTP. One turn is here from end to end: request, reply, parts, response.
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
from stepwell.errors import ConfigurationError, ModelError, ModelErrorKind, described
from stepwell.messages import Usage
from stepwell.models.attempts import last_parts
from stepwell.models.faults import error_answer, error_event, request_id
from stepwell.models.framing import Framing, ServerSentEvents
from stepwell.models.http import HttpCall, HttpReply, sent
from stepwell.models.prices import price
from stepwell.models.request import ModelRequest
from stepwell.models.response import (
    ModelResponse,
    StreamPart,
    UsageReport,
)
from stepwell.models.secrets import (
    HIDDEN,
    SHORTEST_SECRET,
    ApiKey,
    KeySource,
    from_environment,
    without,
)
from stepwell.models.settings import NO_SETTINGS, ModelSettings
from stepwell.models.wire import ChatCompletions, StreamReader, WireFormat
from stepwell.models.wire.format import checked

if TYPE_CHECKING:
    import httpx2

CONNECT_TIMEOUT = 10.0
READ_TIMEOUT = 180.0
"""Below the 300 seconds of a run, so that a silent provider can be asked again or replaced."""

SECONDS_OF_SILENCE = 5.0
"""How long more is waited for, once an answer is whole and only the word that it is over lacks."""
logger = logging.getLogger("stepwell.models")
_KEY_IN_QUERY = re.compile(r"(^|&)([\w-]*(key|token|password)|sig|signature)=", re.IGNORECASE)
_NOT_AS_EXPECTED = (RecursionError, KeyError, TypeError, AttributeError, IndexError, ValueError)
"""What reading JSON of another shape than documented raises."""


PLAIN_HEADERS = frozenset({"accept", "anthropic-beta", "anthropic-version", "content-type"})
"""What they say is no secret, so an error may quote it; any other header may hold a token."""


class Auth(Struct, frozen=True, kw_only=True):
    """The header in which the key is sent."""

    header: str = "authorization"
    prefix: str = "Bearer "


class Provider(Struct, frozen=True, kw_only=True):
    """Where models are asked, and how. A new compatible provider is one of these.

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
    """The environment variable that holds the key; None if no key is needed."""
    base_url_env: str | None = None
    """The environment variable that names another address."""
    headers: Mapping[str, str] = {}
    default_model: str | None = None
    prices: str | None = None
    """The provider's name in the price list; None if its models cost nothing."""
    settings: ModelSettings = ModelSettings()
    connect_timeout: float = CONNECT_TIMEOUT
    read_timeout: float = READ_TIMEOUT
    """Seconds without a byte after which a turn fails."""

    @classmethod
    def named(cls, name: str) -> "Provider":
        """A provider that is known by name, for a key or an address of your own.

        >>> Provider.named("openai").model("gpt-5", api_key="sk-from-the-vault").name
        'openai:gpt-5'
        """
        from stepwell.models.providers import KNOWN_PROVIDERS

        if name not in KNOWN_PROVIDERS:
            known = ", ".join(sorted(KNOWN_PROVIDERS))
            raise ConfigurationError(f"no provider is called {name!r}; known: {known}")
        return KNOWN_PROVIDERS[name]

    @classmethod
    def compatible(cls, base_url: str, *, name: str = "compatible") -> "Provider":
        """Any server that speaks chat completions, by its address, as it ends before
        ``/chat/completions``."""
        return cls(name=name, base_url=base_url)

    def model(
        self,
        name: str | None = None,
        *,
        api_key: str | KeySource | ApiKey | None = None,
        base_url: str | None = None,
        settings: ModelSettings = NO_SETTINGS,
        read_timeout: float | None = None,
        client: "httpx2.AsyncClient | None" = None,
        clock: Clock | None = None,
    ) -> "ProviderModel":
        """One of its models. A client of your own (proxy, certificates) stays yours to close, and
        keeps cookies unless you give it a jar that takes none; the built-in client keeps none."""
        chosen = name or self.default_model
        if not chosen:
            raise ConfigurationError(
                f"which model of {self.name}? Name it: {self.name}:<model>, or .model(name)"
            )
        address = base_url or (self.base_url_env and from_environment(self.base_url_env))
        if not address and not self.base_url:
            way = f"set {self.base_url_env} or give" if self.base_url_env else "give"
            raise ConfigurationError(f"{self.name} has no address: {way} base_url=...")
        path = self.wire.path(chosen, streaming=False)
        provider = replace(
            self,
            base_url=_checked_address(address or self.base_url, self.name, path),
            settings=settings.over(self.settings),
            read_timeout=self.read_timeout if read_timeout is None else read_timeout,
        )
        return ProviderModel(
            provider, chosen, self._key(api_key), client=client, clock=clock or SystemClock()
        )

    def __repr__(self) -> str:
        return f"Provider({self.name!r}, {self.base_url!r}, {self.wire.name})"

    def url(self, path: str) -> str:
        """The address with the path, which may have a query, as the address may."""
        base, more = urlsplit(self.base_url), urlsplit(path)
        root = base.path.rstrip("/")
        for version in ("/v1", "/v1beta"):  # given with or without it, it is there once
            if root.endswith(version) and more.path.startswith(f"{version}/"):
                root = root.removesuffix(version)
        query = "&".join(part for part in (base.query, more.query) if part)
        return urlunsplit((base.scheme, base.netloc, root + more.path, query, ""))

    def _key(self, given: str | KeySource | ApiKey | None) -> ApiKey | None:
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
        """The whole answer at once; raises ``ModelError``."""
        turn = _Turn(self, request)
        try:
            reply = await turn.sent(streaming=False)
            try:
                return turn.whole(await reply.body())
            finally:
                await reply.close()
        except ModelError as error:
            turn.complete(error)
            raise

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamPart]:
        """The same answer in parts; raises ``ModelError``, also in the middle."""
        turn = _Turn(self, request)
        try:
            reply = await turn.sent(streaming=True)
            try:
                if reply.is_whole:  # some servers don't stream, although they were asked to
                    for part in last_parts(turn.whole(await reply.body()), with_text=True):
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
                        # Some tell at the start what the prompt cost: known if the turn is cut.
                        if report := turn.first_usage(reader):
                            yield report
                    if reader.is_over:
                        break
                    if events:  # what is no event, such as a ping, does not make it wait longer
                        until = reply.time + SECONDS_OF_SILENCE if reader.may_be_over else None
                else:
                    for event in framing.end():
                        for part in turn.read(event, reader):
                            yield part
                response = turn.collected(reader, began)
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
    """One request to one model: what is sent, how the answer is read, what its errors tell."""

    def __init__(self, model: ProviderModel, request: ModelRequest) -> None:
        self._owner = model
        self._provider = model.provider
        self._request = replace(request, settings=request.settings.over(model.provider.settings))
        self._model = self._request.settings.model or model.model
        self._name = f"{model.provider.name}:{self._model}"
        self._secrets: tuple[str, ...] = ()
        self._request_id: str | None = None
        self._reader: StreamReader | None = None
        self._has_read = False
        self._has_told_usage = False

    async def sent(self, *, streaming: bool) -> HttpReply:
        """The reply, if it is not an error."""
        owner, provider, request = self._owner, self._provider, self._request
        try:
            body = json.encode(provider.wire.body(request, self._model, streaming=streaming))
        except (TypeError, ValueError, OverflowError) as error:
            raise ModelError(
                f"the request can't be written as JSON: {described(error)}",
                kind=ModelErrorKind.INVALID_REQUEST,
            ) from error
        reply = await sent(
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
            answer = await reply.complaint()
        finally:
            await reply.close()
        said = self._without_key(answer)
        error = error_answer(self._name, reply.status, reply.headers, said, owner.clock.now())
        if error.kind is ModelErrorKind.NOT_FOUND:  # is it the model, or the address?
            error.args = (f"{error} (asked at {reply.url})",)
        raise error

    async def _headers(self) -> dict[str, str]:
        """Each name once, in small letters; the key can't be replaced by another header."""
        auth = self._provider.auth
        headers = {"content-type": "application/json"}
        for given in (self._provider.headers, self._request.settings.extra_headers):
            headers.update({f"{name}".lower(): value for name, value in given.items()})
        given = [f"{value}" for name, value in headers.items() if name not in PLAIN_HEADERS]
        key = "" if self._owner.key is None else await self._owner.key.reveal()
        if key:
            headers[auth.header.lower()] = f"{auth.prefix}{key}"
        # Headers may hold tokens as well; the longest first, since one may contain another.
        self._secrets = tuple(sorted({key, *given}, key=len, reverse=True))
        return headers

    def reader(self) -> StreamReader:
        """A reader for the stream; if it breaks off, what it has read so far was charged for."""
        self._reader = self._provider.wire.reader()
        return self._reader

    def read(self, event: bytes, reader: StreamReader) -> Iterable[StreamPart]:
        """The parts in one message of the stream."""
        try:
            data = None if event == b"[DONE]" else json.decode(event)
            if type(data) is dict and data.get("error"):  # pyright: ignore[reportUnknownMemberType]
                raise error_event(self._name, json.decode(self._without_key(event)))
            self._has_read = True
            return checked(reader.read(data))
        except _NOT_AS_EXPECTED as error:
            raise self._malformed("a message of the stream", event, described(error)) from error

    def first_usage(self, reader: StreamReader) -> UsageReport | None:
        """Return the usage once, as soon as the stream has told any."""
        with suppress(*_NOT_AS_EXPECTED):
            is_early = not self._has_told_usage and not reader.may_be_over
            if is_early and (usage := reader.usage):
                self._has_told_usage = True
                return UsageReport(usage, self._price(usage))
        return None

    def collected(self, reader: StreamReader, began: bytes) -> ModelResponse:
        """The whole response, once the stream is over; ``began`` is how its body began."""
        if not self._has_read:
            self._refuse_blank(began)
            raise self._malformed("the answer", began, "no stream of events")
        try:
            return self._priced(reader.response())
        except _NOT_AS_EXPECTED as error:
            raise self._malformed("the stream", b"", described(error)) from error

    def whole(self, body: bytes) -> ModelResponse:
        """The response in a body that came whole."""
        self._refuse_blank(body)
        try:
            data = json.decode(body)
            # A failed answer of OpenAI's Responses is read, since it tells what it cost.
            if data.get("error") and data.get("status") != "failed":
                raise error_event(self._name, json.decode(self._without_key(body)))
            return self._priced(self._provider.wire.response(data))
        except _NOT_AS_EXPECTED as error:
            raise self._malformed("the answer", body, described(error)) from error

    def complete(self, error: ModelError) -> None:
        """Let the error say whose it is and what it cost, but never the key."""
        text = str(error)
        if self._name not in text:
            text = f"{self._name}: {text}"
        error.args = (self._without_secrets(text),)
        if error.provider_text:
            error.provider_text = self._without_secrets(error.provider_text)
        known_as = error.request_id or self._request_id
        error.request_id = known_as and self._without_secrets(known_as)
        if error.usage is None and self._reader is not None:
            with suppress(*_NOT_AS_EXPECTED):
                error.usage = self._reader.usage
        if isinstance(error.usage, Usage):
            error.cost = self._price(error.usage)

    def _price(self, usage: Usage) -> float:
        return price(usage, self._model, provider=self._provider.prices)

    def _priced(self, response: ModelResponse) -> ModelResponse:
        model = response.model or self._model
        cost = response.cost
        for name in (model, self._model):  # a server may call the model by a name of its own
            cost = cost or price(response.usage, name, provider=self._provider.prices)
        if not cost and response.usage and self._provider.prices is not None:
            _tell_unpriced(self._name)
        return replace(response, cost=cost, model=model, request_id=self._request_id)

    def _without_key(self, data: bytes) -> bytes:
        """Before a text is cut, so that not even a part of the key is left at its end."""
        for secret in self._secrets:
            if len(secret) >= SHORTEST_SECRET:
                data = data.replace(secret.encode(), HIDDEN.encode())
        return data

    def _without_secrets(self, text: str) -> str:
        for secret in self._secrets:
            text = without(secret, text)
        return text

    def _refuse_blank(self, body: bytes) -> None:
        if not body.strip():
            raise ModelError("the answer is empty", kind=ModelErrorKind.EMPTY_RESPONSE)

    def _malformed(self, what: str, data: bytes, why: str) -> ModelError:
        shown = self._without_key(data)[:200].decode("utf-8", "replace").strip()
        text = f"{what} is not what the format says: {why}" + (f" in {shown}" if shown else "")
        if shown and not shown.startswith(("{", "[")):  # not even the beginning of JSON
            wire = self._provider.wire.name
            text += f"; check that base_url {self._provider.base_url} leads to {wire}"
        return ModelError(text, kind=ModelErrorKind.MALFORMED_RESPONSE)


@cache
def _tell_unpriced(model: str) -> None:
    """Once for each model: a limit on cost does not hold for it."""
    logger.warning("no price is known for %s, so it counts as free and max_cost has no hold", model)


def _checked_address(address: str, owner: str, path: str) -> str:
    try:
        parts = urlsplit(address)
        is_whole = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        is_sound = is_whole and not any(letter.isspace() for letter in address)
        named = parts.netloc if is_sound else address
    except ValueError:  # brackets without an end, or a port that is none
        is_sound, named = False, address
    if "@" in named:
        raise ConfigurationError(
            f"the address of {owner} has a user name or password in it; give api_key=... instead"
        )
    if is_sound and urlsplit(address).path.rstrip("/").endswith(path):
        raise ConfigurationError(
            f"the address of {owner} ends with {path}, which is added to it; leave that out"
        )
    if is_sound and _KEY_IN_QUERY.search(urlsplit(address).query):
        raise ConfigurationError(
            f"the address of {owner} has a key in its query; give api_key=... instead"
        )
    if not is_sound:
        raise ConfigurationError(
            f"{address!r} can't be the address of {owner}; write http(s)://host/path"
        )
    return address
