"""Tokens are checked with public keys, and whatever is odd about one signs nobody in."""

import base64
import hashlib
import hmac
import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st

from stepwell.errors import ConfigurationError
from stepwell.server.auth import ClaimNames, JwtAuthenticator, has_expired
from stepwell.sessions.principal import Principal
from stepwell.testing import FakeClock
from tests.unit.server.auth.rows import connection
from tests.unit.server.auth.signing import (
    AUDIENCE,
    ISSUER,
    ec_key,
    ed_key,
    jwk,
    part,
    public_pem,
    raw_token,
    rsa_key,
    token,
)

CLOCK = FakeClock()
NOW = CLOCK.now().timestamp()
SOON = NOW + 300
KEY = rsa_key("one")


def authenticator(*keys: dict[str, Any], **settings: Any) -> JwtAuthenticator:
    given = {"issuer": ISSUER, "audience": AUDIENCE, "clock": CLOCK, **settings}
    return JwtAuthenticator({"keys": list(keys) or [jwk(KEY, "one")]}, **given)


async def user(text: str, *keys: dict[str, Any], **settings: Any) -> Principal | None:
    request = connection([("Authorization", f"Bearer {text}")])
    return await authenticator(*keys, **settings).authenticate(request)


async def test_a_right_token_signs_in() -> None:
    principal = await user(token(KEY, SOON, email="ada@example.com"))
    assert principal is not None
    assert (principal.user_id, principal.tenant_id, principal.is_admin) == ("ada", "default", False)
    assert principal.claims["email"] == "ada@example.com"


ALGORITHMS = [
    ("RS512", rsa_key("one")),
    ("ES256", ec_key("p256")),
    ("ES384", ec_key("p384", ec.SECP384R1)),
    ("EdDSA", ed_key("ed")),
]


@pytest.mark.parametrize(("algorithm", "key"), ALGORITHMS)
async def test_the_usual_algorithms_are_known(algorithm: str, key: Any) -> None:
    text = token(key, SOON, algorithm=algorithm)
    assert await user(text, jwk(key, "one")) is not None
    assert await user(text, jwk(key, "one", alg=algorithm, use="sig")) is not None
    assert await user(text, jwk(key, "one", use="enc"), jwk(KEY, "two")) is None
    assert await user(text, jwk(key, "one"), algorithms=["RS256"]) is None


async def test_a_key_that_is_for_one_algorithm_is_not_used_for_another() -> None:
    assert await user(token(KEY, SOON), jwk(KEY, "one", alg="RS512")) is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"iss": "https://evil.example"},
        {"iss": None},
        {"aud": "other"},
        {"aud": ["other"]},
        {"aud": None},
        {"aud": 7},
        {"sub": None},
        {"sub": ""},
        {"sub": " "},
        {"sub": "a\0b"},
        {"sub": "a" * 201},
        {"nbf": NOW + 31},
        {"nbf": "soon"},
        {"exp": None},
        {"exp": NOW - 30},
        {"exp": "never"},
        {"exp": True},
        {"exp": float("nan")},
        {"exp": float("inf")},
        {"exp": 10**400},
        {"exp": [SOON]},
    ],
)
async def test_a_wrong_claim_signs_nobody_in(wrong: dict[str, Any]) -> None:
    assert await user(token(KEY, **{"expires": SOON, **wrong})) is None


@pytest.mark.parametrize(
    "right",
    [{"aud": ["other", AUDIENCE]}, {"exp": NOW - 29}, {"nbf": NOW + 30}, {"iat": NOW + 9999}],
)
async def test_a_clock_that_is_a_little_off_does_no_harm(right: dict[str, Any]) -> None:
    assert await user(token(KEY, **{"expires": SOON, **right})) is not None


def forged(header: dict[str, Any], signature: bytes | None = None, secret: bytes = b"") -> str:
    """A token put together by hand, signed with a shared secret unless a signature is given."""
    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "root", "exp": SOON}
    signed = f"{part(json.dumps(header).encode())}.{part(json.dumps(claims).encode())}"
    if signature is None:
        signature = hmac.digest(secret, signed.encode(), hashlib.sha256)
    return f"{signed}.{part(signature)}"


@pytest.mark.parametrize("algorithm", ["none", "None", "NONE", "", None, 7, ["RS256"], {"a": 1}])
async def test_a_token_without_a_signature_signs_nobody_in(algorithm: Any) -> None:
    header = {"typ": "JWT", "alg": algorithm, "kid": "one"}
    for signature in (b"", b"x" * 256):
        assert await user(forged(header, signature)) is None


async def test_the_public_key_is_no_shared_secret() -> None:
    for secret in (public_pem(KEY), public_pem(KEY).strip(), json.dumps(jwk(KEY, "one")).encode()):
        for algorithm in ("HS256", "RS256", "ES256"):
            header = {"typ": "JWT", "alg": algorithm, "kid": "one"}
            assert await user(forged(header, secret=secret)) is None


async def test_a_shared_secret_in_a_set_is_not_used() -> None:
    secret = b"s" * 32
    shared = {"kty": "oct", "kid": "one", "k": base64.urlsafe_b64encode(secret).decode()}
    header = {"typ": "JWT", "alg": "HS256", "kid": "one"}
    assert await user(forged(header, secret=secret), shared, jwk(KEY, "two")) is None
    with pytest.raises(ConfigurationError, match="no usable public key"):
        authenticator(shared)


@pytest.mark.parametrize(
    "kid",
    ["two", "", "../../dev/null", "one' OR '1'='1", "one\0", "x" * 5000, 1, None, ["one"], {}],
)
async def test_a_key_id_that_is_not_in_the_set_signs_nobody_in(kid: Any) -> None:
    two = (jwk(KEY, "one"), jwk(rsa_key("other"), "three"))
    evil = rsa_key("evil")
    embedded = {"kid": kid, "jwk": jwk(evil, None), "jku": "http://127.0.0.1:9/evil", "x5u": "x"}
    header = {"alg": "RS256", "typ": "JWT", **embedded}
    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "root", "exp": SOON}
    assert await user(raw_token(evil, header, claims), *two) is None
    # Signed by a key of the set, but which one is not said, or said wrongly.
    text = raw_token(KEY, header, claims)
    assert await user(text, *two) is None


async def test_a_key_that_came_with_the_token_does_not_count() -> None:
    evil = rsa_key("evil")
    headers = {"jwk": jwk(evil, "one"), "jku": "http://127.0.0.1:9/evil"}
    assert await user(token(evil, SOON, headers=headers)) is None


async def test_without_an_id_the_only_fitting_key_is_used() -> None:
    text = token(KEY, SOON, kid=None)
    assert await user(text, jwk(KEY, "one"), jwk(ec_key("p256"), "two")) is not None
    assert await user(text, jwk(KEY, "one"), jwk(rsa_key("other"), "two")) is None


async def test_weak_private_and_broken_keys_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    weak = rsa_key("weak", 1024)
    private = {**jwk(rsa_key("other"), "private"), "d": "AQAB"}
    entries: list[Any] = [
        jwk(weak, "one"), private, {"kty": "RSA", "kid": "x"}, {"kty": "EC", "crv": "P-256"},
        {"kty": "RSA", "kid": 7, "n": "AQAB", "e": "AQAB"}, "text", None, {}, jwk(KEY, "good"),
    ]  # fmt: skip
    assert await user(token(KEY, SOON, kid="good"), *entries) is not None
    assert "RSA needs 2048 bits" in caplog.text
    with pytest.warns(Warning, match="2048"):
        text = token(weak, SOON)
    assert await user(text, *entries) is None
    other = token(rsa_key("other"), SOON, kid="private")
    assert await user(other, *entries) is None


@pytest.mark.parametrize(
    "text",
    ["", ".", "..", "a.b", "a.b.c", "a.b.c.d", "sw_aaaaaaaaaaaa_" + "x" * 43, "é.é.é"],
)
async def test_what_is_no_token_signs_nobody_in(text: str) -> None:
    assert await user(text.encode().decode("latin-1")) is None


async def test_huge_and_deep_tokens_sign_nobody_in() -> None:
    assert await user(token(KEY, SOON, padding="x" * 20_000)) is None
    deep = part(b"[" * 6000)
    assert await user(f"{deep}.e30.e30") is None
    assert await user("a" * 1_000_000) is None


@given(st.text(alphabet=st.characters(min_codepoint=33, max_codepoint=126), max_size=200))
async def test_no_text_breaks_the_check(text: str) -> None:
    assert await user(text) is None
    good = token(KEY, SOON)
    changed = good[: len(text)] + text + good[len(text) * 2 :]
    assert changed == good or await user(changed) is None


async def test_an_issuer_that_is_no_text_signs_nobody_in() -> None:
    header = {"alg": "RS256", "typ": "JWT", "kid": "one"}
    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ada", "exp": SOON}
    assert await user(raw_token(KEY, header, claims)) is not None
    for issuer in ([ISSUER], {ISSUER: 1}, 7, None):
        assert await user(raw_token(KEY, header, {**claims, "iss": issuer})) is None


async def test_changed_tokens_sign_nobody_in() -> None:
    head, body, signature = token(KEY, SOON).split(".")
    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "root", "exp": SOON}
    other = part(json.dumps(claims).encode())
    assert await user(f"{head}.{other}.{signature}") is None
    assert await user(f"{head}.{body}.") is None


async def test_critical_extensions_are_not_understood() -> None:
    assert await user(token(KEY, SOON, headers={"crit": ["b64"], "b64": True})) is None


NAMES = ClaimNames(user="user.name", tenant="https://example.com/org", admin="realm.roles")


@pytest.mark.parametrize(
    ("claims", "expected"),
    [
        ({"user": {"name": "bob"}, "https://example.com/org": "t1"}, ("bob", "t1", False)),
        (
            {"user.name": "bob", "https://example.com/org": "t1", "realm": {"roles": ["admin"]}},
            ("bob", "t1", True),
        ),
        ({"user.name": "eve", "https://example.com/org": "t1"}, ("eve", "t1", False)),
        ({"user": {"name": "bob"}}, None),
        ({"user": {"name": "bob"}, "https://example.com/org": ""}, None),
        ({"user": {"name": ["bob"]}, "https://example.com/org": "t1"}, None),
        ({"user": "bob", "https://example.com/org": "t1"}, None),
    ],
)  # fmt: skip
async def test_claims_are_mapped_by_name(claims: dict[str, Any], expected: Any) -> None:
    principal = await user(token(KEY, SOON, **claims), claims=NAMES)
    found = principal and (principal.user_id, principal.tenant_id, principal.is_admin)
    assert found == expected


@pytest.mark.parametrize(
    ("said", "is_admin"),
    [(True, True), ("admin", True), (["user", "admin"], True), ("true", False), (1, False),
     ("administrator", False), (["administrator"], False), ({"admin": True}, False), (None, False)],
)  # fmt: skip
async def test_who_is_an_administrator(said: Any, is_admin: bool) -> None:
    principal = await user(token(KEY, SOON, role=said), claims=ClaimNames(admin="role"))
    assert principal is not None
    assert principal.is_admin is is_admin
    plain = await user(token(KEY, SOON, role=said))
    assert plain is not None
    assert not plain.is_admin


@pytest.mark.parametrize("algorithm", ["none", "HS256", "HS512", "RS1", "ES256K", ""])
def test_an_unfit_algorithm_is_told_at_once(algorithm: str) -> None:
    with pytest.raises(ConfigurationError, match="algorithms has"):
        authenticator(algorithms=["RS256", algorithm])


@pytest.mark.parametrize(
    "wrong", [{"issuer": ""}, {"audience": ""}, {"audience": []}, {"algorithms": []}]
)
def test_issuer_audience_and_algorithms_are_needed(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        authenticator(**wrong)


@pytest.mark.parametrize(
    "url",
    ["http://issuer.example/jwks", "ftp://issuer.example/jwks", "jwks.json", "", "https://",
     "http://localhost.evil.example/", "https://user:pw@issuer.example/"],
)  # fmt: skip
def test_keys_come_over_a_safe_line_only(url: str) -> None:
    with pytest.raises(ConfigurationError, match="jwks is"):
        JwtAuthenticator(url, issuer=ISSUER, audience=AUDIENCE)


def test_a_set_that_is_none_is_told_at_once() -> None:
    sets: list[dict[str, Any]] = [{}, {"keys": "x"}, {"keys": []}, {"keys": [{}] * 101}]
    for wrong in sets:
        with pytest.raises(ConfigurationError, match="JWKS"):
            JwtAuthenticator(wrong, issuer=ISSUER, audience=AUDIENCE)


def test_a_token_that_ran_out_is_known_later() -> None:
    def who(**claims: Any) -> Principal:
        return Principal(user_id="ada", claims=claims)

    assert has_expired(who(exp=NOW), CLOCK)
    assert not has_expired(who(exp=NOW + 1), CLOCK)
    assert not has_expired(who(), CLOCK)
    assert not has_expired(who(exp="never"), CLOCK)
