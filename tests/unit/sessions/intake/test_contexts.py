"""Contexts: what may be named, by whom, and which addresses may be kept."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell.errors import ConfigurationError
from stepwell.sessions.errors import RefusedError
from stepwell.sessions.intake.contexts import AllowedContexts, Context, resolve_context
from stepwell.sessions.principal import Principal

ADA = Principal(user_id="ada")
BOB = Principal(user_id="bob")
INVOICE = Context(related_type="invoice", related_id="7")


async def _is_adas(who: Principal, related_id: str) -> bool:
    return who.user_id == "ada" and related_id == "7"


CONTEXTS = AllowedContexts(
    {"invoice": _is_adas, "order": lambda who, related_id: f"/orders/{related_id}"}
)


async def refused(context: Context, who: Principal = ADA, contexts: object = CONTEXTS) -> str:
    """The code with which it was refused."""
    with pytest.raises(RefusedError) as caught:
        await resolve_context(who, context, contexts)  # type: ignore[arg-type]
    return caught.value.code


async def test_nothing_said_is_nothing_to_check() -> None:
    assert await resolve_context(ADA, Context(), None) == Context()


async def test_without_a_resolver_nothing_can_be_named() -> None:
    assert await refused(INVOICE, contexts=None) == "unknown_related_type"
    page = Context(context_url="/invoices/7?tab=2#notes")
    assert await refused(page, contexts=None) == "no_context_resolver"


async def test_only_listed_types_can_be_named() -> None:
    assert await resolve_context(ADA, INVOICE, CONTEXTS) == INVOICE
    unknown = Context(related_type="secret", related_id="7")
    with pytest.raises(RefusedError, match="allowed: invoice, order"):
        await resolve_context(ADA, unknown, CONTEXTS)


async def test_what_is_not_there_and_what_is_somebody_elses_are_refused_alike() -> None:
    assert await refused(INVOICE, BOB) == "context_refused"
    assert await refused(Context(related_type="invoice", related_id="8")) == "context_refused"


async def test_a_check_may_give_the_address_that_is_kept() -> None:
    sent = Context(related_type="order", related_id="9", context_url="/somewhere")
    kept = await resolve_context(ADA, sent, CONTEXTS)
    assert kept.context_url == "/orders/9"


async def test_type_and_id_belong_together() -> None:
    assert await refused(Context(related_type="invoice")) == "bad_context"
    assert await refused(Context(related_id="7")) == "bad_context"
    assert await refused(Context(related_type="invoice", related_id="")) == "bad_context"
    assert await refused(Context(related_type="invoice", related_id="7\n")) == "bad_context"
    assert await refused(Context(related_type="invoice", related_id="7" * 201)) == "bad_context"


@pytest.mark.parametrize(
    "url",
    ["/a", "a/b", "?q=1", "#x", "https://example.test/a", "http://example.test", "/ü/ö", "/a:b"],
)
async def test_paths_and_web_addresses_are_kept(url: str) -> None:
    assert (await resolve_context(ADA, Context(context_url=url), CONTEXTS)).context_url == url


@pytest.mark.parametrize(
    "url",
    [
        "",
        "javascript:alert(1)",
        "JavaScript:alert(1)",
        " javascript:alert(1)",
        "java\nscript:alert(1)",
        "data:text/html,x",
        "file:///etc/passwd",
        "//evil.test/x",
        "/\\evil.test",
        "\\\\evil.test",
        "https:evil",
        "https://",
        "/a b",
        '/"><script>',
        "https://[half",
        "/a\x00",
        "/\ud800",
        "/" + "a" * 2000,
    ],
)
async def test_addresses_that_a_page_must_not_link_to_are_refused(url: str) -> None:
    assert await refused(Context(context_url=url), contexts=None) == "bad_context_url"


@given(st.text(max_size=40))
async def test_no_address_that_is_kept_leaves_the_web(url: str) -> None:
    try:
        await resolve_context(ADA, Context(context_url=url), CONTEXTS)
    except RefusedError:
        return
    scheme = re.match(r"[a-z][a-z0-9+.-]*(?=:)", url, re.IGNORECASE)  # RFC 3986, 3.1
    assert scheme is None or scheme.group().lower() in ("http", "https")
    assert not url.startswith(("//", "\\"))


def test_a_check_must_be_a_function() -> None:
    with pytest.raises(ConfigurationError, match="'invoice'"):
        AllowedContexts({"invoice": True})  # type: ignore[dict-item]


@pytest.mark.parametrize("verdict", [None, 0, 1, "", [], ["/invoices/7"], {"ok": True}, 1.0])
async def test_a_check_that_says_anything_but_yes_says_no(verdict: object) -> None:
    async def slow(_who: Principal, _id: str) -> object:
        return verdict

    for check in (lambda _who, _id: verdict, slow):
        contexts = AllowedContexts({"invoice": check})  # type: ignore[dict-item]
        assert await refused(INVOICE, ADA, contexts) == "context_refused"


@pytest.mark.parametrize("url", ["javascript:alert(1)", "//evil.example", "a b"])
async def test_an_address_that_no_page_may_link_to_is_not_kept(url: str) -> None:
    contexts = AllowedContexts({"invoice": lambda _who, _id: url})
    assert await refused(INVOICE, ADA, contexts) == "bad_context_url"
